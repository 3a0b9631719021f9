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
from exburn.runtime.blocks.rematerializing import KINDS, remat_blocks
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
    "documents in tiles": (2, 64, 64, CAUSAL, "owners"),
    "window in tiles": (2, 64, 64, CAUSAL | {"window": 20}, ""),
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
    parts = query, key, value, *sides, log, out, slope
    return ring_blocks.differentiate_block(seen, *parts)


@on_devices
def test_blocks_of_one_document_need_no_mask():
    """Rows of 64 positions are four pieces on two devices; two documents share one."""
    met = []

    def count(seen, *arrays):
        jax.debug.callback(lambda: met.append(seen))
        return attend_as_cudnn(seen, *arrays)

    *inputs, _ = arrays(64, 64)
    run = functools.partial(ring_attention, causal=True, scale=0.3, cudnn=True)
    compiled = jax.jit(lambda owners: run(*inputs, owners=owners))
    for first, wanted in ((64, 10), (32, 6), (24, 4)):
        owners = np.broadcast_to(np.arange(64) >= first, (2, 64)).astype("int32")
        met.clear()
        with (
            in_force(make_distribution({"context": 2})),
            unittest.mock.patch.object(ring_module, "attend_block_by_cudnn", count),
        ):
            out = compiled(owners)
            jax.effects_barrier()
        assert len(met) == wanted
        mask = (owners[:, :, None] == owners[:, None])[:, None]
        assert_close(out, attend(*inputs, mask=mask, causal=True, scale=0.3))


def as_on_a_gpu():
    """In the block, the plain form stands in for cuDNN's kernel, in small tiles."""
    return unittest.mock.patch.multiple(
        ring_module,
        TILE=8,
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


@pytest.mark.parametrize(("window", "turns"), [(4, 1), (14, 3), (32, 6)])
@on_devices
def test_keys_go_no_further_than_a_causal_window(window, turns):
    """Parts have four positions; the first block and the last are beside the loop."""
    options = {"causal": True, "window": window, "scale": 1.0}
    ring = functools.partial(ring_attention, **options)
    with in_force(make_distribution({"context": 8})):
        text = str(jax.make_jaxpr(ring)(*arrays(32, 32)[:3]))
    assert max(map(int, re.findall(r"length=(\d+)", text))) == turns


def deep(x, factors):
    """Equal blocks; the first's input has no mesh yet."""
    for factor in factors:
        x = x + ring_attention(x * factor, x, jax.numpy.sin(x), scale=1.0)
    return x


def slopes(kind, *arguments):
    """Gradients by blocks that are computed again so."""
    run = deep if kind is None else remat_blocks(deep, kind)
    return jax.grad(lambda *arguments: (run(*arguments) ** 2).sum(), (0, 1))(*arguments)


def inputs_and_factors():
    x = arrays(16, 16)[0]
    return x, [x[:1, :1], x[1:, :1], x[:1, 1:2], x[1:, 1:2]]


@pytest.mark.parametrize("kind", KINDS)
@on_devices
def test_blocks_that_are_computed_again_keep_what_attention_gave(kind):
    def sends(kind):
        code = jax.make_jaxpr(functools.partial(slopes, kind))(*inputs_and_factors())
        return str(code).count("ppermute")

    with in_force(make_distribution({"context": 2})):
        assert sends(kind) == sends(None)
        if kind != "offload":
            return
        found, wanted = (
            jax.jit(functools.partial(slopes, kind))(*inputs_and_factors())
            for kind in (kind, None)
        )
    assert_close(found, wanted)


@on_devices
def test_a_block_waits_for_the_gradients_of_the_weights_behind_it():
    def waits(learnt):
        def loss(x, factors):  # a new function each time, whose trace JAX has not kept
            for factor in factors:
                x = x + jax.numpy.sin(jax.numpy.tanh(x) * factor)
            return x.sum()

        run = jax.grad(remat_blocks(loss), learnt)
        found = jax.make_jaxpr(run)(*inputs_and_factors()).eqns
        barriers = [e for e in found if e.primitive.name == "optimization_barrier"]
        return [len(barrier.invars) for barrier in barriers]

    assert waits((0, 1)) == []  # on one device nothing is hidden behind anything
    with in_force(make_distribution({"context": 4})):
        assert waits((0, 1)) == [1, 2, 2, 2]
        assert waits((0,)) == [1, 1, 1, 1]  # frozen weights have none


@on_devices
def test_kernels_of_rows_leave_positions_where_they_are():
    with in_force(make_distribution({"data": 2, "context": 2})):
        assert device_part(np.zeros((8, 8, 16))) is None
        assert device_part(np.zeros((64, 16))).shape == (16, 16)
