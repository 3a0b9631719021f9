"""Layers in which positions read from each other."""

from typing import TYPE_CHECKING

from exburn.core.lazy_names import importer

if TYPE_CHECKING:
    from exburn.layers.attention.dot_product import AdditiveAttention, Attention
    from exburn.layers.attention.grouped_query import (
        GroupedQueryAttention,
        GroupQueryAttention,
    )
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

_LAZY_NAMES = {
    "exburn.layers.attention.dot_product": "AdditiveAttention Attention",
    "exburn.layers.attention.grouped_query": (
        "GroupQueryAttention GroupedQueryAttention"
    ),
    "exburn.layers.attention.multi_head": "MultiHeadAttention",
    "exburn.layers.attention.rotary": "RotaryEmbedding",
}

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = importer(__name__, _LAZY_NAMES)
