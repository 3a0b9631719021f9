"""Text for models that generate: tokenizers, and how the next token is chosen.

Example:
    >>> import numpy as np
    >>> from exburn.applications import GPT2
    >>> model = GPT2(vocabulary_size=50, layers=1, width=16, heads=2, positions=32)
    >>> prompt = np.array([1, 2, 3])
    >>> model.generate(prompt, 5, sampler=TopP(0.9, temperature=0.7), seed=1).shape
    (5,)
"""

from typing import TYPE_CHECKING

from exburn.core.missing_names import refuser
from exburn.data.documents import Document, DocumentPair
from exburn.data.packed import PackedTokens
from exburn.text.chat_template import CHATML, ChatTemplate
from exburn.text.constraints import TextConstraint
from exburn.text.drafts import DraftModel, DraftStatistics, PromptLookup
from exburn.text.packing import PackedDocuments, pack
from exburn.text.pairs import PackedPairs, pack_pairs
from exburn.text.reading import DocumentReader
from exburn.text.samplers import (
    Contrastive,
    Greedy,
    MinP,
    RandomSampler,
    Sampler,
    TopK,
    TopP,
)
from exburn.text.settings import TokenizerSettings
from exburn.text.showing import show
from exburn.text.tokenizer import Tokenizer

__all__ = [
    "CHATML",
    "ChatTemplate",
    "Contrastive",
    "Document",
    "DocumentPair",
    "DocumentReader",
    "DraftModel",
    "DraftStatistics",
    "Greedy",
    "MinP",
    "PackedDocuments",
    "PackedPairs",
    "PackedTokens",
    "PromptLookup",
    "RandomSampler",
    "Sampler",
    "TextConstraint",
    "Tokenizer",
    "TokenizerSettings",
    "TopK",
    "TopP",
    "pack",
    "pack_pairs",
    "show",
]


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
