"""A trainable vector for every position."""

from __future__ import annotations

from typing import Any, Unpack

import jax.numpy as jnp
from jax import lax

from exburn import initializers
from exburn.core.annotations import Identifier
from exburn.core.checks import check_count
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import describe
from exburn.errors import ShapeError
from exburn.layers.contract.key_value_cache import current_cache
from exburn.layers.contract.segments import token_positions
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions


@register_builtin
class PositionEmbedding(Layer):
    """Gives each position its trainable vector; add it to the vectors of the tokens.

    ``y[…, t, :] = embeddings[t, :]``

    Args:
        sequence_length: Number of positions there are.
        initializer: Initializer of the table ``[sequence_length, features]``.

    Call arguments:
        inputs: What has the positions and the number of features.
        start_index: Position of the first step. While a model generates, the positions
            are those of the tokens that the pass is about; in packed rows they begin
            again with each document.

    Shape:
        x: [batch, time, features] → the same

    Raises:
        ArgumentError: ``sequence_length`` is no integer >= 1.
        ShapeError: There are more steps than positions, or other than three axes.

    Example:
        >>> import numpy as np
        >>> tokens = np.zeros((2, 5, 8), "float32")
        >>> positions = PositionEmbedding(16)(tokens)
        >>> positions.shape, bool((positions[0] == positions[1]).all())
        ((2, 5, 8), True)

    Source: Radford et al., *Improving Language Understanding by Generative
    Pre-Training*, 2018.
    """

    embeddings: Any = None
    supports_masking = True

    def __init__(
        self,
        sequence_length: int,
        initializer: Identifier = "glorot_uniform",
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        self.sequence_length = check_count(
            "PositionEmbedding", "sequence_length", sequence_length
        )
        self.initializer = initializers.get(initializer)

    def build(self, input_shape):
        if len(input_shape) != 3:
            raise ShapeError(
                self.name,
                f"[batch, time, features] is needed, received {tuple(input_shape)}",
            )
        self.embeddings = self.add_weight(
            (self.sequence_length, input_shape[-1]), self.initializer, name="embeddings"
        )

    def call(self, inputs, start_index=0):
        table, cache, time = (
            self.cast(self.embeddings),
            current_cache(),
            inputs.shape[1],
        )
        if cache is None and isinstance(time, int) and time > self.sequence_length:
            raise ShapeError(
                self.name,
                f"there are {self.sequence_length} positions, received "
                f"{describe(inputs)}",
                hint="Raise sequence_length, or cut the sequences.",
            )
        if cache is not None:
            cache.limit_positions(self.sequence_length)
        if (places := token_positions(time)) is not None:
            rows = jnp.take(table, places + start_index, 0, mode="clip")
        elif isinstance(time, int) and isinstance(start_index, int):
            rows = lax.slice_in_dim(table, start_index, start_index + time)
        else:
            rows = jnp.take(table, jnp.arange(time) + start_index, 0, mode="clip")
        return jnp.broadcast_to(rows, inputs.shape)
