"""Reuters: 11,228 newswires of 46 topics as lists of word numbers."""

from __future__ import annotations

import os

import numpy as np

from exburn.datasets.contract import sequences
from exburn.datasets.contract.files import Split
from exburn.errors.boundary import api_boundary

__all__ = ["get_label_names", "get_word_index", "load_data"]

DIGEST = "d6586e694ee56d7a4e65172e12b3e987c03096cb01eab99753921ef915959916"
INDEX_DIGEST = "4d44cc38712099c9e383dc6e5f11a921"
_LABELS = (
    "cocoa grain veg-oil earn acq wheat copper housing money-supply coffee sugar trade "
    "reserves ship cotton carcass crude nat-gas cpi money-fx interest gnp meal-feed "
    "alum oilseed gold tin strategic-metal livestock retail ipi iron-steel rubber heat "
    "jobs lei bop zinc orange pet-chem dlr gas silver wpi hog lead"
)


@api_boundary
def load_data(
    path: str | os.PathLike = "reuters.npz",
    num_words: int | None = None,
    skip_top: int = 0,
    maxlen: int | None = None,
    test_split: float = 0.2,
    seed: int = 113,
    start_char: int | None = 1,
    oov_char: int | None = 2,
    index_from: int | None = 3,
) -> Split:
    """Newswires in which word n is the n-th most frequent, downloaded on first use.

    Args:
        path: A file of yours, or a name in the cache.
        num_words: Keep numbers below this one; None keeps all.
        skip_top: Keep numbers from this one on.
        maxlen: Leave out newswires of this many numbers or more.
        test_split: Fraction of the newswires held out.
        seed: Of the split, the same as Keras makes.
        start_char: First number of every newswire; None for none.
        oov_char: Stands for numbers that are not kept; None drops them.
        index_from: Added to the numbers in the file.

    Shape: ``x: [n]`` lists of int (pad them to train), ``y: [n]`` from 0 to 45.

    Raises:
        ArgumentError: ``num_words`` or ``maxlen`` below 1, or a bad ``test_split``.
        DataError: Offline and not in the cache, or ``maxlen`` leaves nothing.
        FileFormatError: Not exactly the published file (it holds pickles).

    Example:
        >>> from exburn.datasets import reuters
        >>> (x, y), test = reuters.load_data(num_words=10_000)  # doctest: +SKIP
        >>> len(x), int(max(y))  # doctest: +SKIP
        (8982, 45)

    Source: D. Lewis, Reuters-21578 Text Categorization Test Collection, 1997.
    """
    op = "reuters.load_data"
    sequences.check_options(
        op, test_split=test_split, num_words=num_words, maxlen=maxlen
    )
    x, y = sequences.read_pickled(path, "reuters.npz", DIGEST, ("x", "y"), op)
    order = sequences.seeded_order(len(x), np.random.RandomState(seed))
    texts = sequences.mark(x[order], start_char, index_from)
    texts, labels = sequences.shorter(texts, y[order], maxlen, op)
    xs = sequences.replace_rare(texts, num_words, skip_top, oov_char)
    at = int(len(xs) * (1 - test_split))
    return (xs[:at], labels[:at]), (xs[at:], labels[at:])


@api_boundary
def get_word_index(
    path: str | os.PathLike = "reuters_word_index.json",
) -> dict[str, int]:
    """The rank of every word by frequency.

    Args:
        path: A file of yours, or a name in the cache.

    Raises:
        DataError: Offline and not in the cache; says where to put the file.
        FileFormatError: The file is not the expected one.

    Example:
        >>> from exburn.datasets import reuters
        >>> reuters.get_word_index()["the"]  # doctest: +SKIP
        1
    """
    return sequences.word_index(
        path, "reuters_word_index.json", INDEX_DIGEST, "reuters.get_word_index"
    )


@api_boundary
def get_label_names() -> tuple[str, ...]:
    """The names of the 46 topics, in the order of their labels.

    Example:
        >>> get_label_names()[3], len(get_label_names())
        ('earn', 46)
    """
    return tuple(_LABELS.split())
