"""Models that cannot be saved, and files that are refused: nothing is written."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.saving.models import in_functional, sequential

import exburn as keras
from exburn import layers
from exburn.errors import ArgumentError, ModelFormatError, NotBuiltError


def tripled(x):
    return 3 * x


def closure(factor):
    def scaled(x):
        return x * factor

    return scaled


def with_loss(loss):
    model = in_functional(layers.Dense(8))
    model.compile("sgd", loss)
    return model


UNSAVABLE = {
    "a lambda layer": lambda: in_functional(layers.Lambda(lambda x: x)),
    "a closure": lambda: in_functional(layers.Lambda(closure(2))),
    "an unregistered function": lambda: in_functional(layers.Lambda(tripled)),
    "an activation": lambda: in_functional(layers.Dense(2, activation=lambda x: x)),
    "an operation": lambda: in_functional(keras.fn(closure(3))),
    "a function in a stack": lambda: keras.Sequential([keras.Input((8,)), closure(2)]),
    "an initializer": lambda: in_functional(
        layers.Dense(2, kernel_initializer=lambda shape, dtype: np.zeros(shape, dtype))
    ),
    "an nnx module": lambda: keras.Sequential(
        [keras.Input((8,)), nnx.Linear(8, 2, rngs=nnx.Rngs(0))]
    ),
    "a loss lambda": lambda: with_loss(lambda y, p: jnp.mean((y - p) ** 2)),
    "a loss closure": lambda: with_loss(closure_loss()),
}


def closure_loss():
    def inner(y_true, y_pred):
        return jnp.mean(jnp.square(y_true - y_pred), axis=-1)

    return inner


@pytest.mark.parametrize("name", UNSAVABLE)
def test_what_has_no_name_is_refused_before_anything_is_written(name, tmp_path):
    model = UNSAVABLE[name]()
    with pytest.raises(ArgumentError) as info:
        model.save(tmp_path / "m.exburn")
    assert "egister" in str(info.value)
    assert list(tmp_path.iterdir()) == []


def test_refusals(tmp_path):
    model, path = sequential(), tmp_path / "m.exburn"
    with pytest.raises(NotBuiltError):
        keras.Sequential([layers.Dense(2)]).save(path)
    with pytest.raises(ArgumentError, match="no HDF5"):
        model.save(tmp_path / "m.h5")
    with pytest.raises(ArgumentError, match="does not exist"):
        model.save(tmp_path / "no" / "m.exburn")
    with pytest.raises(ArgumentError, match="5GB"):
        model.save(path, max_shard_size="many")
    model.save(path)
    with pytest.raises(ArgumentError, match="overwrite=False"):
        model.save(path, overwrite=False)
    with pytest.raises(ArgumentError, match="no unsafe mode"):
        keras.load_model(path, safe_mode=False)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        keras.load_model(tmp_path / "other.exburn")
    model.save_weights(path)
    with pytest.raises(ModelFormatError, match="no model"):
        keras.load_model(path)


def test_more_parts_than_a_reader_accepts_are_refused_at_save_already(
    tmp_path, monkeypatch
):
    model = keras.Sequential([keras.Input((4,)), *(layers.ReLU() for _ in range(5))])
    model.save(tmp_path / "m.exburn")
    most = "exburn.saving.model_description._MAX_CLASSES"
    monkeypatch.setattr(most, (5, 0))  # six with itself
    with pytest.raises(ModelFormatError, match="too many layers"):
        keras.load_model(tmp_path / "m.exburn")
    with pytest.raises(ArgumentError, match="more parts than a file may describe"):
        model.save(tmp_path / "other.exburn")
    assert [path.name for path in tmp_path.iterdir()] == ["m.exburn"]


@pytest.mark.parametrize("path", [None, 3, b"x", "", ".", "a\0b"])
def test_what_is_no_path_is_told(path):
    model = sequential()
    for call in (model.save, model.save_weights, model.load_weights, keras.load_model):
        with pytest.raises(ArgumentError, match="path of a file is needed"):
            call(path)


def test_a_size_that_only_an_attack_has_is_refused_at_save_already(tmp_path):
    long = keras.Input((2**23, 1))
    model = keras.Model(long, layers.GlobalMaxPooling1D()(long))
    with pytest.raises(ValueError, match="none of its weights has"):
        model.save(tmp_path / "m.exburn")
