"""Vectors for integers, and back."""

from __future__ import annotations

from typing import Any, Unpack

import jax.numpy as jnp
import numpy as np

from exburn import constraints, initializers, regularizers
from exburn.core import forward_context
from exburn.core.annotations import Identifier
from exburn.core.checks import check_count
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, DTypeError
from exburn.layers.contract.adaptable import Adaptable
from exburn.module.layer_options import CommonOptions
from exburn.runtime.kernels.head_loss import CLASSES, Head
from exburn.runtime.kernels.padded_matmul import table_product, wide_product
from exburn.runtime.sharding.current import whole_rows


class EmbeddingOptions(CommonOptions, total=False):
    """Keyword arguments of ``Embedding``, whose ``input_dim`` is an argument."""

    activity_regularizer: Identifier
    dtype: Any
    name: str | None
    input_length: int | None
    lora_rank: int | None
    lora_alpha: float | None
    quantization_config: Any


class ReversibleOptions(EmbeddingOptions, total=False):
    """Keyword arguments of ``ReversibleEmbedding``."""

    weights: Any


@register_builtin
class Embedding(Adaptable):
    """Looks up a trainable vector for each integer.

    ``y[…, :] = embeddings[x[…], :]``

    Inside a compiled program an index cannot raise an error: one that is not in
    ``[0, input_dim)`` takes the nearest row. ``fit`` and its kin therefore check the
    data on the host, wherever an input of the model is looked up as it is.

    Args:
        input_dim: Number of rows: the largest integer plus one.
        output_dim: Size of a vector.
        embeddings_initializer: Initializer of the table ``[input_dim, output_dim]``.
        embeddings_regularizer: Function of the table, added to the loss.
        embeddings_constraint: Projection of the table after every update.
        mask_zero: Whether 0 is padding, which later layers, the loss and the metrics
            leave out.
        weights: First value of the table.

    Shape:
        x: [batch, …] of integers → [batch, …, output_dim]

    Raises:
        ArgumentError: A size is no integer >= 1.
        DTypeError: Complex indices.

    Example:
        >>> import numpy as np
        >>> Embedding(1000, 64)(np.array([[4, 0], [7, 9]])).shape
        (2, 2, 64)
    """

    embeddings: Any = None

    def __init__(
        self,
        input_dim: Any,
        output_dim: int,
        embeddings_initializer: Identifier = "uniform",
        embeddings_regularizer: Identifier = None,
        embeddings_constraint: Identifier = None,
        mask_zero: bool = False,
        weights: Any = None,
        **kwargs: Unpack[EmbeddingOptions],
    ):
        length = kwargs.pop("input_length", None)  # of Keras 2
        if length is not None:
            kwargs.setdefault("input_shape", (length,))
        super().__init__(**kwargs)
        op = type(self).__name__
        self.input_dim = check_count(op, "input_dim", input_dim)
        self.output_dim = check_count(op, "output_dim", output_dim)
        self.embeddings_initializer = initializers.get(embeddings_initializer)
        self.embeddings_regularizer = regularizers.get(embeddings_regularizer)
        self.embeddings_constraint = constraints.get(embeddings_constraint)
        self.mask_zero = bool(mask_zero)
        self.supports_masking = self.mask_zero
        self._autocast = False  # indices that come as floats must stay exact
        if weights is not None:
            table = weights[0] if isinstance(weights, list | tuple) else weights
            self.embeddings_initializer = initializers.get(self._check_table(table))

    def _check_table(self, table):
        shape = (self.input_dim, self.output_dim)
        if getattr(table, "shape", None) != shape:
            received = describe(table) if hasattr(table, "shape") else repr(table)
            raise ArgumentError(
                type(self).__name__,
                f"weights must be an array of shape {shape}, or a list of one",
                {"received": received},
            )
        return np.asarray(table)

    def _init_config(self):
        config = super()._init_config()
        if self.built or config.get("weights") is None:
            config.pop("weights", None)  # the table is one of the layer's weights
        return config

    def build(self, input_shape=None):
        self.embeddings = self.add_weight(
            (self.input_dim, self.output_dim),
            self.embeddings_initializer,
            name="embeddings",
            regularizer=self.embeddings_regularizer,
            constraint=self.embeddings_constraint,
        )
        self._adapt()

    def call(self, inputs):
        return self.look_up(inputs)

    def look_up(self, inputs):
        """The rows of the table, in the compute dtype."""
        ctx = forward_context.current()
        if ctx is not None:
            ctx.lookups.append((inputs, self.input_dim, self.name))
        if jnp.issubdtype(inputs.dtype, jnp.floating) or inputs.dtype == bool:
            inputs = inputs.astype(jnp.int32)
        elif not jnp.issubdtype(inputs.dtype, jnp.integer):
            raise DTypeError(
                self.name, f"integers are needed, received {describe(inputs)}"
            )
        return self._rows(inputs)

    def _rows(self, indices):
        table, ctx = self.embeddings.get_value(), forward_context.current()
        if ctx is not None and ctx.tables is not None:
            return whole_rows(self.cast(ctx.tables.rows(table, indices)))
        return whole_rows(self.cast(jnp.take(table, indices, 0, mode="clip")))

    def compute_mask(self, inputs, mask=None):
        return inputs != 0 if self.mask_zero else None


@register_builtin
class ReversibleEmbedding(Embedding):
    """An embedding that also maps vectors back to scores of the integers.

    ``logits = x @ embeddings.T``, and ``cap * tanh(logits / cap)`` with a soft cap

    Args:
        input_dim: Number of integers, from 0; the largest is ``input_dim - 1``.
        output_dim: Size of the vectors.
        tie_weights: Whether the way back uses the transposed table, or its own
            ``reverse_embeddings``.
        mask_zero: Whether 0 is padding, which later layers leave out.
        reverse_dtype: Dtype that the way back is computed in; the compute dtype if
            None.
        logit_soft_cap: Bound of the scores; none if None.

    Shape:
        x: [batch, …] of integers → [batch, …, output_dim]; with ``reverse=True``,
        x: [batch, …, output_dim] → [batch, …, input_dim]

    Raises:
        ArgumentError: A size is no integer >= 1.

    Example:
        >>> import numpy as np
        >>> embedding = ReversibleEmbedding(100, 8)
        >>> h = embedding(np.array([[4, 0, 7]]))
        >>> embedding(h, reverse=True).shape
        (1, 3, 100)

    Source: Press & Wolf, *Using the Output Embedding to Improve Language Models*, 2017.
    """

    reverse_embeddings: Any = None

    def __init__(
        self,
        input_dim: Any,
        output_dim: int,
        tie_weights: bool = True,
        embeddings_initializer: Identifier = "uniform",
        embeddings_regularizer: Identifier = None,
        embeddings_constraint: Identifier = None,
        mask_zero: bool = False,
        reverse_dtype: Any = None,
        logit_soft_cap: Any = None,
        **kwargs: Unpack[ReversibleOptions],
    ):
        super().__init__(
            input_dim=input_dim,
            output_dim=output_dim,
            embeddings_initializer=embeddings_initializer,
            embeddings_regularizer=embeddings_regularizer,
            embeddings_constraint=embeddings_constraint,
            mask_zero=mask_zero,
            **kwargs,
        )
        self.tie_weights = bool(tie_weights)
        self.reverse_dtype = reverse_dtype
        self.logit_soft_cap = logit_soft_cap

    def build(self, input_shape=None):
        super().build(input_shape)
        if not self.tie_weights:
            self.reverse_embeddings = self.add_weight(
                (self.output_dim, self.input_dim),
                self.embeddings_initializer,
                name="reverse_embeddings",
            )

    def call(self, inputs, reverse=False):
        if not reverse:
            return self.look_up(inputs)
        dtype = self.reverse_dtype or self.compute_dtype
        x = self.cast(inputs, dtype)
        if self.tie_weights:
            logits = self._scores(x)
        else:
            logits = self._own_scores(x)
        if self.logit_soft_cap is not None:
            plain = logits
            logits = jnp.tanh(logits / self.logit_soft_cap) * self.logit_soft_cap
            _cap(logits, plain, self.logit_soft_cap)
        return logits

    def _own_scores(self, x):
        """Products of the vectors with the columns of a table of their own."""
        return wide_product(x, self.cast(self.reverse_embeddings, x.dtype))

    def _scores(self, x):
        """Products of the vectors with all rows of the table."""
        table = self.cast(self.embeddings, x.dtype)
        scores, ctx = table_product(x, table), forward_context.current()
        if ctx is not None and table.shape[0] >= CLASSES:
            ctx.set_head(scores, Head(x, table, turned=True))
        return scores

    def compute_mask(self, inputs, mask=None):
        if jnp.issubdtype(inputs.dtype, jnp.floating):  # the way back
            return None
        return super().compute_mask(inputs, mask)


def _cap(scores: Any, before: Any, soft_cap: Any) -> None:
    """Tells it that these scores are those before, with a soft cap."""
    ctx = forward_context.current()
    if ctx is not None and (head := ctx.head_of(before)) is not None:
        ctx.set_head(scores, head._replace(soft_cap=soft_cap))
