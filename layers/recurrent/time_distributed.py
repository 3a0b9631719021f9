"""Any layer, applied to every step of a sequence."""

from __future__ import annotations

from typing import Any, Unpack

import jax
import jax.numpy as jnp

from exburn.core import forward_context
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import describe
from exburn.errors import ShapeError
from exburn.layers.core.wrapper import Wrapper
from exburn.module.layer_options import LayerOptions


@register_builtin
class TimeDistributed(Wrapper):
    """Applies a layer to every step of a sequence, with the same weights.

    The steps are computed at once, as so many more rows of the batch; a batch
    normalization inside sees the rows of all steps together.

    Args:
        layer: The layer.

    Shape:
        x: [batch, time, …] → [batch, time, …], by the layer on [batch, …]

    Raises:
        ArgumentError: ``layer`` is no layer.
        ShapeError: The input has no time axis, or the mask another one.

    Example:
        >>> import numpy as np
        >>> from exburn.layers import Conv2D
        >>> TimeDistributed(Conv2D(4, 3))(np.ones((2, 10, 8, 8, 3))).shape
        (2, 10, 6, 6, 4)
    """

    def __init__(self, layer: Any, **kwargs: Unpack[LayerOptions]):
        super().__init__(layer, **kwargs)
        self.supports_masking = True

    def _build_parts(self, *shapes) -> None:
        super()._build_parts(*((shape[0], *shape[2:]) for shape in shapes))

    def call(self, inputs, training=None, mask=None):
        leaves = jax.tree.leaves(inputs)
        for leaf in leaves:
            if leaf.ndim < 3:
                raise ShapeError(
                    self.name,
                    f"[batch, time, …] of rank >= 3 is needed, not {describe(leaf)}",
                )
        batch, time = leaves[0].shape[:2]
        for leaf in jax.tree.leaves(mask):
            if leaf.shape[:2] != (batch, time):
                raise ShapeError(
                    self.name,
                    "the mask has other rows or steps than the input",
                    {"mask": describe(leaf), "input": describe(leaves[0])},
                )

        def fold(x):
            return x.reshape(batch * time, *x.shape[2:])

        kwargs = {}
        info = self.layer._call_info
        if info.takes_training:
            kwargs["training"] = training
        if info.takes_mask and mask is not None:
            kwargs["mask"] = jax.tree.map(fold, mask)
        ctx = forward_context.current()
        assert ctx is not None
        rows = ctx.row_mask
        if rows is not None:
            ctx.row_mask = jnp.broadcast_to(rows[:, None], (batch, time)).reshape(-1)
        try:
            outputs = self.layer(jax.tree.map(fold, inputs), **kwargs)
        finally:
            ctx.row_mask = rows
        return jax.tree.map(lambda y: y.reshape(batch, time, *y.shape[1:]), outputs)
