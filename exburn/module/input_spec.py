"""What layers say about their inputs."""

from __future__ import annotations

from typing import Any

import jax

from exburn.core.precision import standardize_dtype
from exburn.core.registry import Configured
from exburn.core.symbolic_shapes import checked_sizes, describe
from exburn.errors import ArgumentError, ShapeError


class InputSpec(Configured):
    """What a layer demands of one input.

    Args:
        dtype: Dtype that it has, after the layer has cast floats.
        shape: Exact shape, ``None`` where free.
        ndim: Exact rank.
        max_ndim: Largest rank.
        min_ndim: Smallest rank.
        axes: ``{axis: size}`` that must hold.
        allow_last_axis_squeeze: Whether a last axis of size 1 may be there or not.
        name: Key of the input where inputs are passed as a dict.
        optional: Whether ``None`` may be passed.

    Raises:
        ArgumentError: An axis of ``axes`` is beyond the rank, or no integer.

    Example:
        >>> InputSpec(ndim=4, axes={-1: 3})
        InputSpec(ndim=4, axes={-1: 3})

    Source: ``keras.InputSpec``.
    """

    def __init__(
        self,
        dtype: Any = None,
        shape: Any = None,
        ndim: Any = None,
        max_ndim: Any = None,
        min_ndim: Any = None,
        axes: Any = None,
        allow_last_axis_squeeze: bool = False,
        name: Any = None,
        optional: bool = False,
    ):
        self.dtype = None if dtype is None else standardize_dtype(dtype)
        self.shape = None if shape is None else checked_sizes("InputSpec", shape)
        self.ndim = ndim if self.shape is None else len(self.shape)
        self.max_ndim, self.min_ndim = max_ndim, min_ndim
        self.allow_last_axis_squeeze = allow_last_axis_squeeze
        self.name, self.optional = name, optional
        try:
            self.axes = {int(k): v for k, v in (axes or {}).items()}
        except (TypeError, ValueError, AttributeError) as error:
            raise ArgumentError(
                "InputSpec", f"axes must be a dict of integers, received {axes!r}"
            ) from error
        most = self.ndim or self.max_ndim
        if self.axes and most and max(self.axes) >= most:
            raise ArgumentError(
                "InputSpec", f"axis {max(self.axes)} is beyond a rank of {most}"
            )

    def __repr__(self):
        fields = ("dtype", "shape", "ndim", "min_ndim", "max_ndim", "axes")
        shown = [f"{f}={getattr(self, f)}" for f in fields if getattr(self, f)]
        return f"InputSpec({', '.join(shown)})"

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments that say what fits; JSON-able."""
        fields = ("dtype", "shape", "ndim", "max_ndim", "min_ndim", "axes", "optional")
        return {field: getattr(self, field) for field in fields}

    def check(self, layer: str, value: Any) -> None:
        """Compares a value with the spec.

        Raises:
            ShapeError: Its rank or a size differs.
            ArgumentError: Its dtype differs.
        """
        shape, own = tuple(value.shape), self.shape or ()
        rank, squeezes = len(shape), self.allow_last_axis_squeeze
        demand, hint = None, "Add or drop axes: x[..., None], Reshape, Flatten."
        if self.ndim is not None and rank != self.ndim and not squeezes:
            demand = f"an input of rank {self.ndim}"
        elif self.min_ndim is not None and rank < self.min_ndim:
            demand = f"an input of rank {self.min_ndim} or more"
            if rank == 1:
                hint = "The first axis is the batch: pass one row as x[None]."
        elif self.max_ndim is not None and rank > self.max_ndim:
            demand = f"an input of rank {self.max_ndim} or less"
        elif self.dtype is not None and self.dtype != standardize_dtype(value.dtype):
            raise ArgumentError(
                layer, f"the layer needs {self.dtype}, received {describe(value)}"
            )
        else:
            if squeezes and own:
                own, shape = (s[:-1] if s[-1:] == (1,) else s for s in (own, shape))
                if len(own) != len(shape) and rank != self.ndim:
                    demand = f"an input of shape {self.shape}"
            sizes = dict(enumerate(own)) | self.axes
            for axis, size in sizes.items() if demand is None else ():
                if size is not None and isinstance(shape[axis], int):
                    if shape[axis] != size:
                        demand = f"size {size} on axis {axis}"
                        hint = (
                            "It was built for that size; for another, make a new one."
                        )
        if demand:
            raise ShapeError(
                layer,
                f"the layer needs {demand}, received {describe(value)}",
                hint=hint,
            )


def check_inputs(layer: str, spec: Any, inputs: Any) -> None:
    """Compares all inputs of a layer with its ``input_spec``.

    Args:
        spec: A spec, or a (nested) list or dict of them; ``None`` demands nothing.
    """
    missing = lambda v: v is None  # noqa: E731 - which is no leaf to JAX
    specs = jax.tree.leaves(spec, is_leaf=missing)
    names = [getattr(one, "name", None) for one in specs]
    if isinstance(inputs, dict) and all(names):
        if absent := [name for name in names if name not in inputs]:
            raise ShapeError(
                layer,
                f"the input {absent[0]!r} is missing",
                {"needed": ", ".join(map(str, names)), "received": ", ".join(inputs)},
            )
        inputs = [inputs[name] for name in names]
    values = jax.tree.leaves(inputs, is_leaf=missing)
    if len(specs) != len(values):
        raise ShapeError(
            layer,
            f"{len(specs)} inputs are needed, received {len(values)}",
            hint="Pass them as one list.",
        )
    for one, value in zip(specs, values, strict=True):
        if one is not None and hasattr(value, "shape"):
            one.check(layer, value)
        elif value is None and one is not None and not one.optional:
            raise ShapeError(
                layer,
                "an input is None",
                hint="Pass an array, or make it InputSpec(…, optional=True).",
            )
