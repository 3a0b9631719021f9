"""The values of an activation and its derivative, beside those of Keras."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from tests.golden import keras

from exburn import activations

# Random values, the points where some piecewise function bends, and far ends.
_bends = [-30.0, -6, -3, -1, -0.5, 0, 0.5, 1, 2, 3, 6, 30]
_points = np.concatenate([np.random.default_rng(0).normal(0, 3, 36), _bends])
POINTS = _points.astype(np.float32).reshape(4, 12)


def value_and_gradient(fn, x, **kwargs):
    def run(x):
        out = fn(x, **kwargs)
        weights = jnp.linspace(0.5, 2, out.size).reshape(out.shape)
        return jnp.sum(weights * out), out

    (_, out), gradient = jax.value_and_grad(run, has_aux=True)(x)
    return out, gradient


def compute_all(module, cases):
    """All cases in one program: compiling each alone would take most of the time."""
    return jax.jit(
        lambda x: [value_and_gradient(getattr(module, n), x, **k) for n, k in cases]
    )(POINTS)


def check_values(cases, golden):
    """Values and gradients of ``(name, arguments)`` are those of Keras."""
    recorded = golden(lambda: compute_all(keras.activations, cases))
    for case, own, theirs in zip(
        cases, compute_all(activations, cases), recorded, strict=True
    ):
        assert own[0].dtype == jnp.float32, case
        for a, b in zip(own, theirs, strict=True):
            np.testing.assert_allclose(a, b, 1e-5, 1e-5, err_msg=str(case))


def check_half_precision_and_unknown_sizes(fn, **kwargs):
    shape = jax.export.symbolic_shape("batch, 2*half")
    out = jax.eval_shape(
        lambda x: fn(x, **kwargs), jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    )
    assert out.dtype == jnp.bfloat16
    halved = fn is activations.glu
    assert out.shape == ((shape[0], shape[1] // 2) if halved else shape)


def names(cases):
    return sorted({name for name, _ in cases})
