"""Layers in which positions read from each other."""

from exburn.layers.attention.grouped_query import GroupedQueryAttention
from exburn.layers.attention.grouped_query import GroupQueryAttention
from exburn.layers.attention.multi_head import MultiHeadAttention

__all__ = ["GroupQueryAttention", "GroupedQueryAttention", "MultiHeadAttention"]
