"""What losses promise beyond their values, as functions of a case."""

import jax
import numpy as np

from exburn import losses
from exburn.losses.catalogue import as_loss


def check_padded_rows_are_absent(loss, y_true, y_pred):
    """Non-finite padding changes neither the value nor any gradient."""
    rows = np.array([True] * 4 + [False] * 2)
    junk = np.full((2, *y_pred.shape[1:]), np.nan)
    junk[1] = np.inf
    padded = np.concatenate([y_pred, junk.astype("float32")])
    targets = np.concatenate([y_true, np.zeros((2, *y_true.shape[1:]), y_true.dtype)])

    @jax.jit
    def both(y_pred, padded):
        plain = jax.value_and_grad(lambda p: loss(y_true, p))(y_pred)
        masked = jax.value_and_grad(lambda p: loss(targets, p, row_mask=rows))(padded)
        return plain, masked

    (value, slope), (padded_value, padded_slope) = both(y_pred, padded)
    np.testing.assert_allclose(padded_value, value, rtol=1e-6)
    np.testing.assert_allclose(padded_slope[:4], slope, rtol=1e-5, atol=1e-7)
    assert not np.asarray(padded_slope[4:]).any()


def check_config_round_trip(loss, y_true, y_pred):
    loss = type(loss).from_config(
        {**loss.get_config(), "name": "mine", "reduction": "sum", "dtype": "float32"}
    )
    again = losses.deserialize(losses.serialize(loss))
    assert type(again) is type(loss)
    assert again.get_config() == loss.get_config()
    assert (again.name, again.reduction, again.dtype) == ("mine", "sum", "float32")
    assert as_loss(losses.serialize(loss)).get_config() == loss.get_config()
