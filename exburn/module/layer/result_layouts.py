"""Where on a mesh a layer's outputs lie, if a distribution has a rule for them."""

from __future__ import annotations

from typing import Any

import jax
from jax.core import Tracer
from jax.sharding import PartitionSpec

from exburn.core.forward_context import Context
from exburn.errors import LayoutError
from exburn.runtime.sharding.layouts import fits


def lay_out_results(path: str, outputs: Any, ctx: Context) -> Any:
    """A layer's outputs, of which XLA knows where they are to lie.

    Args:
        path: The layer's path; the rule is that for ``<path>/output``.
        outputs: What its call returned.
        ctx: The pass under way, in which masks go with the outputs.

    Raises:
        LayoutError: The rule does not fit an output. Rows that cannot be divided evenly
            are whole on every device.
    """
    layout = ctx.layouts.get_tensor_layout(f"{path}/output")
    if layout is None:
        return outputs
    mesh, (first, *rest) = layout.device_mesh, layout.axes or (None,)

    def place(value: Any) -> Any:
        if not isinstance(value, Tracer):  # operation by operation: as weights lie
            return value
        sharding = layout.backend_layout
        if value.ndim and value.shape[0] % mesh.size(first):  # as batches that are so
            sharding = ctx.layouts.sharding(PartitionSpec(None, *rest))
        if not fits(sharding, value.shape):
            raise LayoutError(
                "LayoutMap",
                f"the layout {layout.axes} does not fit what {path!r} returns",
                {"shape": value.shape, "mesh": mesh},
            )
        mask, filled = ctx.mask_of(value), ctx.padded_logits(value)
        value = jax.lax.with_sharding_constraint(value, sharding)
        if mask is not None:
            ctx.set_mask(value, mask)
        if filled is not None:
            ctx.set_padded_logits(value, filled)
        return value

    return jax.tree.map(place, outputs)
