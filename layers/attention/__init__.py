"""Layers in which positions read from each other."""

from exburn.layers.attention.dot_product import AdditiveAttention, Attention
from exburn.layers.attention.grouped_query import *
from exburn.layers.attention.multi_head import MultiHeadAttention
from exburn.layers.attention.rotary import RotaryEmbedding

__all__ = [
    "AdditiveAttention",
    "Attention",
    "GroupQueryAttention",
    "GroupedQueryAttention",
    "MultiHeadAttention",
    "RotaryEmbedding",
]
