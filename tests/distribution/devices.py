"""Tests on several devices: a CPU that a process of its own divides into eight.

::

    @on_devices
    @pytest.mark.parametrize("rows", [60, 64])
    def test_an_epoch(rows):
        assert len(jax.devices()) == 8

The body runs in the other process, which starts at the first such test and goes on with
the next: to start costs seconds. Arguments are pickled, so that no fixture of live
objects can be one. What the body raises comes back, with its traceback.
"""

import functools
import importlib
import multiprocessing
import os
import sys
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:  # last: it has a folder `datasets`; the process gets the list
    sys.path.append(ROOT)

COUNT = 8
TESTS_A_PROCESS = 60  # its compiled programs pile up


def on_devices(test):
    """The test, whose body runs in a process with eight devices."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        task = test.__module__, test.__qualname__, args, kwargs
        return _process().submit(_call, *task).result()

    return run


@functools.cache
def _process():
    import jax

    folder = jax.config.jax_compilation_cache_dir
    return ProcessPoolExecutor(
        1,
        multiprocessing.get_context("spawn"),
        _begin,
        (folder,),
        max_tasks_per_child=TESTS_A_PROCESS,
    )


def _end_with(parent):
    """Ends the process with the one that it works for, however that ends.

    Else it waits for tasks forever where a worker of pytest is killed: the pipe that
    they come by stays open at its own end.
    """
    parent.join()
    os._exit(1)


def _begin(folder):
    """Divides the CPU, before JAX is started."""
    parent = multiprocessing.parent_process()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    flag = f"--xla_force_host_platform_device_count={COUNT}"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    if folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    warnings.simplefilter("error")


def _call(module, name, args, kwargs):
    from exburn import set_random_seed
    from exburn.distribution import set_distribution

    test = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    set_random_seed(0)
    try:
        return test.__wrapped__(*args, **kwargs)
    finally:
        set_distribution(None)
