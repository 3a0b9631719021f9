"""Initializers: distributions, seeds, names, configs, and speed."""

import json
import math
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn import initializers
from exburn.core import registry
from exburn.errors import (
    ArgumentError,
    DTypeError,
    ExBurnError,
    ShapeError,
    UnknownNameError,
)

keras = pytest.importorskip("keras")

SHAPE = (250, 400)
SCALED = {  # name: (variance, whether uniform), for 250 inputs and 400 outputs
    "glorot_uniform": (2 / 650, True),
    "glorot_normal": (2 / 650, False),
    "he_uniform": (2 / 250, True),
    "he_normal": (2 / 250, False),
    "lecun_uniform": (1 / 250, True),
    "lecun_normal": (1 / 250, False),
}
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


def philox(seed=0):
    return np.random.Generator(np.random.Philox(seed))


def kurtosis(x):
    return float(np.mean((x - x.mean()) ** 4) / x.var() ** 2)


@pytest.mark.parametrize("name", SCALED)
def test_variance_and_bounds(name):
    variance, uniform = SCALED[name]
    value = initializers.get(name)(SHAPE, rng=philox())
    assert value.dtype == np.float32 and value.flags.c_contiguous
    assert value.var() == pytest.approx(variance, rel=0.02)
    assert value.mean() == pytest.approx(0, abs=4 * math.sqrt(variance / value.size))
    deviation = math.sqrt(variance)
    bound = deviation * (math.sqrt(3) if uniform else 2 / 0.87962566)
    assert 0.99 * bound < np.abs(value).max() <= bound * (1 + 1e-6)
    # Fourth moments: 1.8 of the uniform, 2.37 of the truncated normal distribution.
    assert kurtosis(value) == pytest.approx(1.8 if uniform else 2.37, abs=0.04)


def test_simple_distributions():
    value = initializers.RandomNormal(1.0, 0.2)(SHAPE, rng=philox())
    assert value.mean() == pytest.approx(1, abs=0.003)
    assert value.std() == pytest.approx(0.2, rel=0.02)
    assert kurtosis(value) == pytest.approx(3, abs=0.08)
    value = initializers.RandomUniform(-1.0, 3.0)(SHAPE, rng=philox())
    assert (value.min(), value.max()) == pytest.approx((-1, 3), abs=0.001)
    assert value.min() >= -1 and value.max() <= 3
    assert value.var() == pytest.approx(16 / 12, rel=0.02)
    value = initializers.TruncatedNormal(1.0, 0.2)(SHAPE, rng=philox())
    assert value.std() == pytest.approx(0.2 * 0.8796, rel=0.02)
    assert 0.39 < np.abs(value - 1).max() <= 0.4 + 1e-6
    value = initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal")(SHAPE)
    assert value.var() == pytest.approx(2 / 400, rel=0.02)
    assert kurtosis(value) == pytest.approx(3, abs=0.08)
    assert initializers.VarianceScaling(distribution="Normal").distribution == (
        "truncated_normal"
    )


def test_truncation_redraws_every_slice():
    value = initializers.TruncatedNormal(stddev=1.0)((700_001,), rng=philox())
    assert np.abs(value).max() < 2
    # No pile-up at the bounds: the density there is that of the normal distribution.
    share = np.mean(np.abs(value) > 1.9)
    assert share == pytest.approx((0.0574331 - 0.0455003) / 0.9544997, rel=0.05)


@pytest.mark.parametrize(
    "shape",
    [(), (7,), (3, 5), (3, 5, 7), (3, 3, 16, 32), (2, 3, 3, 4, 5), (1, 1, 1, 1)],
)
def test_fans_agree_with_keras(shape):
    from keras.src.initializers.random_initializers import compute_fans

    assert initializers.compute_fans(shape) == compute_fans(shape)
    if len(shape) > 2:
        axes = {"input_axes": (0, -1), "output_axes": (1,)}
        assert initializers.compute_fans(shape, **axes) == compute_fans(shape, **axes)


@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "fan_avg"])
def test_scale_of_convolution_kernels_agrees_with_keras(mode):
    args = (3.0, mode, "uniform", 1)
    shape = (5, 5, 24, 64)
    own = initializers.VarianceScaling(*args)(shape)
    theirs = np.asarray(keras.initializers.VarianceScaling(*args)(shape))
    assert own.std() == pytest.approx(theirs.std(), rel=0.02)
    assert np.abs(own).max() == pytest.approx(np.abs(theirs).max(), rel=1e-3)


@pytest.mark.parametrize(
    "shape", [(5, 5), (64, 32), (300, 150), (40, 300), (3, 3, 8, 100), (1, 4), (4, 1)]
)
def test_orthogonal(shape):
    value = initializers.Orthogonal(gain=2.0)(shape, rng=philox())
    assert value.shape == shape and value.dtype == np.float32
    matrix = value.reshape(-1, shape[-1])
    if matrix.shape[0] < matrix.shape[1]:
        matrix = matrix.T
    np.testing.assert_allclose(
        matrix.T @ matrix, 4 * np.eye(matrix.shape[1]), atol=2e-5
    )


def test_orthogonal_is_uniform_over_all_orthogonal_matrices():
    draws = [initializers.Orthogonal(seed=s)((2, 2)) for s in range(4000)]
    value = np.stack(draws)
    # Uniform means: rotations and reflections equally often, every angle equally often,
    # every entry of mean 0, variance 1/2 and fourth moment 3/8.
    assert np.mean(np.linalg.det(value) > 0) == pytest.approx(0.5, abs=0.03)
    angles = np.arctan2(value[:, 1, 0], value[:, 0, 0])
    counts = np.histogram(angles, 8, (-np.pi, np.pi))[0]
    assert counts == pytest.approx(np.full(8, 500), abs=90)
    np.testing.assert_allclose(value.mean(0), 0, atol=0.04)
    np.testing.assert_allclose((value**4).mean(0), 3 / 8, atol=0.03)


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


def test_constants():
    assert initializers.Constant(3)((2,), "int32").tolist() == [3, 3]
    assert initializers.Constant(True)((2,), bool).tolist() == [True, True]
    value = initializers.Constant(np.arange(3))((2, 3))
    assert value.dtype == np.float32 and value.tolist() == [[0, 1, 2]] * 2
    value += 1  # a fresh array, not a view
    assert initializers.ones()(4, float).tolist() == [1] * 4
    assert initializers.Identity(2)((2, 3)).tolist() == [[2, 0, 0], [0, 2, 0]]


@pytest.mark.parametrize("side", ["real", "imag"])
@pytest.mark.parametrize(
    ("window", "scaling", "periodic"),
    [
        ("hann", "density", False),
        ("hamming", "spectrum", True),
        ("blackman", None, True),
        (None, "density", False),
        (np.linspace(0.1, 1, 24), "density", False),
    ],
)
def test_stft_agrees_with_keras(side, window, scaling, periodic):
    args = (side, window, scaling, periodic)
    own = initializers.STFT(*args)((24, 1, 17))
    theirs = keras.initializers.STFT(*args)((24, 1, 17))
    np.testing.assert_allclose(own, theirs, atol=2e-5)


WINDOWS = (
    *("barthann", "bartlett", "blackman", "blackmanharris", "bohman", "boxcar"),
    *("cosine", "exponential", "flattop", "hamming", "hann", "lanczos", "nuttall"),
    *("parzen", "taylor", "triang", "tukey"),
)


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_agree_with_scipy(name):
    signal = pytest.importorskip("scipy.signal")
    for length in (1, 2, 5, 12, 33):
        for periodic in (False, True):
            own = initializers.window(name, length, periodic)
            expected = signal.get_window(name, length, periodic)
            np.testing.assert_allclose(own, expected, atol=1e-9, err_msg=str(length))


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


def _ramp(shape, dtype=None):
    return np.arange(math.prod(shape), dtype=dtype).reshape(shape)


class Halves:
    def __call__(self, shape, dtype):
        return jnp.full(shape, 0.5, dtype)


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


class Keraslike(initializers.Initializer):
    def __init__(self, top):
        self.top = top

    def __call__(self, shape, dtype=None):
        return jnp.linspace(0, self.top, shape[0], dtype=dtype)


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


@pytest.mark.parametrize(
    ("make", "error"),
    [
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
    ],
)
def test_bad_arguments(make, error):
    with pytest.raises(error):
        make()


def test_unknown_names_say_what_is_meant():
    with pytest.raises(UnknownNameError, match="Did you mean 'glorot_uniform'"):
        initializers.get("glorot_unifrom")
    for name in ("Dense", "relu"):
        with pytest.raises(UnknownNameError, match=f"unknown initializer '{name}'"):
            initializers.get({"class_name": name, "config": {}})
