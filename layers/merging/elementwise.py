"""Layers that combine several inputs entry by entry."""

from __future__ import annotations

from functools import partial, reduce

import jax.numpy as jnp

from exburn.core.methods import overridable
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, ShapeError
from exburn.module.layer import Layer

__all__ = ["Add", "Average", "Maximum", "Minimum", "Multiply", "Subtract"]


class Merge(Layer):
    """What layers with a list of inputs have in common.

    Inputs of lower rank get axes of size 1 after the batch axis; then they broadcast.
    The output's mask is on where any input's is.

    Shape:
        [x, …]: shapes that broadcast → their common shape

    Raises:
        ArgumentError: The input is no list.
        ShapeError: The shapes do not broadcast.
    """

    supports_masking = True

    def build(self, input_shape):
        if not isinstance(input_shape, list | tuple) or not all(
            isinstance(s, list | tuple) for s in input_shape
        ):
            raise ArgumentError(
                self.name,
                f"a list of inputs is needed, received one of shape {input_shape}",
                hint=f"{type(self).__name__}()([a, b])",
            )

    @overridable
    def call(self, inputs, mask=None):
        ndim = max(x.ndim for x in inputs)
        wide = [_widen(x, ndim) for x in inputs]
        masks = self._masks(inputs, mask)
        try:
            if all(m is None for m in masks):
                return self._merge(wide)
            masks = [
                None if m is None else _widen(over_entries(m, x), ndim)
                for x, m in zip(inputs, masks, strict=True)
            ]
            return self._merge_masked(wide, masks)
        except (TypeError, ValueError) as error:
            if isinstance(error, ShapeError):
                raise
            shapes = ", ".join(describe(x) for x in inputs)
            raise ShapeError(
                self.name,
                f"the inputs do not broadcast: {shapes}",
                hint="Bring them to one shape first, for example by Dense or Reshape.",
            ) from error

    def _merge(self, inputs):
        raise NotImplementedError

    def _merge_masked(self, inputs, masks):
        """Merges where some masks are given; they broadcast to their inputs."""
        return self._merge(inputs)

    def _masks(self, inputs, mask) -> list:
        """One for each input.

        Raises:
            ArgumentError: There are others.
        """
        masks = [None] * len(inputs) if mask is None else mask
        if not isinstance(masks, list | tuple) or len(masks) != len(inputs):
            raise ArgumentError(
                self.name, f"{len(inputs)} inputs have a list of as many masks"
            )
        return list(masks)

    def compute_mask(self, inputs, mask=None):
        masks = self._masks(inputs, mask)
        return None if any(m is None for m in masks) else reduce(jnp.logical_or, masks)


def over_entries(mask, x):
    """A mask of the first axes as one that broadcasts to all axes of an array."""
    mask = jnp.asarray(mask, bool)
    return jnp.expand_dims(mask, tuple(range(mask.ndim, x.ndim)))


def _either(mask, other):
    return None if mask is None or other is None else mask | other


def _extreme(pair, other, choose):
    """The extreme of two inputs, each with its mask, where both count; else the one
    that counts."""
    (x, mask), (y, other_mask) = pair, other
    y = y if other_mask is None else jnp.where(other_mask, y, x)
    x = x if mask is None else jnp.where(mask, x, y)
    return choose(x, y), _either(mask, other_mask)


def _widen(x, ndim: int):
    if x.ndim == ndim or x.ndim == 0:
        return x
    return jnp.expand_dims(x, tuple(range(1, 1 + ndim - x.ndim)))


@register_builtin
class Add(Merge):
    """Sum of the inputs.

    Example:
        >>> import numpy as np
        >>> Add()([np.ones((2, 3)), np.ones((2, 3))]).tolist()
        [[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]
    """

    def _merge(self, inputs):
        return reduce(jnp.add, inputs)


@register_builtin
class Subtract(Merge):
    """First input minus the second.

    Shape:
        [x, y]: shapes that broadcast → their common shape

    Raises:
        ArgumentError: There are not exactly two inputs.
        ShapeError: The shapes do not broadcast.

    Example:
        >>> import numpy as np
        >>> Subtract()([np.array([3.0]), np.array([1.0])]).tolist()
        [2.0]
    """

    def build(self, input_shape):
        super().build(input_shape)
        if len(input_shape) != 2:
            raise ArgumentError(
                self.name, f"two inputs are needed, received {len(input_shape)}"
            )

    def _merge(self, inputs):
        return jnp.subtract(*inputs)


@register_builtin
class Multiply(Merge):
    """Product of the inputs, entry by entry; those that are masked count as ones.

    Where all are masked it is 0.

    Example:
        >>> import numpy as np
        >>> Multiply()([np.array([3.0]), np.array([2.0])]).tolist()
        [6.0]
    """

    def _merge(self, inputs):
        return reduce(jnp.multiply, inputs)

    def _merge_masked(self, inputs, masks):
        pairs = list(zip(inputs, masks, strict=True))
        out = self._merge([x if m is None else jnp.where(m, x, 1) for x, m in pairs])
        mask = reduce(_either, masks)
        return out if mask is None else jnp.where(mask, out, 0)


@register_builtin
class Average(Merge):
    """Mean of the inputs, entry by entry.

    Example:
        >>> import numpy as np
        >>> Average()([np.array([3.0]), np.array([2.0])]).tolist()
        [2.5]
    """

    def _merge(self, inputs):
        return reduce(jnp.add, inputs) / len(inputs)


@register_builtin
class Maximum(Merge):
    """Largest of the inputs, entry by entry, masked ones left out.

    Example:
        >>> import numpy as np
        >>> Maximum()([np.array([3.0]), np.array([2.0])]).tolist()
        [3.0]
    """

    def _merge(self, inputs):
        return reduce(jnp.maximum, inputs)

    def _merge_masked(self, inputs, masks):
        join = partial(_extreme, choose=jnp.maximum)
        return reduce(join, zip(inputs, masks, strict=True))[0]


@register_builtin
class Minimum(Merge):
    """Smallest of the inputs, entry by entry, masked ones left out.

    Example:
        >>> import numpy as np
        >>> Minimum()([np.array([3.0]), np.array([2.0])]).tolist()
        [2.0]
    """

    def _merge(self, inputs):
        return reduce(jnp.minimum, inputs)

    def _merge_masked(self, inputs, masks):
        join = partial(_extreme, choose=jnp.minimum)
        return reduce(join, zip(inputs, masks, strict=True))[0]
