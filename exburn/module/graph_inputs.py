"""One array that is given to a functional model, made to fit its input."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from exburn.core.forward_context import current
from exburn.core.precision import is_float
from exburn.core.symbolic_shapes import describe, public_shape
from exburn.errors import DataError, ShapeError
from exburn.module.symbolic_tensor import Symbol


def fit_input(
    value: Any, spec: jax.ShapeDtypeStruct, name: str, axes: Any, learnt: bool
) -> Any:
    """Checks one input; adds or drops a last axis of size 1, as Keras; casts.

    A batch size is for layers to obey: as in Keras, other numbers of rows are taken.

    Args:
        value: The array, or a symbol, which stays as it is.
        learnt: Whether the sizes are only those of the first data: then the layers say
            which ones they take.

    Example:
        >>> spec = jax.ShapeDtypeStruct((None, 3, 1), jnp.float32)
        >>> fit_input(jnp.ones((2, 3)), spec, "x", None, False).shape
        (2, 3, 1)
    """
    if isinstance(value, Symbol):
        return value
    before, mask = value, None
    if (context := current()) is not None:
        mask = context.mask_of(value)
    value = of_rank(value, spec, name, axes, learnt)
    if value.dtype != spec.dtype:
        if is_float(value.dtype) and not is_float(spec.dtype):
            if context is not None and isinstance(value, Tracer):
                context.lookups.append((before, None, name))
            else:
                _check_whole(value, name, spec.dtype)
        both = is_float(spec.dtype) and is_float(value.dtype)
        # Floats of another size are what the layers cast, unless one was asked for.
        if not both or spec.dtype != jnp.float32:
            # 64 bits are 32, unless jax_enable_x64 is set.
            value = jnp.asarray(value, jax.dtypes.canonicalize_dtype(spec.dtype))
    if value is not before and context is not None:
        context.set_source(value, before)
        if mask is not None:
            context.set_mask(value, mask)
    return value


def of_rank(value: Any, spec: Any, name: str, axes: Any, learnt: bool) -> Any:
    """One input with the rank of its spec; see ``fit_input``.

    Example:
        >>> spec = jax.ShapeDtypeStruct((None, 1), jnp.float32)
        >>> of_rank(np.ones(2), spec, "x", None, False).shape
        (2, 1)
    """
    rank, xp = len(spec.shape), np if isinstance(value, np.ndarray) else jnp
    if len(value.shape) == rank - 1 and spec.shape[-1] == 1:
        value = xp.expand_dims(value, -1)
    elif len(value.shape) == rank + 1 and value.shape[-1] == 1 and not learnt:
        value = xp.squeeze(value, -1)
    fits = len(value.shape) == rank and all(
        learnt or want == got or not (isinstance(want, int) and isinstance(got, int))
        for want, got in zip(spec.shape[1:], value.shape[1:], strict=True)
    )
    if fits:
        return value
    must = "must have as many axes as" if learnt else "must be"
    raise ShapeError(
        "model",
        f"input {name!r} {must} {describe(spec)}, received {describe(value)}",
        None if axes is None else {"axes": ", ".join(axes)},
        hint=_row_hint(tuple(spec.shape[1:]), tuple(value.shape)),
    )


def _row_hint(row: tuple, shape: tuple) -> str:
    """What to do where an input of rows has another shape."""
    same = len(row) == len(shape) and all(
        want == got or not isinstance(want, int)
        for want, got in zip(row, shape, strict=True)
    )
    if same:
        return (
            "The first axis is the batch: pass one row as x[None]; a loader has to "
            "batch them."
        )
    has = f"has {public_shape(shape[1:])}" if len(shape) > 1 else "is one number"
    hint = (
        "The first axis is the batch. A row must have the shape "
        f"{public_shape(row)}, as Input(shape) says, and {has}"
    )
    sizes = (*row, *shape[1:])
    fixed = all(isinstance(n, int) for n in sizes)
    if fixed and len(row) == 1 and len(shape) > 2 and math.prod(shape[1:]) == row[0]:
        return f"{hint}: x.reshape(len(x), -1)."
    return f"{hint}."


def _check_whole(value: Any, name: str, dtype: Any) -> None:
    if not bool(jnp.all(jnp.mod(value, 1) == 0)):  # nor of infinity
        raise DataError(
            "model",
            f"input {name!r} must hold {dtype}, received {describe(value)} with "
            "fractions",
            hint=f"Round it, or cut the fractions off: x.astype({dtype!s}).",
        )
