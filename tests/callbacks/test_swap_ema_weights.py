"""Tests of ``exburn.callbacks.swap_ema_weights``."""

import numpy as np
import pytest

import exburn
from exburn.callbacks import Every, LambdaCallback, SwapEMAWeights
from exburn.errors import CallbackError

X = np.arange(12, dtype="float32").reshape(6, 2) / 12
Y = X.sum(1, keepdims=True)


def make(**options):
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
    model.compile(exburn.optimizers.SGD(0.1, **options), "mse", seed=0)
    return model


def fit(*callbacks):
    model = make(use_ema=True, ema_momentum=0.5)
    model.fit(X, Y, epochs=3, validation_data=(X, Y), verbose=0, callbacks=callbacks)
    return model


def test_callbacks_behind_it_see_the_average_until_the_next_epoch():
    seen = {"begin": [], "end": []}

    def look(when):
        return lambda *_: seen[when].append(look.model().get_weights()[0].copy())

    swap = SwapEMAWeights(swap_on_epoch=True)
    looking = LambdaCallback(on_epoch_begin=look("begin"), on_epoch_end=look("end"))
    look.model = lambda: looking.model
    swapped = fit(swap, looking)
    plain = {"end": []}
    without = LambdaCallback(
        on_epoch_end=lambda *_: plain["end"].append(
            without.model.get_weights()[0].copy()
        )
    )
    again = fit(without)
    for average, trained in zip(seen["end"][1:], plain["end"][1:], strict=True):
        assert np.abs(average - trained).max() > 1e-6
    for began, trained in zip(seen["begin"][1:], plain["end"], strict=False):
        np.testing.assert_array_equal(began, trained)
    # Looking changes nothing, and both end with the average.
    np.testing.assert_array_equal(swapped.get_weights()[0], again.get_weights()[0])


def test_it_needs_an_average():
    with pytest.raises(CallbackError, match="use_ema"):
        make().fit(X, Y, verbose=0, callbacks=[SwapEMAWeights()])


@pytest.mark.parametrize("every", [2, Every(epochs=1, after=1, before=2)])
def test_it_looks_at_the_average_in_some_epochs_alone(every):
    def ends(swap):
        seen = []
        look = LambdaCallback(
            on_epoch_end=lambda *_: seen.append(look.model.get_weights()[0].copy())
        )
        model = make(use_ema=True, ema_momentum=0.5)
        options = {"epochs": 3, "validation_data": (X, Y), "verbose": 0}
        history = model.fit(X, Y, callbacks=[*swap, look], **options)
        return seen, history.history["val_loss"]

    trained, plain = ends([])
    averages, looked = ends([SwapEMAWeights(swap_on_epoch=True)])
    some, losses = ends([SwapEMAWeights(swap_on_epoch=True, every=every)])
    expected = [trained[0], averages[1], trained[2]]
    for found, wanted in zip(some, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert losses == [plain[0], looked[1], plain[2]]
    assert looked[2] != plain[2]


def test_it_counts_epochs():
    with pytest.raises(CallbackError, match="epochs"):
        SwapEMAWeights(every=Every(steps=3))
