"""How exactly float32 matrices are multiplied."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import jax

from exburn.core.scoped import value_scope
from exburn.errors import unknown_name
from exburn.errors.boundary import api_boundary

# JAX's names, from the fastest to the most exact; "default" is the device's own choice.
_MATMUL = ("default", "bfloat16", "tensorfloat32", "high", "highest", "float32")
FLOAT8 = "float8"  # of a policy only; see ``exburn/runtime/kernels/float8_product.py``
_float8: ContextVar[bool] = ContextVar("exburn_float8_products", default=False)


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


def check_matmul(op: str, precision: Any, *further: str) -> None:
    """Raises unless a precision is one of JAX's, or one of the further ones."""
    known = (*_MATMUL, *further)
    if precision not in known:
        raise unknown_name("matmul precision", precision, known, op=op)


def in_float8() -> bool:
    """Whether products of the layer at work are those of a policy with float8.

    Example:
        >>> with matmuls_in(FLOAT8):
        ...     print(in_float8())
        True
    """
    return _float8.get()


def matmuls_in(precision: str | None) -> AbstractContextManager[Any]:
    """A block in which products have the precision of the layer at work.

    Args:
        precision: Of the layer's policy. Where it is ``None`` JAX's stays what it is
            around the block; float8 does not: a layer inside has it by its own policy.
    """
    float8 = precision == FLOAT8
    if precision is None or float8:
        if float8 == in_float8():
            return contextlib.nullcontext()
        return value_scope(_float8, float8)
    return _jax_matmuls_in(precision)


@contextlib.contextmanager
def _jax_matmuls_in(precision: str) -> Iterator[None]:
    with value_scope(_float8, False), jax.default_matmul_precision(precision):
        yield
