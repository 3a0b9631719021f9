"""Activations against Keras: values, gradients (at the kinks too), names, configs."""

import functools
import inspect
import json

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from exburn import activations
from exburn.core import registry
from exburn.core.jax_dispatch import original
from exburn.errors import ArgumentError, ExBurnError, ShapeError, UnknownNameError

keras = pytest.importorskip("keras")

# Random values, the points where some piecewise function bends, and far ends.
_bends = [-30.0, -6, -3, -1, -0.5, 0, 0.5, 1, 2, 3, 6, 30]
_points = np.concatenate([np.random.default_rng(0).normal(0, 3, 36), _bends])
POINTS = _points.astype(np.float32).reshape(4, 12)

CASES = [
    *[(n, {}) for n in ("celu", "elu", "exponential", "gelu", "glu", "hard_shrink")],
    *[(n, {}) for n in ("hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh")],
    *[(n, {}) for n in ("leaky_relu", "linear", "log_sigmoid", "log_softmax", "mish")],
    *[(n, {}) for n in ("relu", "relu6", "selu", "sigmoid", "silu", "soft_shrink")],
    *[(n, {}) for n in ("softmax", "softplus", "softsign", "sparse_plus", "sparsemax")],
    *[
        (n, {})
        for n in ("sparse_sigmoid", "squareplus", "swish", "tanh", "tanh_shrink")
    ],
    ("celu", {"alpha": 0.3}),
    ("elu", {"alpha": 2.5}),
    ("gelu", {"approximate": True}),
    ("glu", {"axis": 0}),
    ("hard_shrink", {"threshold": 1.0}),
    ("leaky_relu", {"negative_slope": 0.01}),
    ("log_softmax", {"axis": 0}),
    ("relu", {"negative_slope": 0.1}),
    ("relu", {"max_value": 6}),
    ("relu", {"max_value": 2.0}),
    ("relu", {"threshold": 1.0}),
    ("relu", {"threshold": -1.0}),
    ("relu", {"negative_slope": 0.1, "max_value": 6}),
    ("relu", {"negative_slope": 0.1, "threshold": 1.0}),
    ("relu", {"max_value": 2.0, "threshold": 0.5}),
    ("relu", {"negative_slope": 0.1, "max_value": 6.0, "threshold": 0.5}),
    ("soft_shrink", {"threshold": 2.0}),
    ("softmax", {"axis": 0}),
    ("softmax", {"axis": (0, 1)}),
    ("sparsemax", {"axis": 0}),
    ("squareplus", {"b": 0.5}),
    ("threshold", {"threshold": 1.0, "default_value": 7.0}),
]


def value_and_gradient(fn, x, **kwargs):
    def run(x):
        out = fn(x, **kwargs)
        weights = jnp.linspace(0.5, 2, out.size).reshape(out.shape)
        return jnp.sum(weights * out), out

    (_, out), gradient = jax.value_and_grad(run, has_aux=True)(x)
    return out, gradient


@functools.cache
def results(module):
    """All cases in one program: compiling each alone would take most of the time."""
    return jax.jit(
        lambda x: [value_and_gradient(getattr(module, n), x, **k) for n, k in CASES]
    )(POINTS)


def identify(value):
    if isinstance(value, dict):
        return ",".join(f"{k}={v}" for k, v in value.items()) or "default"
    return value


# Keras 3.15 takes τ of sparsemax from a sum of cumulative sums, so its values do not
# add up to 1: [0, 0.5, 1] gives [0, 0, 0.25]. See keras-team/keras issue 23425.
REFERENCED = [case for case in CASES if case[0] != "sparsemax"]


@pytest.mark.parametrize(("name", "kwargs"), REFERENCED, ids=identify)
def test_agrees_with_keras(name, kwargs):
    case = CASES.index((name, kwargs))
    out, gradient = results(activations)[case]
    expected, expected_gradient = results(keras.activations)[case]
    assert out.dtype == jnp.float32
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-6)


def test_every_public_name_of_keras_is_here_with_its_arguments():
    theirs = {n for n in dir(keras.activations) if not n.startswith("_")}
    assert theirs <= set(activations.__all__)
    for name in theirs - {"get", "serialize", "deserialize"}:
        own = inspect.signature(getattr(activations, name))
        assert own == inspect.signature(getattr(keras.activations, name)), name
    assert {name for name, _ in CASES} == theirs - {"get", "serialize", "deserialize"}


@pytest.mark.parametrize("name", sorted({name for name, _ in CASES}))
def test_keeps_half_precision_and_works_for_unknown_sizes(name):
    kwargs = {"threshold": 1.0, "default_value": 0.0} if name == "threshold" else {}
    fn = getattr(activations, name)
    shape = jax.export.symbolic_shape("batch, 2*half")
    out = jax.eval_shape(
        lambda x: fn(x, **kwargs), jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    )
    assert out.dtype == jnp.bfloat16
    assert out.shape == ((shape[0], shape[1] // 2) if name == "glu" else shape)


def test_takes_lists_and_integers():
    assert activations.relu([-1, 2]).tolist() == [0, 2]
    assert activations.softmax([[1, 1]]).tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "log_softmax"])
def test_large_values_stay_exact(name):
    x = np.array([10000.0, 9999.75, 0.0], np.float32)
    out = getattr(activations, name)(x)
    shifted = getattr(activations, name)(x - 10000)
    np.testing.assert_allclose(out, shifted, rtol=1e-6)


def project_onto_simplex(x):
    """Bisection for τ in float64: shares nothing with the closed form."""
    low, high = x.min() - 1, x.max()
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if np.maximum(x - middle, 0).sum() > 1 else (low, middle)
        )
    return np.maximum(x - low, 0)


@pytest.mark.parametrize("axis", [-1, 0])
def test_sparsemax_projects_onto_the_simplex(axis):
    x = np.random.default_rng(1).normal(size=(7, 7))
    out, gradient = value_and_gradient(activations.sparsemax, jnp.array(x), axis=axis)
    expected = np.apply_along_axis(project_onto_simplex, axis, x)
    np.testing.assert_allclose(out, expected, atol=1e-6)
    assert (out == 0).any() and ((out > 0).sum(axis) > 1).any()
    # The Jacobian is diag(s) - s sᵀ / |s| for the support s.
    weights = np.linspace(0.5, 2, x.size).reshape(x.shape) * (expected > 0)
    mean = weights.sum(axis, keepdims=True) / (expected > 0).sum(axis, keepdims=True)
    np.testing.assert_allclose(gradient, (weights - mean) * (expected > 0), atol=1e-6)


def test_keras_agrees_where_one_value_wins():
    x = np.float32([[5, 0, 1]])
    np.testing.assert_allclose(
        activations.sparsemax(x), keras.activations.sparsemax(x), atol=1e-6
    )


def test_vectors_work_under_vmap():
    x = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(
        jax.vmap(activations.softmax)(x), activations.softmax(x), rtol=1e-6
    )


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "sparsemax", "glu"])
@pytest.mark.parametrize(("shape", "axis"), [((), -1), ((2, 4), 2), ((2, 4), -3)])
def test_a_missing_axis_is_an_error(name, shape, axis):
    with pytest.raises(ShapeError, match=f"{name}: the input has no axis {axis}"):
        getattr(activations, name)(jnp.zeros(shape), axis=axis)


def test_glu_needs_an_even_axis():
    with pytest.raises(ShapeError, match="even"):
        activations.glu(jnp.zeros((2, 3)))


def test_softmax_of_one_value_warns():
    with pytest.warns(UserWarning, match="sigmoid"):
        activations.softmax(jnp.zeros((4, 1)))


def test_get():
    assert activations.get(None) is activations.linear
    assert activations.get("hard_swish") is activations.hard_silu
    assert activations.get(jnp.sin) is jnp.sin
    layer = keras.layers.LeakyReLU()
    assert activations.get(layer) is layer
    assert isinstance(activations.get(keras.layers.ReLU), keras.layers.ReLU)
    config = {"module": "builtins", "class_name": "function", "config": "mish"}
    assert activations.get(config) is activations.mish


def test_unknown_names_say_what_is_meant():
    with pytest.raises(UnknownNameError, match="Did you mean .*'leaky_relu'") as caught:
        activations.get("leakyrelu")
    assert str(caught.value).startswith("activations.get: unknown activation")
    for wrong in (3, ["relu"], {"config": "relu"}):
        with pytest.raises(ArgumentError):
            activations.get(wrong)


@pytest.mark.parametrize("name", sorted({name for name, _ in CASES}))
def test_config_round_trip(name):
    fn = getattr(activations, name)
    config = json.loads(json.dumps(activations.serialize(fn)))
    assert isinstance(config, str)
    assert activations.deserialize(config) is fn
    # A layer's configuration holds whatever its constructor received.
    assert registry.deserialize(registry.serialize(fn)) is fn


@pytest.mark.parametrize("fn", [jax.nn.relu, jax.nn.gelu, jnp.tanh, jax.nn.silu])
def test_functions_of_jax_round_trip(fn):
    config = json.loads(json.dumps(activations.serialize(fn)))
    assert activations.deserialize(config) is original(fn)  # which takes no symbols


def _cube(x):
    return x**3


def test_custom_functions():
    with pytest.raises(ExBurnError, match="register"):
        activations.serialize(_cube)
    with registry.custom_objects({"_cube": _cube}):
        assert activations.get("_cube") is _cube
    config = {"class_name": "function", "config": "_cube"}
    assert activations.deserialize(config, {"_cube": _cube}) is _cube
    registry.register(_cube, package="level1")
    assert activations.deserialize(activations.serialize(_cube)) is _cube
