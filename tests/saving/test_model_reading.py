"""Models made from a file: which classes and functions its names find."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.saving.models import X, in_functional

import exburn as keras
from exburn import layers
from exburn.errors import ArgumentError, ModelFormatError, UnknownNameError


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def named_loss(y_true, y_pred):
    return jnp.mean(jnp.abs(y_true - y_pred), axis=-1)


class OwnLoss(keras.Loss):
    def call(self, y_true, y_pred):
        return jnp.mean(jnp.square(y_true - y_pred), axis=-1)


@pytest.mark.parametrize("loss", [named_loss, OwnLoss()], ids=["function", "class"])
def test_custom_objects_of_compile(loss, tmp_path):
    model, path = in_functional(layers.Dense(8)), tmp_path / "m.exburn"
    model.compile("sgd", loss, metrics=[named_loss])
    model.fit(X, X, verbose=0)
    model.save(path)
    with pytest.raises(ModelFormatError, match="custom_objects"):
        keras.load_model(path)
    objects = {"named_loss": named_loss, "OwnLoss": OwnLoss}
    loaded = keras.load_model(path, custom_objects=objects)
    assert loaded.evaluate(X, X, verbose=0) == model.evaluate(X, X, verbose=0)
    assert keras.load_model(path, compile=False).predict(X, verbose=0).shape == (32, 8)
    with keras.saving.custom_object_scope(objects):
        assert keras.load_model(path).compiled


def plain_function(x, dtype=None):
    return jnp.ones(x, dtype) if isinstance(x, tuple) else jnp.abs(x)


@pytest.mark.parametrize(
    "argument", ["activation", "kernel_initializer", "kernel_constraint"]
)
def test_a_function_goes_by_its_name_in_the_scope(argument, tmp_path):
    model = in_functional(layers.Dense(2, **{argument: plain_function}))
    path = tmp_path / "m.exburn"
    with pytest.raises(ArgumentError, match="cannot be described"):
        model.save(path)
    with keras.saving.custom_object_scope({"Dense": plain_function}):  # is taken
        with pytest.raises(ArgumentError, match="cannot be described"):
            model.to_json()
    objects = {"plain": plain_function}
    with keras.saving.custom_object_scope(objects):
        model.save(path)
        clone = keras.models.clone_model(model)
    assert clone.count_params() == model.count_params()
    loaded = keras.load_model(path, custom_objects=objects)
    np.testing.assert_array_equal(
        loaded.predict(X, verbose=0), model.predict(X, verbose=0)
    )
    with pytest.raises(ModelFormatError, match="custom_objects"):
        keras.load_model(path)


SPLIT = {"indices_or_sections": 2}
OF_JAX = [keras.ops.relu, keras.ops.image.rgb_to_grayscale, jnp.sin, jax.lax.square]


@pytest.mark.parametrize("function", OF_JAX, ids=lambda f: f.__name__)
@pytest.mark.parametrize("make", [layers.Activation, layers.Lambda])
def test_functions_of_jax_and_ops_go_by_their_names(make, function, tmp_path):
    x = np.random.default_rng(0).normal(size=(2, 4, 4, 3)).astype(np.float32)
    model = in_functional(make(function), x)
    model.save(path := tmp_path / "m.exburn")
    loaded = keras.load_model(path)
    same(loaded.predict(x, verbose=0), model.predict(x, verbose=0))
    with pytest.raises(ArgumentError, match="cannot be described"):
        in_functional(layers.Lambda(lambda x: jnp.split(x, 2)[0])).to_json()
    with pytest.raises(ArgumentError, match="cannot be described"):
        in_functional(layers.Lambda(jnp.split, arguments=SPLIT)).to_json()
    with pytest.raises(UnknownNameError, match=r"jax\.numpy\.split"):
        keras.activations.get("jax.numpy.split")


class Unregistered(keras.Layer):
    def call(self, x):
        return x


def test_a_class_is_found_by_registration_or_custom_objects(tmp_path):
    path = tmp_path / "m.exburn"
    in_functional(Unregistered()).save(path)
    with pytest.raises(ModelFormatError) as info:
        keras.load_model(path)
    assert str(info.value).replace(str(tmp_path), "") == (
        "load_model: the model in the file cannot be made\n"
        "  file: /m.exburn\n"
        "  cause: UnknownNameError: get: unknown class 'Unregistered'\n"
        "  → Register it before loading (@exburn.register), or pass "
        "custom_objects={'name': class or function}."
    )
    model = keras.load_model(path, custom_objects={"Unregistered": Unregistered})
    assert type(model.layers[-1]) is Unregistered
