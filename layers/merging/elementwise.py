"""Layers that combine several inputs entry by entry."""

from __future__ import annotations

from functools import reduce

import jax.numpy as jnp

from exburn.errors import ArgumentError, ShapeError
from exburn.layer import Layer
from exburn.registry import register_builtin
from exburn.shapes import describe

__all__ = ["Add", "Average", "Maximum", "Minimum", "Multiply", "Subtract"]


class Merge(Layer):
    """What layers with a list of inputs have in common.

    Inputs of lower rank get axes of size 1 after the batch axis; then they broadcast.
    The output's mask is on where any input's is.
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

    def call(self, inputs):
        ndim = max(x.ndim for x in inputs)
        wide = [_widen(x, ndim) for x in inputs]
        try:
            return self._merge(wide)
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

    def compute_mask(self, inputs, previous_mask=None):
        if previous_mask is None or any(m is None for m in previous_mask):
            return None
        return reduce(jnp.logical_or, previous_mask)


def _widen(x, ndim: int):
    if x.ndim == ndim or x.ndim == 0:
        return x
    return jnp.expand_dims(x, tuple(range(1, 1 + ndim - x.ndim)))


@register_builtin
class Add(Merge):
    """Sum of the inputs.

    Shape:
        [x, …]: shapes that broadcast → their common shape

    Raises:
        ArgumentError: The input is no list.
        ShapeError: The shapes do not broadcast.

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
    """Product of the inputs, entry by entry.

    Shape:
        [x, …]: shapes that broadcast → their common shape

    Raises:
        ArgumentError: The input is no list.
        ShapeError: The shapes do not broadcast.

    Example:
        >>> import numpy as np
        >>> Multiply()([np.array([3.0]), np.array([2.0])]).tolist()
        [6.0]
    """

    def _merge(self, inputs):
        return reduce(jnp.multiply, inputs)


@register_builtin
class Average(Merge):
    """Mean of the inputs, entry by entry.

    Shape:
        [x, …]: shapes that broadcast → their common shape

    Raises:
        ArgumentError: The input is no list.
        ShapeError: The shapes do not broadcast.

    Example:
        >>> import numpy as np
        >>> Average()([np.array([3.0]), np.array([2.0])]).tolist()
        [2.5]
    """

    def _merge(self, inputs):
        return reduce(jnp.add, inputs) / len(inputs)


@register_builtin
class Maximum(Merge):
    """Largest of the inputs, entry by entry.

    Shape:
        [x, …]: shapes that broadcast → their common shape

    Raises:
        ArgumentError: The input is no list.
        ShapeError: The shapes do not broadcast.

    Example:
        >>> import numpy as np
        >>> Maximum()([np.array([3.0]), np.array([2.0])]).tolist()
        [3.0]
    """

    def _merge(self, inputs):
        return reduce(jnp.maximum, inputs)


@register_builtin
class Minimum(Merge):
    """Smallest of the inputs, entry by entry.

    Shape:
        [x, …]: shapes that broadcast → their common shape

    Raises:
        ArgumentError: The input is no list.
        ShapeError: The shapes do not broadcast.

    Example:
        >>> import numpy as np
        >>> Minimum()([np.array([3.0]), np.array([2.0])]).tolist()
        [2.0]
    """

    def _merge(self, inputs):
        return reduce(jnp.minimum, inputs)
