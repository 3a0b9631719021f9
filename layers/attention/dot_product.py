"""Attention without projections: dot-product and additive."""

from __future__ import annotations

from typing import Any, Unpack

import jax.numpy as jnp

from exburn.core.checks import check_choice, check_float, check_seed
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions
from exburn.module.seed_generator import SeedOfLayer
from exburn.runtime.kernels.attention_softmax import masked_softmax
from exburn.runtime.kernels.position_mask import position_mask


@register_builtin
class Attention(Layer):
    """Reads from the value where the key resembles the query (Luong's attention).

    ``softmax(scale * query key^T) value``

    Args:
        use_scale: Whether the scores are multiplied by a trainable scalar.
        score_mode: ``"dot"`` as above, or ``"concat"``, where a score is
            ``w * Σ tanh(scale * (query + key))``.
        dropout: Share of the weights dropped in training.
        seed: Folded into the layer's random key.

    Call arguments:
        inputs: [query, value] or [query, value, key]; the key is the value by default.
        mask: [query mask, value mask], each [batch, positions] or None. Outputs of
            masked queries are zero, masked values are not read.
        return_attention_scores: Whether to return the weights, too.
        use_causal_mask: Whether a position sees none after it.

    Shape:
        [batch, targets, size], [batch, sources, out] → [batch, targets, out], and with
        ``return_attention_scores`` [batch, targets, sources]

    Raises:
        ArgumentError: ``score_mode`` or ``dropout`` is out of range, or the inputs are
            no list of two or three.

    Example:
        >>> import numpy as np
        >>> query, value = np.ones((2, 3, 8)), np.ones((2, 5, 8))
        >>> Attention()([query, value]).shape
        (2, 3, 8)

    Source: Luong et al., *Effective Approaches to Attention-based Neural Machine
    Translation*, 2015.
    """

    scale: Any = None
    concat_score_weight: Any = None

    seed_generator = SeedOfLayer(lambda layer: layer.dropout > 0)

    def __init__(
        self,
        use_scale: bool = False,
        score_mode: str = "dot",
        dropout: float = 0.0,
        seed: Any = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        op = type(self).__name__
        self.use_scale = bool(use_scale)
        self.score_mode = check_choice(op, "score_mode", score_mode, ("dot", "concat"))
        self.dropout = check_float(op, "dropout", dropout)
        if not 0 <= self.dropout < 1:
            raise ArgumentError(op, f"0 <= dropout < 1, received {dropout!r}")
        self.seed = check_seed(type(self).__name__, seed)
        self.supports_masking = True

    def build(self, input_shape):
        self._check_inputs(input_shape)
        if self.use_scale:
            self.scale = self.add_weight((), "ones", name="scale")
        if self.score_mode == "concat":
            self.concat_score_weight = self.add_weight(
                (), "ones", name="concat_score_weight"
            )

    def _check_inputs(self, inputs) -> None:
        if not isinstance(inputs, list | tuple) or len(inputs) not in (2, 3):
            raise ArgumentError(
                self.name,
                "the inputs are a list [query, value] or [query, value, key]",
                hint="layer([query, value])",
            )

    def _calculate_scores(self, query, key):
        """Scores ``[…, targets, sources]``, in float32 at least."""
        wide = jnp.promote_types(query.dtype, jnp.float32)
        if self.score_mode == "dot":
            scores = jnp.einsum(
                "...td,...sd->...ts", query, key, preferred_element_type=wide
            )
            return scores if self.scale is None else scores * self.scale.get_value()
        both = _pairs(query, key)
        if self.scale is not None:
            both = both * self.cast(self.scale)
        scores = jnp.tanh(both).sum(axis=-1, dtype=wide)
        return scores * self.concat_score_weight.get_value()

    def call(
        self,
        inputs,
        mask=None,
        training=False,
        return_attention_scores=False,
        use_causal_mask=False,
    ):
        self._check_inputs(inputs)
        query, value = inputs[0], inputs[1]
        key = inputs[2] if len(inputs) == 3 else value
        query_mask, value_mask = (None, None) if mask is None else mask[:2]
        scores = self._calculate_scores(query, key)
        seen = position_mask(*scores.shape[-2:], causal=use_causal_mask, window=None)
        seen = None if seen is None else seen[0]
        if value_mask is not None:
            readable = jnp.expand_dims(jnp.asarray(value_mask, bool), -2)
            seen = readable if seen is None else seen & readable
        weights = masked_softmax(scores, seen).astype(value.dtype)
        output = self._drop(weights, training) @ value
        if query_mask is not None:
            output = jnp.where(jnp.asarray(query_mask, bool)[..., None], output, 0)
        return (output, weights) if return_attention_scores else output

    def _drop(self, weights, training):
        if not training or not self.dropout:
            return weights
        keep, share = self._keep_mask(self.dropout, weights.shape, self.seed)
        return jnp.where(keep, weights / share, 0)

    def compute_mask(self, inputs, mask=None):
        return mask[0] if isinstance(mask, list | tuple) else None


class AdditiveOptions(LayerOptions, total=False):
    """Keyword arguments of ``AdditiveAttention``."""

    seed: Any


@register_builtin
class AdditiveAttention(Attention):
    """Reads from the value by a score that is a sum (Bahdanau's attention).

    ``softmax(Σ scale * tanh(query + key)) value``

    Args:
        use_scale: Whether ``scale`` is a trainable vector; else it is one.

    Shape:
        [batch, targets, size], [batch, sources, size] → [batch, targets, size], and
        with ``return_attention_scores`` [batch, targets, sources]

    Raises:
        ArgumentError: ``dropout`` is out of range, or the inputs are no list of two or
            three.

    Example:
        >>> import numpy as np
        >>> query, value = np.ones((2, 3, 8)), np.ones((2, 5, 8))
        >>> AdditiveAttention()([query, value]).shape
        (2, 3, 8)

    Source: Bahdanau et al., *Neural Machine Translation by Jointly Learning to Align
    and Translate*, 2015.
    """

    def __init__(
        self,
        use_scale: bool = True,
        dropout: float = 0.0,
        **kwargs: Unpack[AdditiveOptions],
    ):
        super().__init__(use_scale=use_scale, dropout=dropout, **kwargs)

    def build(self, input_shape):
        self._check_inputs(input_shape)
        if self.use_scale:
            size = input_shape[0][-1]
            self.scale = self.add_weight((size,), "glorot_uniform", name="scale")

    def _calculate_scores(self, query, key):
        terms = jnp.tanh(_pairs(query, key))
        if self.scale is not None:
            terms = terms * self.cast(self.scale)
        return terms.sum(axis=-1, dtype=jnp.promote_types(terms.dtype, jnp.float32))


def _pairs(query, key):
    """Sums of every query and key, ``[…, targets, sources, size]``."""
    return query[..., :, None, :] + key[..., None, :, :]
