"""Attention whose queries share the heads of key and value."""

from __future__ import annotations

from typing import Any, Unpack

from exburn.core.annotations import Identifier
from exburn.core.checks import check_count
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.layers.attention.multi_head import MultiHeadAttention
from exburn.layers.contract.projected_attention import (
    AttentionOptions,
    ProjectedAttention,
)

__all__ = ["GroupQueryAttention", "GroupedQueryAttention"]


@register_builtin
class GroupedQueryAttention(ProjectedAttention):
    """Multi-head attention in which groups of query heads share a key and value head.

    One key and value head is multi-query attention; as many as query heads is
    multi-head attention. The keys and values kept for generation shrink by the ratio.

    Args:
        head_dim: Size of a head.
        num_query_heads: Number of query heads.
        num_key_value_heads: Number of key and value heads; divides the former.

    Shape:
        [batch, targets, in], [batch, sources, in] → [batch, targets, in], and with
        ``return_attention_scores`` [batch, query heads, targets, sources]

    Raises:
        ArgumentError: The numbers of heads do not divide, a size is no integer >= 1, or
            flash attention is demanded where it cannot run.
        ShapeError: The ranks or positions of the inputs do not fit together.

    Example:
        >>> import numpy as np
        >>> x = np.ones((2, 6, 16))
        >>> layer = GroupedQueryAttention(8, num_query_heads=4, num_key_value_heads=2)
        >>> layer(x, x).shape
        (2, 6, 16)

    Source: Ainslie et al., *GQA: Training Generalized Multi-Query Transformer Models
    from Multi-Head Checkpoints*, 2023.
    """

    _described_by = (MultiHeadAttention,)

    def __init__(
        self,
        head_dim: int,
        num_query_heads: int,
        num_key_value_heads: int,
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
        op = "GroupedQueryAttention"
        self.head_dim = check_count(op, "head_dim", head_dim)
        self.num_query_heads = check_count(op, "num_query_heads", num_query_heads)
        self.num_key_value_heads = check_count(
            op, "num_key_value_heads", num_key_value_heads
        )
        if num_query_heads % num_key_value_heads:
            raise ArgumentError(
                op,
                "num_query_heads is a multiple of num_key_value_heads, received "
                f"{num_query_heads} and {num_key_value_heads}",
            )
        self._heads = (num_query_heads, num_key_value_heads, head_dim, head_dim)
        for name, value in self._options:
            if name != "activity_regularizer":  # that of the projections alone
                setattr(self, name, value)

    @property
    def num_repeats(self) -> int:
        """Query heads that share a head of keys and values."""
        return self.num_query_heads // self.num_key_value_heads


GroupQueryAttention = GroupedQueryAttention
register_builtin(GroupQueryAttention, "GroupQueryAttention")
