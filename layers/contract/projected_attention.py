"""What multi-head and grouped-query attention share."""

from __future__ import annotations

import math
import operator
from typing import Any, Unpack

import jax.numpy as jnp

from exburn import constraints, initializers, regularizers
from exburn.core import forward_context
from exburn.core.annotations import Identifier
from exburn.core.checks import check_count, check_float, check_number, check_seed
from exburn.core.methods import overridable
from exburn.errors import ArgumentError, ShapeError
from exburn.layers.attention.scaled_dot_product import attend, attend_by_weights
from exburn.layers.attention.segment_blocks import attend_by_blocks, goes_by_blocks
from exburn.layers.contract.attention_positions import Fold
from exburn.layers.contract.joint_projection import (
    attend_short,
    attends_short,
    project,
)
from exburn.layers.contract.key_value_cache import current_cache, refuse
from exburn.layers.contract.segments import current_segments, with_segments
from exburn.layers.core.einsum_dense import EinsumDense
from exburn.module.layer import Layer
from exburn.module.layer_options import UnregularizedOptions
from exburn.module.seed_generator import SeedOfLayer
from exburn.runtime.kernels.flash_attention import takes_cudnn
from exburn.runtime.kernels.position_mask import position_mask
from exburn.runtime.kernels.ring_attention import ring_attention, ring_fits
from exburn.runtime.sharding.current import sequence_division


def other_name(attribute: str, doc: str | None = None) -> property:
    """A property that is the attribute."""

    def assign(layer: Any, value: Any) -> None:
        setattr(layer, attribute, value)

    return property(operator.attrgetter(attribute), assign, doc=doc)


class AttentionOptions(UnregularizedOptions, total=False):
    """Keyword arguments of attention that Keras' layers do not have."""

    scale: float | None
    logit_soft_cap: float | None
    query_norm: Any
    key_norm: Any
    use_output_bias: bool | None


class ProjectedAttention(Layer):
    """Base of attention between learned projections of query, key and value.

    Subclasses set ``_heads``: the number of query heads, of key and value heads, the
    size of a query's and key's head, and that of a value's.
    """

    _heads: tuple[int, int, int, int]
    _output_sizes: tuple | None = None
    _attention_axes: tuple | None = None
    gate: Any = None

    seed_generator = SeedOfLayer(lambda layer: layer.dropout > 0)

    def __init__(
        self,
        *,
        dropout: float = 0.0,
        use_bias: bool = True,
        sliding_window: int | None = None,
        flash_attention: bool | None = None,
        kernel_initializer: Identifier = "glorot_uniform",
        bias_initializer: Identifier = "zeros",
        kernel_regularizer: Identifier = None,
        bias_regularizer: Identifier = None,
        activity_regularizer: Identifier = None,
        kernel_constraint: Identifier = None,
        bias_constraint: Identifier = None,
        use_gate: bool = False,
        seed: Any = None,
        rotary: Any = None,
        scale: float | None = None,
        logit_soft_cap: float | None = None,
        query_norm: Any = None,
        key_norm: Any = None,
        use_output_bias: bool | None = None,
        **kwargs: Unpack[UnregularizedOptions],
    ):
        super().__init__(**kwargs)
        op = type(self).__name__
        self.dropout = check_float(op, "dropout", dropout)
        if not 0 <= self.dropout < 1:
            raise ArgumentError(op, f"0 <= dropout < 1, received {dropout!r}")
        self.use_bias = bool(use_bias)
        self.use_output_bias = (
            self.use_bias if use_output_bias is None else bool(use_output_bias)
        )
        if sliding_window is not None:
            sliding_window = check_count(op, "sliding_window", sliding_window)
            sliding_window = min(sliding_window, 2**31 - 1)  # positions have 32 bits
        self.sliding_window = sliding_window
        if flash_attention and dropout:
            raise ArgumentError(
                op,
                "flash attention has no dropout of weights",
                hint="Leave out flash_attention=True, or dropout.",
            )
        if flash_attention and logit_soft_cap is not None:
            raise ArgumentError(
                op,
                "flash attention does not bound its scores",
                hint="Leave out flash_attention=True, or logit_soft_cap.",
            )
        self.flash_attention = flash_attention
        self.scale = _check_factor(op, "scale", scale)
        self.logit_soft_cap = _check_factor(op, "logit_soft_cap", logit_soft_cap)
        self.use_gate = bool(use_gate)
        self.seed = check_seed(type(self).__name__, seed)
        self.rotary = _check_part(op, "rotary", rotary, "RotaryEmbedding()")
        norm = "RMSNormalization()"
        self.query_norm = _check_part(op, "query_norm", query_norm, norm)
        self.key_norm = _check_part(op, "key_norm", key_norm, norm)
        self.supports_masking = True
        self._options = tuple(
            {
                "kernel_initializer": initializers.get(kernel_initializer),
                "bias_initializer": initializers.get(bias_initializer),
                "kernel_regularizer": regularizers.get(kernel_regularizer),
                "bias_regularizer": regularizers.get(bias_regularizer),
                "activity_regularizer": regularizers.get(activity_regularizer),
                "kernel_constraint": constraints.get(kernel_constraint),
                "bias_constraint": constraints.get(bias_constraint),
            }.items()
        )

    # ------------------------------------------------------------------ weights
    def build(self, query_shape, value_shape, key_shape=None):
        key_shape = key_shape or value_shape
        for name, shape in (("value", value_shape), ("key", key_shape)):
            if len(shape) != len(query_shape) or len(shape) < 3:
                raise ShapeError(
                    self.name,
                    "query, value and key need the same rank, 3 or more",
                    {"query": query_shape, name: shape},
                )
        if value_shape[1:-1] != key_shape[1:-1]:
            raise ShapeError(
                self.name,
                "value and key need the same positions",
                {"value": value_shape, "key": key_shape},
            )
        heads, key_heads, key_size, value_size = self._heads
        self.query = self._into_heads("query", heads, key_size)
        self.key = self._into_heads("key", key_heads, key_size)
        if self.use_gate:
            self.gate = self._into_heads(
                "gate", heads, value_size, activation="sigmoid"
            )
        self.value = self._into_heads("value", key_heads, value_size)
        sizes = self._output_sizes or (query_shape[-1],)
        out = "".join("opqrstu"[: len(sizes)])
        self.attention_output = EinsumDense(
            f"...nh,nh{out}->...{out}",
            output_shape=sizes,
            bias_axes=out if self.use_output_bias else None,
            dtype=self.precision,
            name="attention_output",
            **dict(self._options),
        )
        self.query._build((query_shape,))
        self.key._build((key_shape,))
        if self.gate is not None:
            self.gate._build((query_shape,))
        self.value._build((value_shape,))
        self.attention_output._build(((*query_shape[:2], heads, value_size),))
        for norm, shape, count in (
            (self.query_norm, query_shape, heads),
            (self.key_norm, key_shape, key_heads),
        ):
            if isinstance(norm, Layer):
                norm._build(((*shape[:2], count, key_size),))

    def _into_heads(self, name: str, heads: int, size: int, **options) -> EinsumDense:
        return EinsumDense(
            "...a,anh->...nh",
            output_shape=(heads, size),
            bias_axes="nh" if self.use_bias else None,
            dtype=self.precision,
            name=name,
            **options,
            **dict(self._options),
        )

    query_dense = other_name("query", "Projects queries.")
    key_dense = other_name("key", "Projects keys.")
    value_dense = other_name("value", "Projects values.")
    output_dense = other_name("attention_output", "Joins the heads.")

    # By which subclasses of Keras' layer, as those with a cache, know them.
    _query_dense, _key_dense = query_dense, key_dense
    _value_dense, _output_dense = value_dense, output_dense

    # ------------------------------------------------------------------ computation
    @overridable
    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=False,
        use_causal_mask=False,
    ):
        key = value if key is None else key
        query_mask = _mask_of(query) if query_mask is None else query_mask
        value_mask = _mask_of(value) if value_mask is None else value_mask
        if key is not value and key_mask is None:
            key_mask = _mask_of(key)
        fold = Fold(query.shape, value.shape, self._attention_axes)
        positions = query_mask, value_mask, key_mask
        mask = fold.whole_mask(attention_mask, *positions)
        simple = attention_mask is None and fold.trivial and not return_attention_scores
        x = fold.query(query)
        same = query is value and value is key
        cache = current_cache()
        if cache is not None:
            self._check_cacheable(
                same=same,
                causal=use_causal_mask,
                masked=mask is not None,
                scores=return_attention_scores,
                folded=not fold.trivial,
            )
        segments = current_segments()
        if segments is not None:
            segments.check(self, query, key, value)
        reads_all = mask is None and not (use_causal_mask or return_attention_scores)
        reads_all = reads_all and segments is None and sequence_division() is None
        if reads_all and cache is None and same and attends_short(self, x, training):
            out, weights = attend_short(self, x), None
        else:
            q, k, v = project(self, x, fold.source(key), fold.source(value), same)
            if self.query_norm is not None:
                q = self.query_norm(q)
            if self.key_norm is not None:
                k = self.key_norm(k)
            if self.rotary is not None:
                q, k = self.rotary(q), self.rotary(k)
            if cache is not None:
                out, weights = self._attend_cached(cache, q, k, v), None
            elif simple and _goes_round(self, q, k, v, use_causal_mask, training):
                out = _attend_round(self, q, k, v, positions, use_causal_mask)
                weights = None
            else:
                attend = self._attend if self._is_own else self._attend_as_overridden
                out, weights = attend(
                    q, k, v, mask, use_causal_mask, return_attention_scores, training
                )
        if self.gate is not None:
            out = out * self.gate(x)
        out = fold.output(self.attention_output(out))
        if query_mask is not None and (ctx := forward_context.current()) is not None:
            ctx.set_mask(out, query_mask)
        return (out, fold.scores(weights)) if return_attention_scores else out

    def compute_mask(self, inputs, previous_mask=None):
        return previous_mask

    def _check_cacheable(self, *, same, causal, masked, scores, folded) -> None:
        """Raises unless later tokens need no more of earlier ones than a cache has."""
        reasons = (
            (not causal, "it is called without use_causal_mask=True"),
            (not same, "query, key and value are not one input"),
            (masked, "it is called with a mask"),
            (scores, "its scores are asked for"),
            (folded, "there are several axes of positions"),
            (not self._is_own, "its class computes attention in a way of its own"),
        )
        for holds, reason in reasons:
            if holds:
                refuse(self, reason)

    def _attend_cached(self, cache, query, key, value):
        def whole(query, key, value):
            return self._attend(query, key, value, None, True, False, False)[0]

        return cache.attend(
            self,
            query,
            key,
            value,
            whole=whole,
            **self._score_options,
        )

    @property
    def _score_options(self) -> dict[str, Any]:
        """Options of the scores: their factor and bound, and which are read."""
        scale = 1 / math.sqrt(self._heads[2]) if self.scale is None else self.scale
        window, cap = self.sliding_window, self.logit_soft_cap
        return {"scale": scale, "window": window, "soft_cap": cap}

    @property
    def _is_own(self) -> bool:
        return type(self)._compute_attention is ProjectedAttention._compute_attention

    def _compute_attention(
        self,
        query,
        key,
        value,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
    ):
        """What the heads read, and their weights or None; called if it is overridden.

        Args:
            query, key, value: [batch, positions, heads, size], not scaled.
            attention_mask: [batch, targets, sources], or one for each head as
                [batch, heads, targets, sources]; all masks of the call together.
            training: Whether weights are dropped.
            return_attention_scores: Whether the weights are wanted.
        """
        mask = attention_mask
        if mask is not None and mask.ndim == 3:
            mask = mask[:, None]
        scores = return_attention_scores
        return self._attend(query, key, value, mask, False, scores, training)

    def _attend_as_overridden(self, query, key, value, mask, causal, scores, training):
        targets, sources = query.shape[1], key.shape[1]
        near = position_mask(
            targets, sources, causal=causal, window=self.sliding_window
        )
        if near is not None:
            mask = near if mask is None else mask & near
        mask = with_segments(mask)
        if mask is not None and mask.shape[1] == 1:
            mask = mask[:, 0]
        heads, key_heads, _, _ = self._heads
        key, value = (jnp.repeat(v, heads // key_heads, axis=2) for v in (key, value))
        options = {"return_attention_scores": True} if scores else {}
        return self._compute_attention(query, key, value, mask, training, **options)

    def _attend(self, query, key, value, mask, causal, scores, training):
        _, _, key_size, value_size = self._heads
        options = {"mask": mask, "causal": causal, **self._score_options}
        drops = training and self.dropout > 0
        if scores or drops or key_size != value_size:
            if self.flash_attention:
                raise ArgumentError(
                    self.name,
                    "flash attention returns no scores and needs values of the size of "
                    "the keys",
                )
            drop = self._drop if drops else None
            options["mask"] = with_segments(mask)
            return attend_by_weights(query, key, value, drop=drop, **options)
        segments, options["mask"] = current_segments(), with_segments(mask)
        cudnn = self.logit_soft_cap is None and takes_cudnn(
            self.name, self.flash_attention, query, key, value, options["mask"]
        )
        if segments is not None and mask is None:
            if goes_by_blocks(query.shape[0], query.shape[1], cudnn):
                del options["mask"]
                out = attend_by_blocks(query, key, value, segments.numbers, **options)
                return out, None
        return attend(query, key, value, cudnn=cudnn, **options), None

    def _drop(self, weights):
        keep, share = self._keep_mask(self.dropout, weights.shape, self.seed)
        return jnp.where(keep, weights / share, 0)


def _goes_round(layer, query, key, value, causal: bool, training: bool) -> bool:
    """Whether devices divide the positions, and keys go round among them."""
    if not layer._is_own or (training and layer.dropout > 0):
        return False
    return ring_fits(query, key, value, causal=causal, window=layer.sliding_window)


def _attend_round(layer, query, key, value, masks, causal: bool):
    query_mask, value_mask, key_mask = masks
    if value_mask is not None and key_mask is not None:
        key_mask = key_mask & value_mask
    segments = current_segments()
    cudnn = layer.logit_soft_cap is None and takes_cudnn(
        layer.name, layer.flash_attention, query, key, value, None, in_ring=True
    )
    return ring_attention(
        query,
        key,
        value,
        owners=None if segments is None else segments.numbers,
        query_mask=query_mask,
        key_mask=value_mask if key_mask is None else key_mask,
        causal=causal,
        cudnn=cudnn,
        **layer._score_options,
    )


def _check_factor(op: str, option: str, value: float | None) -> float | None:
    """The number, which is positive, or None."""
    return None if value is None else check_number(op, option, value, open_low=True)


def _check_part(op: str, option: str, value: Any, example: str) -> Any:
    """The layer that is done to the heads.

    Raises:
        ArgumentError: It is no layer.
    """
    if value is not None and not callable(value):
        raise ArgumentError(
            op,
            f"{option} must be a layer, received {value!r}",
            hint=f"For example {option}={example}.",
        )
    return value


def _mask_of(value):
    ctx = forward_context.current()
    return None if ctx is None else ctx.mask_of(value)
