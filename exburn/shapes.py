"""Shapes with sizes that are not known yet, and how JAX infers them.

An unknown size is one of JAX's symbolic dimensions, so every function has a shape rule:
what ``jax.eval_shape`` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from exburn.errors import ExBurnError

__all__ = [
    "UNFIT",
    "describe",
    "dim",
    "held",
    "plain",
    "public_shape",
    "spec_of",
    "specs_of",
    "trace_shapes",
]

# What JAX raises when a program asks for a size that is only a symbol; and NumPy and
# Python: `np.sqrt(x.shape[0])`, `range(x.shape[0])`, `jnp.split(x, 2)`.
UNFIT = (
    jax.errors.InconclusiveDimensionOperation,
    *(TypeError, ValueError, AttributeError),
)

_scope = export.SymbolicScope()
_dims: dict[str, Any] = {}


def dim(axis: int) -> Any:
    """The unknown size of an axis: ``batch`` for the first, one name per further axis.

    Unknown sizes of the same axis are taken to be equal, as the broadcasting of two
    inputs of shape ``(None, 8)`` asks for.
    """
    name = "batch" if axis == 0 else f"d{axis}"
    if name not in _dims:
        _dims[name] = export.symbolic_shape(name, scope=_scope)[0]
    return _dims[name]


def spec_of(shape: tuple, dtype: Any) -> jax.ShapeDtypeStruct:
    """A spec whose ``None`` dimensions are symbolic."""
    dims = tuple(dim(i) if d is None else d for i, d in enumerate(shape))
    return jax.ShapeDtypeStruct(dims, jnp.dtype(dtype))


def specs_of(shapes: Any, dtype: Any) -> Any:
    """Specs of a shape, or of lists and dicts of them.

    Example:
        >>> specs_of([(2, 3), (2,)], "float32")[1]
        ShapeDtypeStruct(shape=(2,), dtype=float32)
    """
    return jax.tree.map(
        lambda shape: spec_of(tuple(shape), dtype), shapes, is_leaf=_is_shape
    )


def _is_shape(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        size is None or isinstance(size, int) for size in value
    )


def held(spec: Any) -> jax.ShapeDtypeStruct:
    """The spec with the dtype in which JAX holds such an array.

    JAX warns where it would trace 64 bits as 32.

    Example:
        >>> held(jax.ShapeDtypeStruct((2,), np.dtype("int64")))
        ShapeDtypeStruct(shape=(2,), dtype=int32)
    """
    dtype = jax.dtypes.canonicalize_dtype(spec.dtype, allow_extended_dtype=True)
    return jax.ShapeDtypeStruct(spec.shape, dtype)


def public_shape(shape: tuple) -> tuple[int | None, ...]:
    """A shape as users see it, with ``None`` for what is not known."""
    return tuple(d if isinstance(d, int) else None for d in shape)


def describe(value: Any) -> str:
    """``float32[None, 28, 28]`` of anything with a shape and a dtype."""
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return type(value).__name__
    dims = ", ".join(str(d) for d in public_shape(tuple(value.shape)))
    return f"{np.dtype(value.dtype).name}[{dims}]"


def trace_shapes(run: Callable, specs: list, *, where: str) -> Any:
    """``jax.eval_shape`` over symbolic specs, with the concrete fallback."""
    try:
        return _trace(run, specs)
    except ExBurnError as error:
        plain(error)
        raise
    except (TypeError, ValueError) as error:
        if not getattr(error, "_exburn_noted", False):  # by a layer inside
            received = ", ".join(describe(s) for s in specs)
            error.add_note(f"in {where}: received {received}")
        raise


def _trace(run: Callable, specs: list) -> Any:
    specs = [held(spec) for spec in specs]
    try:
        return jax.eval_shape(run, *specs)
    except ExBurnError:
        raise
    except UNFIT as error:
        if all(isinstance(d, int) for spec in specs for d in spec.shape):
            raise
        symbolic = error
    try:
        first, second = (
            jax.eval_shape(run, *[_concrete(s, base) for s in specs])
            for base in (840, 1260)
        )
    except UNFIT:  # so it was not for the symbols
        raise symbolic from None
    return jax.tree.map(
        lambda a, b: spec_of(
            tuple(x if x == y else None for x, y in zip(a.shape, b.shape, strict=True)),
            a.dtype,
        ),
        first,
        second,
    )


def plain(error: ExBurnError) -> ExBurnError:
    """The error without JAX's note on hidden frames: its own text says it all."""
    notes = getattr(error, "__notes__", [])
    notes[:] = [note for note in notes if "JAX has removed" not in note]
    return error


def _concrete(spec: Any, base: int) -> jax.ShapeDtypeStruct:
    """The spec with every unknown axis i set to ``base * (i + 1)``."""
    sizes = {str(dim(i)): base * (i + 1) for i in range(len(spec.shape))}
    shape = tuple(
        d if isinstance(d, int) else sizes.get(str(d), base) for d in spec.shape
    )
    return jax.ShapeDtypeStruct(shape, spec.dtype)
