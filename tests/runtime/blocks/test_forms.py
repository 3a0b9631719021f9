"""Equations are of one form where they compute the same."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from exburn.runtime.blocks.forms import Forms

X = jnp.ones((3, 3))


def forms_of(*functions, **options):
    forms = Forms(**options)
    lines = [jax.make_jaxpr(function)(X).jaxpr.eqns for function in functions]
    assert all(len(equations) == 1 for equations in lines)
    return [forms.of_equation(equations[0]) for equations in lines]


def inner(number):
    return jax.jit(lambda x: jnp.sin(x) * number)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (lambda x: x * 2, lambda x: x * 3, True),
        (lambda x: jnp.sin(x), lambda x: jnp.cos(x), False),
        (lambda x: x.sum(0), lambda x: x.sum(1), False),
        (inner(2.0), inner(2.0), True),
        (inner(2.0), inner(3.0), False),
        (jax.checkpoint(jnp.sin), jax.checkpoint(jnp.sin), True),
        (jax.nn.relu, jax.nn.relu, True),
        (jax.nn.relu, jax.nn.relu6, False),
    ],
)
def test_equal_equations_have_one_form(one, other, same):
    first, second = forms_of(one, other)
    assert (first == second) is same


def custom(factor):
    @jax.custom_jvp
    def identity(x):
        return jnp.sin(x)

    identity.defjvps(lambda slope, out, x: slope * factor)
    return identity


def test_rules_of_derivatives_count_where_gradients_are_taken():
    first, second, third = forms_of(custom(1.0), custom(2.0), custom(1.0))
    assert first == third != second
    first, second = forms_of(custom(1.0), custom(2.0), differentiable=False)
    assert first == second
