"""Bodies of tests run where there are eight devices, and fail as others do."""

import os
import subprocess
import sys
import time

import jax
import pytest
from tests.distribution.devices import COUNT, ROOT, on_devices

from exburn import distribution


@on_devices
def process(value):
    return len(jax.devices()), value


@on_devices
def fails(value):
    raise ArithmeticError(f"no {value}")


def test_the_process_has_eight_devices():
    assert process("as it was") == (COUNT, "as it was")


def test_a_failure_comes_back():
    with pytest.raises(ArithmeticError, match="no luck"):
        fails("luck")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_process_ends_with_one_that_is_killed(tmp_path):
    script = (
        f"import os, sys; sys.path.append({ROOT!r})\n"
        "from tests.distribution import devices\n"
        "pid = devices._process().submit(os.getpid).result()\n"
        "open('pid', 'w').write(str(pid))\n"
        "os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-P", "-c", script]
    assert subprocess.run(command, cwd=tmp_path).returncode == -9
    path, until = f"/proc/{(tmp_path / 'pid').read_text()}", time.monotonic() + 30
    while os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.01)
    assert not os.path.exists(path)


@on_devices
@pytest.mark.parametrize("turn", [1, 2])
def test_no_test_leaves_a_distribution_behind(turn):
    assert distribution.distribution() is None
    distribution.set_distribution(distribution.DataParallel())
