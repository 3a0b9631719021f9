"""Tests of ``exburn.optimizers.contract.rules``."""

import jax.numpy as jnp
import numpy as np
import pytest

from exburn.errors import ArgumentError
from exburn.optimizers.contract.rules import bias_correction, per_parameter


def momentum():
    def update(g, p, path, velocity):
        velocity = 0.9 * velocity + g
        return -0.1 * velocity * (2.0 if path == "b" else 1.0), {"velocity": velocity}

    return per_parameter(lambda p, path: {"velocity": jnp.zeros_like(p)}, update)


def test_a_rule_sees_each_parameter_with_its_path_and_its_slots():
    rule = momentum()
    params = {"a": jnp.ones(2), "b": jnp.ones(())}
    state = rule.init(params)
    assert {k: set(slots) for k, slots in state.items()} == {
        "a": {"velocity"},
        "b": {"velocity"},
    }
    grads = {"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)}
    for velocity in (1.0, 1.9, 2.71):
        updates, state = rule.update(grads, state, params)
        np.testing.assert_allclose(
            updates["a"], [-0.1 * velocity, -0.2 * velocity], 1e-5
        )
        np.testing.assert_allclose(updates["b"], -0.6 * velocity, 1e-5)


def test_parameters_are_needed():
    rule = momentum()
    state = rule.init({"a": jnp.ones(2)})
    with pytest.raises(ArgumentError, match="needs the parameters"):
        rule.update({"a": jnp.ones(2)}, state)


@pytest.mark.parametrize("beta", [0.9, 0.999])
def test_the_correction_makes_a_mean_of_equal_numbers_that_number(beta):
    moment = 0.0
    for step in range(1, 4):
        moment = beta * moment + (1 - beta) * 5.0
        corrected = moment / bias_correction(beta, jnp.int32(step - 1))
        np.testing.assert_allclose(corrected, 5.0, rtol=1e-6)
