"""How a process of tests gives memory back, and does not look through all of it.

jax keeps each program that it has compiled, some megabyte each: a worker grew to eight
gigabytes. Between two modules of tests it lets go of them where they have become many;
the next test reads what it needs from the folder of programs (``conftest.py``).

Twenty thousand collected tests are a million objects. To look for garbage among them
takes a second, for every ``gc.collect()`` and every server that starts.
"""

import ctypes
import gc
import sys
from pathlib import Path

import pytest

GROWTH = 1 << 30  # bytes of programs and caches that are worth the time to let go of
MOST_LEFT = 3 << 30  # bytes that a process may hold after that
PAGE = 4096


class Releaser:
    """Lets go of what jax keeps, where a module of tests ends."""

    def __init__(self):
        self.left = resident()

    @pytest.hookimpl(trylast=True)  # after the ends of fixtures
    def pytest_runtest_teardown(self, item, nextitem):
        if nextitem is not None and nextitem.path == item.path:
            return
        if resident() - self.left < GROWTH:
            return
        release()
        self.left = resident()
        assert self.left < MOST_LEFT, (
            f"{self.left >> 20} MiB are held after jax has let go of its programs: "
            f"see tests/memory.py, and what {item.path.name} keeps"
        )


def resident() -> int:
    """Bytes of memory that the process takes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def release() -> None:
    """Frees the programs and traces that jax keeps, and gives the memory back."""
    sys.modules["jax"].clear_caches()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # freed is not yet given back


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    gc.collect()
    gc.freeze()


def pytest_configure(config):
    if sys.platform == "linux":
        config.pluginmanager.register(Releaser())
