"""``doctor``: versions, devices, and a test of what everything stands on."""

import jax.numpy as jnp
import pytest

import exburn
from exburn.errors import ArgumentError, ExBurnError


def test_doctor_and_summary(monkeypatch, tmp_path):
    from exburn.diagnostics import doctor

    report = exburn.doctor()
    assert report.ok, str(report)
    assert (
        exburn.device_name() in str(report) and exburn.device_name() in exburn.summary()
    )
    assert exburn.version() == exburn.__version__
    monkeypatch.setattr(doctor, "_requirements", lambda: ["jax>=99.0"])
    bad = exburn.doctor()
    assert not bad.ok and 'pip install "jax>=99.0"' in str(bad)
    monkeypatch.setattr(
        doctor,
        "device_info",
        lambda: {"device": "none", "name": "none (x)", "notes": ["install a driver"]},
    )
    assert "✗ device" in str(exburn.doctor()) and "install a driver" in str(
        bad := exburn.doctor()
    )
    assert not bad.ok


def test_smoke_test_sees_wrong_numbers_and_failures(monkeypatch):
    from exburn.diagnostics import doctor

    monkeypatch.setattr(jnp, "tanh", lambda x: 1.001 * x)
    with pytest.raises(ExBurnError, match="wrong numbers"):
        exburn.smoke_test()

    def fail(x):
        raise RuntimeError("no driver")

    monkeypatch.setattr(jnp, "tanh", fail)
    with pytest.raises(ExBurnError, match="no driver"):
        exburn.smoke_test()
    assert any(c.state == "broken" for c in doctor.doctor().checks)


def test_configure_refuses_what_is_not_there():
    for bad in ("tpu", "cpu:77", "cpu:x"):
        with pytest.raises(ArgumentError, match="device"):
            exburn.configure(bad)
