"""Texts that a language model learns, as token numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from exburn.errors import DataError, DTypeError, ShapeError
from exburn.errors.boundary import guard_methods

_OP = "Document"


@guard_methods
@dataclasses.dataclass(frozen=True, eq=False)
class Document:
    """A text as tokens, and which of them the loss counts.

    Args:
        tokens: Token numbers.
        counted: Whether each of them is a target of the loss; all are if ``None``.
        label: Whether it is a good answer, for losses that learn from such; ``None``
            if that is not known.

    Shape:
        tokens, counted: [tokens]

    Raises:
        ShapeError: They have no or unlike lengths, or more axes.
        DTypeError: The tokens are no integers, or ``counted`` has no booleans.
        DataError: A token number is negative, or has more than 31 bits.

    Example:
        >>> document = Document([5, 6, 7], [False, True, True])
        >>> len(document), document.counted.sum()
        (3, np.int64(2))
    """

    tokens: np.ndarray
    counted: np.ndarray = None  # type: ignore[assignment]
    label: bool | None = None

    def __post_init__(self):
        tokens = np.asarray(self.tokens)
        counted = self.counted
        counted = np.ones(tokens.shape, bool) if counted is None else counted
        counted = np.asarray(counted)
        if tokens.ndim != 1 or not tokens.size or counted.shape != tokens.shape:
            raise ShapeError(
                _OP,
                "tokens and counted are [tokens], of at least one token",
                {"tokens": tokens.shape, "counted": counted.shape},
            )
        if tokens.dtype.kind not in "iu" or counted.dtype != bool:
            raise DTypeError(
                _OP,
                "tokens are integers and counted has booleans",
                {"tokens": tokens.dtype, "counted": counted.dtype},
            )
        if tokens.min() < 0 or tokens.max() >= 2**31:
            raise DataError(
                _OP,
                "token numbers are from 0 to 2**31 - 1",
                {"received": f"{tokens.min()} to {tokens.max()}"},
            )
        if self.label not in (None, True, False):
            raise DataError(
                _OP, "label is True or False", {"received": repr(self.label)}
            )
        object.__setattr__(self, "tokens", tokens.astype(np.int32))
        object.__setattr__(self, "counted", counted)

    def __len__(self) -> int:
        return len(self.tokens)

    def __eq__(self, other: Any) -> bool:
        return (
            isinstance(other, Document)
            and np.array_equal(self.tokens, other.tokens)
            and np.array_equal(self.counted, other.counted)
            and self.label == other.label
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Document({len(self)} tokens, {int(self.counted.sum())} counted)"


@guard_methods
@dataclasses.dataclass(frozen=True)
class DocumentPair:
    """Two answers to one prompt, of which the first one is preferred.

    Args:
        chosen: The better one, with the prompt in front.
        rejected: The other one.

    Example:
        >>> DocumentPair(Document([1, 2]), Document([1, 3])).chosen
        Document(2 tokens, 2 counted)
    """

    chosen: Document
    rejected: Document
