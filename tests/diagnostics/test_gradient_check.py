"""Autodiff against differences, parameter by parameter."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from tests.diagnostics.models import X, Y, model

import exburn
from exburn import layers


def test_a_step_in_bfloat16_is_what_was_really_moved():
    made = model(layers.Dense(5, "tanh", dtype="bfloat16"), dtype="bfloat16")
    found = exburn.check_gradients(made, (X, Y))
    assert found.ok, str(found)


@jax.custom_vjp
def broken(x):
    return jnp.tanh(x)


broken.defvjp(
    lambda x: (jnp.tanh(x), x), lambda x, g: (1.5 * g * (1 - jnp.tanh(x) ** 2),)
)


def test_the_check_names_the_layer_with_a_wrong_gradient():
    made = model(
        layers.Dense(5, "tanh", name="good"), layers.Dense(4, broken, name="bad")
    )
    found = exburn.check_gradients(made, (X, Y))
    assert not found.ok
    wrong = {row.path for row in found.rows if row.relative > found.tolerance}
    # What lies behind the wrong derivative is right; before it, everything is wrong.
    assert wrong == {"good/kernel", "good/bias", "bad/kernel", "bad/bias"}
    assert found.worst.path in wrong and "← worst" in str(found)


def test_corners_are_left_out():
    made = model(layers.Dense(128, "relu"))
    found = exburn.check_gradients(made, (X, Y), elements=None)
    assert found.ok, str(found)
    assert sum(row.corners for row in found.rows) > 0


class Corner(exburn.Layer):
    """A ReLU of a weight that is zero."""

    def build(self, shape):
        start = lambda shape, dtype=None: jnp.array([0.0, 0.5, 1.0, 2.0])  # noqa: E731
        self.w = self.add_weight(name="w", shape=(4,), initializer=start)

    def call(self, x):
        return x * jax.nn.relu(self.w + 0)


@pytest.mark.parametrize("method", ["numerical", "numerical_batch"])
def test_a_corner_right_at_a_weight_is_no_error(method):
    found = exburn.check_gradients(model(Corner(name="c")), (X, Y), method=method)
    assert found.ok and [r.corners for r in found.rows if r.path == "c/w"] == [1]


class Odd(exburn.Layer):
    """A scalar and an empty weight."""

    def build(self, shape):
        self.factor = self.add_weight(name="factor", shape=(), initializer="ones")
        self.none = self.add_weight(name="none", shape=(0, 2))

    def call(self, x):
        return x * self.factor


def test_scalar_and_empty_parameters():
    made = model(Odd(name="odd"))
    found = exburn.compute_gradients(made, (X, Y), method="numerical")
    assert found["odd/none"].shape == (0, 2) and abs(found["odd/factor"]) > 0
    assert exburn.check_gradients(made, (X, Y)).ok


def test_float64():
    """Losses are summed in float32, so steps are those of float32."""
    code = (
        "import jax; jax.config.update('jax_enable_x64', True)\n"
        "import numpy as np, exburn\n"
        "exburn.set_precision('float64')\n"
        "m = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])\n"
        "m.compile('sgd', 'cross_entropy', seed=0)\n"
        "x, y = np.random.default_rng(0).normal(size=(8, 4)), np.arange(8) % 3\n"
        "a = exburn.compute_gradients(m, (x, y))\n"
        "for how in ('numerical', 'numerical_batch'):\n"
        "    b = exburn.compute_gradients(m, (x, y), method=how)\n"
        "    for k in a: np.testing.assert_allclose(a[k], b[k], atol=2e-3)\n"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=120)
