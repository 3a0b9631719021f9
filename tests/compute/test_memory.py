"""Tests of ``exburn.compute.memory``."""

import gc
import time

import jax
import jax.numpy as jnp
import numpy as np

from exburn import compute


def test_synchronize_waits_for_everything():
    gc.collect()  # of commands that failed in other tests: it would raise their error
    done = []

    def slow(x):
        def note(v):
            time.sleep(0.05)
            done.append(1)

        jax.debug.callback(note, x)
        return x + 1

    jax.jit(slow)(jnp.zeros(2))
    compute.synchronize()
    assert done == [1]


def test_memory():
    before = compute.memory_info()
    held = compute.buffer(np.zeros((256, 1024), np.float32))
    after = compute.memory_info()
    assert after["used"] >= before["used"] + held.nbytes > 0
    assert after["total"] > after["free"] > 0
    assert compute.device_count() == len(jax.devices())
