"""Which axes of an input are positions that attend to each other."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from exburn.core.symbolic_shapes import describe, public_shape
from exburn.errors import ArgumentError, ShapeError


class Fold:
    """Brings inputs of any rank to ``[batch, positions, features]``, and back.

    Axes that do not attend are moved next to the batch axis and count as more batch.

    Args:
        query: Shape of the query.
        value: Shape of the value, with the same rank.
        axes: Axes that attend; all but the first and the last if None.
    """

    def __init__(self, query: tuple, value: tuple, axes: tuple | None):
        rank = len(query)
        every = tuple(range(1, rank - 1))
        self.axes = every if axes is None else tuple(a % rank for a in axes)
        if not set(self.axes) <= set(every) or len(set(self.axes)) < len(self.axes):
            raise ArgumentError(
                "attention_axes", f"{axes} are no axes of positions of rank {rank}"
            )
        others = tuple(a for a in every if a not in self.axes)
        self.order = (0, *others, *self.axes)
        self.lead = tuple(query[a] for a in (0, *others))
        self.targets = tuple(query[a] for a in self.axes)
        self.sources = tuple(value[a] for a in self.axes)
        self.trivial = rank == 3
        if not self.trivial and any(query[a] != value[a] for a in others):
            raise ShapeError(
                "attention",
                "axes that do not attend must be equal in query and value",
                {"query": public_shape(query), "value": public_shape(value)},
            )

    def query(self, x):
        return self._fold(x, self.targets)

    def source(self, x):
        return self._fold(x, self.sources)

    def _fold(self, x, positions: tuple):
        if self.trivial:
            return x
        x = x.transpose(*self.order, *range(len(self.order), x.ndim))
        shape = (math.prod(self.lead), math.prod(positions))
        return x.reshape(shape + x.shape[len(self.order) :])

    def output(self, y):
        """``[batch, positions, …]`` in the order of the query's axes."""
        if self.trivial:
            return y
        y = y.reshape(self.lead + self.targets + y.shape[2:])
        back = [self.order.index(a) for a in range(len(self.order))]
        return y.transpose(*back, *range(len(back), y.ndim))

    def scores(self, weights):
        """``[batch, …, heads, targets …, sources …]``, as Keras orders them."""
        if self.trivial:
            return weights
        shape = (*self.lead, weights.shape[1], *self.targets, *self.sources)
        return weights.reshape(shape)

    def whole_mask(self, mask: Any, query: Any, value: Any, key: Any):
        """All masks as one, ``[batch, heads, targets, sources]``; None without any.

        Args:
            mask: As of ``attention_mask``.
            query, value, key: Masks of the inputs' positions.
        """
        mask = self.attention_mask(mask)
        for positions, axis in ((query, 3), (value, 2), (key, 2)):
            seen = self.position_mask(positions, axis)
            if seen is not None:
                mask = seen if mask is None else mask & seen
        return mask

    def position_mask(self, mask: Any, axis: int):
        """The mask of an input's positions as ``[batch, 1, …, …]``."""
        if mask is None:
            return None
        mask = jnp.asarray(mask, bool)
        positions = self.targets if axis == 3 else self.sources
        if not self.trivial:
            full = [0] * len(self.order)
            for a, d in zip(self.order, self.lead + positions, strict=True):
                full[a] = d
            missing = (1,) * (len(full) - mask.ndim)
            mask = jnp.broadcast_to(mask.reshape(mask.shape + missing), tuple(full))
            mask = self._fold(mask, positions)
        return jnp.expand_dims(mask, (1, axis))

    def attention_mask(self, mask: Any):
        """The mask as ``[batch, heads, targets, sources]``; any size may be 1."""
        if mask is None:
            return None
        mask = jnp.asarray(mask, bool)
        n = len(self.axes)
        lead = mask.ndim - 2 * n
        if not 0 <= lead <= len(self.lead) + 1:
            raise ShapeError(
                "attention_mask",
                f"[batch, targets, sources] is needed, with {n} axis of positions each",
                {"received": describe(mask)},
            )
        if not self.trivial:
            shape = mask.shape[:lead] + self.targets + self.sources
            mask = jnp.broadcast_to(mask, shape)
            positions = (math.prod(self.targets), math.prod(self.sources))
            mask = mask.reshape(mask.shape[:lead] + positions)
            if 0 < lead < len(self.lead):  # given for the batch axis only
                missing = (1,) * (len(self.lead) - lead)
                mask = mask.reshape(mask.shape[:lead] + missing + positions)
                mask = jnp.broadcast_to(mask, self.lead + positions)
                lead = len(self.lead)
            if lead == len(self.lead):
                return mask.reshape(math.prod(self.lead), 1, *positions)
            if lead > len(self.lead):
                return mask.reshape(math.prod(self.lead), -1, *positions)
        if mask.ndim == 4:
            return mask
        return mask[:, None] if mask.ndim == 3 else mask[None, None]
