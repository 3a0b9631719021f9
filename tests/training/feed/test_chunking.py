"""Which feed data get: resident, gathered or streamed."""

import numpy as np
import pytest
from tests.distribution.devices import on_devices
from tests.training.batches import Batches, X, Y

import exburn as keras
from exburn.runtime.transfer import release_spare
from exburn.training import memory, program_cache
from exburn.training.feed import chunking

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


def test_streamed_and_resident_training_give_the_same_weights():
    weights = []
    for resident in (True, False):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("adam", loss="cross_entropy", seed=3, steps_per_execution=5)
        model.fit(X, Y, batch_size=16, epochs=3, resident=resident, verbose=0)
        weights.append(model.get_weights())
    for one, two in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, two)


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
    monkeypatch.setattr(memory, "free_bytes", lambda devices: 4 * 3000)
    # Those that are there need no room.
    assert [taken for _, taken, _ in planned()] == ["on the device"] * 2
    release_spare()
    places = planned()
    assert [taken for _, taken, _ in places] == [
        "streamed by threads",
        "on the device",
    ]
    assert "do not fit into a quarter" in places[0][2]


@on_devices
def test_several_devices_are_planned_for_by_what_each_of_them_does():
    x, y = np.ones((64, 8), np.float32), np.ones((64, 1), np.float32)

    def planned(**options):
        asked = []
        with pytest.MonkeyPatch.context() as patch:

            def steps(cost, platform, batch_bytes, *rest):
                asked.append((cost.flops, batch_bytes))
                return 2

            def told(cost, platform, training, devices, *rest):
                asked.append((cost.flops, devices))

            def fits(nbytes, devices):
                asked.append(len(devices))
                return True

            patch.setattr(chunking, "chunk_steps", steps)
            patch.setattr(program_cache, "compiler_options", told)
            patch.setattr(memory, "fits_device", fits)
            model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse", **options)
            model.fit(x, y, batch_size=32, epochs=2, verbose=0)
        return asked, {d.choice: d.reason for d in model.explain_plan()}

    flops, size = 2 * 32 * 8, 32 * 9 * 4
    asked, said = planned()
    assert {0, (flops, size), (flops, 1)} <= {*asked}
    assert "on each device" not in said["steps per call"]
    asked, said = planned(mesh="data")
    assert {8, (flops / 8, size // 8), (flops / 8, 8)} <= {*asked}
    assert "on each device" in said["steps per call"]
    asked, _ = planned(mesh={"data": 2, "model": 4}, layout={".*kernel": ("model",)})
    assert {8, (flops / 2, size // 2), (flops / 2, 8)} <= {*asked}
