"""`runtime.device` on this machine, and on platforms that it does not have."""

import dataclasses
import importlib
import importlib.metadata
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from exburn.errors import UnknownNameError

device = importlib.import_module("exburn.runtime.device")  # the attribute is a function


@dataclasses.dataclass(eq=False)
class FakeDevice:
    platform: str
    device_kind: str
    memory: dict | None = None
    process_index: int = 0

    def memory_stats(self):
        if self.memory is None:
            raise NotImplementedError("no statistics")
        return self.memory


CPU = FakeDevice("cpu", "cpu", memory={})


@pytest.fixture
def machine(monkeypatch):
    """Gives a function that replaces JAX's devices, installed packages and system."""

    def build(
        platforms,
        *,
        installed=None,
        works=True,
        system="linux",
        arch="x86_64",
        nvidia_driver=False,
        jax_platforms=None,
    ):
        aliases = {"gpu": ("cuda", "rocm", "gpu")}

        def devices(backend=None):
            if backend is None:
                return next(iter(platforms.values()))
            for name in aliases.get(backend, (backend,)):
                if name in platforms:
                    return platforms[name]
            raise RuntimeError(f"Unknown backend: {backend!r} requested")

        def version(distribution):
            if installed and distribution in installed:
                return installed[distribution]
            raise importlib.metadata.PackageNotFoundError(distribution)

        def device_put(value, _):
            if not works:
                raise RuntimeError("UNIMPLEMENTED: default_memory_space\nmore lines")
            return np.asarray(value)

        monkeypatch.setattr(jax, "devices", devices)
        monkeypatch.setattr(jax, "device_put", device_put)
        monkeypatch.setattr(importlib.metadata, "version", version)
        monkeypatch.setattr(sys, "platform", system)
        monkeypatch.setattr("platform.machine", lambda: arch)
        monkeypatch.setattr(
            os.path,
            "exists",
            lambda path: nvidia_driver and path == "/proc/driver/nvidia/version",
        )
        jax.config.update("jax_platforms", jax_platforms)

    before = jax.config.values["jax_platforms"]
    yield build
    jax.config.update("jax_platforms", before)


def test_this_machine_as_jax_sees_it():
    info = device.device_info()
    real = jax.devices()[0]
    assert info["device_kind"] == real.device_kind
    assert info["count"] == len(jax.devices())
    assert info["gpu_available"] == (real.platform in ("gpu", "METAL", "mps"))
    assert info["available_backends"][0] == info["backend"]
    assert "cpu" in info["available_backends"]
    assert info["name"] == device.device_name()
    assert info["device"] == device.default_device()


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="an accelerator is here")
def test_cpu_claims_no_accelerator():
    info = device.device_info()
    assert info["device"] == info["backend"] == "cpu"
    assert info["available_backends"] == ["cpu"]
    assert info["gpu_available"] is False
    assert info["memory_bytes"] is None
    assert device.device_name().startswith("CPU (")
    assert not device.cuda_available()
    assert not device.metal_available()


@pytest.mark.parametrize("platform", ["gpu", "cuda"])
def test_cuda(machine, platform):
    memory = {"bytes_limit": 139 << 30, "bytes_in_use": 5 << 20}
    gpus = [FakeDevice(platform, "NVIDIA H200", memory) for _ in range(2)]
    machine({"cuda": gpus, "cpu": [CPU]})
    assert device.device_info() == {
        "device": "gpu",
        "name": "2 × CUDA (NVIDIA H200)",
        "gpu_available": True,
        "backend": "cuda",
        "available_backends": ["cuda", "cpu"],
        "device_kind": "NVIDIA H200",
        "count": 2,
        "memory_bytes": 139 << 30,
        "memory_in_use_bytes": 5 << 20,
        "notes": [],
    }
    assert device.cuda_available()
    assert not device.metal_available()


def test_a_backend_is_described_by_its_name(machine):
    memory = {"bytes_limit": 139 << 30, "bytes_in_use": 5 << 20}
    gpus = [FakeDevice("gpu", "NVIDIA H200", memory) for _ in range(2)]
    machine({"cuda": gpus, "cpu": [CPU]})
    told = "2 × CUDA (NVIDIA H200), 139.0 GiB each"
    assert [device.describe(name) for name in (None, "cuda", "CUDA")] == [told] * 3
    assert device.describe("cpu").startswith("CPU (")
    assert device.describe("rocm") == "ROCm: not available"
    for wrong in ("vulkan", "", 3):
        with pytest.raises(UnknownNameError, match="cpu.*cuda"):
            device.describe(wrong)


def test_what_keeps_a_backend_from_working_is_told(machine):
    broken = FakeDevice("METAL", "Apple M2", {})
    machine({"METAL": [broken], "cpu": [CPU]}, works=False)
    assert device.describe("metal").startswith("Metal: not available: UNIMPLEMENTED")
    machine({"cpu": [CPU]}, nvidia_driver=True)
    assert "pip install 'exburn[cuda]'" in device.describe("cuda")


def test_rocm_is_not_called_cuda(machine):
    machine({"rocm": [FakeDevice("gpu", "AMD Instinct MI300X", {})], "cpu": [CPU]})
    assert device.device_name() == "ROCm (AMD Instinct MI300X)"
    assert device.device_info()["backend"] == "rocm"
    assert device.default_device() == "gpu"
    assert not device.cuda_available()


def test_tpu_is_no_gpu(machine):
    machine({"tpu": [FakeDevice("tpu", "TPU v5e", {})] * 4, "cpu": [CPU]})
    info = device.device_info()
    assert info["name"] == "4 × TPU (TPU v5e)"
    assert info["device"] == info["backend"] == "tpu"
    assert info["gpu_available"] is False


def test_a_plugin_nobody_has_heard_of_keeps_its_own_name(machine):
    machine({"npu": [FakeDevice("npu", "Model 1", {})], "cpu": [CPU]})
    info = device.device_info()
    assert info["name"] == "npu (Model 1)"
    assert info["available_backends"] == ["npu", "cpu"]
    assert info["gpu_available"] is False


@pytest.mark.parametrize(
    ("platform", "package"), [("METAL", "jax-metal"), ("mps", "jax-mps")]
)
def test_metal_that_works(machine, monkeypatch, platform, package):
    monkeypatch.setattr(jax, "__version_info__", (0, 5, 0))
    machine(
        {platform: [FakeDevice(platform, "Apple M2")], "cpu": [CPU]},
        installed={package: "1.0"},
        system="darwin",
        arch="arm64",
    )
    info = device.device_info()
    assert info["name"] == "Metal (Apple M2)"
    assert (info["device"], info["backend"]) == ("gpu", "metal")
    assert info["available_backends"] == ["metal", "cpu"]
    assert info["memory_bytes"] is None
    assert info["notes"] == []
    assert device.metal_available()
    assert not device.cuda_available()


def test_metal_kind_is_not_said_twice(machine):
    machine({"METAL": [FakeDevice("METAL", "Metal")], "cpu": [CPU]})
    assert device.device_name() == "Metal"


def test_jax_metal_beside_a_newer_jax_is_explained_and_never_claimed(machine):
    machine(
        {"METAL": [FakeDevice("METAL", "Metal")], "cpu": [CPU]},
        installed={"jax-metal": "0.1.1"},
        works=False,
        system="darwin",
        arch="arm64",
    )
    info = device.device_info()
    assert info["device"] == "none"
    assert info["name"] == "none (UNIMPLEMENTED: default_memory_space)"
    assert info["gpu_available"] is False
    assert info["available_backends"] == ["cpu"]
    assert not device.metal_available()
    broken, explained = info["notes"]
    assert "UNIMPLEMENTED" in broken
    assert f"jax-metal 0.1.1 is installed beside jax {jax.__version__}" in explained
    assert "pip install 'exburn[metal]'" in explained


def test_jax_that_cannot_start_is_reported_not_raised(machine, monkeypatch):
    machine({"cpu": [CPU]}, installed={"jax-metal": "0.1.1"})

    def devices(backend=None):
        raise RuntimeError("Unable to initialize backend 'METAL': version mismatch")

    monkeypatch.setattr(jax, "devices", devices)
    info = device.device_info()
    assert (info["device"], info["count"]) == ("none", 0)
    assert info["available_backends"] == []
    assert "Unable to initialize backend 'METAL'" in info["notes"][0]
    assert "pip install 'exburn[metal]'" in info["notes"][1]


@pytest.mark.parametrize(
    ("here", "extra"),
    [
        ({"system": "darwin", "arch": "arm64"}, "exburn[metal]"),
        ({"nvidia_driver": True}, "exburn[cuda]"),
    ],
)
def test_unused_hardware_is_pointed_out(machine, here, extra):
    machine({"cpu": [CPU]}, **here)
    (note,) = device.device_info()["notes"]
    assert extra in note
    machine({"cpu": [CPU]}, **here, jax_platforms="cpu")
    assert device.device_info()["notes"] == []


def test_default_device_of_jax_config_is_honoured(machine):
    gpu = FakeDevice("gpu", "NVIDIA H200", {})
    machine({"cuda": [gpu], "cpu": [CPU]})
    for chosen in ("cpu", CPU):
        before = jax.config.values["jax_default_device"]
        jax.config.update("jax_default_device", chosen)
        try:
            info = device.device_info()
        finally:
            jax.config.update("jax_default_device", before)
        assert info["device"] == "cpu"
        assert info["available_backends"] == ["cpu", "cuda"]
        assert info["gpu_available"] is True


def test_platform_that_is_absent_in_a_real_jax():
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            "import exburn; print(exburn.device_info())",
        ],
        env=os.environ | {"JAX_PLATFORMS": "tpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "'device': 'none'" in run.stdout
    assert "'gpu_available': False" in run.stdout
