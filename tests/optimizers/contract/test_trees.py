"""Tests of ``exburn.optimizers.contract.trees``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.errors import ShapeError
from exburn.optimizers import Adam
from exburn.optimizers.contract.trees import initial_state


def test_an_initial_state_has_the_values_and_memory_of_its_own():
    def make(p):
        zero, one = jnp.zeros_like(p), jnp.ones_like(p)
        return [p, p, zero, zero, one, one, jnp.full_like(p, -0.0), jnp.int32(0)]

    params = jnp.arange(4096.0)
    state, wanted = initial_state(make, params), jax.jit(make)(params)
    for leaf, other in zip(state, wanted, strict=True):
        assert leaf.dtype == other.dtype
        assert np.asarray(leaf).tobytes() == np.asarray(other).tobytes()
    places = {leaf.unsafe_buffer_pointer() for leaf in (params, *state)}
    assert len(places) == len(state) + 1


def test_a_traced_state_is_no_constant_of_the_program():
    """Slots of a mesh are made by one program: those of 1B weights are 10 GB."""
    params = {"kernel": jnp.ones((64, 64))}
    program = jax.make_jaxpr(Adam().init)(params)
    literals = [v for e in program.eqns for v in e.invars if hasattr(v, "val")]
    sizes = [np.size(v.val) for v in literals] + list(map(np.size, program.consts))
    assert max(sizes) == 1


def test_trees_that_do_not_fit_name_the_parameter():
    optimizer = Adam()
    params = {"d": {"kernel": np.ones((2, 3)), "bias": np.ones(3)}}
    params = jax.tree.map(np.float32, params)
    state = optimizer.init(params)
    with pytest.raises(ShapeError, match="'d/bias'"):
        optimizer.update({"d": {"kernel": params["d"]["kernel"]}}, state, params)
    wrong = {"d": {"kernel": np.ones((3, 2), np.float32), "bias": params["d"]["bias"]}}
    with pytest.raises(ShapeError, match="'d/kernel'"):
        optimizer.update(wrong, state, params)
    with pytest.raises(ShapeError, match="'x'"):
        optimizer.update({**params, "x": np.ones(1, np.float32)}, state, params)
    optimizer.amsgrad = True
    with pytest.raises(ShapeError, match="init"):
        optimizer.update(params, state, params)


def test_options_of_lanes_make_states_of_their_own():
    """They are cast and repeated, as an accumulator's first value is in float16."""
    half = jnp.zeros((2, 3), jnp.float16)

    def of_lane(value):
        params = half + value.astype(half.dtype)
        return initial_state(lambda p: jnp.full_like(p, value), params)

    state = jax.vmap(of_lane)(jnp.float32([0.25, 0.5]))
    assert state.dtype == half.dtype
    assert state[:, 0, 0].tolist() == [0.25, 0.5]
