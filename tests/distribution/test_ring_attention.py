"""Attention that goes round computes what one device does, and its gradients."""

import functools
import re
import unittest.mock

import jax
import numpy as np
import pytest
from tests.distribution.devices import on_devices
from tests.distribution.models import assert_close

from exburn.layers.attention.scaled_dot_product import attend
from exburn.runtime.blocks.rematerializing import remat_blocks
from exburn.runtime.kernels import ring_attention as ring_module
from exburn.runtime.kernels import ring_blocks
from exburn.runtime.kernels.dispatch import device_part
from exburn.runtime.kernels.ring_attention import ring_attention
from exburn.runtime.sharding.current import in_force
from exburn.runtime.sharding.strategies import make_distribution

CAUSAL = {"causal": True}
CASES = {  # parts, targets, sources, what is seen, what is masked
    "causal": (4, 16, 16, CAUSAL, ""),
    "three parts": (3, 12, 12, CAUSAL, ""),
    "uneven": (4, 13, 13, CAUSAL, ""),
    "both ways": (4, 13, 13, {}, ""),
    "of others": (4, 13, 7, {}, ""),
    "window of a part": (4, 16, 16, CAUSAL | {"window": 3}, ""),
    "window of parts": (4, 16, 16, CAUSAL | {"window": 9}, ""),
    "window both ways": (4, 16, 16, {"window": 3}, ""),
    "documents": (4, 16, 16, CAUSAL, "owners"),
    "documents in a window": (4, 16, 16, CAUSAL | {"window": 6}, "owners"),
    "filled up": (4, 15, 15, {}, "masks"),
    "filled up and bounded": (4, 16, 16, CAUSAL | {"soft_cap": 2.0}, "masks"),
}


def arrays(targets, sources):
    """Query, key, value, and the gradient of the outputs."""
    rng = np.random.default_rng(0)
    shapes = (targets, 4), (sources, 2), (sources, 2), (targets, 4)
    return [rng.normal(size=(2, *shape, 8)).astype("float32") for shape in shapes]


def masked(kind, targets, sources):
    """What the ring is told, and the same as a mask."""
    if kind == "owners":
        owners = np.minimum(np.arange(targets) // 5, 2) * np.array([[1], [2]])
        return {"owners": owners}, (owners[:, :, None] == owners[:, None])[:, None]
    if kind == "masks":  # one query sees nothing at all
        seen = np.arange(targets) < np.array([[targets], [targets - 5]])
        read = np.arange(sources) >= np.array([[0], [2]])
        both = seen[:, :, None] & read[:, None]
        return {"query_mask": seen, "key_mask": read}, both[:, None]
    return {}, None


def attend_as_cudnn(seen, query, key, value):
    """The plain form in its place; it has no gradient of odd lengths."""
    assert query.shape[1] % 8 == key.shape[1] % 8 == 0
    sides = (ring_blocks.Side(0, None),) * 2
    return ring_blocks.attend_block(seen, query, key, value, *sides)


def differentiate_as_cudnn(seen, query, key, value, log, out, slope):
    sides = (ring_blocks.Side(0, None),) * 2
    mean = (out * slope).sum(-1).swapaxes(1, 2)
    parts = query, key, value, *sides, log, mean, slope
    return ring_blocks.differentiate_block(seen, *parts)


def as_on_a_gpu():
    """In the block, the plain form stands in for cuDNN's kernel."""
    return unittest.mock.patch.multiple(
        ring_module,
        attend_block_by_cudnn=attend_as_cudnn,
        differentiate_block_by_cudnn=differentiate_as_cudnn,
    )


@pytest.mark.parametrize("cudnn", [False, True])
@pytest.mark.parametrize("case", CASES)
@on_devices
def test_outputs_and_gradients(case, cudnn):
    parts, targets, sources, seen, kind = CASES[case]
    if cudnn and "soft_cap" in seen:
        return  # never both
    *inputs, slope = arrays(targets, sources)
    told, mask = masked(kind, targets, sources)

    def run(attention, options):
        def total(*inputs):
            out = attention(*inputs, scale=0.3, **seen, **options)
            return (out * slope).sum(), out

        return jax.jit(jax.value_and_grad(total, (0, 1, 2), has_aux=True))(*inputs)

    wanted = run(attend, {"mask": mask})
    with in_force(make_distribution({"context": parts})), as_on_a_gpu():
        found = run(ring_attention, told | {"cudnn": cudnn})
    assert_close(found, wanted)


@pytest.mark.parametrize(("window", "turns"), [(4, 1), (9, 2), (32, 7)])
@on_devices
def test_keys_go_no_further_than_a_causal_window(window, turns):
    """Parts have four positions; the first block is a device's own."""
    options = {"causal": True, "window": window, "scale": 1.0}
    ring = functools.partial(ring_attention, **options)
    with in_force(make_distribution({"context": 8})):
        text = str(jax.make_jaxpr(ring)(*arrays(32, 32)[:3]))
    assert max(map(int, re.findall(r"length=(\d+)", text))) == turns


@on_devices
def test_blocks_that_are_computed_again_keep_what_attention_gave():
    """Equal blocks are found beside the first, whose input has no mesh yet."""

    def deep(x, factors):
        for factor in factors:
            x = x + ring_attention(x * factor, x, jax.numpy.sin(x), scale=1.0)
        return x

    def sends(kind):
        run = deep if kind is None else remat_blocks(deep, kind)
        slopes = jax.grad(lambda x, factors: run(x, factors).sum())
        return str(jax.make_jaxpr(slopes)(x, [x, x, x, x])).count("ppermute")

    x = arrays(16, 16)[0]
    with in_force(make_distribution({"context": 4})):
        assert sends("activations") == sends(None) < sends("blocks")


@on_devices
def test_kernels_of_rows_leave_positions_where_they_are():
    with in_force(make_distribution({"data": 2, "context": 2})):
        assert device_part(np.zeros((8, 8, 16))) is None
        assert device_part(np.zeros((64, 16))).shape == (16, 16)
