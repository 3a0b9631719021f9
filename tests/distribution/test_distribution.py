"""``distribute_tensor``, on arrays, in programs, on symbols."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn.distribution import DeviceMesh, TensorLayout, distribute_tensor
from exburn.errors import LayoutError

ONE = ["cpu:0"]


@pytest.mark.parametrize("framework", [exburn, keras])
def test_as_in_keras(framework):
    api = framework.distribution
    mesh = api.DeviceMesh((1, 1), ["batch", "model"], ONE)
    layout = api.TensorLayout(("batch", "model"), mesh)
    x = jnp.arange(8.0).reshape(4, 2)
    put = api.distribute_tensor(x, layout)
    assert put.sharding.is_equivalent_to(layout.backend_layout, 2)
    np.testing.assert_array_equal(put, x)
    inside = jax.jit(lambda v: api.distribute_tensor(2 * v, layout))(x)
    np.testing.assert_array_equal(inside, 2 * x)
    symbol = framework.Input((2,))
    assert api.distribute_tensor(symbol, layout) is symbol


def test_what_does_not_fit():
    mesh = DeviceMesh((1,), ["batch"], ONE)
    with pytest.raises(LayoutError, match="does not fit the array"):
        distribute_tensor(np.ones(3), TensorLayout((None, "batch"), mesh))
    with pytest.raises(LayoutError, match="must be a TensorLayout"):
        distribute_tensor(np.ones(3), ("batch",))
    with pytest.raises(LayoutError, match="no device_mesh yet"):
        distribute_tensor(np.ones(3), TensorLayout(("batch",)))


@on_devices
def test_on_eight_devices():
    mesh = DeviceMesh((2, 4), ["batch", "model"])
    layout = TensorLayout(("batch", "model"), mesh)
    x = np.arange(32.0, dtype=np.float32).reshape(4, 8)
    put = distribute_tensor(x, layout)
    assert put.sharding.shard_shape(put.shape) == (2, 2)
    moved = distribute_tensor(put, TensorLayout((None, "batch"), mesh))
    assert moved.sharding.shard_shape(moved.shape) == (4, 4)
    np.testing.assert_array_equal(moved, x)
    inside = jax.jit(lambda v: distribute_tensor(v + 1, layout))(x)
    assert inside.sharding.shard_shape(inside.shape) == (2, 2)
    for shape in ((3, 8), (4, 6)):
        with pytest.raises(LayoutError, match="does not fit the array"):
            distribute_tensor(np.ones(shape), layout)
