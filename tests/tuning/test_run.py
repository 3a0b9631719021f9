"""The loop of a sweep: lanes that end, freeze, and go on closer together."""

import math

import numpy as np
import pytest
from tests.tuning.models import X, Y, make_model

from exburn.tuning import PBT, Halving, SweepCallback, sweep
from exburn.tuning.width_choice import WidthChoice

FIT = {"batch_size": 8, "validation_split": 0.25, "verbose": 0}


class Hooks(SweepCallback):
    def __init__(self):
        self.seen = []

    def on_sweep_begin(self):
        self.seen.append("begin")

    def on_epoch_end(self, epoch):
        running = [r for r in self.run.records if r.status == "running"]
        self.seen.append((epoch, len(running), self.run.best().epochs))

    def on_rung_end(self, epochs, stopped):
        self.seen.append((epochs, len(stopped)))

    def on_sweep_end(self):
        self.seen.append("end")


def test_halving_chooses_what_sequential_halving_chooses():
    rates, hooks = [1.0, 0.1, 0.01, 0.001], Hooks()
    over, options = {"learning_rate": rates}, {"callbacks": hooks, **FIT}
    result = sweep(
        make_model(), X, Y, over=over, epochs=4, halving=Halving(eta=2), **options
    )
    scores = {}
    for rate in rates:  # all of them alone, to the end
        model = make_model()
        model.optimizer.learning_rate = rate
        fit = model.fit(X, Y, epochs=4, **FIT)
        scores[rate] = fit.history["val_loss"]
    left = rates
    for epochs, keep in ((1, 2), (2, 1)):
        left = sorted(left, key=lambda rate, e=epochs: scores[rate][e - 1])[:keep]
    finished = [r for r in result.records if r.status == "finished"]
    assert [r.trial["learning_rate"] for r in finished] == left
    assert sorted(r.epochs for r in result.records) == [1, 1, 2, 4]
    wanted = scores[left[0]]
    np.testing.assert_allclose(finished[0].history["val_loss"], wanted, rtol=1e-5)
    assert hooks.seen[0] == "begin" and hooks.seen[-1] == "end"
    assert [seen for seen in hooks.seen if len(seen) == 2] == [(1, 2), (2, 1)]


def test_a_lane_that_turns_nan_is_frozen_and_leaves_the_others_bits():
    # The loss of a lane is infinite after a step that is far too long.
    x, options = X, {"epochs": 3, **FIT}
    lanes = [0.01, 1e38, 0.002]
    with_it = sweep(make_plain(), x, Y, over={"learning_rate": lanes}, **options)
    bad = with_it.records[1]
    assert bad.status == "nan" and math.isnan(bad.score) and bad.epochs == 1
    assert [r.status for r in with_it.records] == ["finished", "nan", "finished"]
    assert all(np.isfinite(w).all() for w in with_it._build(1).get_weights())
    assert with_it.order()[-1] == 1
    without = sweep(make_plain(), x, Y, over={"learning_rate": lanes[::2]}, **options)
    for at, other in ((0, 0), (2, 1)):
        assert with_it.records[at].history == without.records[other].history
        pairs = (r._build(i) for r, i in ((with_it, at), (without, other)))
        for one, two in zip(*(m.get_weights() for m in pairs), strict=True):
            np.testing.assert_array_equal(one, two)


def make_plain():
    import exburn

    model = exburn.Sequential([exburn.Input((5,)), exburn.layers.Dense(3)])
    model.compile("sgd", "cross_entropy", seed=1)
    return model


def test_groups_of_lanes_are_as_all_of_them_together():
    over, options = {"seed": range(5)}, {"epochs": 2, **FIT}
    together = sweep(make_plain(), X, Y, over=over, **options)
    for lanes in (1, 2):
        apart = sweep(make_plain(), X, Y, over=over, lanes=lanes, **options)
        for one, two in zip(together.records, apart.records, strict=True):
            for name, values in one.history.items():
                np.testing.assert_allclose(two.history[name], values, rtol=1e-5)
    model = apart._build(4)
    assert model.history.history == apart.records[4].history
    assert model.history.epoch == [0, 1]


def test_the_worst_lane_goes_on_from_the_best_with_values_near_its():
    over = {"learning_rate": [0.1, 0.0]}
    options = {"epochs": 2, "scheduler": PBT(fraction=0.5, resample=0.0), **FIT}
    result = sweep(make_plain(), X, Y, over=over, **options)
    best, worst = result.records
    assert best.trial == {"learning_rate": 0.1}
    assert worst.history["loss"][0] > best.history["loss"][0]
    assert worst.trial == {"learning_rate": 0.0}  # one step along the list
    assert worst.history["val_loss"][1] == best.history["val_loss"][0]
    assert result._build(1).optimizer.learning_rate == 0.0


def assert_equal_lanes(one, two):
    for a, b in zip(one.records, two.records, strict=True):
        assert (a.status, a.history) == (b.status, b.history)
    for i in range(len(one.records)):
        pairs = one._build(i).get_weights(), two._build(i).get_weights()
        for a, b in zip(*pairs, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_what_ends_a_sweep_hands_over_what_its_lanes_have_come_to(error):
    class Ends(SweepCallback):
        def on_epoch_end(self, epoch):
            if epoch == 1:
                raise error("now")

    over = {"learning_rate": [0.1, 0.01]}
    with pytest.raises(error, match="now") as caught:
        sweep(make_plain(), X, Y, over=over, epochs=9, callbacks=[Ends()], **FIT)
    assert "`result`" in caught.value.__notes__[0]
    found = caught.value.result
    assert [r.status for r in found.records] == ["stopped", "stopped"]
    whole = sweep(make_plain(), X, Y, over=over, epochs=2, **FIT)
    for record in whole.records:
        record.status = "stopped"
    assert_equal_lanes(found, whole)


def test_groups_that_wait_in_host_memory_change_nothing(monkeypatch):
    class Looks(SweepCallback):
        def on_epoch_end(self, epoch):
            kinds.update(type(group.state.step) for group in self.run.groups)
            notes.update(self.run.notes)

    kinds, notes = set(), set()
    over = {"seed": range(4), "learning_rate": [0.1, 0.01]}
    options = {"epochs": 4, "lanes": 3, "halving": Halving(eta=2, min_epochs=2), **FIT}
    usual = sweep(make_plain(), X, Y, over=over, **options)
    monkeypatch.setattr(WidthChoice, "must_park", lambda self, groups: len(groups) > 1)
    parked = sweep(make_plain(), X, Y, over=over, callbacks=[Looks()], **options)
    assert kinds == {np.ndarray}
    assert any("host memory" in note for note in notes)
    assert_equal_lanes(parked, usual)


def test_programs_of_the_rungs_are_compiled_ahead(monkeypatch):
    class Counts(SweepCallback):
        def on_rung_end(self, epochs, stopped):
            (variant,) = self.run.variants
            kinds = variant._programs.items()
            programs = next(found for lanes, found in kinds if lanes.own_rows)
            under_way.append(len(programs.train._begun))
            traced.append(variant.preparer.program_cache.trace_counts["train"])

    under_way, traced = [], []
    over, options = {"seed": range(8)}, {"epochs": 4, "lanes": 8, **FIT}
    sweep(
        make_plain(),
        *(X, Y),
        over=over,
        halving=Halving(eta=2),
        callbacks=[Counts()],
        **options,
    )
    # Lanes to epoch: 8 to 1, 4 to 2, 2 to 4. The last two programs are begun in the
    # first rung, and not traced again.
    assert under_way == [2, 1] and len(set(traced)) == 1
