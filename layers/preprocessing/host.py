"""The base of layers that work on the host, because JAX has no strings."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from exburn.errors import ArgumentError, DTypeError, GraphError
from exburn.layer import Layer
from exburn.shapes import describe
from exburn.symbol import has_symbol

__all__ = ["HostLayer"]


class HostLayer(Layer):
    """A layer without weights that maps host data to NumPy arrays, outside of models.

    Subclasses write ``call(self, inputs)`` in NumPy and Python.

    Raises:
        GraphError: The layer is called inside a model.
    """

    built = True

    def __call__(self, inputs, training=None, mask=None):
        if is_traced(inputs):
            raise GraphError(
                self.name,
                f"{type(self).__name__} works on the host, not inside a model",
                {"received": ", ".join(map(describe, jax.tree.leaves(inputs)))},
                hint="Map the data before fit and predict: x = layer(x).",
            )
        return self.call(inputs)


def is_traced(inputs: Any) -> bool:
    """Whether any of the inputs has no value yet."""
    if isinstance(inputs, np.ndarray):
        return False
    leaves = jax.tree.leaves(inputs)
    return has_symbol(inputs) or any(isinstance(v, jax.core.Tracer) for v in leaves)


def string_array(op: str, values: Any, encoding: str = "utf-8") -> np.ndarray:
    """The values as an array of Python strings (dtype object).

    Bytes are decoded.

    Raises:
        DTypeError: A value is no string.
        ArgumentError: The rows have different lengths.

    Example:
        >>> string_array("lookup", [["a", b"b"]]).tolist()
        [['a', 'b']]
    """
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ArgumentError(
            op, "the rows have different lengths", hint="Pad them with ''."
        ) from error
    if array.dtype.kind in "UT" or not array.size:
        return array.astype(object)
    if array.dtype.kind == "S":
        return np.strings.decode(array, encoding).astype(object)
    flat = array.reshape(-1).tolist()
    if array.dtype.kind == "O":
        flat = [v.decode(encoding) if isinstance(v, bytes) else v for v in flat]
    wrong = next((i for i, v in enumerate(flat) if not isinstance(v, str)), None)
    if wrong is not None:
        raise DTypeError(
            op,
            "strings are needed",
            {"received": describe(array), "first other value": repr(flat[wrong])},
            hint="Convert: array.astype(str); fill missing values first.",
        )
    result = np.empty(len(flat), object)
    result[:] = flat
    return result.reshape(array.shape)


def integer_array(op: str, values: Any) -> np.ndarray:
    """The values as int64; floats only if they are whole.

    Raises:
        DTypeError: A value is no whole number.

    Example:
        >>> integer_array("lookup", [1.0, 2.0]).tolist()
        [1, 2]
    """
    array = np.asarray(values)
    whole = array.dtype.kind in "iub"
    if array.dtype.kind == "f":
        whole = bool((np.isfinite(array) & (array == np.rint(array))).all())
    if not whole and array.size:
        raise DTypeError(op, "integers are needed", {"received": describe(array)})
    return array.astype(np.int64)
