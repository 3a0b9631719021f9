"""The parts of encoders: blocks of attention, and what is at their ends."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from exburn import activations
from exburn.core.checks import check_choice, check_count
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError, ShapeError
from exburn.initializers import TruncatedNormal
from exburn.layers import Dense, Dropout, Embedding, LayerNormalization
from exburn.layers import MultiHeadAttention as Attention
from exburn.module.layer import Layer

DEVIATION = 0.02  # of the first weights, as in the papers


def start() -> TruncatedNormal:
    """The first weights of these networks."""
    return TruncatedNormal(stddev=DEVIATION)


@register_builtin
class TransformerBlock(Layer):
    """Attention among positions, and two dense layers for each, both with shortcuts.

    ``y = norm(x + attend(x))``, ``z = norm(y + mlp(y))``; with ``norm_first``
    ``y = x + attend(norm(x))``, ``z = y + mlp(norm(y))``

    Args:
        width: Number of features.
        heads: Number of heads, which divide them.
        mlp_width: Number of features between the dense layers.
        norm_first: Whether what goes into the two parts is normalized, or their sums.
        dropout: Share of features that each part loses in training.
        attention_dropout: Share of weights that attention loses.
        activation: Between the dense layers.
        epsilon: Of the normalizations.
        **kwargs: Of ``Layer``.

    Call arguments:
        x: [batch, positions, width].
        mask: [batch, positions], 0 where a position is not to be read; or None.

    Shape:
        x: [batch, positions, width] → the same

    Raises:
        ArgumentError: The heads do not divide the features.

    Example:
        >>> import numpy as np
        >>> TransformerBlock(8, 2, 16)(np.ones((1, 3, 8), "f")).shape
        (1, 3, 8)

    Source: Vaswani et al., *Attention Is All You Need*, 2017.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        mlp_width: int,
        *,
        norm_first: bool = False,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation: Any = "gelu",
        epsilon: float = 1e-6,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        op = type(self).__name__
        self.width = check_count(op, "width", width)
        self.heads = check_count(op, "heads", heads)
        self.mlp_width = check_count(op, "mlp_width", mlp_width)
        if width % heads:
            raise ArgumentError(
                op, f"{heads} heads do not divide {width} features evenly"
            )
        self.norm_first = bool(norm_first)
        self.attention = Attention(
            heads,
            width // heads,
            dropout=attention_dropout,
            kernel_initializer=start(),
        )
        self.attention_norm = LayerNormalization(epsilon=epsilon)
        self.mlp_in = Dense(
            mlp_width, activations.get(activation), kernel_initializer=start()
        )
        self.mlp_out = Dense(width, kernel_initializer=start())
        self.mlp_norm = LayerNormalization(epsilon=epsilon)
        self.drop = Dropout(dropout)

    def call(self, x, mask=None, training=False):
        seen = None if mask is None else mask.astype(bool)
        for part, norm in (
            (lambda x: self._attend(x, seen, training), self.attention_norm),
            (lambda x: self.mlp_out(self.mlp_in(x)), self.mlp_norm),
        ):
            inner = part(norm(x) if self.norm_first else x)
            x = x + self.drop(inner, training=training)
            x = x if self.norm_first else norm(x)
        return x

    def _attend(self, x, seen, training):
        return self.attention(x, x, value_mask=seen, training=training)


@register_builtin
class TextEmbedding(Layer):
    """Vectors of tokens, of their positions and of the parts of a text, added.

    Args:
        vocabulary_size: Number of tokens.
        width: Number of features.
        positions: Number of positions there are.
        types: Number of parts that a text may have.
        **kwargs: Of ``Layer``.

    Call arguments:
        ids: [batch, positions] of integers.
        types: The same of the numbers of parts; 0 everywhere if None.

    Shape:
        ids: [batch, positions] → [batch, positions, width]

    Raises:
        ShapeError: A text has more positions than there are.

    Example:
        >>> import numpy as np
        >>> TextEmbedding(100, 8, 16, 2)(np.array([[1, 2, 3]])).shape
        (1, 3, 8)

    Source: Devlin et al., *BERT*, 2019.
    """

    def __init__(
        self, vocabulary_size: int, width: int, positions: int, types: int, **kwargs
    ):
        super().__init__(**kwargs)
        self._autocast = False  # ids must stay exact
        self.vocabulary_size, self.width = vocabulary_size, width
        self.positions = check_count("TextEmbedding", "positions", positions)
        self.types = check_count("TextEmbedding", "types", types)
        self.tokens = Embedding(vocabulary_size, width, start())

    def build(self, ids, types=None):
        self.position_table = self.add_weight(
            (self.positions, self.width), start(), name="position_table"
        )
        self.type_table = self.add_weight(
            (self.types, self.width), start(), name="type_table"
        )

    def call(self, ids, types=None):
        length = ids.shape[1]
        if isinstance(length, int) and length > self.positions:
            raise ShapeError(
                self.name,
                f"a text may have {self.positions} tokens, received {length}",
                hint="Cut the texts, or make the model with more positions.",
            )
        vectors = self.tokens(ids)
        rows = self.cast(self.position_table.get_value())
        rows = rows[:length] if isinstance(length, int) else _first_rows(rows, length)
        table = self.cast(self.type_table.get_value())
        part = table[0] if types is None else jnp.take(table, types, 0, mode="clip")
        return vectors + rows + part  # [batch, positions, width]


def _first_rows(table: Any, length: Any) -> Any:
    """As many rows as there are positions, whose number is only a symbol."""
    return jnp.take(table, jnp.arange(length), 0, mode="clip")


@register_builtin
class ClassToken(Layer):
    """A trained vector before the positions, and a trained vector added to each.

    Shape:
        x: [batch, positions, width] → [batch, 1 + positions, width]

    Example:
        >>> import numpy as np
        >>> ClassToken()(np.ones((2, 9, 4), "f")).shape
        (2, 10, 4)

    Source: Dosovitskiy et al., *An Image is Worth 16x16 Words*, 2021.
    """

    def build(self, x):
        _, count, width = x
        self.token = self.add_weight((1, 1, width), "zeros", name="token")
        self.positions = self.add_weight(
            (1, count + 1, width), start(), name="positions"
        )

    def call(self, x):
        token = jnp.broadcast_to(
            self.cast(self.token.get_value()), (x.shape[0], 1, x.shape[2])
        )
        return jnp.concatenate([token, x], 1) + self.cast(self.positions.get_value())


@register_builtin
class TokenPooling(Layer):
    """One vector of the vectors of all positions.

    Args:
        kind: ``"first"``, or ``"mean"`` over the positions that count.
        **kwargs: Of ``Layer``.

    Call arguments:
        x: [batch, positions, width].
        mask: [batch, positions], 0 where a position does not count; or None.

    Shape:
        x: [batch, positions, width] → [batch, width]

    Example:
        >>> import numpy as np
        >>> x = np.array([[[1.0], [3.0], [9.0]]], "f")
        >>> TokenPooling("mean")(x, np.array([[1, 1, 0]])).tolist()
        [[2.0]]
    """

    def __init__(self, kind: str = "first", **kwargs: Any):
        super().__init__(**kwargs)
        self.kind = check_choice("TokenPooling", "kind", kind, ("first", "mean"))

    def call(self, x, mask=None):
        if self.kind == "first":
            return x[:, 0]
        if mask is None:
            return x.mean(1)
        weights = mask.astype(x.dtype)[:, :, None]
        return (x * weights).sum(1) / jnp.maximum(weights.sum(1), 1)
