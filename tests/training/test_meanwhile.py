"""What hooks do to the model while it trains, and what single batches compile."""

import threading

import jax
import numpy as np
import pytest

import exburn as keras
from exburn import layers
from exburn.callbacks import LambdaCallback
from exburn.errors import BusyError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((96, 4)).astype("float32")
Y = RNG.integers(0, 3, 96)


def classifier(**options):
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(8, activation="relu"), layers.Dense(3)]
    )
    model.compile("adam", "cross_entropy", metrics=["accuracy"], seed=1, **options)
    return model


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.compile("sgd", "mse"),
        lambda model: model.add(layers.Dense(2)),
        lambda model: model.pop(),
        lambda model: model.to_device("cpu"),
    ],
    ids=["compile", "add", "pop", "to_device"],
)
def test_what_would_change_the_model_in_a_hook_is_refused(change):
    model, refused = classifier(), []

    def attempt(*_):
        with pytest.raises(BusyError) as caught:
            change(model)
        refused.append(caught.value)

    callbacks = [LambdaCallback(on_epoch_end=attempt)]
    model.fit(X, Y, epochs=2, callbacks=callbacks, verbose=0)
    assert len(refused) == 2 and len(model.layers) == 2
    change(model)  # now it may


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "lion", "adafactor"])
def test_strict_promotion_of_dtypes(optimizer):
    with jax.numpy_dtype_promotion("strict"):
        model = classifier()
        model.compile(optimizer, "mse", metrics=["mae"])
        targets = np.eye(3, dtype="int32")[Y]
        model.fit(X, targets, validation_data=(X, targets), verbose=0)
        model.train_on_batch(X, targets)
        assert model.predict(X, verbose=0).shape == (96, 3)


@pytest.mark.parametrize("way", ["set_weights", "load_weights"])
def test_weights_from_another_thread_are_refused_and_in_a_hook_taken(way, tmp_path):
    model, path = classifier(), tmp_path / "w.weights.h5"
    given = [np.full(w.shape, 0.25, "float32") for w in model.get_weights()]
    other = classifier()
    other.set_weights(given)
    other.save_weights(path)
    raised = []

    def write():
        if way == "set_weights":
            model.set_weights(given)
        else:
            model.load_weights(path)

    def attempt():
        try:
            write()
        except BusyError as error:
            raised.append(str(error))

    def from_a_thread(epoch, _):
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()

    model.fit(X, Y, callbacks=[LambdaCallback(on_epoch_end=from_a_thread)], verbose=0)
    assert len(raised) == 1 and way in raised[0]
    callbacks = [LambdaCallback(on_train_end=lambda logs: write())]
    model.fit(X, Y, callbacks=callbacks, verbose=0)
    for found in model.get_weights():
        assert (found == 0.25).all()
