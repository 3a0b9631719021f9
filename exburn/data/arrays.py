"""One array out of whatever stands for one, in a dtype that JAX computes with."""

from __future__ import annotations

import re
import reprlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from exburn.data.adapting import ADAPTERS
from exburn.data.columns import find_fault
from exburn.errors import DataError, DTypeError, ExBurnError, ShapeError

KEPT = frozenset(map(np.dtype, ("f4", "i4", "?", "u1", "i1", "i2", "u2")))


def describe(array: Any) -> str:
    """Dtype and shape, for errors."""
    return f"{array.dtype}[{', '.join(map(str, array.shape))}]"


def on_host(array: Any) -> np.ndarray | None:
    """The array's memory without a copy, or None if it lives on an accelerator."""
    if isinstance(array, np.ndarray):
        return array
    if len(array.devices()) == 1 and next(iter(array.devices())).platform == "cpu":
        return np.asarray(array)
    return None


def as_array(
    value: Any, name: str, op: str, *, raw: bool = False
) -> np.ndarray | jax.Array:
    """One leaf as an array that ExBurn can compute with, else a typed error.

    Args:
        value: What stands for an array.
        raw: Whether strings and wide integers stay as they are: lookups read them.
    """
    if type(value) is np.ndarray and value.dtype in KEPT and value.ndim:
        return value
    original = value
    try:
        for adapter in ADAPTERS:
            if hasattr(adapter, "to_array") and adapter.accepts(value):
                value = adapter.to_array(value, name=name, op=op)
                break
    except (ExBurnError, MemoryError):
        raise
    except Exception as error:  # whatever another library refuses with
        raise _no_array(original, name, op, error) from error
    if isinstance(value, np.ma.MaskedArray):
        raise DTypeError(
            op,
            f"{name} must not be a masked array: its mask would be ignored",
            hint="Fill it: array.filled(0), and pass the mask as sample_weight.",
        )
    if not isinstance(value, jax.Array):
        if not hasattr(value, "__array__"):
            raise DTypeError(
                op,
                f"{name} must be an array, not {type(value).__name__}",
                {"received": reprlib.repr(value)},
                hint=_of_a_list(name) or _of_one(value),
            )
        try:
            value = np.asarray(value)
        except Exception as error:
            raise _no_array(value, name, op, error) from error
    elif isinstance(value, Tracer):
        raise DTypeError(
            op,
            f"{name} holds no values: a transformation of JAX traces it",
            {"received": str(value)},
            hint="In jax.jit, jax.grad and the like call the model itself: model(x).",
        )
    elif value.is_deleted():
        raise DataError(
            op,
            f"{name} has been deleted: a program consumed it, or delete() was called",
            {"received": describe(value)},
            hint="Give arrays that stay, and x.copy() to what consumes its arguments.",
        )
    if value.ndim == 0:
        raise ShapeError(
            op,
            f"{name} must have a leading axis of samples, but is a scalar",
            {"received": reprlib.repr(value)},
            hint=_of_a_list(name) or "For one sample: np.array([value]).",
        )
    fits = value.dtype in KEPT or (raw and value.dtype.kind in "OSTUiu")
    return value if fits else _convert(value, name, op)


def _of_one(value: Any) -> str:
    """The hint about something that is no array."""
    if isinstance(value, str):
        return "Pass the values, not what they are called: frame[name]."
    return "Pass NumPy or JAX arrays: np.array(...)."


def _of_a_list(name: str) -> str | None:
    """What to do about numbers in a list, by the name of one of them."""
    whole = re.sub(r"(\[\d+\])+$", "", name)
    if whole == name:
        return None
    return f"A list has an array for each input or output; of rows: np.array({whole})."


def _no_array(value: Any, name: str, op: str, error: Exception) -> DTypeError:
    try:
        received = reprlib.repr(value)
    except Exception:  # what holds no values may have no text either
        received = type(value).__name__
    return DTypeError(
        op,
        f"{name} cannot become an array",
        {"received": received, "cause": error},
        hint="Pass NumPy or JAX arrays; a symbol of Input() holds no values.",
    )


def _convert(array: Any, name: str, op: str) -> np.ndarray | jax.Array:
    dtype = array.dtype
    if jnp.issubdtype(dtype, jnp.floating):
        with np.errstate(over="ignore"):  # check_finite names what overflowed
            return array.astype(np.float32)
    if jnp.issubdtype(dtype, jnp.integer):
        if array.size:
            low, high = int(array.min()), int(array.max())
            if low < -(2**31) or high >= 2**31:
                raise DTypeError(
                    op,
                    f"{name} holds integers that int32 cannot: JAX computes in int32",
                    {"received": describe(array), "range": f"{low} … {high}"},
                    hint="Re-number the values (ids: np.unique(..., "
                    "return_inverse=True)), or use floats.",
                )
        return array.astype(np.int32)
    if dtype == np.bool_:
        return array.astype(np.bool_)
    hint = "Use a numeric array: np.asarray(values, dtype=np.float32)."
    details = {"received": describe(array)}
    what = f"{dtype} values"
    if jnp.issubdtype(dtype, jnp.complexfloating):
        what = "complex numbers"
        hint = "Stack the parts: np.stack([a.real, a.imag], axis=-1)."
    elif not isinstance(dtype, np.dtype):  # jax.random.key
        what, hint = "random keys", "Draw numbers from them: jax.random.normal(key)."
    elif dtype.kind in "UST" and (fault := find_fault(array.astype(object))):
        raise DTypeError(op, f"{name} {fault.text}", details, hint=fault.hint(name))
    elif dtype.kind in "mM":
        what = "dates or durations"
        hint = "Convert to numbers, e.g. (t - t0) / np.timedelta64(1, 's')."
    elif dtype.kind == "O":
        if (fault := find_fault(array)) is not None:
            error = DataError if fault.kind == "missing" else DTypeError
            raise error(op, f"{name} {fault.text}", details, hint=fault.hint(name))
        what, hint, values = _explain_objects(array)
        details["first values"] = values
    raise DTypeError(
        op, f"{name} must be numeric, but holds {what}", details, hint=hint
    )


def _explain_objects(array: np.ndarray) -> tuple[str, str, str]:
    first = array.reshape(-1)[:100].tolist()
    text = ", ".join(repr(v)[:40] for v in first[:3])
    shapes = {np.shape(v) for v in first if isinstance(v, np.ndarray)}
    shapes |= {(len(v),) for v in first if isinstance(v, list | tuple)}
    if len(shapes) == 1 and len(array) > 1:
        (shape,) = shapes
        return f"objects, arrays of {shape}", "Make it one array: np.stack(rows).", text
    if shapes:
        lengths = ", ".join(str(s) for s in sorted(shapes)[:4])
        return (
            f"ragged rows (shapes {lengths})",
            "Make the rows equally long: exburn.utils.pad_sequences(...), np.stack.",
            text,
        )
    return "Python objects", "Convert: array.astype(np.float32).", text
