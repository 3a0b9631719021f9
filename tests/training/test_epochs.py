"""The epochs of one fit: hooks after their steps, and where it stops."""

import numpy as np
import pytest

import exburn as keras
from exburn import layers
from exburn.callbacks import Callback, LambdaCallback

RNG = np.random.default_rng(0)
X = RNG.standard_normal((96, 4)).astype("float32")
Y = RNG.integers(0, 3, 96)


def classifier(**options):
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(8, activation="relu"), layers.Dense(3)]
    )
    model.compile("adam", "cross_entropy", metrics=["accuracy"], seed=1, **options)
    return model


@pytest.mark.parametrize("hook", ["on_train_begin", "on_epoch_begin"])
def test_a_stop_before_the_first_batch_stops_after_the_first_chunk(hook):
    model = classifier(steps_per_execution=2)

    def stop(*_):
        model.stop_training = True

    callbacks = [LambdaCallback(**{hook: stop})]
    history = model.fit(X, Y, batch_size=8, epochs=3, callbacks=callbacks, verbose=0)
    assert history.epoch == [0]
    assert int(model.optimizer.iterations) == 2


def test_batch_hooks_run_after_every_step_in_order(blobs, classifier):
    x, y = blobs
    seen = []

    class Watch(Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append((batch, logs["loss"]))

    model = classifier()
    model.fit(x, y, epochs=2, callbacks=[Watch()], verbose=0)
    assert [b for b, _ in seen] == list(range(7)) * 2
    assert len({loss for _, loss in seen}) == 14


def test_every_n_steps(blobs, classifier):
    x, y = blobs
    seen = []

    class Watch(Callback):
        every = 3

        def on_train_batch_end(self, batch, logs=None):
            seen.append(batch)

    classifier().fit(x, y, epochs=1, callbacks=[Watch()], verbose=0)
    assert seen == [2, 5]
