"""Tests of ``exburn.runtime.kernels.dispatch``."""

import types

import jax
import pytest

from exburn import config
from exburn.runtime.kernels import dispatch
from exburn.runtime.sharding.current import spread_by_hand


@pytest.mark.parametrize(
    ("backend", "capability", "runs"),
    [("gpu", "9.0", 1), ("gpu", "7.5", 0), ("gpu", "gfx942", 0), ("cpu", "9.0", 0)],
)
def test_gpus_that_have_the_kernels(monkeypatch, backend, capability, runs):
    device = types.SimpleNamespace(compute_capability=capability)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    assert dispatch.runs_kernels() == bool(runs)
    with spread_by_hand():
        assert not dispatch.runs_kernels()
    monkeypatch.setattr(jax, "device_count", lambda: 2)  # of which one is used
    assert dispatch.runs_kernels() == bool(runs)
    monkeypatch.setattr(dispatch, "_has_triton", lambda: False)
    assert not dispatch.runs_kernels()
    monkeypatch.setitem(config._settings, "gpu_kernels", False)
    assert not dispatch.runs_kernels()
    assert "disable_gpu_kernels" in str(dispatch.why_not())
