"""Core ML's operators in NumPy, beside JAX' own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from exburn.export.core_ml.evaluation import _OPERATORS as OPERATORS

RANDOM = np.random.default_rng(0)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


X, KERNEL, WINDOW = floats(2, 4, 7, 6), floats(5, 2, 3, 2), floats(4, 3, 3, 2)
NCHW = ("NCHW", "OIHW", "NCHW")
CASES = {
    "conv": (
        dict(x=X, weight=KERNEL, strides=[2, 1], pad_type="custom", pad=[1, 0, 2, 1])
        | dict(dilations=[1, 2], groups=1, bias=np.ones(5, np.float32)),
        lambda x: (
            lax.conv_general_dilated(
                x[:, :2],
                KERNEL,
                (2, 1),
                ((1, 0), (2, 1)),
                rhs_dilation=(1, 2),
                dimension_numbers=NCHW,
            )
            + 1
        ),
    ),
    "conv_transpose": (
        dict(x=X, weight=WINDOW, strides=[2, 3], pad_type="custom", pad=[1, 1, 0, 1]),
        lambda x: lax.conv_general_dilated(
            x,
            np.swapaxes(WINDOW, 0, 1)[..., ::-1, ::-1],
            (1, 1),
            ((1, 1), (1, 0)),
            lhs_dilation=(2, 3),
            dimension_numbers=NCHW,
        ),
    ),
    "max_pool": (
        dict(x=X, kernel_sizes=[3, 2], strides=[2, 2], pad_type="same"),
        lambda x: lax.reduce_window(
            x, -np.inf, lax.max, (1, 1, 3, 2), (1, 1, 2, 2), "SAME"
        ),
    ),
    "softmax": (dict(x=X, axis=1), lambda x: jax.nn.softmax(x, 1)),
    "gelu": (dict(x=X), lambda x: jax.nn.gelu(x, approximate=False)),
    "layer_norm": (
        dict(x=X, axes=[-1], epsilon=1e-3),
        lambda x: jax.nn.standardize(x, -1, epsilon=1e-3),
    ),
    "slice_by_index": (
        dict(x=X, begin=[0, 1, 6, 0], end=[2, 2, -8, 0], stride=[1, 1, -2, 1])
        | dict(squeeze_mask=[False, True, False, False])
        | dict(end_mask=[False, False, False, True]),
        lambda x: x[:, 1, ::-2],
    ),
    "scaled_dot_product_attention": (
        dict(query=X, key=X, value=X, attn_mask=np.tri(7, dtype=bool)),
        lambda x: (
            jax.nn.softmax(
                jnp.where(np.tri(7, dtype=bool), x @ x.mT / np.sqrt(6), -np.inf)
            )
            @ x
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_computes_what_it_is_defined_as(name):
    given, wanted = CASES[name]
    if name == "conv":
        given = given | {"x": X[:, :2]}
    with jax.default_matmul_precision("highest"):
        want = np.asarray(wanted(jnp.asarray(X)))
    found = np.asarray(OPERATORS[name](**given))
    assert found.shape == want.shape
    np.testing.assert_allclose(found, want, atol=2e-5)
