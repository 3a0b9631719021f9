"""Attention of several heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from exburn.core.annotations import Identifier
from exburn.core.checks import check_count
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.layers.contract.projected_attention import (
    AttentionOptions,
    ProjectedAttention,
    other_name,
)


@register_builtin
class MultiHeadAttention(ProjectedAttention):
    """Every position of the query reads from those of the value that fit it.

    ``softmax(Q K^T / √key_dim) V`` per head, where ``Q = query W_q + b_q`` …, and the
    heads together projected to the output.

    Masks of the inputs hold here: a masked position of the value or key is not read.
    Self-attention (``layer(x, x)``) makes Q, K and V by one matrix product.

    Args:
        num_heads: Number of heads.
        key_dim: Size of a head of query and key.
        value_dim: Size of a head of the value; ``key_dim`` if None.
        dropout: Share of the weights dropped in training.
        use_bias: Whether the projections add a bias.
        output_shape: Size, or sizes, of the output's features; the query's if None.
        attention_axes: Axes of positions; all but the first and the last if None.
        sliding_window: A position sees only those less than this many steps away.
        flash_attention: True: cuDNN's kernel or an error. False: never. None: where it
            can run (NVIDIA GPU, bfloat16 or float16, heads of a multiple of 8 up to
            256, no dropout or scores), unless ``config.disable_flash_attention()``.
        kernel_initializer: Initializer of the four kernels.
        bias_initializer: Initializer of the four biases.
        kernel_regularizer: Function of the kernels, added to the loss.
        bias_regularizer: Function of the biases, added to the loss.
        activity_regularizer: Function of the projections' outputs, added to the loss.
        kernel_constraint: Projection of the kernels after every update.
        bias_constraint: Projection of the biases after every update.
        use_gate: Whether the heads' outputs are multiplied by ``sigmoid(query W_g)``.
        seed: Folded into the layer's random key.
        rotary: A :class:`RotaryEmbedding` for the heads of query and key.
        scale: Factor of the scores; ``1 / √key_dim`` if None.
        logit_soft_cap: Bound of the scores, ``cap * tanh(scores / cap)``; no flash
            attention runs then.
        query_norm: A layer for the heads of the query, before they are turned:
            ``RMSNormalization()`` for each head by itself,
            ``RMSNormalization(axis=(-2, -1))`` for all together.
        key_norm: The same for those of the key.
        use_output_bias: Whether the output's projection adds a bias; as ``use_bias`` if
            None.

    Call arguments:
        query: [batch, targets, features].
        value: [batch, sources, features].
        key: [batch, sources, features]; the value if None.
        query_mask, value_mask, key_mask: [batch, positions] of booleans; those that the
            inputs carry if None.
        attention_mask: [batch, targets, sources] of booleans: what may be read.
        return_attention_scores: Whether to return the weights, too.
        use_causal_mask: Whether a position sees none after it.

    Shape:
        [batch, targets, in], [batch, sources, in] → [batch, targets, out], and with
        ``return_attention_scores`` [batch, heads, targets, sources]

    Raises:
        ArgumentError: A size is no integer >= 1, ``dropout`` is not in [0, 1), or flash
            attention is demanded where it cannot run.
        ShapeError: The ranks or positions of the inputs do not fit together.

    Example:
        >>> import numpy as np
        >>> x = np.ones((2, 6, 16))
        >>> layer = MultiHeadAttention(num_heads=2, key_dim=8)
        >>> y, weights = layer(
        ...     x, x, use_causal_mask=True, return_attention_scores=True
        ... )
        >>> y.shape, weights.shape
        ((2, 6, 16), (2, 2, 6, 6))

    Source: Vaswani et al., *Attention Is All You Need*, 2017.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: int | Sequence[int] | None = None,
        attention_axes: int | Sequence[int] | None = None,
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
        **kwargs: Unpack[AttentionOptions],
    ):
        super().__init__(
            dropout=dropout,
            use_bias=use_bias,
            sliding_window=sliding_window,
            flash_attention=flash_attention,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
            use_gate=use_gate,
            seed=seed,
            rotary=rotary,
            **kwargs,
        )
        op = "MultiHeadAttention"
        self.num_heads = check_count(op, "num_heads", num_heads)
        self.key_dim = check_count(op, "key_dim", key_dim)
        self.value_dim = (
            self.key_dim
            if value_dim is None
            else check_count(op, "value_dim", value_dim)
        )
        self._heads = (num_heads, num_heads, self.key_dim, self.value_dim)
        if output_shape is not None:
            sizes = (output_shape,) if isinstance(output_shape, int) else output_shape
            self._output_sizes = tuple(
                check_count(op, "output_shape", size) for size in sizes
            )
        if attention_axes is not None:
            axes = (
                (attention_axes,) if isinstance(attention_axes, int) else attention_axes
            )
            if not isinstance(axes, list | tuple):
                raise ArgumentError(
                    op,
                    "attention_axes is an integer or a tuple of integers, received "
                    f"{attention_axes!r}",
                )
            self._attention_axes = tuple(axes)

    # By which subclasses of Keras' layer know them.
    _num_heads, _key_dim = other_name("num_heads"), other_name("key_dim")
    _value_dim = other_name("value_dim")

    @property
    def attention_axes(self) -> tuple | None:
        return self._attention_axes
