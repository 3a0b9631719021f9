"""Dense layers multiply two matrices, whatever the rank of their input."""

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest

from exburn import layers as L
from exburn.layers.core.einsum_dense import _summed
from exburn.training.module import SplitModule

SEQUENCE = (2, 5, 6)


def products(jaxpr):
    """Ranks of the operands of every product in a program."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield tuple(v.aval.ndim for v in equation.invars)
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from products(inner)


@pytest.mark.parametrize(
    ("layer", "shape", "count"),
    [
        (L.Dense(4), SEQUENCE, 3),
        (L.Dense(4), (2, 3, *SEQUENCE), 3),
        (L.EinsumDense("abc,cd->abd", (None, 4)), SEQUENCE, 3),
        (L.EinsumDense("...a,anh->...nh", (3, 4)), SEQUENCE, 3),
        (L.EinsumDense("...nh,nho->...o", 4), SEQUENCE, 3),
        (L.MultiHeadAttention(2, 3), SEQUENCE, 6 + 6),  # with those of the weights
    ],
)
def test_forward_and_gradient(layer, shape, count):
    """Three axes would make XLA's CPU backend copy the output's gradient."""
    x = jnp.ones(shape)
    attends = isinstance(layer, L.MultiHeadAttention)
    inputs = (x, x) if attends else (x,)
    layer(*inputs)
    split = SplitModule(layer)
    params, *rest = split.read()

    def loss(params, x):
        copy = split.bind(params, *rest)
        return (copy(x, x) if attends else copy(x)).sum()

    program = jax.make_jaxpr(jax.grad(loss, (0, 1)))(params, x).jaxpr
    ranks = list(products(program))
    assert len(ranks) == count
    # an attention's own six products are of heads
    flat = [r for r in ranks if r == (2, 2)]
    assert len(flat) == (count // 2 if attends else count), ranks


@pytest.mark.parametrize(
    ("equation", "axes"),
    [
        ("abc,cd->abd", 1),
        ("...nh,nho->...o", 2),
        ("abc,bc->a", 2),
        ("abc,bd->acd", 0),  # summed over in the middle
        ("ab,b->ab", 0),  # not summed over
        ("abc,ca->ba", 0),
        ("abc,dc->abd", 0),  # a transposed kernel
        ("b...,bc->c...", 0),
        ("abc,cd->adb", 0),  # a transposed output
    ],
)
def test_which_sums_are_products_of_matrices(equation, axes):
    into, kernel, out = equation.replace("->", ",").split(",")
    assert _summed(into, kernel, out) == axes


@pytest.mark.parametrize("equation", ["abc,cd->abd", "abc,bcd->ad", "abc,bc->a"])
def test_values(equation):
    out = equation.partition("->")[2]
    sizes = tuple({"b": 5, "d": 4}[c] for c in out[1:])
    layer = L.EinsumDense(equation, sizes)
    x = np.random.default_rng(0).normal(size=SEQUENCE).astype("float32")
    y = layer(x)
    expected = np.einsum(equation, x, layer.kernel.numpy())
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
