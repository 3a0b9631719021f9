"""What IMDB and Reuters share: texts as lists of word numbers, and Keras' splits."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from exburn.core.checks import check_number
from exburn.datasets.contract.download import KERAS_FOLDER, digest_of, fetch, locate
from exburn.datasets.contract.files import Split, read_npz
from exburn.errors import ArgumentError, DataError, FileFormatError
from exburn.runtime.files.ordinary import read_text

__all__ = [
    "check_options",
    "mark",
    "read_pickled",
    "replace_rare",
    "seeded_order",
    "seeded_split",
    "shorter",
    "word_index",
]


_MOST_BYTES = 256 << 20  # of a list of words


def seeded_order(rows: int, rng: np.random.RandomState) -> np.ndarray:
    """A permutation drawn as Keras draws it, so that its splits are the same."""
    order = np.arange(rows)
    rng.shuffle(order)
    return order


def seeded_split(
    x: np.ndarray, y: np.ndarray, test_split: float, seed: int, op: str
) -> Split:
    """Shuffles the rows and cuts them as Keras does.

    Raises:
        ArgumentError: ``test_split`` outside [0, 1).
    """
    check_options(op, test_split=test_split)
    order = seeded_order(len(x), np.random.RandomState(seed))
    x, y = x[order], y[order]
    at = int(len(x) * (1 - test_split))
    return (x[:at], y[:at]), (x[at:], y[at:])


def check_options(
    op: str,
    *,
    test_split: float = 0.0,
    num_words: int | None = None,
    maxlen: int | None = None,
) -> None:
    """Raises an ArgumentError for options that can never work."""
    check_number(op, "test_split", test_split, high=1, open_high=True)
    for name, value in {"num_words": num_words, "maxlen": maxlen}.items():
        if value is not None and value < 1:
            raise ArgumentError(op, f"{name} must be at least 1", {"received": value})


def read_pickled(
    path: str | os.PathLike, origin: str, digest: str, names: Sequence[str], op: str
) -> list[np.ndarray]:
    """Arrays of lists, which npz stores as pickles: read only if the digest is right.

    Raises:
        DataError: The file can be neither found nor downloaded.
        FileFormatError: The file is not exactly the expected one.
    """
    file = locate(path)
    if file is None:  # fetch checks the digest
        file = fetch(os.fspath(path), KERAS_FOLDER + origin, digest, op=op)
    elif digest_of(file) != digest:
        raise FileFormatError(
            op,
            f"{file.name} is not the published file; it holds pickles, so any other "
            "is not opened",
            {"path": file, "expected sha256": digest},
        )
    return read_npz(file, names, op=op, pickled=True)


def word_index(
    path: str | os.PathLike, origin: str, digest: str, op: str
) -> dict[str, int]:
    """The number of each word, from a JSON file.

    Raises:
        DataError: The file can be neither found nor downloaded.
        FileFormatError: The file is not the expected one.
    """
    file: Path = locate(path) or fetch(
        os.fspath(path), KERAS_FOLDER + origin, digest, op=op
    )
    try:
        return json.loads(read_text(file, op, _MOST_BYTES))
    except ValueError as error:
        raise FileFormatError(
            op, f"{file.name} is not JSON", {"path": file, "cause": error}
        ) from error


def mark(
    texts: Iterable[list[int]], start_char: int | None, index_from: int | None
) -> list[list[int]]:
    """Moves the word numbers up by ``index_from``, after a start mark if there is one.

    Example:
        >>> mark([[5, 6]], 1, 3)
        [[1, 8, 9]]
    """
    begin = [] if start_char is None else [start_char]
    shift = index_from or 0
    return [begin + [word + shift for word in text] for text in texts]


def shorter(
    texts: list[list[int]], labels: np.ndarray, maxlen: int | None, op: str
) -> tuple[list[list[int]], np.ndarray]:
    """Leaves out the texts of ``maxlen`` words or more.

    Raises:
        DataError: If no text is left.
    """
    if maxlen is None:
        return texts, labels
    rows = [i for i, text in enumerate(texts) if len(text) < maxlen]
    if not rows:
        raise DataError(
            op,
            f"no text is shorter than maxlen={maxlen}",
            {"shortest": min(map(len, texts))},
        )
    return [texts[i] for i in rows], labels[rows]


def replace_rare(
    texts: list[list[int]], num_words: int | None, skip_top: int, oov_char: int | None
) -> np.ndarray:
    """Puts ``oov_char`` for words outside ``skip_top … num_words``, or drops them.

    Example:
        >>> replace_rare([[1, 9, 4], [5]], 6, 0, 2).tolist()
        [[1, 2, 4], [5]]
    """
    top = num_words if num_words is not None else float("inf")
    result = np.empty(len(texts), object)  # of lists, even if all are equally long
    for at, text in enumerate(texts):
        if oov_char is None:
            result[at] = [word for word in text if skip_top <= word < top]
        else:
            result[at] = [w if skip_top <= w < top else oov_char for w in text]
    return result
