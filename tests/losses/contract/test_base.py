"""Tests of ``exburn.losses.contract.base``."""

import inspect

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tests.losses.arrays import LOGITS, ONE_HOT, PROBS
from tests.losses.padded_rows import check_padded_rows_are_absent

from exburn import losses
from exburn.errors import ArgumentError, UnknownNameError
from exburn.losses.contract.base import with_default

EVERY = [
    (losses.FunctionLoss(lambda t, p: jnp.abs(t - p), name="l1"), PROBS, LOGITS),
]

NAMES = [f"{loss.name}-{i}" for i, (loss, *_) in enumerate(EVERY)]


def scaled_error(y_true, y_pred, scale=1.0):
    return scale * jnp.mean(jnp.abs(y_true - y_pred), axis=-1)


class Quartic(losses.Loss):
    def __init__(self, scale=1.0, name="quartic", **kwargs):
        super().__init__(name=name, **kwargs)
        self.scale = scale

    def call(self, y_true, y_pred):
        assert y_true.dtype == y_pred.dtype == jnp.float32  # as Keras hands them over
        return self.scale * jnp.mean((y_true - y_pred) ** 4, axis=-1)

    def get_config(self):
        return {"scale": self.scale, **super().get_config()}


@pytest.mark.parametrize(("loss", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_padded_rows_are_absent(loss, y_true, y_pred):
    check_padded_rows_are_absent(loss, y_true, y_pred)


BAD_ARGUMENTS = [
    lambda: losses.FunctionLoss("mse"),
]


def test_function_losses_do_not_broadcast_vectors():
    loss = losses.FunctionLoss(scaled_error)
    assert loss(np.zeros(3), np.ones((3, 1))) == 1


def test_functions_with_predictions_first():
    np.testing.assert_allclose(
        losses.FunctionLoss(optax.losses.softmax_cross_entropy)(ONE_HOT, LOGITS),
        losses.CategoricalCrossentropy(from_logits=True)(ONE_HOT, LOGITS),
        rtol=1e-6,
    )


def test_function_loss_round_trip():
    loss = losses.FunctionLoss(scaled_error, reduction="sum", scale=3.0)
    config = losses.serialize(loss)
    again = losses.deserialize(config, {"scaled_error": scaled_error})
    np.testing.assert_allclose(again(PROBS, LOGITS), loss(PROBS, LOGITS))
    with pytest.raises(UnknownNameError):
        losses.deserialize(config)
    with pytest.raises(ArgumentError, match="without a name"):
        losses.serialize(lambda t, p: p)


def test_subclasses():
    loss = Quartic(scale=2.0)
    y_true = np.array([0, 1, 1, 0])
    expected = np.mean(2 * (y_true - LOGITS[:, 0]) ** 4)
    np.testing.assert_allclose(loss(y_true, LOGITS[:, :1]), expected, rtol=1e-5)
    again = losses.deserialize(losses.serialize(loss), {"Quartic": Quartic})
    assert again.scale == 2.0
    with pytest.raises(NotImplementedError, match="call"):
        losses.Loss()(PROBS, LOGITS)


def test_nested_outputs_reach_custom_losses():
    class Pair(losses.Loss):
        def call(self, y_true, y_pred):
            return jnp.abs(y_true["a"] - y_pred["b"][0])

    value = Pair()({"a": np.zeros(2)}, {"b": [jnp.ones(2), jnp.ones(5)]})
    assert value == 1


def test_another_default_is_seen_by_callers_and_in_the_signature():
    power = 3

    def scaled(x, factor=2):
        """Closes over a name."""
        return factor * x**power

    other = with_default(scaled, "factor", 10)
    assert (other(1), scaled(1)) == (10, 2)
    assert inspect.signature(other).parameters["factor"].default == 10
    assert other.__doc__ == scaled.__doc__ and other.__name__ == "scaled"


def test_defaults_by_name_stay_or_are_the_other():
    def scaled(x, factor=2, *, shift=1, power=1):
        return factor * x**power + shift

    assert with_default(scaled, "factor", 10)(1) == 11
    assert with_default(scaled, "shift", 5)(1) == 7
