"""Which feed data get: resident, gathered or streamed."""

import numpy as np
import pytest
from tests.training.batches import Batches, X, Y

import exburn as keras
from exburn.training import memory

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


@pytest.mark.long
def test_streamed_and_resident_training_give_the_same_weights():
    weights = []
    for resident in (True, False):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("adam", loss="cross_entropy", seed=3, steps_per_execution=5)
        model.fit(X, Y, batch_size=16, epochs=3, resident=resident, verbose=0)
        weights.append(model.get_weights())
    for one, two in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.long
def test_the_plan_says_where_the_data_are(model, monkeypatch):
    model.fit(X, Y, validation_data=(X, Y), resident=True, verbose=0)
    places = [d for d in model.explain_plan() if "data" in d.choice]
    assert [d.reason for d in places] == ["resident=True was given"] * 2
    assert [d.taken for d in places] == ["on the device"] * 2
    model.fit(Batches(), verbose=0)
    assert model.explain_plan()[0].switch == "arrays instead of a loader"

    def planned(**options):
        held = (X[:50], Y[:50])
        model.fit(X, Y, epochs=2, verbose=0, validation_data=held, **options)
        rows = [d for d in model.explain_plan() if "data" in d.choice]
        return [(row.choice, row.taken, row.reason) for row in rows]

    assert [taken for _, taken, _ in planned()] == ["on the device"] * 2
    forced = planned(resident=False)
    assert [row[1:] for row in forced] == [
        ("streamed by threads", "resident=False was given")
    ] * 2
    monkeypatch.setattr(memory, "free_bytes", lambda: 4 * 3000)
    places = planned()
    assert [taken for _, taken, _ in places] == [
        "streamed by threads",
        "on the device",
    ]
    assert "do not fit into a quarter" in places[0][2]
