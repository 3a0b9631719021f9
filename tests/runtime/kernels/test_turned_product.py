"""A product by the transposed kernel is the product, with all of its derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn.runtime.kernels import padded_matmul
from exburn.runtime.kernels.conv import shifted_sum
from exburn.runtime.kernels.turned_product import fits, turned_product

RNG = np.random.default_rng(0)
X = RNG.standard_normal((48, 24), dtype=np.float32)
KERNEL = RNG.standard_normal((24, 8), dtype=np.float32)


def value(product):
    return lambda x, kernel: jnp.sin(product(x, kernel)).sum()


def gradients(product):
    return jax.grad(value(product), (0, 1))


def second(product):
    return jax.grad(lambda *a: sum(jnp.cos(g).sum() for g in gradients(product)(*a)))


def forward_over_reverse(product):
    return lambda *a: jax.jvp(gradients(product), a, a)


def checkpointed(product):
    return jax.grad(jax.checkpoint(value(product)), (0, 1))


def mapped(product):
    return lambda x, kernel: jax.vmap(gradients(product), (0, None))(
        x.reshape(2, 24, 24), kernel
    )


def scanned(product):
    def turn(kernel, x):
        return kernel - 0.1 * gradients(product)(x, kernel)[1], kernel.sum()

    return lambda x, kernel: jax.lax.scan(turn, kernel, x.reshape(2, 24, 24))


@pytest.mark.parametrize(
    "of",
    [
        lambda product: product,
        gradients,
        second,
        forward_over_reverse,
        checkpointed,
        mapped,
        scanned,
    ],
)
def test_values_and_derivatives_are_those_of_the_plain_product(of):
    ours, plain = (
        jax.jit(of(product))(X, KERNEL) for product in (turned_product, jnp.matmul)
    )
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "inner", "out", "dtype", "expected"),
    [
        (256, 64, 32, "float32", True),
        (64, 64, 32, "float32", True),
        (63, 64, 32, "float32", False),
        (256, 64, 33, "float32", False),
        (256, 32, 64, "float32", False),
        (256, 64, 32, "bfloat16", False),
    ],
)
def test_long_arrays_and_narrowing_kernels_are_turned(
    rows, inner, out, dtype, expected
):
    arrays = jnp.zeros((rows, inner), dtype), jnp.zeros((inner, out), dtype)
    assert fits(*arrays) is expected


LAYERS = {
    "dense": ((16,), lambda: exburn.layers.Dense(8)),
    "pointwise": ((4, 4, 16), lambda: exburn.layers.Conv2D(8, 1)),
}


@pytest.fixture
def calls(monkeypatch, cpu_only):
    """The shapes of the products that were turned."""
    shapes = []

    def noting(x, kernel):
        shapes.append((x.shape, kernel.shape))
        return turned_product(x, kernel)

    for module in (padded_matmul, shifted_sum):
        monkeypatch.setattr(module, "turned_product", noting)
    jax.clear_caches()
    return shapes


@pytest.mark.parametrize("kind", LAYERS)
def test_fit_turns_products_and_a_call_does_not(kind, calls):
    shape, make = LAYERS[kind]
    model = exburn.Sequential([exburn.Input(shape), make(), exburn.layers.Flatten()])
    model.compile("sgd", loss="mse")
    x = np.ones((32, *shape), "float32")
    model(x)
    assert not calls
    y = np.zeros((32, *model.output_shape[1:]))
    model.fit(x, y, batch_size=32, verbose=0)
    rows = 32 * int(np.prod(shape[:-1]))
    assert set(calls) == {((rows, 16), (16, 8))}


def test_xla_computes_the_kernels_gradient_turned(cpu_only, users_compilation):
    def products(product):
        gradient = jax.jit(jax.grad(value(product), 1)).lower(X, KERNEL)
        return gradient.compile().as_text()

    assert "f32[8,24]" in products(turned_product)
    assert "f32[8,24]" not in products(jnp.matmul)
