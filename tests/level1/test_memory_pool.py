"""When JAX is told to take a GPU's memory as a pool of CUDA's."""

import ctypes
from typing import Any

import jax
import pytest

from exburn.memory_pool import use_memory_pool

OPTIONS = "jax_pjrt_client_create_options"


class Driver:
    """What of CUDA's driver is asked; functions return 0 for success."""

    def __init__(self, gpus: int = 1, pools: bool = True, started: int = 0):
        self.gpus, self.pools, self.started = gpus, pools, started

    def cuInit(self, flags):
        return self.started

    def cuDeviceGetCount(self, count: Any):
        count._obj.value = self.gpus
        return 0

    def cuDeviceGet(self, gpu: Any, number):
        return 0 if number < self.gpus else 101

    def cuDeviceGetAttribute(self, value: Any, attribute, gpu):
        value._obj.value = self.pools and attribute == 115
        return 0


@pytest.fixture
def chosen(monkeypatch):
    """What is chosen with a driver; ``None`` for a machine without one."""
    for name in ("ALLOCATOR", "PREALLOCATE"):
        monkeypatch.delenv(f"XLA_PYTHON_CLIENT_{name}", raising=False)
    before = {name: jax.config.values[name] for name in (OPTIONS, "jax_platforms")}

    def of(driver: Driver | None, platforms: str | None = None) -> Any:
        def library(name):
            if driver is None:
                raise OSError(name)
            return driver

        monkeypatch.setattr(ctypes, "CDLL", library)
        jax.config.update("jax_platforms", platforms)
        use_memory_pool()
        return jax.config.values[OPTIONS]

    jax.config.update(OPTIONS, None)
    yield of
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize("platforms", [None, "cuda,cpu", "gpu"])
def test_the_only_gpu_gets_a_pool(chosen, platforms):
    assert chosen(Driver(), platforms) == {"allocator": "cuda_async"}


@pytest.mark.parametrize(
    "driver",
    [None, Driver(gpus=0), Driver(gpus=2), Driver(pools=False), Driver(started=100)],
    ids=["no driver", "no GPU", "two GPUs", "no pools", "driver does not start"],
)
def test_elsewhere_nothing_is_chosen(chosen, driver):
    assert chosen(driver) is None


def test_a_process_of_the_cpu_does_not_start_the_driver(chosen):
    assert chosen(Driver(), "cpu") is None


@pytest.mark.parametrize("name", ["ALLOCATOR", "PREALLOCATE"])
def test_what_the_environment_says_stays(chosen, monkeypatch, name):
    monkeypatch.setenv(f"XLA_PYTHON_CLIENT_{name}", "platform")
    assert chosen(Driver()) is None


def test_what_the_user_configured_stays(chosen):
    jax.config.update(OPTIONS, "memory_fraction:0.5")
    assert chosen(Driver()) == "memory_fraction:0.5"
