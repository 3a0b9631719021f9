"""Functions that share one trace among the calls of a program."""

import jax
import jax.numpy as jnp
import numpy as np

from exburn.runtime.cached_trace import traced_once


def test_equal_shapes_and_static_arguments_share_a_trace():
    traces = []

    @traced_once("power")
    def grown(x, power):
        traces.append((x.shape, power))
        return x + x**power

    def program(x, y):
        return grown(x, 2) + grown(2 * x, 2), grown(x, 3), grown(y, 2)

    ones = jnp.ones(3), jnp.ones(2)
    found = jax.jit(program)(*ones)
    assert traces == [((3,), 2), ((3,), 3), ((2,), 2)]
    np.testing.assert_array_equal(found[0], np.full(3, 8.0))


def test_outside_of_programs_the_function_itself_runs():
    @traced_once()
    def kind(x):
        return type(x)

    assert kind(np.ones(2)) is np.ndarray
