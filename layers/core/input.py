"""The entry of a functional model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from exburn.core.precision import standardize_dtype
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import TEXT, checked_sizes, spec_of
from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary
from exburn.module.layer import Layer
from exburn.module.layer_options import UntypedOptions
from exburn.module.symbolic_tensor import Symbol, record

_TEXTS = (TEXT, "str", "str_", "bytes", "bytes_", "object", "object_")


@register_builtin
class InputLayer(Layer):
    """The layer behind ``Input``: it has no weights and hands its input on.

    Args:
        shape: Shape without the batch axis; ``None`` where it is free.
        batch_size: Size of the batch axis, if it is fixed.
        dtype: Dtype of the data; float32 by default. ``"string"`` for strings, of which
            lookups make numbers on the host, in front of the program.
        batch_shape: Shape with the batch axis, instead of ``shape``.
        name: Name of the input.
        optional: Whether the model may be given ``None`` here.
        axes: Names of the axes, shown in summaries and errors, such as
            ``("time", "feature")``; the batch axis may be among them.
        sparse, ragged, input_tensor: For Keras code, which passes ``False`` and
            ``None``: inputs are dense arrays.

    Shape:
        x: [batch, *shape] → [batch, *shape]

    Raises:
        ArgumentError: Neither or both of ``shape`` and ``batch_shape`` are given, or
            ``batch_size`` beside ``batch_shape``, or the names do not fit the axes.

    Example:
        >>> InputLayer((28, 28), name="image").batch_shape
        (None, 28, 28)
    """

    is_input = True
    input_dtype: Any = "float32"
    sparse = ragged = False  # of all inputs

    def __init__(
        self,
        shape: Any = None,
        batch_size: Any = None,
        dtype: Any = None,
        batch_shape: Any = None,
        name: str | None = None,
        optional: bool = False,
        *,
        axes: Any = None,
        sparse: bool = False,
        ragged: bool = False,
        input_tensor: Any = None,
        **kwargs: Unpack[UntypedOptions],
    ):
        super().__init__(name=name, autocast=False)
        _refuse_kinds(sparse, ragged, input_tensor)
        shape = kwargs.pop("input_shape", shape)
        for key in kwargs:
            raise ArgumentError("InputLayer", f"unknown argument {key!r}")
        if (shape is None) == (batch_shape is None):
            raise ArgumentError(
                "Input",
                "one of shape and batch_shape must be given",
                {"shape": shape, "batch_shape": batch_shape},
                hint="Input(shape=(28, 28)); the batch axis is no part of shape.",
            )
        if batch_shape is None:
            batch_shape = (batch_size, *checked_sizes("Input", shape))
        elif batch_size is not None:
            raise ArgumentError(
                "Input",
                "batch_shape has the batch axis in it, so batch_size cannot be given",
                {"batch_size": batch_size, "batch_shape": batch_shape},
            )
        self.batch_shape = checked_sizes("Input", batch_shape)
        self.input_dtype = _dtype(dtype)
        self.optional = bool(optional)
        self.axes = None if axes is None else _axes(axes, self.batch_shape)
        self.built = True
        spec = spec_of(self.batch_shape, self.input_dtype)
        self._meta.value.calls.append(record(self, (), {}, spec).call)

    @property
    def dtype(self) -> str:
        return self.input_dtype

    def call(self, x=None):
        return x

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "batch_shape": self.batch_shape,
            "dtype": self.input_dtype,
            "name": self.name,
            "optional": self.optional,
        }
        return config if self.axes is None else config | {"axes": list(self.axes)}


def _dtype(dtype) -> str:
    if dtype is None:
        return "float32"
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", "")
    if name.lower() in _TEXTS or getattr(dtype, "kind", "") in ("O", "S", "T", "U"):
        return TEXT
    return standardize_dtype(dtype)


def _refuse_kinds(sparse, ragged, tensor) -> None:
    if sparse or ragged:
        raise ArgumentError(
            "Input",
            f"inputs are dense arrays, received {'sparse' if sparse else 'ragged'}="
            f"{sparse or ragged!r}",
            hint="Give dense arrays: matrix.toarray(), or pad_sequences(sequences) and "
            "a mask.",
        )
    if tensor is not None:
        raise ArgumentError(
            "Input",
            f"an input makes its own symbol, received tensor={tensor!r}",
            hint="Give its shape and dtype: Input(tensor.shape[1:], dtype=tensor.dtype)"
            "; a symbol that exists can be a model's input as it is.",
        )


def _axes(axes, shape) -> tuple[str, ...]:
    """The axes' names, the batch axis first."""
    names = tuple(axes) if isinstance(axes, list | tuple) else (axes,)
    if len(names) == len(shape) - 1:
        names = ("batch", *names)
    texts = all(isinstance(name, str) and name for name in names)
    if len(names) != len(shape) or not texts or len({*names}) != len(names):
        raise ArgumentError(
            "Input",
            f"axes must be {len(shape)} different names, or {len(shape) - 1} without "
            f"the batch axis, received {axes!r}",
        )
    return names


@api_boundary
def Input(
    shape: Sequence[int | None] | None = None,
    batch_size: int | None = None,
    dtype: Any = None,
    batch_shape: Sequence[int | None] | None = None,
    name: str | None = None,
    optional: bool = False,
    *,
    axes: Any = None,
    sparse: bool = False,
    ragged: bool = False,
    tensor: Any = None,
) -> Symbol:
    """Makes an input of a functional model: a symbol that stands for the data.

    Args:
        shape: Shape without the batch axis; ``None`` where it is free.
        batch_size: Size of the batch axis, if it is fixed.
        dtype: Dtype of the data; float32 by default. ``"string"`` for strings, of which
            lookups make numbers on the host, in front of the program.
        batch_shape: Shape with the batch axis, instead of ``shape``.
        name: Name of the input, the key in dictionaries of data.
        optional: Whether the model may be given ``None`` here.
        axes: Names of the axes, shown in summaries and errors, such as
            ``("time", "feature")``; the batch axis may be among them.
        sparse, ragged, tensor: For Keras code, which passes ``False`` and ``None``:
            inputs are dense arrays.

    Raises:
        ArgumentError: Neither or both of ``shape`` and ``batch_shape`` are given, or
            ``batch_size`` beside ``batch_shape``, or the names do not fit the axes, or
            a sparse or ragged input is asked for.
        DTypeError: There is no such dtype.

    Example:
        >>> Input((28, 28), name="image")
        <Symbol shape=(None, 28, 28) dtype=float32 name=image>
    """
    layer = InputLayer(
        shape,
        batch_size,
        dtype,
        batch_shape,
        name,
        optional,
        axes=axes,
        sparse=sparse,
        ragged=ragged,
        input_tensor=tensor,
    )
    return layer.output
