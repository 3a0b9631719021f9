"""Equal blocks run as one loop compute what they did, and so do their gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.runtime.blocks.scanning import scan_blocks

BLOCKS, WIDTH = 6, 4


def weights(blocks: int = BLOCKS) -> list[dict[str, jax.Array]]:
    draw = np.random.default_rng(0).standard_normal
    shapes = {"a": (WIDTH, 8), "b": (8,), "c": (8, WIDTH)}
    return [
        {
            name: jnp.asarray(0.3 * draw(shape), "float32")
            for name, shape in shapes.items()
        }
        for _ in range(blocks)
    ]


X = jnp.asarray(np.random.default_rng(1).standard_normal((3, WIDTH)), "float32")


def block(x: Any, w: dict[str, Any]) -> Any:
    return x + jax.nn.gelu(jax.nn.relu(x @ w["a"] + w["b"])) @ w["c"]


def plain(x, weights):
    for w in weights:
        x = block(x, w)
    return (x**2).sum()


def numbered(x, weights):
    """Blocks that differ by a number, as the draws of dropout do."""
    for number, w in enumerate(weights):
        x = block(x, w) * np.float32(1 + number / 10)
    return (x**2).sum()


def with_results(x, weights):
    """Blocks each of which gives a result, as batch statistics and losses are."""
    means = []
    for w in weights:
        x = block(x, w)
        means.append(x.mean(0))
    return (x**2).sum() + sum(m.sum() for m in means), means


def shared(x, weights):
    """All blocks read one array more."""
    for w in weights:
        x = block(x + weights[0]["b"][:WIDTH], w)
    return (x**2).sum()


def two_carried(x, weights):
    state = jnp.zeros_like(x)
    for w in weights:
        state = 0.5 * state + jnp.tanh(x @ w["a"] @ w["c"])
        x = x + state
    return (x * state).sum()


def odd_middle(x, weights):
    """A block in the middle is another one."""
    for number, w in enumerate(2 * weights):
        x = jnp.sin(x) if number == BLOCKS else x
        x = block(x, w)
    return (x**2).sum()


def random(x, weights):
    key = jax.random.key(3)
    for number, w in enumerate(weights):
        draw = jax.random.bernoulli(jax.random.fold_in(key, number), 0.5, x.shape)
        x = jnp.where(draw, block(x, w), x)
    return (x**2).sum()


def keys_given(x, weights):
    keys = list(jax.random.split(jax.random.key(3), BLOCKS))
    for key, w in zip(keys, weights, strict=True):
        x = block(x, w) + jax.random.normal(key, x.shape)
    return (x**2).sum()


def rematerialized(x, weights):
    for w in weights:
        x = jax.checkpoint(block)(x, w)
    return (x**2).sum()


def halves(x, weights):
    x = x.astype(jnp.bfloat16)
    for w in weights:
        x = block(x, jax.tree.map(lambda v: v.astype(jnp.bfloat16), w))
    return (x.astype(jnp.float32) ** 2).sum()


def stopped(x, weights):
    for w in weights:
        x = block(x, w | {"a": jax.lax.stop_gradient(w["a"])})
    return (x**2).sum()


def compare(function: Any, scans: int = 1, **tolerances: Any) -> None:
    value = function
    if isinstance(function(X, weights()), tuple):

        def value(x, weights):
            return function(x, weights)[0]

    scanned = scan_blocks(function)
    names = [
        equation.primitive.name
        for equation in jax.make_jaxpr(scanned)(X, weights()).jaxpr.eqns
    ]
    assert names.count("scan") == scans

    def loss(x, weights):
        out = scanned(x, weights)
        return out[0] if isinstance(out, tuple) else out

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, **{"rtol": 1e-6, **tolerances}),
        jax.jit(scanned)(X, weights()),
        jax.jit(function)(X, weights()),
    )
    gradients = (jax.jit(jax.grad(f, (0, 1)))(X, weights()) for f in (loss, value))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(
            a, b, **{"rtol": 2e-5, "atol": 2e-6, **tolerances}
        ),
        *gradients,
    )


@pytest.mark.parametrize(
    "function",
    [
        plain,
        numbered,
        with_results,
        shared,
        two_carried,
        random,
        keys_given,
        rematerialized,
        stopped,
    ],
)
def test_a_loop_computes_what_the_blocks_did(function):
    compare(function)


def test_blocks_on_both_sides_of_another_are_two_loops():
    compare(odd_middle, scans=2)


def test_halves_round_alike():
    compare(halves, rtol=0.05, atol=0.05)


def test_rows_of_an_array_are_taken_as_they_are():
    stacked = jax.tree.map(lambda *v: jnp.stack(v), *weights())

    def function(x, stacked):
        rows = [
            {n: jax.lax.index_in_dim(v, i, 0, False) for n, v in stacked.items()}
            for i in range(BLOCKS)
        ]
        return plain(x, rows)

    code = jax.make_jaxpr(scan_blocks(function))(X, stacked).jaxpr
    names = {equation.primitive.name for equation in code.eqns}
    assert names <= {"scan", "integer_pow", "reduce_sum", "reshape"}
    both = (
        jax.jit(jax.grad(f, 1))(X, stacked) for f in (scan_blocks(function), function)
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), *both
    )


@pytest.mark.parametrize("odd", [1, 2])
def test_functions_with_other_gradients_are_other_blocks(odd):
    """The same function forward, with a rule of its own for each block."""

    def scaled(factor):
        @jax.custom_vjp
        def identity(x):
            return x * 1

        identity.defvjp(lambda x: (x * 1, None), lambda _, slope: (slope * factor,))
        return identity

    def function(x, weights):
        for number, w in enumerate(weights):
            x = scaled(1.0 if number % odd == 0 else 2.0)(block(x, w))
        return (x**2).sum()

    compare(function, scans=1 if odd == 1 else 0)


def test_a_rule_may_leave_blocks_as_they_are():
    function = scan_blocks(plain, pays=lambda code, run: False)
    code = jax.make_jaxpr(function)(X, weights()).jaxpr
    assert "scan" not in {equation.primitive.name for equation in code.eqns}


def test_effects_stay_in_order(capfd):
    def function(x, weights):
        for w in weights:
            x = block(x, w)
            jax.debug.print("block")
        return x

    jax.block_until_ready(jax.jit(scan_blocks(function))(X, weights()))
    jax.effects_barrier()
    assert capfd.readouterr().out.count("block") == BLOCKS


def test_a_value_that_is_passed_on_is_the_same_object():
    seen = []

    def outer(x):
        y, same = scan_blocks(lambda x: (x + 1, x))(x)
        seen.append(same is x)
        return y

    jax.make_jaxpr(outer)(X)
    assert seen == [True]
