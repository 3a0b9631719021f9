"""Losses by name and from a configuration; functions and subclasses of the user's."""

import inspect

import jax.numpy as jnp
import keras
import numpy as np
import optax
import pytest
from tests.losses.arrays import LOGITS, ONE_HOT, PROBS, spec

import exburn as keras_api
from exburn import losses
from exburn.errors import ArgumentError, DTypeError, ShapeError, UnknownNameError
from exburn.losses.catalogue import as_loss


def test_every_name_of_keras():
    for name in dir(keras.losses):
        if name.startswith("_") or name in ("KLD", "kld"):
            continue
        theirs, ours = getattr(keras.losses, name), getattr(losses, name)
        names = list(inspect.signature(theirs).parameters)
        assert list(inspect.signature(ours).parameters)[: len(names)] == names, name
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


def own_error(y_true, y_pred):
    return jnp.mean(jnp.abs(y_pred - y_true), axis=-1)


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


@pytest.mark.parametrize(
    "make",
    [
        lambda: losses.Huber(delta=0),
        lambda: losses.BinaryCrossentropy(label_smoothing=2),
        lambda: losses.CategoricalGeneralizedCrossEntropy(q=1.0),
        lambda: losses.CategoricalCrossentropy(axis=True),
        lambda: losses.CrossEntropy(from_logits="maybe"),
        lambda: losses.FunctionLoss("mse"),
    ],
)
def test_impossible_options(make):
    with pytest.raises(ArgumentError):
        make()


def scaled_error(y_true, y_pred, scale=1.0):
    return scale * jnp.mean(jnp.abs(y_true - y_pred), axis=-1)


def scalar_error(y_true, y_pred):
    return jnp.mean(jnp.abs(y_true - y_pred))


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
    assert caught.value.__notes__[-1] == "in loss 'scaled_error'"
    with pytest.raises(ShapeError, match="one value per row"):
        as_loss(lambda t, p: jnp.mean(p, axis=0)).check_shapes(
            spec("b", 3), spec("b", 3)
        )


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


class Quartic(losses.Loss):
    def __init__(self, scale=1.0, name="quartic", **kwargs):
        super().__init__(name=name, **kwargs)
        self.scale = scale

    def call(self, y_true, y_pred):
        assert y_true.dtype == y_pred.dtype == jnp.float32  # as Keras hands them over
        return self.scale * jnp.mean((y_true - y_pred) ** 4, axis=-1)

    def get_config(self):
        return {"scale": self.scale, **super().get_config()}


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


def classes_with_a_call(package):
    class Doubled(package.losses.MeanSquaredError):
        def __call__(self, y_true, y_pred, sample_weight=None):
            return 2 * super().__call__(y_true, y_pred, sample_weight=sample_weight)

    class Alone(package.losses.Loss):
        def __call__(self, y_true, y_pred, sample_weight=None):
            return package.ops.mean(package.ops.abs(y_true - y_pred)) + 1.0

    return Doubled(name="doubled"), Alone(name="alone")


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_classes_may_write_call_as_keras_code_does(which, weighted):
    """It was called with arguments that only ours take."""
    rng = np.random.default_rng(0)
    x = np.array([[1, 2, 0], [3, 0, 0], [1, 1, 1], [2, 0, 0], [3, 3, 0]])
    y = rng.normal(size=(5, 3, 1)).astype("float32")
    weights = rng.random((5, 3), "float32") if weighted else None
    found = []
    for package in (keras_api, keras):
        layers = package.layers
        model = package.Sequential(
            [
                package.Input((3,), dtype="int32"),
                layers.Embedding(4, 2, mask_zero=True, embeddings_initializer="ones"),
                layers.Dense(1, kernel_initializer="ones"),
            ]
        )
        model.compile("sgd", classes_with_a_call(package)[which])
        found.append(model.evaluate(x, y, 5, sample_weight=weights, verbose=0))
    assert found[0] == pytest.approx(found[1], rel=1e-5)


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum"])
def test_the_mask_that_comes_with_predictions_counts(reduction):
    """In a loop of one's own: ``loss(y, model(x))``."""
    ids = np.array([[1, 2, 0], [3, 0, 0]])
    targets = np.arange(6, dtype="float32").reshape(2, 3, 1)

    def run(library):
        model = library.Sequential(
            [
                library.layers.Embedding(4, 2, "ones", mask_zero=True),
                library.layers.Dense(1, kernel_initializer="ones"),
            ]
        )
        loss = library.losses.MeanSquaredError(reduction=reduction)
        return float(loss(targets, model(ids)))

    assert run(keras_api) == pytest.approx(run(keras))
    assert run(keras_api) == pytest.approx(6.0 / (1 if reduction == "sum" else 3))
