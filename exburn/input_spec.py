"""What layers say about their inputs."""

from __future__ import annotations

from typing import Any

from exburn.dtypes import standardize_dtype
from exburn.errors import ShapeError
from exburn.shapes import checked_sizes, describe

__all__ = ["InputSpec"]


class InputSpec:
    """What a layer demands of one input.

    Args:
        dtype: Ignored for floats; kept for Keras code.
        shape: Exact shape, ``None`` where free.
        ndim: Exact rank.
        max_ndim: Largest rank.
        min_ndim: Smallest rank.
        axes: ``{axis: size}`` that must hold.

    Example:
        >>> InputSpec(ndim=4, axes={-1: 3})
        InputSpec(ndim=4, axes={-1: 3})
    """

    def __init__(
        self,
        dtype=None,
        shape=None,
        ndim=None,
        max_ndim=None,
        min_ndim=None,
        axes=None,
        allow_last_axis_squeeze=False,
        name=None,
        optional=False,
    ):
        self.dtype = None if dtype is None else standardize_dtype(dtype)
        self.shape = None if shape is None else checked_sizes("InputSpec", shape)
        shape = self.shape
        self.ndim = len(shape) if shape is not None else ndim
        self.max_ndim, self.min_ndim = max_ndim, min_ndim
        self.axes = {int(k): v for k, v in (axes or {}).items()}
        self.name = name

    def __repr__(self):
        fields = ("shape", "ndim", "min_ndim", "max_ndim", "axes")
        shown = [f"{f}={getattr(self, f)}" for f in fields if getattr(self, f)]
        return f"InputSpec({', '.join(shown)})"

    def check(self, layer: str, value: Any) -> None:
        """Raises ShapeError if the value does not fit."""
        shape, rank = tuple(value.shape), len(value.shape)
        wanted, hint = None, "Add or drop axes: x[..., None], Reshape, Flatten."
        if self.ndim is not None and rank != self.ndim:
            wanted = f"an input of rank {self.ndim}"
        elif self.min_ndim is not None and rank < self.min_ndim:
            wanted = f"an input of rank {self.min_ndim} or more"
            if rank == 1:
                hint = "The first axis is the batch: pass one row as x[None]."
        elif self.max_ndim is not None and rank > self.max_ndim:
            wanted = f"an input of rank {self.max_ndim} or less"
        else:
            sizes = dict(enumerate(self.shape or ())) | self.axes
            for axis, size in sizes.items():
                if size is not None and isinstance(shape[axis], int):
                    if shape[axis] != size:
                        wanted = f"size {size} on axis {axis}"
                        hint = (
                            "It was built for that size; for another, make a new one."
                        )
        if wanted:
            raise ShapeError(
                layer,
                f"the layer needs {wanted}, received {describe(value)}",
                hint=hint,
            )
