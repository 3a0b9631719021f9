"""The largest batch that a device's memory holds."""

import subprocess
import sys
import textwrap
import types

import jax
import pytest
from tests.models.networks import network

from exburn.models import planning
from exburn.runtime.transfer import release_spare
from exburn.training import memory
from exburn.training.memory import Footprint, fits_device, free_bytes, largest_batch


@pytest.mark.parametrize(
    ("fixed", "slope", "limit"),
    [(1000, 7, 10_000), (0, 1, 5), (10_000, 7, 9_999), (10, 0, 100), (500, 90, 600)],
)
def test_the_largest_batch_is_measured(fixed, slope, limit):
    measured = {}

    def measure(rows):
        step = 64 * (rows // 64)  # memory comes in blocks
        measured[rows] = fixed + slope * rows + step
        return Footprint(rows, 0.0, 0, 0, 0, 0, measured[rows])

    found = largest_batch(measure, measure(32), limit)
    assert len(measured) <= 7
    if found == 0:
        assert min(measured) == 1 and measured[1] > limit
        return
    assert measured[found] <= limit
    if found < 1 << 24:
        worse = fixed + (slope + 1) * found * 1.1
        assert worse > limit * 0.8


def with_memory(limit, used=0):
    stats = {"bytes_limit": limit, "bytes_in_use": used}
    return types.SimpleNamespace(memory_stats=lambda: stats)


def test_of_several_devices_the_fullest_counts(monkeypatch):
    release_spare()  # of other tests
    devices = [with_memory(1000), with_memory(1000, used=300), with_memory(900)]
    assert free_bytes(devices) == 700
    assert fits_device(175, devices) and not fits_device(176, devices)
    monkeypatch.setattr(jax, "local_devices", lambda: devices[::-1])
    assert free_bytes() == 900  # of one device, the first


def test_devices_of_a_cpu_share_the_memory_of_the_process(monkeypatch):
    release_spare()
    silent = types.SimpleNamespace(memory_stats=lambda: None)
    monkeypatch.setattr(memory, "free_host_bytes", lambda: 8000)
    assert free_bytes([silent]) == 8000
    assert free_bytes([silent] * 8) == 1000


def test_the_plan_names_the_largest_batch_of_a_smaller_device(monkeypatch):
    model = network()
    monkeypatch.setattr(planning, "free_bytes", lambda devices: 1 << 20)
    plan = model.plan(32)
    held = plan.available_bytes
    assert plan.fits and 32 < plan.largest_batch
    assert model.plan(plan.largest_batch, largest=False).peak_bytes <= held
    more = int(plan.largest_batch * 1.1) + 8
    worse = model.plan(more)
    assert not worse.fits and worse.largest_batch <= plan.largest_batch * 1.05


def exhausted(*_, **__):
    raise jax.errors.JaxRuntimeError(
        "RESOURCE_EXHAUSTED: Out of memory allocating 9999999999 bytes."
    )


def test_a_size_that_cannot_even_be_compiled_does_not_fit():
    def measure(rows):
        if rows > 100:
            exhausted()
        return Footprint(rows, 0.0, 0, 0, 0, 0, peak_bytes=1000 + 7 * rows)

    assert 80 <= largest_batch(measure, measure(32), 2000) <= 100


REAL = """
    import resource
    import numpy as np
    import exburn
    from exburn import layers

    model = exburn.Sequential(
        [exburn.Input((64,)), layers.Dense(512, "relu"), layers.Dense(3)]
    )
    model.compile("adam", "cross_entropy", seed=0)
    rows = 800_000
    x, y = np.ones((rows, 64), np.float32), np.zeros(rows, np.int32)
    model.fit(x[:64], y[:64], verbose=0)
    before = model.get_weights()
    used = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)
    try:
        model.fit(x, y, batch_size=rows, verbose=0)
    except exburn.errors.OutOfMemoryError as error:
        plan = error.plan
        print(error)
    for now, then in zip(model.get_weights(), before):
        np.testing.assert_array_equal(now, then)
    assert not plan.fits and 1000 < plan.largest_batch < rows
    fitting = int(plan.largest_batch * 0.7)
    model.fit(x[:fitting], y[:fitting], batch_size=fitting, verbose=0)
    print("went on")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS and /proc")
def test_a_device_that_really_has_not_enough(tmp_path):
    result = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(REAL)],
        capture_output=True,
        text=True,
        env={"JAX_PLATFORMS": "cpu", "PATH": "", "HOME": str(tmp_path)},
        timeout=120,
    )
    assert "went on" in result.stdout, result.stderr[-2000:]
    assert "RESOURCE_EXHAUSTED" in result.stdout
