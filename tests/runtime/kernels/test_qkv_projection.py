"""Tests of ``exburn.runtime.kernels.qkv_projection``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.layers.peer import data
from tests.runtime.kernels.interpreted import close, derivatives, pure

from exburn import layers
from exburn.runtime.kernels.qkv_projection import joined as join

X = data(4, 6, 8)


def test_one_product_for_self_attention_is_three_products():
    layer = layers.MultiHeadAttention(2, 4, value_dim=3)
    fused = jax.jit(lambda x: layer(x, x))
    layer(X, X)
    x = jnp.asarray(X)
    apart = layer(x, x + 0, x * 1)
    np.testing.assert_allclose(fused(x), apart, rtol=1e-5, atol=1e-5)
    products = str(jax.make_jaxpr(lambda x: layer(x, x))(x)).count("dot_general")
    assert products == 4  # the projections, scores, values, the output


@pytest.mark.parametrize("bias", [True, False])
def test_attentions_gradients_are_joined_by_a_barrier(request, bias):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((2, 8, 16)), "bfloat16")
    heads = layers.GroupQueryAttention(
        16, 2, 1, use_bias=bias, dtype="mixed_bfloat16", flash_attention=False
    )
    attend, weights = pure(heads, x.shape, x.shape)
    plain = derivatives(attend, x, *weights)

    def program():  # a new function: JAX keeps what it has traced
        return str(jax.make_jaxpr(lambda *args: attend(*args))(x, *weights))

    assert "optimization_barrier" not in program()
    request.getfixturevalue("kernels")  # every array is a large one
    assert "optimization_barrier" in program()
    close(derivatives(attend, x, *weights), plain, 2e-2)


@pytest.mark.parametrize(
    ("rows", "dtype", "joined"),
    [
        (1 << 12, "bfloat16", True),
        (1 << 11, "bfloat16", False),
        (1 << 12, "float32", False),
        (6 << 10, "float32", True),
    ],
)
def test_a_barrier_is_for_arrays_of_which_it_was_faster(rows, dtype, joined):
    x = jax.ShapeDtypeStruct((rows, 8), dtype)
    kernels = [jax.ShapeDtypeStruct((8, 512), dtype)] * 2
    program = jax.make_jaxpr(lambda x, *kernels: join(x, kernels, None))
    assert ("optimization_barrier" in str(program(x, *kernels))) == joined
