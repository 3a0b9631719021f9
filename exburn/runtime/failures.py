"""What an exception of JAX is about."""

from __future__ import annotations

import jax


def is_exhausted(error: BaseException) -> bool:
    """Whether it says that a device's memory ran out.

    Python's own, and NumPy's, are about the host's: a loader or a callback raised them.
    """
    if isinstance(error, MemoryError):
        return "bad_alloc" in str(error)
    return isinstance(error, jax.errors.JaxRuntimeError) and any(
        sign in str(error) for sign in ("RESOURCE_EXHAUSTED", "Out of memory")
    )


def misses_arrays(error: BaseException) -> bool:
    """Whether it says that a program has consumed an array that is asked for.

    Example:
        >>> misses_arrays(RuntimeError("Array has been deleted with shape=int32[]."))
        True
    """
    text = str(error)
    return isinstance(error, (RuntimeError, ValueError)) and any(
        sign in text for sign in ("has been deleted", "deleted or donated")
    )
