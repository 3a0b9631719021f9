"""Documents in rows of one length, as few as best fit makes."""

from __future__ import annotations

import dataclasses

import numpy as np

_PARTS = (64, 256, 1 << 30)  # of a row, by which lengths are told apart


@dataclasses.dataclass(frozen=True)
class RowPacking:
    """Which documents are in which row.

    Attributes:
        documents: Their numbers, row by row.
        ends: ``[rows]``: how many of them are in the rows up to each.

    Example:
        >>> packing = RowPacking(np.array([2, 0, 1]), np.array([2, 3]))
        >>> [packing.row(number).tolist() for number in range(len(packing))]
        [[2, 0], [1]]
    """

    documents: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.ends)

    def row(self, number: int) -> np.ndarray:
        """The documents of a row, in their order."""
        first = self.ends[number - 1] if number else 0
        return self.documents[first : self.ends[number]]


def best_fit(lengths: np.ndarray, order: np.ndarray, length: int) -> list[list[int]]:
    """Documents of each row: each goes where it leaves the least room.

    Args:
        lengths: ``[documents]``: their tokens, of which none has more than a row.
        order: In which they are placed.
        length: Tokens of a row.

    Example:
        >>> best_fit(np.array([5, 4, 3, 6]), np.array([3, 0, 1, 2]), 10)
        [[3, 1], [0, 2]]
    """
    rows: list[list[int]] = []
    room: list[list[int]] = [[] for _ in range(length + 1)]  # rows by what is free
    open_sizes = 0  # a bit for each size that a row has free
    for document, size in zip(order.tolist(), lengths[order].tolist(), strict=True):
        fitting = open_sizes >> size
        if not fitting:
            row, free = len(rows), length
            rows.append([])
        else:
            free = size + (fitting & -fitting).bit_length() - 1
            row = room[free].pop()
            if not room[free]:
                open_sizes ^= 1 << free
        rows[row].append(document)
        if left := free - size:
            room[left].append(row)
            open_sizes |= 1 << left
    return rows


def count_rows(lengths: np.ndarray, length: int) -> int:
    """Rows that the documents need, the longest placed first.

    Example:
        >>> count_rows(np.array([5, 4, 3, 6]), 10)
        2
    """
    return len(best_fit(lengths, np.argsort(-lengths, kind="stable"), length))


def pack_rows(
    lengths: np.ndarray,
    length: int,
    rows_of_batch: int,
    batches: int,
    random: np.random.Generator | None = None,
) -> RowPacking:
    """Each document in one row, in as many batches as `count_rows` rows make.

    The documents are shuffled, then placed from the longest to the shortest, which are
    told apart by a 64th of a row. Where that makes another number of batches they are
    told apart more finely; in the end by a token, which makes `count_rows` rows.

    Args:
        rows_of_batch: Rows of a batch.
        batches: How many batches so many rows are.
        random: Shuffles the documents, and the rows; ``None`` for their own order.

    Example:
        >>> packing = pack_rows(np.array([5, 4, 3, 6]), 10, 2, 1)
        >>> [packing.row(number).tolist() for number in range(len(packing))]
        [[0, 2], [1, 3]]
    """
    documents = np.arange(len(lengths))
    order = documents if random is None else random.permutation(documents)
    rows: list[list[int]] = []
    for parts in _PARTS[-1:] if random is None else _PARTS:
        sizes = lengths[order] // max(length // parts, 1)
        rows = best_fit(lengths, order[np.argsort(-sizes, kind="stable")], length)
        if -(-len(rows) // rows_of_batch) == batches:
            break
    for row in rows:
        row.sort() if random is None else random.shuffle(row)
    places = np.argsort([row[0] for row in rows], kind="stable")
    if random is not None:
        places = random.permutation(len(rows))
    rows = [rows[place] for place in places.tolist()]
    return RowPacking(
        np.array([document for row in rows for document in row]),
        np.cumsum([len(row) for row in rows]),
    )
