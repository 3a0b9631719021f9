"""Data of a run are given up when it ends, not when Python looks for garbage."""

import gc
import weakref

import jax
import numpy as np
import pytest

import exburn as keras
from exburn import layers
from exburn.callbacks import LambdaCallback

X, Y = np.ones((64, 4), "float32"), np.zeros(64, "int32")


class Loader:
    def __iter__(self):
        return iter([(X[:16], Y[:16])] * 4)


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def classifier():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    model.compile("adam", "cross_entropy")
    return model


def fail(*_):
    raise ValueError("told to")


@pytest.mark.parametrize(
    "use",
    [
        lambda model, data: model.fit(data, epochs=2, verbose=0),
        lambda model, data: model.fit(X, Y, validation_data=data, epochs=2, verbose=0),
        lambda model, data: model.evaluate(data, verbose=0),
        lambda model, data: model.predict(data, verbose=0),
        lambda model, data: model.fit(
            data, verbose=0, callbacks=[LambdaCallback(on_epoch_end=fail)]
        ),
    ],
    ids=["fit", "validation", "evaluate", "predict", "failing"],
)
def test_loaders(no_collector, use):
    model, data = classifier(), Loader()
    seen = weakref.ref(data)
    try:
        use(model, data)
    except ValueError:
        pass
    del data
    assert seen() is None


@pytest.mark.parametrize("resident", [True, False])
def test_arrays(no_collector, resident):
    model = classifier()
    model.fit(X, Y, verbose=0)
    before = sum(array.nbytes for array in jax.live_arrays())
    x, y = np.ones((100_000, 4), "float32"), np.zeros(100_000, "int32")
    seen = weakref.ref(x)
    model.fit(x, y, batch_size=4096, epochs=2, resident=resident, verbose=0)
    del x, y
    assert seen() is None
    assert sum(array.nbytes for array in jax.live_arrays()) - before < 10_000
