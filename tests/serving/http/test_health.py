import asyncio
import threading
import time

import numpy as np
from tests.serving.http.conftest import FAST

from exburn.serving.http.health import Health
from exburn.serving.http.registry import Registry
from exburn.serving.options import ServingOptions

EXAMPLE = np.zeros((1, 3), np.float32)


def registry():
    registry = Registry(ServingOptions(**FAST, batch_timeout=0, example=EXAMPLE))
    registry.load("m", lambda x: x)
    return registry


def test_canaries_keep_an_idle_server_ready():
    async def run(models):
        health = Health(models, within=0.2)
        health.start()
        await asyncio.sleep(0.4)
        ready = health.all_ready(), health.is_live()
        await health.stop()
        await asyncio.sleep(0.25)
        return *ready, health.all_ready()

    models = registry()
    assert asyncio.run(run(models)) == (True, True, False)
    models.close(5)


def test_a_partition_that_hangs_is_not_ready_until_it_goes_on():
    async def run(models):
        health = Health(models, within=0.1)
        health.start()
        entry = models.get("m")
        gate, hangs = threading.Event(), threading.Event()
        partition = entry.serving._partitions[0]

        def hang(*args, **options):
            hangs.set()
            gate.wait(10)
            return 0.0

        partition.time = hang
        while not hangs.is_set():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        seen = [health.is_ready(entry), health.all_ready(), health.is_live()]
        gate.set()
        until = time.monotonic() + 5
        while not health.all_ready() and time.monotonic() < until:
            await asyncio.sleep(0.01)
        seen.append(health.all_ready())

        def fail(*args, **options):
            raise RuntimeError("the device is gone")

        partition.time = fail
        await asyncio.sleep(0.3)
        seen.append(health.all_ready())
        await health.stop()
        return seen

    models = registry()
    assert asyncio.run(run(models)) == [False, False, True, True, False]
    models.close(5)


def test_neither_drained_nor_closed_is_ready():
    models = registry()
    health = Health(models, within=60)
    assert health.all_ready()
    health.draining = True
    assert not health.all_ready() and health.is_live()
    health.draining = False
    models.get("m").serving.close()
    assert not health.all_ready() and not health.is_live()
