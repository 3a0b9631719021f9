"""Whether kernels of ours run here, in place of XLA's for large arrays."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp

from exburn.config import is_gpu_kernels_enabled
from exburn.device import chosen_device

__all__ = ["agrees", "options", "runs_kernels", "why_not"]


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
    chosen = chosen_device()
    platform = getattr(chosen, "platform", chosen) or jax.default_backend()
    if platform not in ("gpu", "cuda"):
        return f"the device is a {platform}"
    if jax.device_count() != 1:
        return "there are several devices"
    capability = getattr(jax.devices()[0], "compute_capability", "")
    known = capability.replace(".", "", 1).isdigit()
    if not known or float(capability) < 8:
        return "the GPU is none of NVIDIA's, or older than Ampere"
    return None


def options(warps: int = 4, stages: int = 2) -> dict[str, Any]:
    """How ``pallas_call`` compiles a kernel, with so many warps in each program."""
    from jax.experimental.pallas import triton

    params = triton.CompilerParams(num_warps=warps, num_stages=stages)
    return {"compiler_params": params}


def agrees(
    name: str, kernel: Callable[..., Any], plain: Callable[..., Any], *args: Any
) -> bool:
    """Whether a kernel computes here what XLA's form does, on small arrays.

    A wrong kernel would train wrongly without a word: a compiler newer than the ones it
    was tried with could make it so. Then it warns, and XLA's form is to be used.

    Args:
        name: What the kernel is, for the warning.
        kernel: The kernel's function.
        plain: The same by XLA.
        *args: Arrays.

    Example:
        >>> agrees("the sum", jnp.sum, lambda x: x.sum(), jnp.ones(3))
        True
    """

    def compare() -> bool:
        pairs = zip(
            jax.tree.leaves(jax.jit(kernel)(*args)),
            jax.tree.leaves(jax.jit(plain)(*args)),
            strict=True,
        )
        close = [
            jnp.abs(a.astype(jnp.float32) - b.astype(jnp.float32)).max()
            <= 0.02 * jnp.abs(b.astype(jnp.float32)).max() + 1e-3
            for a, b in pairs
        ]
        return all(bool(c) for c in close)

    # What is traced is traced in one thread: in another one these are computed.
    with ThreadPoolExecutor(1) as thread:
        error = (done := thread.submit(compare)).exception()
    if error is None and done.result():
        return True
    reason = "is not what XLA computes" if error is None else f"fails: {error}"
    warnings.warn(
        f"ExBurn's kernel for {name} {reason}; XLA's form is used.", stacklevel=2
    )
    return False
