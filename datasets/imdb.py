"""IMDB: 50,000 film reviews as lists of word numbers, positive or negative."""

from __future__ import annotations

import os

import numpy as np

from exburn.datasets.contract import sequences
from exburn.datasets.contract.files import Split
from exburn.errors.boundary import api_boundary

__all__ = ["get_word_index", "load_data"]

DIGEST = "69664113be75683a8fe16e3ed0ab59fda8886cb3cd7ada244f7d9544e4676b9f"
INDEX_DIGEST = "bfafd718b763782e994055a2d397834f"


@api_boundary
def load_data(
    path: str | os.PathLike = "imdb.npz",
    num_words: int | None = None,
    skip_top: int = 0,
    maxlen: int | None = None,
    seed: int = 113,
    start_char: int | None = 1,
    oov_char: int | None = 2,
    index_from: int | None = 3,
) -> Split:
    """Reviews in which word n is the n-th most frequent, downloaded on the first use.

    Word n of `get_word_index` appears as ``n + index_from``; 0 is left for padding.

    Args:
        path: A file of yours, or a name in the cache.
        num_words: Keep numbers below this one; None keeps all.
        skip_top: Keep numbers from this one on.
        maxlen: Leave out reviews of this many numbers or more.
        seed: Of the order, the same as Keras makes.
        start_char: First number of every review; None for none.
        oov_char: Stands for numbers that are not kept; None drops them.
        index_from: Added to the numbers in the file.

    Shape: ``x: [25000]`` lists of int (pad them to train), ``y: [25000]`` 0 or 1;
    test parts alike.

    Raises:
        ArgumentError: ``num_words`` or ``maxlen`` below 1.
        DataError: Offline and not in the cache, or ``maxlen`` leaves nothing.
        FileFormatError: Not exactly the published file (it holds pickles).

    Example:
        >>> from exburn.datasets import imdb
        >>> (x, y), test = imdb.load_data(num_words=10_000)  # doctest: +SKIP
        >>> len(x), x[0][0]  # doctest: +SKIP
        (25000, 1)

    Source: A. Maas et al., Learning Word Vectors for Sentiment Analysis, 2011.
    """
    op = "imdb.load_data"
    sequences.check_options(op, num_words=num_words, maxlen=maxlen)
    names = ("x_train", "y_train", "x_test", "y_test")
    arrays = sequences.read_pickled(path, "imdb.npz", DIGEST, names, op)
    rng = np.random.RandomState(seed)
    parts = []
    for x, y in (arrays[:2], arrays[2:]):
        order = sequences.seeded_order(len(x), rng)
        texts = sequences.mark(x[order], start_char, index_from)
        texts, labels = sequences.shorter(texts, y[order], maxlen, op)
        texts = sequences.replace_rare(texts, num_words, skip_top, oov_char)
        parts.append((texts, labels))
    return parts[0], parts[1]


@api_boundary
def get_word_index(path: str | os.PathLike = "imdb_word_index.json") -> dict[str, int]:
    """The rank of every word by frequency.

    Args:
        path: A file of yours, or a name in the cache.

    Raises:
        DataError: Offline and not in the cache; says where to put the file.
        FileFormatError: The file is not the expected one.

    Example:
        >>> from exburn.datasets import imdb
        >>> imdb.get_word_index()["the"]  # doctest: +SKIP
        1
    """
    return sequences.word_index(
        path, "imdb_word_index.json", INDEX_DIGEST, "imdb.get_word_index"
    )
