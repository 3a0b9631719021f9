"""The base of layers that work on the host, because JAX has no strings."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from exburn.core.symbolic_shapes import describe
from exburn.core.tensorflow_graphs import maps_datasets
from exburn.data import frame_array, is_frame
from exburn.errors import ArgumentError, DTypeError, GraphError
from exburn.module.layer import Layer
from exburn.module.symbolic_tensor import Symbol, has_symbol, record


class HostLayer(Layer):
    """A layer without weights that maps host data to NumPy arrays.

    Subclasses write ``call(self, inputs)`` in NumPy and Python, and
    ``output_spec(self, inputs)``: what it returns, for specs of the inputs.

    In a model that is made of symbols it runs in front of the program.

    Raises:
        GraphError: The layer is called in a program: in ``jax.jit``, or in the ``call``
            of another layer.
    """

    built = True
    on_host = True

    def output_spec(self, inputs: Any) -> Any:
        """Specs of what ``call`` returns for inputs of these specs."""
        raise NotImplementedError

    @maps_datasets
    def __call__(self, inputs, training=None, mask=None):
        if has_symbol(inputs):
            return self._call_symbols((inputs,), {})
        if is_traced(inputs):
            raise GraphError(
                self.name,
                f"{type(self).__name__} works on the host: a compiled program, or the "
                "call of another layer or model, cannot call it",
                {"received": ", ".join(map(describe, jax.tree.leaves(inputs)))},
                hint="Call it on an Input, in front of the rest: x = Input((1,), "
                "dtype='string'); Model(x, rest(layer(x))). Or map the data: layer(x).",
            )
        return self.call(inputs)

    def _call_symbols(self, args, kwargs):
        specs = jax.tree.map(lambda v: v.spec if isinstance(v, Symbol) else v, args[0])
        symbols = record(self, args, kwargs, self.output_spec(specs))
        self._meta.value.calls.append(jax.tree.leaves(symbols)[0].call)
        return symbols


def is_traced(inputs: Any) -> bool:
    """Whether any of the inputs has no value yet."""
    if isinstance(inputs, np.ndarray):
        return False
    leaves = jax.tree.leaves(inputs)
    return has_symbol(inputs) or any(isinstance(v, Tracer) for v in leaves)


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
    if is_frame(values):
        values = frame_array(values, op=op, name="inputs", text=True)
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
    if is_frame(values):
        values = frame_array(values, op=op, name="inputs", text=False)
    array = np.asarray(values)
    whole = array.dtype.kind in "iub"
    if array.dtype.kind == "f":
        whole = bool((np.isfinite(array) & (array == np.rint(array))).all())
    if not whole and array.size:
        raise DTypeError(op, "integers are needed", {"received": describe(array)})
    return array.astype(np.int64)
