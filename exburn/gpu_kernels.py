"""Whether kernels of ours run here, in place of XLA's for large arrays."""

from __future__ import annotations

import jax

from exburn.config import is_gpu_kernels_enabled

__all__ = ["runs_kernels", "why_not"]


def runs_kernels() -> bool:
    """Whether they do: see `why_not`.

    Example:
        >>> runs_kernels() and jax.default_backend() != "gpu"
        False
    """
    return why_not() is None


def why_not() -> str | None:
    """Why kernels of ours do not run here; ``None`` if they do.

    Where several devices may share an array, XLA must be able to split the work. Triton
    compiles for NVIDIA's GPUs from Ampere (2020) on.
    """
    if not is_gpu_kernels_enabled():
        return "config.disable_gpu_kernels() was called"
    if (platform := jax.default_backend()) != "gpu":
        return f"the device is a {platform}"
    if jax.device_count() != 1:
        return "there are several devices"
    capability = getattr(jax.devices()[0], "compute_capability", "")
    known = capability.replace(".", "", 1).isdigit()
    if not known or float(capability) < 8:
        return "the GPU is none of NVIDIA's, or older than Ampere"
    return None
