"""How exactly float32 matrices are multiplied."""

from __future__ import annotations

from typing import Any

import jax

from exburn.errors import unknown_name
from exburn.errors.boundary import api_boundary

# JAX's names, from the fastest to the most exact; "default" is the device's own choice.
_MATMUL = ("default", "bfloat16", "tensorfloat32", "high", "highest", "float32")


@api_boundary
def get_matmul_precision() -> str | None:
    """The precision of matrix products; ``None`` leaves it to the device.

    Example:
        >>> get_matmul_precision() in (None, "highest", "high", "default")
        True
    """
    return jax.config.values["jax_default_matmul_precision"]


@api_boundary
def set_matmul_precision(precision: str | None) -> str | None:
    """Sets how exactly float32 matrices are multiplied, and returns what was before.

    It holds for convolutions too, and for programs compiled from now on; those that
    were compiled already compile again. A layer's ``PrecisionPolicy(matmul=…)`` goes
    first.

    Args:
        precision: ``"tensorfloat32"`` (10 bits of mantissa on NVIDIA's tensor cores),
            ``"highest"`` or ``"float32"`` (all 23), ``"bfloat16"`` (7), ``"high"``
            (three bfloat16 passes on a TPU), ``"default"`` or ``None``: the device's
            choice, which on a GPU is tensorfloat32.

    Raises:
        UnknownNameError: JAX has no such precision.

    Example:
        >>> before = set_matmul_precision("highest")
        >>> get_matmul_precision()
        'highest'
        >>> _ = set_matmul_precision(before)
    """
    before = get_matmul_precision()
    if precision is not None:
        check_matmul("set_matmul_precision", precision)
    jax.config.update("jax_default_matmul_precision", precision)
    return before


def check_matmul(op: str, precision: Any) -> None:
    if precision not in _MATMUL:
        raise unknown_name("matmul precision", precision, _MATMUL, op=op)
