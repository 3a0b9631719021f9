"""Joining inputs along an axis, and their dot product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import jax
import jax.numpy as jnp

from exburn.core.checks import check_integer
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, ShapeError
from exburn.layers.merging.elementwise import Merge, over_entries
from exburn.module.layer_options import LayerOptions


@register_builtin
class Concatenate(Merge):
    """Joins the inputs along an axis.

    Args:
        axis: The axis; the last one by default.

    Shape:
        [x, …]: [batch, …, n_i] → [batch, …, sum n_i]

    Raises:
        ArgumentError: The input is no list.
        ShapeError: The shapes differ on another axis.

    Example:
        >>> import numpy as np
        >>> Concatenate()([np.ones((2, 3)), np.ones((2, 4))]).shape
        (2, 7)
    """

    moves_text = True

    def __init__(self, axis: int | Sequence[int] = -1, **kwargs: Unpack[LayerOptions]):
        super().__init__(**kwargs)
        self.axis = check_integer("Concatenate", "axis", axis)

    def call(self, inputs):
        try:
            return jnp.concatenate(inputs, self.axis)
        except (TypeError, ValueError) as error:
            shapes = ", ".join(describe(x) for x in inputs)
            raise ShapeError(
                self.name,
                f"the inputs' shapes may differ on axis {self.axis} only: {shapes}",
                hint="Choose another axis, or bring the other sizes together.",
            ) from error

    def compute_mask(self, inputs, mask=None):
        masks = self._masks(inputs, mask)
        if all(m is None for m in masks):
            return None
        full = [
            jnp.broadcast_to(True if m is None else over_entries(m, x), x.shape)
            for x, m in zip(inputs, masks, strict=True)
        ]
        return jnp.concatenate(full, self.axis).any(-1)


@register_builtin
class Dot(Merge):
    """Dot product of two inputs along one axis of each, sample by sample.

    Args:
        axes: The axis to sum over, or one for each input; not the batch axis.
        normalize: Whether to scale inputs to norm 1 along it before (cosine
            similarity).

    Shape:
        [x, y]: [batch, a…, n], [batch, b…, n] → [batch, a…, b…], [batch, 1] at least

    Raises:
        ArgumentError: ``axes`` is not of such a form, or there are not two inputs.
        ShapeError: The axes' sizes differ.

    Example:
        >>> import numpy as np
        >>> Dot(axes=(1, 2))([np.ones((2, 3)), np.ones((2, 5, 3))]).shape
        (2, 5)
    """

    def __init__(
        self,
        axes: int | Sequence[int],
        normalize: bool = False,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        self.axes = tuple(axes) if isinstance(axes, list | tuple) else axes
        pair = self.axes if isinstance(self.axes, tuple) else (axes, axes)
        if len(pair) != 2 or any(not isinstance(a, int) or a == 0 for a in pair):
            raise ArgumentError(
                "Dot", f"axes is one axis or two, not the batch's, received {axes!r}"
            )
        self.normalize = bool(normalize)

    def build(self, input_shape):
        super().build(input_shape)
        if len(input_shape) != 2 or min(map(len, input_shape)) < 2:
            raise ArgumentError(
                self.name, f"two inputs of rank >= 2 are needed, received {input_shape}"
            )

    def call(self, inputs):
        pair = self.axes if isinstance(self.axes, tuple) else (self.axes,) * 2
        if any(not -x.ndim < a < x.ndim for a, x in zip(pair, inputs, strict=True)):
            raise ShapeError(self.name, f"axes={self.axes} do not exist in the inputs")
        axes = [a % x.ndim for a, x in zip(pair, inputs, strict=True)]
        x, y = inputs
        if isinstance(d := x.shape[axes[0]], int) and isinstance(
            e := y.shape[axes[1]], int
        ):
            if d != e:
                raise ShapeError(
                    self.name,
                    f"the sizes of axes {tuple(axes)} differ: "
                    f"{describe(x)}, {describe(y)}",
                )
        if self.normalize:
            x, y = (_unit(v, a) for v, a in zip(inputs, axes, strict=True))
        contract = ((axes[0],), (axes[1],))
        z = jax.lax.dot_general(x, y, (contract, ((0,), (0,))))
        return z if z.ndim > 1 else z[:, None]

    def compute_mask(self, inputs, mask=None):
        return None


def _unit(x, axis: int):
    square = jnp.sum(jnp.square(x.astype(jnp.float32)), axis, keepdims=True)
    return (x * jax.lax.rsqrt(jnp.maximum(square, 1e-24))).astype(x.dtype)
