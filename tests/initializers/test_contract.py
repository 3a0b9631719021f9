"""Tests of ``exburn.initializers.contract``."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import keras
from tests.initializers.draws import philox

from exburn import initializers
from exburn.core import registry
from exburn.errors import ArgumentError, ExBurnError, ShapeError


def _ramp(shape, dtype=None):
    return np.arange(math.prod(shape), dtype=dtype).reshape(shape)


class Halves:
    def __call__(self, shape, dtype):
        return jnp.full(shape, 0.5, dtype)


class Keraslike(initializers.Initializer):
    def __init__(self, top):
        self.top = top

    def __call__(self, shape, dtype=None):
        return jnp.linspace(0, self.top, shape[0], dtype=dtype)


@pytest.mark.parametrize(
    "fn",
    [
        _ramp,
        lambda shape: np.ones(shape),
        lambda shape, *, dtype: np.ones(shape, dtype),
        lambda shape, dtype, **options: np.ones(shape, dtype),
        lambda size, dtype: np.ones(size, dtype),
        np.ones,
        jnp.zeros,
        Halves(),
        Halves,
        keras.initializers.HeNormal(),
        keras.initializers.HeNormal,
    ],
)
def test_functions_and_foreign_initializers(fn):
    value = initializers.get(fn)((4, 3), "float16", rng=philox())
    assert type(value) is np.ndarray
    assert value.shape == (4, 3) and value.dtype == np.float16


@pytest.mark.parametrize(
    "fn",
    [
        jax.nn.initializers.glorot_uniform(),
        jax.nn.initializers.normal(),
        lambda rng, shape, dtype: jax.random.normal(rng, shape, dtype),
        lambda key, size: jax.random.normal(key, size),
    ],
)
def test_functions_with_a_key(fn):
    init = initializers.get(fn)
    value = init((4, 3), "float32", rng=philox(1))
    assert value.shape == (4, 3) and value.std() > 0
    np.testing.assert_array_equal(init((4, 3), "float32", rng=philox(1)), value)
    assert not np.array_equal(init((4, 3), "float32", rng=philox(2)), value)
    assert init((2, 2)).shape == (2, 2)
    zeros = initializers.get(jax.nn.initializers.zeros)
    assert zeros((2,), "int32").tolist() == [0, 0]


def test_functions_can_take_the_generator():
    def draw(shape, dtype, rng):
        return rng.random(shape, dtype)

    value = initializers.get(draw)((3,), "float32", rng=philox(1))
    np.testing.assert_array_equal(value, philox(1).random(3, np.float32))


def test_functions_must_return_the_shape():
    with pytest.raises(ShapeError, match=r"\(2,\) where \(3,\)"):
        initializers.get(lambda shape, dtype: np.zeros(2, dtype))((3,))


@pytest.mark.parametrize("array", [np.arange(6).reshape(2, 3), jnp.ones((2, 3))])
def test_arrays(array):
    init = initializers.get(array)
    np.testing.assert_array_equal(init((2, 3), "float32"), array)
    config = json.loads(json.dumps(initializers.serialize(init)))
    np.testing.assert_array_equal(initializers.deserialize(config)((2, 3)), array)
    with pytest.raises(ShapeError, match=r"\(3, 2\)"):
        init((3, 2))


def test_function_config():
    with pytest.raises(ExBurnError, match="register"):
        initializers.serialize(initializers.get(lambda shape: np.ones(shape)))
    registry.register(_ramp, package="level1")
    config = json.loads(json.dumps(initializers.serialize(initializers.get(_ramp))))
    assert initializers.deserialize(config)((3,)).tolist() == [0, 1, 2]


def test_subclasses_written_for_keras():
    init = Keraslike(2.0)
    assert initializers.get(init) is init
    assert init((3,), "float32", rng=philox()).tolist() == [0, 1, 2]
    assert init((3,), dtype="float32").tolist() == [0, 1, 2]
    assert repr(init) == "Keraslike(top=2.0)"
    with pytest.raises(ArgumentError, match="get_config"):
        initializers.serialize(init)
    config = {"class_name": "Keraslike", "config": {"top": 4.0}}
    made = initializers.deserialize(config, custom_objects={"Keraslike": Keraslike})
    assert made((2,)).tolist() == [0, 4]
