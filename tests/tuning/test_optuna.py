"""A study of Optuna as sampler: what it is asked, and what it is told."""

import importlib.util

import pytest

from exburn.errors import ArgumentError, MissingDependencyError
from exburn.tuning.optuna import StudySampler, is_study
from exburn.tuning.records import LaneRecord
from exburn.tuning.space import Space, integers, log_uniform, uniform, when

NO_OPTUNA = importlib.util.find_spec("optuna") is None
needs_optuna = pytest.mark.skipif(NO_OPTUNA, reason="pip install 'exburn[optuna]'")
NAN = float("nan")
OVER = {
    "lr": log_uniform(1e-4, 1e-1),
    "units": integers(8, 64, log=True),
    "act": ["relu", "tanh"],
    "shape": [(1, 2), (3, 4)],
    "slope": when("act", "relu", uniform(0, 0.5)),
}


def study_of(**options):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=1, constant_liar=True)
    return optuna.create_study(sampler=sampler, **options)


@needs_optuna
def test_a_study_chooses_in_the_domains_and_under_the_conditions():
    space = Space.of(OVER, study_of(), mode="min")
    trials = space.ask(40)
    assert all(1e-4 <= t["lr"] <= 1e-1 and 8 <= t["units"] <= 64 for t in trials)
    assert all(("slope" in t) == (t["act"] == "relu") for t in trials)
    assert {t["shape"] for t in trials} == {(1, 2), (3, 4)}
    assert list(trials[0])[:4] == list(OVER)[:4]


@needs_optuna
def test_a_study_is_told_at_each_rung_how_its_trials_end():
    study = study_of(direction="maximize")
    space = Space.of({"lr": uniform(0, 1)}, StudySampler(study, trials=5), mode="max")
    lanes = [LaneRecord(trial, fold=k) for trial in space.ask(9) for k in range(2)]
    assert len(lanes) == 10 and space.ask(1) == []
    for i, lane in enumerate(lanes):
        lane.epochs, lane.score = 1, 0.1 * i
    space.tell(lanes)
    assert {t.state.name for t in study.trials} == {"RUNNING"}
    for lane in lanes[:2]:
        lane.status = "stopped"
    lanes[2].status, lanes[2].score = "nan", NAN
    lanes[3].status = "finished"
    for lane in lanes[4:6]:
        lane.status, lane.epochs, lane.score = "finished", 3, 0.9
    space.tell(lanes)
    states = [t.state.name for t in study.trials]
    assert states == ["PRUNED", "FAIL", "COMPLETE", "RUNNING", "RUNNING"]
    assert study.trials[0].value == pytest.approx(0.05)  # the mean of its folds
    assert study.trials[2].intermediate_values == {1: pytest.approx(0.45), 3: 0.9}
    assert study.best_value == 0.9
    # Another process goes on: it finds the trials of this one in the study.
    again = Space.of({"lr": uniform(0, 1)}, StudySampler(study, trials=5))
    for lane in lanes[6:]:
        lane.status = "finished"
    again.tell(lanes[6:])
    assert [t.state.name for t in study.trials[3:]] == ["COMPLETE"] * 2
    again.tell(lanes)  # what has ended is not told again


@needs_optuna
def test_equal_trials_are_told_one_by_one():
    study = study_of()
    space = Space.of({"a": [1]}, study)
    lanes = [LaneRecord(t, epochs=1, status="finished") for t in space.ask(2)]
    lanes[0].score, lanes[1].score = 0.25, 0.5
    space.tell(lanes)
    assert [t.value for t in study.trials] == [0.25, 0.5]


@needs_optuna
def test_a_study_that_cannot_be_a_sampler():
    with pytest.raises(ArgumentError, match="must minimize what is monitored"):
        Space.of({"a": [1]}, study_of(direction="maximize"), mode="min")
    with pytest.raises(ArgumentError, match="has 2 objectives"):
        StudySampler(study_of(directions=["minimize", "maximize"]))
    with pytest.raises(ArgumentError, match="trials must be an integer ≥ 1"):
        StudySampler(study_of(), trials=0)


def test_what_is_no_study():
    assert not is_study(3)
    with pytest.raises(ArgumentError, match="study must be what optuna.create_study"):
        StudySampler(3)


@pytest.mark.skipif(not NO_OPTUNA, reason="Optuna is installed")
def test_without_optuna_the_error_says_how_to_install_it():
    class Study:
        study_name, directions = "like one", ["minimize"]

        def ask(self): ...
        def tell(self): ...
        def get_trials(self): ...

    with pytest.raises(MissingDependencyError, match=r"pip install 'exburn\[optuna\]'"):
        StudySampler(Study()).tell([])
