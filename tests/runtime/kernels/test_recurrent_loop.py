"""Tests of ``exburn.runtime.kernels.recurrent_loop``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.runtime.kernels.interpreted import close

from exburn import layers
from exburn.layers.contract.recurrent_cell import RecurrentCell
from exburn.runtime.kernels import recurrent_loop

RECURRENT = {
    "lstm": lambda **options: layers.LSTM(16, **options),
    "gru": lambda **options: layers.GRU(16, **options),
    "simple": lambda **options: layers.SimpleRNN(16, **options),
}


def looped(name, dtype="float32", steps=3, masked=False, **options):
    """Of a recurrent layer: what gives its value and gradients, and its arguments."""
    layer = RECURRENT[name](dtype=dtype, **options)
    x = np.random.default_rng(0).standard_normal((5, steps, 6)).astype("float32")
    mask = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1], [0, 0, 0]], bool)
    layer(x)
    graph, state = nnx.split(layer)
    factors = np.random.default_rng(1).standard_normal(3)

    def total(x, state):
        kwargs = {"mask": mask} if masked else {}
        y = nnx.merge(graph, state)(x, **kwargs).astype(jnp.float32)
        return (y**2 * factors[:, None]).sum() if y.ndim == 3 else (y**2).sum()

    return total, (jnp.asarray(x), nnx.as_pure(state))


@pytest.fixture
def hoisted(monkeypatch):
    """Inputs are projected before the loop, as on an accelerator."""
    monkeypatch.setattr(RecurrentCell, "hoist", True)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lstm", {"return_sequences": True, "masked": True}),
        ("gru", {"masked": True, "go_backwards": True}),
        ("gru", {"return_sequences": True}),
        ("lstm", {"dtype": "mixed_bfloat16"}),
        ("simple", {"return_sequences": True}),
    ],
)
def test_loops_agree_with_those_of_xla(request, hoisted, name, options):
    total, args = looped(name, **options)
    plain = jax.value_and_grad(total, (0, 1))(*args)
    calls = request.getfixturevalue("kernels")
    found = jax.jit(jax.value_and_grad(total, (0, 1)))(*args)
    assert len(calls) >= 2, "the kernels were not used"
    close(found, plain, 2e-2 if "dtype" in options else 1e-5)


def test_gradients_of_a_loops_gradients_are_those_of_xla(request, hoisted):
    total, args = looped("gru")

    def bend(x, state):
        return (jax.grad(total)(x, state) ** 2).sum()

    plain = jax.grad(bend)(*args)
    request.getfixturevalue("kernels")
    close(jax.grad(bend)(*args), plain, 1e-4)


def test_loops_that_are_left_to_xla(monkeypatch):
    monkeypatch.setattr(recurrent_loop, "runs_kernels", lambda **_: True)

    def fits(step, units, dtype="float32"):
        xs = jax.ShapeDtypeStruct((7, 4, step.gates * units), dtype)
        w = {"recurrent_kernel": jax.ShapeDtypeStruct((units, units), dtype)}
        return recurrent_loop.fits(
            step, xs, w, (jax.ShapeDtypeStruct((4, units), dtype),)
        )

    lstm, gru = layers.LSTM(8).cell.step, layers.GRU(8).cell.step
    assert fits(lstm, 64) and fits(gru, 64) and fits(gru, 64, "bfloat16")
    assert not fits(lstm, 128)  # no room for its kernel
    assert not fits(lstm, 48) and not fits(lstm, 8)  # Triton's sizes
    assert not fits(lstm, 64, "float64")
    assert not fits(layers.LSTM(8, activation="relu").cell.step, 64)
    assert not fits(layers.GRU(8, reset_after=False).cell.step, 64)
    with jax.default_matmul_precision("bfloat16"):
        assert not fits(lstm, 64)
