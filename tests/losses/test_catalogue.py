"""Tests of ``exburn.losses.catalogue``."""

import inspect

import jax.numpy as jnp
import pytest
from tests.golden import keras
from tests.losses.arrays import LOGITS, PROBS, spec
from tests.losses.reference import PROBS as PROBS_REFERENCE
from tests.losses.reference import PROBS_TRUE, close

import exburn as keras_api
from exburn import losses
from exburn.errors import (
    ArgumentError,
    DTypeError,
    ShapeError,
    UnknownNameError,
    places_of,
)
from exburn.losses.catalogue import as_loss


def own_error(y_true, y_pred):
    return jnp.mean(jnp.abs(y_pred - y_true), axis=-1)


def scaled_error(y_true, y_pred, scale=1.0):
    return scale * jnp.mean(jnp.abs(y_true - y_pred), axis=-1)


def scalar_error(y_true, y_pred):
    return jnp.mean(jnp.abs(y_true - y_pred))


#: Parameters that Keras' next release has between the others.
OF_NEXT_RELEASE = {"label_smoothing"}


def test_every_name_of_keras():
    for name in dir(keras.losses):
        if name.startswith("_") or name in ("KLD", "kld"):
            continue
        theirs, ours = getattr(keras.losses, name), getattr(losses, name)
        names = list(inspect.signature(theirs).parameters)
        new = OF_NEXT_RELEASE - set(names) if "sparse" in name.lower() else set()
        has = [n for n in inspect.signature(ours).parameters if n not in new]
        assert has[: len(names)] == names, name
        if inspect.isclass(theirs) and name != "Loss":
            assert type(as_loss(name)) is ours
            defaults = {k: v for k, v in vars(ours()).items() if k in names}
            expected = inspect.signature(theirs).parameters
            assert defaults == {k: expected[k].default for k in defaults}, name
        elif not inspect.isclass(theirs) and name not in ("get", "serialize"):
            if name != "deserialize":
                assert as_loss(name).formula is ours
                assert type(as_loss(ours)) is type(as_loss(name))
                assert losses.get(name) is losses.get(ours) is ours


def test_get_gives_what_keras_gives():
    for name in ("mse", "MSE", "kld", "bce", "huber", "MeanSquaredError", "Huber"):
        ours, theirs = losses.get(name), keras.losses.get(name)
        assert isinstance(ours, losses.Loss) == isinstance(theirs, keras.losses.Loss)
        assert getattr(ours, "__name__", "") == getattr(theirs, "__name__", "")
    assert losses.get(own_error) is own_error and losses.get(None) is None
    assert isinstance(losses.get(losses.Huber), losses.Huber)
    assert losses.get("cross_entropy") is losses.cross_entropy
    with keras_api.saving.custom_object_scope({"own_error": own_error}):
        assert losses.get("own_error") is own_error
    for wrong in ("mean_sqared_error", "Dense"):
        with pytest.raises(UnknownNameError, match=r"losses\.get"):
            losses.get(wrong)


def test_unknown_names():
    with pytest.raises(UnknownNameError, match="mean_squared_error"):
        as_loss("mean_sqared_error")
    with pytest.raises(DTypeError):
        as_loss(3)
    with pytest.raises(ArgumentError, match="reduction"):
        losses.MeanSquaredError(reduction="average")
    assert as_loss(None) is None


def test_function_losses_know_whether_they_have_rows():
    loss = as_loss(scaled_error)
    assert (loss.name, loss.per_sample) == ("scaled_error", None)
    loss.check_shapes(spec("b", 3), spec("b", 3))
    assert loss.per_sample and loss.masks_rows
    loss = as_loss(scalar_error)
    loss.check_shapes(spec("b", 3), spec("b", 3))
    assert loss.per_sample is False and not loss.masks_rows
    assert as_loss(scalar_error)(PROBS, LOGITS).shape == ()
    with pytest.raises(TypeError) as caught:
        as_loss(scaled_error).check_shapes(spec("b", 3), spec("b", 2))
    assert places_of(caught.value)[-1] == "in loss 'scaled_error'"
    with pytest.raises(ShapeError, match="one value per row"):
        as_loss(lambda t, p: jnp.mean(p, axis=0)).check_shapes(
            spec("b", 3), spec("b", 3)
        )


@pytest.mark.parametrize("alias", ["mse", "MSE", "mae", "mape", "msle", "bce", "kld"])
def test_aliases(alias):
    y_true, y_pred = PROBS_TRUE, PROBS_REFERENCE
    close(
        losses.get(alias)(y_true, y_pred),
        keras.losses.get(alias)(y_true, y_pred),
    )
