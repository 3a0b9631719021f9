"""What a layer is called on, as arrays of its policy's dtype; and what it returns."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn.core import forward_context
from exburn.core.forward_context import Context, Interceptor
from exburn.core.precision import is_float
from exburn.core.symbolic_shapes import describe
from exburn.data import frame_array, is_frame
from exburn.errors import DTypeError
from exburn.module.symbolic_calls import hint_for_strings


def cast(self: Any, value: Any, dtype: Any = None):
    """A weight or array in the compute dtype.

    Args:
        value: A weight, an array or a number.
        dtype: Another dtype.
    """
    read = getattr(value, "get_value", None)  # of a variable, or what stands for it
    value, dtype = value if read is None else read(), dtype or self.compute_dtype
    if isinstance(value, jax.Array) and value.dtype == dtype:
        if not value.weak_type:
            return value  # as ``jnp.asarray`` would, ten times as slowly
    return jnp.asarray(value, jax.dtypes.canonicalize_dtype(dtype))


def cast_inputs(
    layer: Any, args: tuple, kwargs: dict[str, Any], ctx: Context
) -> tuple[tuple, dict[str, Any]]:
    """The arguments of a call as arrays, floats in the layer's compute dtype."""
    dtype = jax.dtypes.canonicalize_dtype(layer.compute_dtype)
    cast = layer._autocast
    done: dict[int, Any] = {}  # one array given twice stays one array

    def convert(value):
        if id(value) not in done:
            done[id(value)] = convert_one(value)
        return done[id(value)]

    def convert_one(value):
        if not _has_shape(value):
            return value
        if isinstance(value, nnx.Variable):
            value = value.get_value()
        if not isinstance(value, jax.Array | np.ndarray | np.generic):
            value = _array_of(layer, value)
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            return value
        if cast and is_float(value.dtype) and value.dtype != dtype:
            before, value = value, jnp.asarray(value, dtype)
            ctx.set_source(value, before)
            if (mask := ctx.mask_of(before)) is not None:
                ctx.set_mask(value, mask)
            return value
        if not isinstance(value, np.ndarray):
            return value
        if value.dtype.kind in "OUSTmM":
            raise _no_numbers(layer, value)
        return jnp.asarray(value)

    missing = bool(args) and args[0] is None and not layer.built
    frames = False
    for value in [None] if missing else jax.tree.leaves(args[:1]):
        if is_frame(value):
            frames = True
        elif not _has_shape(value):
            hint = "Look for a missing `return` in what computed it."
            raise _no_array(layer, value, args[0], hint if missing else None)
    if frames:
        args = jax.tree.map(lambda v: _of_frame(layer, v) if is_frame(v) else v, args)
    args = jax.tree.map(convert, args)
    return args, {
        k: v if k in ("mask", "training") else jax.tree.map(convert, v)
        for k, v in kwargs.items()
    }


class CastOutputs(Interceptor):
    """Gives the outputs of layers a dtype, with what is known of them."""

    def __init__(self, dtype: Any):
        self.dtype = jnp.dtype(dtype)

    def __call__(
        self, layer: Any, call: Callable, args: tuple, kwargs: dict[str, Any]
    ) -> Any:
        ctx: Any = forward_context.current()

        def cast_one(value: Any) -> Any:
            floating = hasattr(value, "dtype") and is_float(value.dtype)
            if not floating or value.dtype == self.dtype:
                return value
            result = value.astype(self.dtype)
            ctx.follow(result, value)
            if (filled := ctx.padded_logits(value)) is not None:
                narrower = jnp.promote_types(self.dtype, filled.dtype) != self.dtype
                filled = filled.astype(self.dtype) if narrower else filled
                ctx.set_padded_logits(result, filled)
            return result

        return jax.tree.map(cast_one, call(*args, **kwargs))


def _of_frame(layer: Any, value: Any) -> np.ndarray:
    return frame_array(value, op=layer.name, name="inputs", text=False)


def _has_shape(value: Any) -> bool:
    try:
        return hasattr(value, "shape") and hasattr(value, "dtype")
    except Exception:  # rows of different lengths: torch's nested tensors raise here
        return False


def _array_of(layer: Any, value: Any) -> np.ndarray:
    """Another library's array, such as a tensor, as NumPy's."""
    if not hasattr(value, "__array__"):
        dense = hasattr(value, "toarray")
        hint = "Make it dense: x.toarray()." if dense else None
        raise _no_array(layer, value, value, hint)
    try:
        return np.asarray(value)
    except Exception as error:  # whatever it refuses with
        raise _no_array(layer, value, value) from error


def _no_array(
    layer: Any, value: Any, received: Any, hint: str | None = None
) -> DTypeError:
    return DTypeError(
        layer.name,
        f"a layer is called on arrays or symbols, received {type(value).__name__}",
        {"received": reprlib.repr(received)},
        hint=hint or "Make an array of it: np.array(…).",
    )


def _no_numbers(layer: Any, value: np.ndarray) -> DTypeError:
    text = value.dtype.kind in "UST"
    return DTypeError(
        layer.name,
        f"arrays must hold numbers, received {describe(value)}",
        hint=hint_for_strings(layer)
        if text
        else "Convert it: np.asarray(values, dtype=np.float32).",
    )
