"""Tests of ``exburn.runtime.kept_memory``."""

import json
import os
import subprocess
import sys
import textwrap

import jax
import pytest

from exburn.runtime import kept_memory

pytestmark = pytest.mark.skipif(
    kept_memory._mallopt() is None, reason="only glibc has what this is about"
)


@pytest.fixture(autouse=True)
def _asked_anew():
    kept_memory._has_room.cache_clear()
    yield
    kept_memory._has_room.cache_clear()


_FAULTS = """
    import ctypes, json, resource, threading
    import exburn
    from exburn.runtime import kept_memory as module

    kept_memory, module.has_quarter_free = module.kept_memory, lambda: True
    libc, size = ctypes.CDLL(None), 128 << 20
    libc.malloc.restype = ctypes.c_void_p
    faults = []

    def fill_twice():
        for _ in range(2):
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
            place = ctypes.c_void_p(libc.malloc(ctypes.c_size_t(size)))
            ctypes.memset(place, 1, size)
            libc.free(place)
            faults.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)

    def on_a_thread():
        thread = threading.Thread(target=fill_twice)
        thread.start()
        thread.join()

    with kept_memory():
        with kept_memory():
            on_a_thread()
        on_a_thread()
    on_a_thread()
    on_a_thread()
    print(json.dumps(faults))
"""


def test_large_memory_of_threads_is_used_again_within_the_block():
    code = textwrap.dedent(_FAULTS)
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    first, *within, _, _, _, behind = json.loads(output)

    pages = (128 << 20) // 4096
    if first < pages / 2:
        pytest.skip("this Linux gives programs pages of 2 MiB")
    assert max(within) < pages / 20
    assert behind > pages / 2  # Linux has it again


def test_a_platform_with_another_device_first_keeps_its_memory_as_it_is(monkeypatch):
    calls = []
    monkeypatch.setattr(kept_memory, "_mallopt", lambda: lambda *a: calls.append(a))
    monkeypatch.setattr(kept_memory, "_on_processor", lambda: False)
    with kept_memory.kept_memory():
        kept_memory.share_arena()

    assert calls == []


def test_blocks_within_blocks_set_the_memory_once(monkeypatch):
    calls = []
    monkeypatch.setattr(kept_memory, "_mallopt", lambda: lambda *a: calls.append(a))
    monkeypatch.setattr(kept_memory, "_on_processor", lambda: True)
    monkeypatch.setattr(kept_memory, "has_quarter_free", lambda: True)
    with pytest.raises(KeyError), kept_memory.kept_memory():
        with kept_memory.kept_memory():
            entered = list(calls)
        assert calls == entered
        raise KeyError

    assert len(entered) == 2 and len(calls) == 5


def test_a_full_machine_keeps_nothing(monkeypatch):
    calls = []
    monkeypatch.setattr(kept_memory, "_mallopt", lambda: lambda *a: calls.append(a))
    monkeypatch.setattr(kept_memory, "_on_processor", lambda: True)
    monkeypatch.setattr(kept_memory, "has_quarter_free", lambda: False)
    with kept_memory.kept_memory():
        pass

    assert calls == []


def test_the_system_is_asked_for_room_at_most_ten_times_a_second(monkeypatch):
    calls, now = [], [100.0]
    monkeypatch.setattr(kept_memory, "_mallopt", lambda: lambda *a: None)
    monkeypatch.setattr(kept_memory, "_on_processor", lambda: True)
    monkeypatch.setattr(kept_memory, "has_quarter_free", lambda: bool(calls.append(1)))
    monkeypatch.setattr(kept_memory.time, "monotonic", lambda: now[0])
    for step in (0.0, 0.01, 0.02, 0.2, 0.01):
        now[0] += step
        with kept_memory.kept_memory():
            pass

    assert len(calls) == 2


@pytest.mark.parametrize(
    ("platforms", "on_processor"),
    [("cpu", True), ("cpu,cuda", True), ("cuda,cpu", False), ("cuda", False)],
)
def test_the_first_platform_decides(platforms, on_processor):
    before = jax.config.values["jax_platforms"]
    jax.config.update("jax_platforms", platforms)
    try:
        assert kept_memory._on_processor() is on_processor
    finally:
        jax.config.update("jax_platforms", before)


@pytest.mark.parametrize(
    ("name", "setting", "chosen"),
    [
        ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", True),
        ("GLIBC_TUNABLES", "glibc.cpu.x86_ibt=on", False),
        ("MALLOC_ARENA_MAX", "2", True),
        ("MALLOC_MMAP_THRESHOLD_", "1048576", True),
        ("MALLOC_MMAP_MAX_", "65536", True),
        ("MALLOC_TRIM_THRESHOLD_", "131072", True),
        ("LD_PRELOAD", "/usr/lib/libjemalloc.so.2", True),
        ("LD_PRELOAD", "/usr/lib/libtcmalloc.so.4", True),
        ("LD_PRELOAD", "/usr/lib/libfaketime.so.1", False),
    ],
)
def test_what_the_user_has_set_stays(monkeypatch, name, setting, chosen):
    monkeypatch.setenv(name, setting)
    assert (kept_memory._mallopt.__wrapped__() is None) is chosen


def test_with_a_setting_of_the_users_pages_come_from_linux_as_before():
    environment = os.environ | {"MALLOC_ARENA_MAX": "64"}
    command = [sys.executable, "-c", textwrap.dedent(_FAULTS)]
    run = subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment
    )
    faults = json.loads(run.stdout)
    if faults[0] < (128 << 20) // 8192:
        pytest.skip("this Linux gives programs pages of 2 MiB")
    assert min(faults) > (128 << 20) // 8192
