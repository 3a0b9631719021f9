"""What the programs run on, told honestly.

Everything here asks JAX, and an accelerator counts only when JAX offers it. A Metal
device must also finish a small computation, because the plug-in ``jax-metal`` still
registers one beside versions of JAX that it cannot serve.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import os
import platform
import resource
import sys
import threading
from typing import Any

import jax
import numpy as np

from exburn.errors import ArgumentError, unknown_name
from exburn.errors.boundary import api_boundary
from exburn.runtime.huge_pages import huge_pages

# Names that `jax.devices` takes → what ExBurn calls them. CUDA and ROCm devices both
# say that their platform is "gpu"; asking by name is what tells them apart.
_PLATFORMS = {
    "cuda": "cuda",
    "rocm": "rocm",
    "METAL": "metal",
    "mps": "metal",
    "tpu": "tpu",
    "cpu": "cpu",
}
_LABELS = {
    "cuda": "CUDA",
    "rocm": "ROCm",
    "metal": "Metal",
    "tpu": "TPU",
    "cpu": "CPU",
}
_GPUS = frozenset({"cuda", "rocm", "metal", "gpu"})
_LAST_JAX_FOR_JAX_METAL = (0, 5)


@api_boundary
def device_name() -> str:
    """Names the device that arrays are put on by default.

    Returns:
        The backend and the hardware, with a count where JAX sees several, such as
        ``"CUDA (NVIDIA H200)"``, ``"Metal (Apple M2)"`` or ``"CPU (x86_64, 2 cores)"``;
        ``"none (…)"`` with the reason where JAX has no device that works.

    Example:
        >>> device_name() == device_info()["name"]
        True
    """
    return device_info()["name"]


@api_boundary
def describe(backend: str | None = None) -> str:
    """Describes a backend: its name, its hardware and its memory, as far as it tells.

    Args:
        backend: ``"cuda"``, ``"rocm"``, ``"metal"``, ``"tpu"``, ``"cpu"``, or another
            of ``device_info()["available_backends"]``, in any case; the default
            device's if None.

    Returns:
        ``"2 × CUDA (NVIDIA H200), 139.0 GiB each"`` for instance, or ``"ROCm: not
        available"``, with what is wrong or missing where that is known.

    Raises:
        ArgumentError: JAX knows no such backend.

    Example:
        >>> describe("cpu").startswith("CPU (")
        True
    """
    info = device_info()
    if backend is None and info["backend"] is None:
        return info["name"]
    name = info["backend"] if backend is None else str(backend).lower()
    names = {*_PLATFORMS.values(), *info["available_backends"]}
    if name not in names:
        raise unknown_name("backend", backend, names, op="describe")
    platforms = [key for key, value in _PLATFORMS.items() if value == name] or [name]
    devices = [device for key in platforms for device in _devices(key)]
    if not devices or name not in info["available_backends"]:
        label = _LABELS.get(name, name)
        reason = next((_failure(device) for device in devices), None)
        notes = [note for note in info["notes"] if label in note]
        return ": ".join([label, "not available", *([reason] if reason else notes)])
    text = _name(devices[0], name, len(devices))
    memory, _ = _memory(devices[0])
    if memory is None:
        return text
    return f"{text}, {memory / 2**30:.1f} GiB" + (" each" if len(devices) > 1 else "")


@api_boundary
def default_device() -> str:
    """Tells which kind of device arrays are put on by default.

    Returns:
        ``"gpu"`` (CUDA, ROCm or Metal), ``"tpu"``, ``"cpu"``, or ``"none"`` where JAX
        has no device that works. ``jax.config.jax_default_device`` is honoured.

    Example:
        >>> default_device() == device_info()["device"]
        True
    """
    return device_info()["device"]


@api_boundary
def cuda_available() -> bool:
    """Tells whether JAX offers an NVIDIA GPU.

    Example:
        >>> cuda_available() == ("cuda" in device_info()["available_backends"])
        True
    """
    return bool(_devices("cuda"))


@api_boundary
def metal_available() -> bool:
    """Tells whether JAX offers an Apple GPU and that GPU computes.

    Example:
        >>> metal_available() == ("metal" in device_info()["available_backends"])
        True
    """
    return any(_failure(d) is None for d in _devices("METAL") + _devices("mps"))


def device_of(device: Any, op: str) -> Any:
    """A JAX device from ``"cpu"``, ``"gpu"``, ``"gpu:1"``, or one as it is.

    Raises:
        ArgumentError: There is no such device here.

    Example:
        >>> device_of("cpu:0", "compile").platform
        'cpu'
    """
    if device is None or isinstance(device, jax.Device):
        return device
    kind, _, number = str(device).partition(":")
    names = {"gpu": ("gpu", "METAL", "mps"), "metal": ("METAL", "mps")}
    devices = []
    for name in names.get(kind, (kind,) if kind else ()):
        try:
            devices += jax.local_devices(backend=name)
        except RuntimeError:  # this process has no such platform
            continue
    if (number and not number.isdecimal()) or int(number or 0) >= len(devices):
        raise ArgumentError(
            op,
            f"device must be one of this process, received {device!r}",
            {"devices": ", ".join(map(str, jax.local_devices()))},
            hint="exburn.doctor() tells what is missing.",
        )
    return devices[int(number or 0)]


@api_boundary
def device(device_name: Any) -> contextlib.AbstractContextManager[Any]:
    """A block whose arrays and eager computations are on a device.

    Training and prediction go by ``compile(device=…)``.

    Args:
        device_name: ``"cpu"``, ``"gpu"``, ``"gpu:1"``, in any case, or a JAX device.

    Raises:
        ArgumentError: There is no such device here.

    Example:
        >>> import jax.numpy as jnp
        >>> with device("cpu:0"):
        ...     x = jnp.ones(3)
        >>> [found.platform for found in x.devices()]
        ['cpu']
    """
    name = device_name
    if isinstance(name, str):
        name = name.lower().removeprefix("/").removeprefix("device:")
        name = name.replace("cuda", "gpu")
    return jax.default_device(device_of(name, "device"))


@api_boundary
def device_info() -> dict[str, Any]:
    """Describes the devices of this process; never raises.

    Returns:
        A dictionary with

        - ``device``: ``"gpu"``, ``"tpu"``, ``"cpu"``, ``"none"``: as `default_device`;
        - ``name``: as `device_name`;
        - ``gpu_available``: whether any GPU works, in use or not;
        - ``backend``: of the default device: ``"cuda"``, ``"rocm"``, ``"metal"``,
          ``"tpu"``, ``"cpu"``, another plug-in's name, or None;
        - ``available_backends``: all that work, the default one first;
        - ``device_kind``: the hardware as its driver names it, or None;
        - ``count``: how many devices the default backend has;
        - ``memory_bytes``, ``memory_in_use_bytes``: what JAX may use on the default
          device and what it uses now, or None where the backend does not tell;
        - ``notes``: what is wrong or missing, each with what to do about it.

    Example:
        >>> info = device_info()
        >>> info["backend"] in info["available_backends"]
        True
        >>> info["gpu_available"] or info["device"] != "gpu"
        True
    """
    try:
        device = _default()
        problem = _failure(device)
    except RuntimeError as error:  # JAX could not start the platform it was told to use
        device, problem = None, _first_line(error)
    if device is None or problem is not None:
        backends = _available_backends(None)
        return {
            "device": "none",
            "name": f"none ({problem})",
            "gpu_available": not _GPUS.isdisjoint(backends),
            "backend": None,
            "available_backends": backends,
            "device_kind": None,
            "count": 0,
            "memory_bytes": None,
            "memory_in_use_bytes": None,
            "notes": _notes(problem, backends),
        }
    backend = _backend(device)
    backends = _available_backends(backend)
    count = len(jax.devices(device.platform))
    total, in_use = _memory(device)
    return {
        "device": "gpu" if backend in _GPUS else backend,
        "name": _name(device, backend, count),
        "gpu_available": not _GPUS.isdisjoint(backends),
        "backend": backend,
        "available_backends": backends,
        "device_kind": device.device_kind,
        "count": count,
        "memory_bytes": total,
        "memory_in_use_bytes": in_use,
        "notes": _notes(None, backends),
    }


def chosen_device() -> Any:
    """Where JAX puts new arrays now, in this thread; None for its first device."""
    return jax.config.jax_default_device  # type: ignore[attr-defined]


def chosen_platform() -> str:
    """The platform of the device that JAX puts new arrays on now, in this thread.

    ``"gpu"`` for those of CUDA, by whichever name it was chosen.
    """
    chosen = chosen_device()
    name = getattr(chosen, "platform", chosen) or jax.default_backend()
    return "gpu" if name == "cuda" else name


def host() -> Any:
    """JAX's device for the host's processor; ``None`` if JAX was told to have none."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


_waking: list[threading.Thread] = []


@functools.cache
def wake() -> None:
    """Has a thread take the GPU's memory and start XLA, while a model is built.

    JAX does the one when the first array is put there, the other when the first program
    is compiled, a tenth of a second. Python's interpreter is free then. XLA notes eight
    bytes on the host for every 256 of that memory, 3.3 GB for the 105 of an H200, which
    took 1.4 s page by page and takes 0.5 with `huge_pages`.
    """
    if chosen_platform() != "gpu":
        return
    device = chosen_device()

    def work() -> None:
        # If it fails, whoever needs the device is told.
        with contextlib.suppress(RuntimeError), jax.default_device(device):
            memory, _ = _memory(_first(device))
            with huge_pages((memory or 0) // 256 * 8):
                jax.device_put(np.zeros(1, np.float32))
            jax.jit(lambda: ()).lower().compile()

    thread = threading.Thread(target=work, name="exburn-wake")
    thread.start()
    _waking.append(thread)


def waking() -> bool:
    """Whether the GPU that JAX puts new arrays on is being started by ``wake``."""
    while _waking and not _waking[0].is_alive():
        del _waking[0]
    return bool(_waking) and chosen_platform() == "gpu"


def _default() -> Any:
    return _first(jax.config.values["jax_default_device"])


def _first(chosen: Any) -> Any:
    """A device that was chosen, or the first one of a platform, or of JAX's own."""
    if chosen is not None and not isinstance(chosen, str):
        return chosen
    process = jax.process_index()
    devices = jax.devices(chosen) if chosen else jax.devices()
    return next(d for d in devices if d.process_index == process)


def _devices(name: str) -> list[Any]:
    try:
        return list(jax.devices(name))
    except RuntimeError:  # no such platform in this process
        return []


def _backend(device: Any) -> str:
    for name, backend in _PLATFORMS.items():
        if device in _devices(name):
            return backend
    return device.platform.lower()


def _available_backends(default: str | None) -> list[str]:
    backends = [default] if default else []
    for name, backend in _PLATFORMS.items():
        if backend in backends:
            continue
        if any(_failure(device) is None for device in _devices(name)):
            backends.append(backend)
    return backends


@functools.lru_cache(maxsize=64)
def _failure(device: Any) -> str | None:
    """Why a Metal device cannot compute; None for one that can, and for all others."""
    if device.platform.lower() not in ("metal", "mps"):
        return None
    try:
        one = jax.device_put(np.float32(1), device)
        np.asarray(jax.jit(lambda x: x + x)(one))
    except Exception as error:  # plug-ins fail with whatever their driver raises
        return _first_line(error)
    return None


def _memory(device: Any) -> tuple[int | None, int | None]:
    try:
        stats = device.memory_stats() or {}
    except (RuntimeError, NotImplementedError):  # the plug-in does not tell
        stats = {}
    return stats.get("bytes_limit"), stats.get("bytes_in_use")


def _name(device: Any, backend: str, count: int) -> str:
    if backend == "cpu":
        cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else None
        cores = cores or os.cpu_count() or 1
        return f"CPU ({platform.machine()}, {cores} core{'s' if cores > 1 else ''})"
    label = _LABELS.get(backend) or str(device.platform)
    kind = str(device.device_kind)
    name = label if kind.lower() in (label.lower(), "mps") else f"{label} ({kind})"
    return f"{count} × {name}" if count > 1 else name


def _notes(problem: str | None, backends: list[str]) -> list[str]:
    notes = []
    if problem:
        notes.append(f"JAX has no working default device: {problem}")
    # A platform that JAX was told not to look at is not missing.
    free = not jax.config.values["jax_platforms"]
    metal = _version_of("jax-metal")
    if metal and jax.__version_info__[:2] > _LAST_JAX_FOR_JAX_METAL:
        last = ".".join(map(str, _LAST_JAX_FOR_JAX_METAL))
        notes.append(
            f"jax-metal {metal} is installed beside jax {jax.__version__}, but works "
            f"only up to jax {last}; its successor is jax-mps: "
            "pip uninstall jax-metal && pip install 'exburn[metal]'"
        )
    elif (
        free and _apple_gpu() and "metal" not in backends and not _version_of("jax-mps")
    ):
        notes.append(
            "This Mac's GPU is not used, because no JAX plug-in for Metal is "
            "installed: pip install 'exburn[metal]'"
        )
    if free and _nvidia_driver() and "cuda" not in backends:
        notes.append(
            "An NVIDIA driver is loaded, but JAX offers no CUDA device: "
            "pip install 'exburn[cuda]' (or 'exburn[cuda12]' for a CUDA 12 driver)"
        )
    return notes


def _version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _apple_gpu() -> bool:
    return sys.platform == "darwin" and platform.machine() == "arm64"


def _nvidia_driver() -> bool:
    return os.path.exists("/proc/driver/nvidia/version")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@dataclasses.dataclass(frozen=True)
class MemoryUse:
    """Bytes of memory; ``None`` where nobody tells.

    Attributes:
        device: In use on the device, by JAX' own count.
        device_limit: What JAX may use there.
        host: Resident on the host.
    """

    device: int | None
    device_limit: int | None
    host: int | None


def memory_use() -> MemoryUse:
    """The memory in use now; takes some microseconds, and waits for no program.

    Example:
        >>> use = memory_use()
        >>> use.host is None or use.host > 1_000_000
        True
    """
    stats: dict[str, Any] = {}
    try:
        device = chosen_device()
        if device is None or isinstance(device, str):
            device = jax.local_devices(backend=device or None)[0]
        stats = device.memory_stats() or {}
    except (RuntimeError, NotImplementedError):  # no device, or one that does not tell
        pass
    return MemoryUse(stats.get("bytes_in_use"), stats.get("bytes_limit"), _resident())


def _resident() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # not Linux
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
