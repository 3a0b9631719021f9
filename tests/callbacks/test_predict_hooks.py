"""What the hooks of ``predict`` are called with."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.callbacks import Callback

X = np.random.default_rng(0).standard_normal((10, 3)).astype("float32")


class Watch(Callback):
    def __init__(self):
        self.seen = []

    def on_predict_batch_end(self, batch, logs=None):
        self.seen.append((batch, logs["outputs"]))


@pytest.fixture
def model():
    inputs = exburn.Input((3,))
    outputs = {
        "one": layers.Dense(2)(inputs),
        "two": layers.Dense(1, activation="relu")(inputs),
    }
    return exburn.Model(inputs, outputs)


@pytest.mark.parametrize("source", ["arrays", "generator"])
def test_after_a_batch_its_outputs(model, source):
    """As in Keras: the rows of this batch, without what fills up the last one."""
    watch = Watch()
    batches = (X[i : i + 4] for i in range(0, 10, 4))
    given = {"x": X, "batch_size": 4} if source == "arrays" else {"x": batches}
    whole = model.predict(**given, callbacks=[watch], verbose=0)
    assert [batch for batch, _ in watch.seen] == [0, 1, 2]
    for name in ("one", "two"):
        parts = [made[name] for _, made in watch.seen]
        assert [len(part) for part in parts] == [4, 4, 2]
        np.testing.assert_array_equal(np.concatenate(parts), whole[name])


def test_several_batches_a_call(model):
    watch = Watch()
    watch.every = 2
    whole = model.predict(X, batch_size=4, callbacks=[watch], verbose=0)
    ((batch, made),) = watch.seen
    assert batch == 1
    np.testing.assert_array_equal(made["one"], whole["one"][:8])
