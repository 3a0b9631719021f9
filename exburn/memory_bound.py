"""Which arrays are so large that a GPU's time goes into their memory traffic."""

from __future__ import annotations

import jax

__all__ = ["memory_bound", "runs_kernels"]

# Kernels on fewer elements take a few microseconds, most of it to begin. Forms that
# read less, in more kernels, gained 5 % in a transformer with arrays of 12.6 million
# elements on an H200, and lost 15 % in one with half a million.
ELEMENTS = 1 << 22


def memory_bound(x: jax.Array) -> bool:
    """Whether reading less is worth more kernels; no, where a size is not known.

    Example:
        >>> import jax.numpy as jnp
        >>> memory_bound(jnp.ones((8, 8)))
        False
    """
    return all(isinstance(n, int) for n in x.shape) and x.size >= ELEMENTS


def runs_kernels() -> bool:
    """Whether there is one GPU, of a kind that Triton compiles for (Ampere, 2020).

    Example:
        >>> runs_kernels() and jax.default_backend() != "gpu"
        False
    """
    if jax.default_backend() != "gpu" or jax.device_count() != 1:
        return False
    capability = getattr(jax.devices()[0], "compute_capability", "")
    return capability.replace(".", "", 1).isdigit() and float(capability) >= 8
