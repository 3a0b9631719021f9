"""The decision whether kernels of Triton run, in place of XLA's own for large arrays.

Computes nothing: `why_not` gives the reason against, `options` how Pallas compiles one.

Replaces: nothing.

Runs: at each trace of a module that has a kernel. Kernels run on one NVIDIA GPU, Ampere
or later, whatever else the host has, unless ``config.disable_gpu_kernels()`` was called
or JAX has no Triton. Each kernel's own condition asks for dtype and size.

Gain: not measured on its own; each kernel's module has its figures. Values and times
were compared once in each process, too: that cost a first start 2 to 5 s for each
width, more than it could save.
"""

from __future__ import annotations

import functools
import importlib.util
import warnings
from typing import Any

import jax

from exburn.config import is_gpu_kernels_enabled
from exburn.runtime.device import chosen_platform
from exburn.runtime.sharding.current import is_spread


def runs_kernels() -> bool:
    """True if kernels of Triton run here; else `why_not` has the reason.

    Example:
        >>> runs_kernels() and jax.default_backend() != "gpu"
        False
    """
    return why_not() is None


def why_not() -> str | None:
    """The reason why kernels of Triton do not run here; ``None`` if they do.

    Where several devices share an array, XLA must be able to split the work. Triton
    compiles for NVIDIA's GPUs from Ampere (2020) on.
    """
    if not is_gpu_kernels_enabled():
        return "config.disable_gpu_kernels() was called"
    platform = chosen_platform()
    if platform != "gpu":
        return f"the device is a {platform}"
    if is_spread():
        return "the arrays lie on several devices"
    capability = getattr(jax.devices()[0], "compute_capability", "")
    known = capability.replace(".", "", 1).isdigit()
    if not known or float(capability) < 8:
        return "the GPU is none of NVIDIA's, or older than Ampere"
    return None if _has_triton() else "this version of JAX has no Triton kernels"


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("jax.experimental.pallas.triton") is not None


def options(warps: int = 4, stages: int = 2) -> dict[str, Any]:
    """Arguments of ``pallas_call``, for so many warps in each program."""
    from jax.experimental.pallas import triton

    # Where it is removed, `why_not` notices.
    warnings.filterwarnings(
        "ignore", "The Pallas Triton backend is deprecated", DeprecationWarning
    )
    params = triton.CompilerParams(num_warps=warps, num_stages=stages)
    return {"compiler_params": params}
