"""Outputs on their way from a GPU into memory of the host."""

import jax
import numpy as np
import pytest

from exburn.runtime import transfer


@pytest.mark.parametrize("rows", [2, 70_000])
def test_small_outputs_of_a_gpu_are_written_into_memory_of_the_host(rows, monkeypatch):
    outputs = {"a": jax.numpy.arange(rows), "b": jax.numpy.ones(2)}
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(transfer, "_OFTEN", 2)
    kinds = []
    for _ in range(4):
        found = transfer.to_host_async(outputs)
        kinds.append({leaf.sharding.memory_kind for leaf in found.values()})
    np.testing.assert_array_equal(found["a"], np.arange(rows))
    often = {"pinned_host" if rows == 2 else "device"}
    assert kinds == [{"device"}, {"device"}, often, often]


def test_large_outputs_of_a_gpu_go_to_memory_that_it_writes_to(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    large = jax.numpy.arange(3 << 20).reshape(2, 3, 1 << 19)
    found = transfer.to_host_async(large)
    assert found.sharding.memory_kind == "pinned_host"
    ((start, rows),) = transfer.in_parts(found)
    np.testing.assert_array_equal(rows, large.reshape(6, -1))
    monkeypatch.setattr(transfer, "_PART", 8 << 20)
    assert transfer.to_host_async(large) is large  # it comes in parts
    assert start == 0 and len(list(transfer.in_parts(large))) == 2


def test_where_no_memory_is_left_that_a_gpu_writes_to_outputs_come_as_others(
    monkeypatch,
):
    def full(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED")

    large = jax.numpy.arange(3 << 20).reshape(2, 3, 1 << 19)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "device_put", full)
    found = transfer.to_host_async(large)
    ((_, rows),) = transfer.in_parts(found)
    np.testing.assert_array_equal(rows, large.reshape(6, -1))
