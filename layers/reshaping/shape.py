"""Flatten, Reshape, Permute and RepeatVector."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Unpack

import jax.numpy as jnp

from exburn.core.checks import check_count, check_integer
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, ShapeError
from exburn.layers.contract.layout import check_format
from exburn.module.input_spec import InputSpec
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions


@register_builtin
class Flatten(Layer):
    """Makes one axis of all axes but the batch.

    Args:
        data_format: With ``"channels_first"`` the channels are moved to the end before,
            so that the order of the result does not depend on the format.

    Shape:
        x: [batch, a, b, …] → [batch, a * b * …]; [batch] → [batch, 1]

    Raises:
        ArgumentError: ``data_format`` is unknown.

    Example:
        >>> import numpy as np
        >>> Flatten()(np.ones((2, 3, 4))).shape
        (2, 12)
    """

    moves_text = True

    def __init__(self, data_format: str | None = None, **kwargs: Unpack[LayerOptions]):
        super().__init__(**kwargs)
        self.data_format = check_format("Flatten", data_format)
        self.input_spec = InputSpec(min_ndim=1)

    def call(self, inputs):
        x = inputs
        if self.data_format == "channels_first" and x.ndim > 2:
            x = jnp.moveaxis(x, 1, -1)
        return x.reshape(x.shape[0], math.prod(x.shape[1:]))


@register_builtin
class Reshape(Layer):
    """Gives every sample another shape.

    Args:
        target_shape: The shape without the batch axis; one entry may be -1.

    Shape:
        x: [batch, …] → [batch, *target_shape]

    Raises:
        ArgumentError: ``target_shape`` has an entry that is no size, or several -1.
        ShapeError: The sizes do not multiply to those of the input.

    Example:
        >>> import numpy as np
        >>> Reshape((-1, 2))(np.ones((5, 6))).shape
        (5, 3, 2)
    """

    moves_text = True

    def __init__(self, target_shape: Sequence[int], **kwargs: Unpack[LayerOptions]):
        super().__init__(**kwargs)
        sizes = target_shape if isinstance(target_shape, Iterable) else (target_shape,)
        self.target_shape = tuple(
            -1 if d is None else check_integer("Reshape", "target_shape", d)
            for d in sizes
        )
        if self.target_shape.count(-1) > 1 or min(self.target_shape, default=0) < -1:
            raise ArgumentError(
                "Reshape",
                "target_shape has sizes >= 0 and one -1 at most, received "
                f"{target_shape!r}",
            )

    def call(self, inputs):
        target, total = self.target_shape, math.prod(inputs.shape[1:])
        product = math.prod(d for d in target if d != -1)
        if isinstance(total, int):
            free = -1 in target
            if (free and (product == 0 or total % product)) or (
                not free and total != product
            ):
                raise ShapeError(
                    self.name,
                    f"{describe(inputs)} has {total} entries a sample, "
                    f"which do not fit target_shape {target}",
                    hint="Choose sizes of that product; one of them may be -1.",
                )
            target = tuple(total // product if d == -1 else d for d in target)
        return jnp.reshape(inputs, (inputs.shape[0], *target))


@register_builtin
class Permute(Layer):
    """Puts the axes of every sample in another order.

    Args:
        dims: The new order; the first axis after the batch is number 1.

    Shape:
        x: [batch, a, b] → [batch, b, a] for ``dims=(2, 1)``

    Raises:
        ArgumentError: ``dims`` is no order of 1, 2, ….

    Example:
        >>> import numpy as np
        >>> Permute((2, 1))(np.ones((5, 10, 64))).shape
        (5, 64, 10)
    """

    moves_text = True

    def __init__(self, dims: Sequence[int], **kwargs: Unpack[LayerOptions]):
        super().__init__(**kwargs)
        self.dims = tuple(dims)
        if sorted(self.dims) != list(range(1, len(self.dims) + 1)):
            raise ArgumentError(
                "Permute",
                f"dims holds 1 to {len(self.dims)} in any order, received {dims!r}",
                hint="The batch axis, 0, is not named: it stays first.",
            )
        self.input_spec = InputSpec(ndim=len(self.dims) + 1)

    def call(self, inputs):
        return jnp.transpose(inputs, (0, *self.dims))


@register_builtin
class RepeatVector(Layer):
    """Repeats a vector along a new axis of time.

    Args:
        n: Number of times.

    Shape:
        x: [batch, features] → [batch, n, features]

    Raises:
        ArgumentError: ``n`` is no integer ≥ 1.
        ShapeError: The input has another rank than 2.

    Example:
        >>> import numpy as np
        >>> RepeatVector(3)(np.ones((2, 32))).shape
        (2, 3, 32)
    """

    moves_text = True

    def __init__(self, n: int, **kwargs: Unpack[LayerOptions]):
        super().__init__(**kwargs)
        self.n = check_count("RepeatVector", "n", n)
        self.input_spec = InputSpec(ndim=2)

    def call(self, inputs):
        batch, features = inputs.shape
        return jnp.broadcast_to(inputs[:, None], (batch, self.n, features))
