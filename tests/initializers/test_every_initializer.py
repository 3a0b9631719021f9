"""What holds for each initializer: names, seeds, dtypes, configurations."""

import json
import random

import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import keras
from tests.initializers.draws import SCALED, philox

from exburn import initializers
from exburn.core import registry
from exburn.errors import ArgumentError, DTypeError, ShapeError, UnknownNameError

RANDOM = [
    *SCALED,
    *("random_normal", "random_uniform", "truncated_normal", "variance_scaling"),
    "orthogonal",
]

CONFIGS = [
    ("Zeros", {}),
    ("Ones", {}),
    ("Constant", {"value": 2.5}),
    ("Identity", {"gain": 3.0}),
    ("Orthogonal", {"gain": 1.5, "seed": 3}),
    ("RandomNormal", {"mean": 1.0, "stddev": 0.2, "seed": 4}),
    ("RandomUniform", {"minval": -1.0, "maxval": 3.0, "seed": 4}),
    ("TruncatedNormal", {"mean": 1.0, "stddev": 0.2, "seed": 4}),
    ("VarianceScaling", {"scale": 3.0, "mode": "fan_out", "distribution": "uniform"}),
    ("VarianceScaling", {"input_axes": [0], "output_axes": [1], "seed": 1}),
    *[(n, {"seed": 2}) for n in ("GlorotNormal", "GlorotUniform", "HeNormal")],
    *[(n, {"seed": 2}) for n in ("HeUniform", "LecunNormal", "LecunUniform")],
    ("HeNormal", {"input_axes": [0], "output_axes": [1]}),
    ("STFT", {"side": "imag", "window": "hamming", "scaling": None, "periodic": True}),
]


@pytest.mark.parametrize("name", RANDOM)
def test_seeds(name):
    make = getattr(initializers, name)
    shape = (6, 5)
    seeded = make(seed=7)
    first = seeded(shape)
    # A seed decides alone, whatever the call or the generator; as in Keras.
    np.testing.assert_array_equal(seeded(shape), first)
    np.testing.assert_array_equal(make(seed=7)(shape, rng=philox(1)), first)
    assert not np.array_equal(make(seed=8)(shape), first)
    assert np.isfinite(make(seed=-1)(shape)).all()
    # Without one, the generator decides.
    free = make()
    np.testing.assert_array_equal(
        free(shape, rng=philox(1)), make()(shape, rng=philox(1))
    )
    assert not np.array_equal(free(shape, rng=philox(1)), free(shape, rng=philox(2)))
    # With neither, every call is new, and the process' seed decides.
    random.seed(5)
    a, b = free(shape), free(shape)
    random.seed(5)
    np.testing.assert_array_equal(free(shape), a)
    assert not np.array_equal(a, b)


def test_seed_generators_give_new_values_on_every_call():
    def values():
        init = initializers.HeNormal(seed=keras.random.SeedGenerator(3))
        return init((4, 4)), init((4, 4))

    first, second = values()
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(values(), (first, second))


@pytest.mark.parametrize("name", [*RANDOM, "zeros", "ones", "identity"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes(name, dtype):
    init = initializers.get(name)
    value = init((8, 8), dtype, rng=philox())
    assert value.dtype == jnp.dtype(dtype) and type(value) is np.ndarray
    if dtype == "bfloat16":
        full = init((8, 8), "float32", rng=philox())
        np.testing.assert_array_equal(value, full.astype(jnp.bfloat16))


@pytest.mark.parametrize("name", RANDOM)
def test_random_integers_are_refused(name):
    with pytest.raises(DTypeError, match="int32"):
        initializers.get(name)((2, 2), "int32")


def test_every_public_name_of_keras_is_here():
    theirs = {n for n in dir(keras.initializers) if not n.startswith("_")}
    assert theirs <= set(initializers.__all__)
    for name in theirs - {"get", "serialize", "deserialize", "Initializer"}:
        own = getattr(initializers, name)
        assert type(initializers.get(name)) is own, name


@pytest.mark.parametrize("name", ["normal", "uniform", "one", "zero"])
def test_short_names(name):
    theirs = type(keras.initializers.get(name)).__name__
    assert type(initializers.get(name)).__name__ == theirs


@pytest.mark.parametrize(("name", "kwargs"), CONFIGS)
def test_config_round_trip(name, kwargs):
    own = getattr(initializers, name)(**kwargs)
    config = json.loads(json.dumps(initializers.serialize(own)))
    shape = (5, 1, 4) if name == "STFT" else (5, 4)
    for again in (
        initializers.deserialize(config),
        registry.deserialize(config),
        own.clone(),
    ):
        assert type(again) is type(own) and again.get_config() == own.get_config()
        np.testing.assert_array_equal(
            again(shape, rng=philox()), own(shape, rng=philox())
        )
    theirs = getattr(keras.initializers, name)(**kwargs)
    if name != "Identity":  # Keras 3.15 forgets its gain
        assert own.get_config() == theirs.get_config()
        foreign = initializers.get(keras.initializers.serialize(theirs))
        assert foreign.get_config() == own.get_config()


REFUSALS = [
    (lambda: initializers.VarianceScaling(scale=0), ArgumentError),
    (lambda: initializers.VarianceScaling(mode="fan"), ArgumentError),
    (lambda: initializers.VarianceScaling(distribution="cauchy"), ArgumentError),
    (lambda: initializers.HeNormal(input_axes=[0]), ArgumentError),
    (lambda: initializers.HeNormal(seed="7"), ArgumentError),
    (lambda: initializers.HeNormal(seed=True), ArgumentError),
    (lambda: initializers.STFT(side="left"), ArgumentError),
    (lambda: initializers.STFT(scaling="loud"), ArgumentError),
    (lambda: initializers.get(3), ArgumentError),
    (lambda: initializers.get({"config": {}}), ArgumentError),
    (lambda: initializers.Initializer()((2,)), ArgumentError),
    (lambda: initializers.Orthogonal()((4,)), ShapeError),
    (lambda: initializers.Identity()((2, 2, 2)), ShapeError),
    (lambda: initializers.Constant([1, 2])((3,)), ShapeError),
    (lambda: initializers.STFT()((4, 2, 3)), ShapeError),
    (lambda: initializers.STFT(window=[1, 2])((4, 1, 3)), ShapeError),
    (lambda: initializers.HeNormal(None, [2], [3])((4, 4)), ShapeError),
    (lambda: initializers.zeros()((None, 2)), ShapeError),
    (lambda: initializers.zeros()((-1, 2)), ShapeError),
    (lambda: initializers.zeros()((2,), "float33"), DTypeError),
    (lambda: initializers.STFT(window="han"), UnknownNameError),
]


def test_unknown_names_say_what_is_meant():
    with pytest.raises(UnknownNameError, match="Did you mean 'glorot_uniform'"):
        initializers.get("glorot_unifrom")
    for name in ("Dense", "relu"):
        with pytest.raises(UnknownNameError, match=f"unknown initializer '{name}'"):
            initializers.get({"class_name": name, "config": {}})
