"""Lanes beside the same models alone, and what a sweep refuses."""

import numpy as np
import pytest
from tests.tuning.models import X, Y, make_model

import exburn
from exburn.errors import ArgumentError, NotCompiledError, SaveError, UnknownNameError
from exburn.optimizers import SGD, schedules
from exburn.tuning import Halving, SweepCallback, random, sweep

FIT = {"epochs": 2, "batch_size": 8, "verbose": 0}


def equals_its_own_fit(result, number, model, x=X, y=Y, **fit):
    """A lane's curves and model are those of the model trained alone."""
    record, wanted = result.records[number], model.fit(x, y, **FIT, **fit).history
    assert list(record.history) == list(wanted)
    for name, values in wanted.items():
        np.testing.assert_allclose(record.history[name], values, rtol=1e-5)
    built = result._build(number)
    for one, two in zip(built.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)
    return built


def test_each_lane_is_what_the_model_alone_would_be_with_its_values():
    model = make_model(seed=9)
    before = model.get_weights()
    over = {"seed": [0, 1], "learning_rate": [0.01, 0.003], "drop/rate": [0.1, 0.5]}
    result = sweep(model, X, Y, over=over, validation_split=0.25, **FIT)
    assert [r.trial["seed"] for r in result.records] == [0] * 4 + [1] * 4
    for number in (0, 3, 6):
        trial = result.records[number].trial
        alone = make_model(trial["seed"], trial["drop/rate"])
        alone.optimizer.learning_rate = trial["learning_rate"]
        built = equals_its_own_fit(result, number, alone, validation_split=0.25)
        # It goes on as the other would.
        assert built.get_layer("drop").rate == trial["drop/rate"]
        more = [m.fit(X, Y, **FIT).history["loss"] for m in (built, alone)]
        np.testing.assert_allclose(*more, rtol=1e-5)
    for one, two in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)


def test_lanes_accumulate_weigh_and_follow_schedules_as_fit_does():
    def make(seed, momentum=0.5):
        rate = schedules.CosineDecay(0.1, 10)
        steps = {"gradient_accumulation_steps": 2}
        optimizer = SGD(rate, momentum, ema_momentum=0.5, use_ema=True, **steps)
        return make_model(seed, optimizer=optimizer, warmup=0.5)

    fit = {"class_weight": {0: 1.0, 1: 2.0, 2: 0.5}}
    over = {"seed": [3, 4], "momentum": [0.0, 0.9]}
    result = sweep(make(9), X, Y, over=over, **FIT, **fit)
    for number in (2, 3):
        momentum = result.records[number].trial["momentum"]
        equals_its_own_fit(result, number, make(4, momentum), **fit)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_masked_steps_weighted_rows_and_half_precision(policy):
    ids = np.random.default_rng(0).integers(0, 9, (26, 5))
    labels, weights = ids[:, 0] % 2, np.linspace(0.5, 1.5, 26).astype("float32")

    def make(seed):
        layers = exburn.layers
        stack = [
            layers.Embedding(9, 4, mask_zero=True, dtype=policy),
            layers.LSTM(3, dtype=policy),
            layers.Dense(2),
        ]
        model = exburn.Sequential([exburn.Input((5,), dtype="int32"), *stack])
        metrics = ["accuracy"]
        model.compile("adam", "cross_entropy", weighted_metrics=metrics, seed=seed)
        return model

    fit = {"sample_weight": weights}
    result = sweep(make(9), ids, labels, over={"seed": [3, 4]}, **FIT, **fit)
    equals_its_own_fit(result, 0, make(3), ids, labels, **fit)


def test_folds_are_the_rows_of_the_split():
    from sklearn.model_selection import StratifiedKFold

    split = StratifiedKFold(3, shuffle=True, random_state=0)
    over = {"learning_rate": [0.01, 0.003]}
    result = sweep(make_model(), X, Y, over=over, folds=3, **FIT)
    assert [r.fold for r in result.records] == [0, 1, 2] * 2
    train, held_out = list(split.split(X, Y))[1]
    alone, rows = make_model(), (X[held_out], Y[held_out])
    alone.optimizer.learning_rate = 0.003
    equals_its_own_fit(result, 4, alone, X[train], Y[train], validation_data=rows)


def test_what_no_array_stands_for_is_trained_in_turn_and_said(capsys):
    over = {"hidden/activation": ["relu", "tanh"], "optimizer": ["sgd", "adam"]}
    result = sweep(make_model(), X, Y, over=over, **FIT | {"verbose": 1, "epochs": 1})
    assert result._build(2).get_layer("hidden").activation.__name__ == "tanh"
    assert type(result._build(1).optimizer).__name__ == "Adam"
    assert "4 programs run one after the other" in capsys.readouterr().out
    assert "hidden/activation: a program for each value" in str(result)


@pytest.mark.parametrize(
    ("error", "says", "options"),
    [
        (UnknownNameError, "'learning_rate'", {"over": {"learning_rat": [1.0]}}),
        (UnknownNameError, "'val_accuracy'", {"monitor": "val_acc"}),
        (UnknownNameError, "unknown monitor", {"monitor": "f1"}),
        (ArgumentError, "at least one path", {"over": {}}),
        (ArgumentError, "at least one value", {"over": {"seed": []}}),
        (ArgumentError, "drop|rate", {"over": {"drop/rate": [0.1, 7.0]}}),
        (ArgumentError, "epochs", {"epochs": 0}),
        (ArgumentError, "order", {"order": "mine"}),
        (ArgumentError, "lanes", {"lanes": 0}),
        (ArgumentError, "folds hold out", {"folds": 3, "validation_split": 0.5}),
        (ArgumentError, "halving= or", {"halving": Halving(), "scheduler": Halving()}),
        (
            ArgumentError,
            "SweepCallback",
            {"callbacks": exburn.callbacks.CSVLogger("a")},
        ),
    ],
)
def test_what_can_never_work_is_refused_before_anything_is_compiled(
    error, says, options
):
    model = make_model()
    given = {"over": {"seed": [1]}, "validation_split": 0.25, **options}
    with pytest.raises(error, match=says):
        sweep(model, X, Y, **given)
    assert not model._training_session.preparer.program_cache.trace_counts


def test_a_validation_that_is_not_there_cannot_be_monitored():
    with pytest.raises(UnknownNameError, match="validation_split"):
        sweep(make_model(), X, Y, over={"seed": [1]}, monitor="val_loss")


def test_a_model_must_be_compiled():
    model = exburn.Sequential([exburn.Input((5,)), exburn.layers.Dense(3)])
    with pytest.raises(NotCompiledError):
        sweep(model, X, Y, over={"seed": [1]})


def test_a_sampler_is_asked_in_rounds_and_told_what_they_reached():
    class Sampler:
        told = []

        def ask(self, space, n):
            return [{"learning_rate": 0.01}] * n if len(self.told) < 4 else []

        def tell(self, records):
            self.told += [record.score for record in records]

    class Stop(SweepCallback):
        def on_epoch_end(self, epoch):
            self.run.stop()

    sampler = Sampler()
    over = {"learning_rate": exburn.uniform(0.0, 1.0)}
    options = {"sampler": sampler, "lanes": 2, "callbacks": Stop()}
    result = sweep(make_model(), X, Y, over=over, **FIT, **options)
    assert sampler.told == [record.score for record in result.records]
    assert [record.status for record in result.records] == ["stopped"] * 4
    drawn = sweep(make_model(), X, Y, over=over, sampler=random(2), **FIT)
    assert len(drawn.records) == 2


def test_folds_keep_groups_together():
    from sklearn.model_selection import GroupKFold

    groups = np.arange(len(X)) // 4
    fit = {"folds": GroupKFold(3), "groups": groups} | FIT
    result = sweep(make_model(), X, Y, over={"seed": [1]}, **fit)
    train, held_out = list(GroupKFold(3).split(X, Y, groups))[1]
    rows = (X[held_out], Y[held_out])
    alone = make_model(1)
    equals_its_own_fit(result, 1, alone, X[train], Y[train], validation_data=rows)


@pytest.mark.parametrize("folder", ["/proc/x", "/dev/null/x"])
def test_a_folder_that_cannot_be_written_is_told_before_training(folder):
    model = make_model()
    with pytest.raises(SaveError, match=folder):
        sweep(model, X, Y, over={"seed": [1]}, checkpoint=folder, **FIT)
