"""Pairs of answers in rows of one length, for losses of preferences: `PackedPairs`."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from exburn.core.checks import check_choice
from exburn.data import PackedTokens
from exburn.data.best_fit import count_rows
from exburn.data.documents import Document, DocumentPair
from exburn.errors import ArgumentError, DataError, printable
from exburn.errors.boundary import api_boundary, guard_methods
from exburn.text.packing import PackedDocuments
from exburn.text.reading import DocumentReader
from exburn.text.token_store import TokenArrays, store

_OP = "pack_pairs"
_STEP = 32  # tokens, of which the length of rows is a multiple
_FILLED = 0.9  # of a row: well
_SHOWN = 5  # bad pairs that an error describes


@guard_methods
class PackedPairs(PackedDocuments):
    """Pairs of answers that ``fit`` and ``evaluate`` take in rows of one length.

    Both answers of a pair, each with its prompt, are in one row, one behind the other.
    For the rest as `PackedDocuments`; `exburn.text.pack_pairs` makes one.

    Args:
        pairs: The pairs. Of single answers, the first of each pair is the answer, the
            second its prompt with the answer to another one.
        length: Tokens of a row.
        too_long: ``"error"`` refuses pairs that are longer than a row, ``"drop"``
            leaves them out.
        labels: ``[pairs]`` booleans, of single answers: whether each is a good one.

    Attributes:
        labelled: Whether these are single answers.

    Raises:
        ArgumentError: An argument does not fit, or something is no pair.
        DataError: There are no pairs, some are too long, or have an answer of which no
            token is counted; or labels are something else.

    Example:
        >>> pairs = [DocumentPair(Document([1, 2, 3]), Document([1, 4]))]
        >>> PackedPairs(pairs, length=8)
        PackedPairs(1 pairs, 5 tokens, rows of 8 tokens)
    """

    noun = "pairs"
    shorter = "too_long='drop' leaves them out"

    def __init__(
        self,
        pairs: Iterable[DocumentPair],
        length: int | None = None,
        too_long: str = "error",
        *,
        labels: Any = None,
    ):
        check_choice(_OP, "too_long", too_long, ("error", "drop"))
        tokens, counted, sizes = store(None, _both(pairs))
        sizes = sizes.reshape(-1, 2)
        if not len(sizes):
            raise DataError(_OP, "there are no pairs")
        self._firsts, self.labelled = sizes[:, 0], labels is not None
        self._labels = _read_labels(labels, len(sizes))
        self._shortest = int(sizes.sum(1).min())
        self._reference: np.ndarray | None = None  # [tokens], beside them
        arrays = TokenArrays(tokens, counted, sizes.sum(1))
        super().__init__(arrays, length, too_long)
        self._check_answers()

    def __getitem__(self, number: int) -> DocumentPair:
        cut = self._firsts[number]
        tokens, counted = (
            np.array(self._of(array, number)) for array in (self._tokens, self._counted)
        )
        return DocumentPair(
            Document(tokens[:cut], counted[:cut]), Document(tokens[cut:], counted[cut:])
        )

    @functools.cached_property
    def digest(self) -> str:
        digest = hashlib.sha256(super().digest.encode())
        for array in (self._firsts, self._labels, self._reference):
            if array is not None:
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    @property
    def answers(self) -> int:
        """Pairs that a row may have."""
        return max(self._known_length() // self._shortest, 1)

    def usual_length(
        self, context: int | None = None, batch_tokens: int | None = None
    ) -> int:
        """The length of rows that ``fit`` chooses: a short one that is filled well.

        Attention sees whole rows, most of which are other pairs in long ones. On a core
        an epoch of 64 pairs of a small model takes 1.1 s in rows of 384 tokens, 3.5 s
        in rows of 1,408 (``benchmarks/preference.py``).
        """
        most = super().usual_length(context, batch_tokens)
        shortest = -(-int(self.lengths.max()) // _STEP) * _STEP
        lengths = [min(shortest, most)]
        while 2 * lengths[-1] <= most:
            lengths.append(2 * lengths[-1])
        fills = {}
        for length in lengths:
            fills[length] = self.tokens / (count_rows(self.lengths, length) * length)
            if fills[length] >= _FILLED:
                return length
        return max(fills, key=lambda length: fills[length])

    def with_reference(
        self, score: Callable[[PackedTokens, np.ndarray], np.ndarray], rows: int
    ) -> PackedPairs:
        """The same pairs with what a reference says of their tokens.

        Args:
            score: The log-probabilities of next tokens, ``[rows, length]``, of packed
                rows and these tokens.
            rows: Rows that are scored together.
        """
        new: PackedPairs = self._part(slice(None))
        reference = new._reference = np.zeros(len(self._tokens), np.float32)
        batches = -(-self.rows // rows)
        packing = self._pack(rows, batches, 0, None)
        for first in range(0, len(packing), rows):
            numbers = range(first, min(first + rows, len(packing)))
            parts = [packing.row(number) for number in numbers]
            x, y, _ = self._batch([*parts, *[parts[0]] * (rows - len(parts))])
            likely = score(x, y["tokens"])
            for row, pairs in enumerate(parts):
                at = 0
                for pair in pairs.tolist():
                    start, size = self._starts[pair], self.lengths[pair]
                    reference[start : start + size] = likely[row, at : at + size]
                    at += size
        return new

    def _of(self, array: Any, number: int) -> Any:
        start = self._starts[number]
        return array[start : start + self.lengths[number]]

    def _keep(self, which: Any) -> None:
        super()._keep(which)
        self._firsts, self._labels = self._firsts[which], self._labels[which]

    def _check_answers(self) -> None:
        """Raises if an answer has no token that could be scored."""
        bad = []
        for number in range(len(self)):
            counted, cut = self._of(self._counted, number), self._firsts[number]
            if not counted[1:cut].any() or not counted[cut + 1 :].any():
                bad.append(number)
        if bad:
            raise DataError(
                _OP,
                f"{len(bad)} of {len(self)} pairs have an answer of which no token is "
                "counted",
                {f"pair {number}": "" for number in bad[:_SHOWN]},
                hint="The first token of a document is never counted: nothing is "
                "before it.",
            )

    def _batch(self, rows: list[np.ndarray]) -> tuple:
        """Packed rows; the next tokens, the labels of pairs, what a reference says.

        Which of the tokens are counted is the third part.
        """
        shape = len(rows), self._known_length()
        tokens, segments = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        targets, weights = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
        labels = np.zeros((len(rows), self.answers), np.int32)
        reference = np.zeros(shape, np.float32)
        for row, pairs in enumerate(rows):
            at = 0
            for place, pair in enumerate(pairs.tolist()):
                own = self._of(self._tokens, pair)
                middle, end = at + self._firsts[pair], at + len(own)
                tokens[row, at:end] = own
                segments[row, at:middle] = 2 * place + 1
                segments[row, middle:end] = 2 * place + 2
                targets[row, at : end - 1] = own[1:]
                weights[row, at : end - 1] = self._of(self._counted, pair)[1:]
                weights[row, middle - 1] = 0  # what follows is the other answer
                labels[row, place] = self._labels[pair]
                if self._reference is not None:
                    reference[row, at:end] = self._of(self._reference, pair)
                at = end
        columns: dict[str, np.ndarray] = {"tokens": targets, "labels": labels}
        if self._reference is not None:
            columns["reference"] = reference
        return PackedTokens(tokens, segments), columns, weights


def _read_labels(labels: Any, count: int) -> np.ndarray:
    """1 for each good answer, -1 for others.

    Raises:
        DataError: They are no booleans, or another number of them.
    """
    if labels is None:
        return np.ones(count, np.int32)
    try:
        given = np.asarray(labels)
    except ValueError:  # lists of unlike lengths
        given = np.zeros(0, object)
    if given.shape != (count,):
        raise DataError(
            _OP,
            f"labels are a boolean for each of the {count} pairs, received {labels!r}",
        )
    bad = [n for n, one in enumerate(given.tolist()) if one not in (0, 1)]
    if bad:
        raise DataError(
            _OP,
            f"{len(bad)} of {count} labels are neither True nor False",
            {f"pair {n}": printable(repr(given[n])) for n in bad[:_SHOWN]},
        )
    return np.where(given.astype(bool), 1, -1).astype(np.int32)


def _both(pairs: Iterable[DocumentPair]) -> Iterator[Document]:
    for number, pair in enumerate(pairs):
        if not isinstance(pair, DocumentPair):
            raise ArgumentError(
                _OP,
                f"pairs are needed, entry {number} is a {type(pair).__name__}",
                hint="exburn.text.pack_pairs(rows, tokenizer) makes them of rows.",
            )
        yield from (pair.chosen, pair.rejected)


@api_boundary
def pack_pairs(
    source: Any,
    tokenizer: Any = None,
    length: int | None = None,
    *,
    labelled: bool = False,
    train_on: str = "answers",
    columns: Any = None,
    too_long: str = "error",
    bad_rows: str = "error",
    variables: Mapping[str, Any] | None = None,
) -> PackedPairs:
    """Reads pairs of answers, or answers that are good or bad, for ``fit``.

    Args:
        source: Rows with ``chosen`` and ``rejected``, or of single answers with
            ``prompt``, ``completion`` and ``label``, or a path of them: see
            ``exburn.text.DocumentReader``; or a list of ``DocumentPair``, or of
            ``Document`` with labels.
        tokenizer: Cuts the texts; not needed for documents.
        length: Tokens of a row, which has both answers of a pair; ``fit`` chooses by
            default.
        labelled: Whether these are single answers with labels.
        train_on, columns, bad_rows, variables: As of ``exburn.text.pack``.
        too_long: ``"error"`` or ``"drop"``: what becomes of pairs that are longer than
            a row.

    Raises:
        ArgumentError: An argument does not fit, or there is no tokenizer.
        DataError: Rows cannot be used, or there are none.

    Example:
        >>> from exburn.text import Tokenizer
        >>> tokenizer = Tokenizer.train(["so it is, so it was"] * 9, 270)
        >>> row = {"prompt": "so ", "chosen": "it is", "rejected": "it was"}
        >>> len(pack_pairs([row], tokenizer))
        1
    """
    check_choice(_OP, "too_long", too_long, ("error", "drop"))
    documents: list[Any]
    if are_made(source):
        documents = list(source)
    else:
        options = {
            "train_on": train_on,
            "columns": columns,
            "bad_rows": bad_rows,
            "variables": dict(variables or {}),
        }
        documents = list(DocumentReader(source, tokenizer, **options))
    if not labelled:
        _check_kind(documents, DocumentPair, "'chosen' and 'rejected'")
        return PackedPairs(documents, length, too_long)
    _check_kind(documents, Document, "'prompt', 'completion' and 'label'")
    unknown = [n for n, one in enumerate(documents) if one.label is None]
    if unknown or len(documents) < 2:
        raise DataError(
            _OP,
            f"{len(unknown)} of {len(documents)} answers have no label"
            if unknown
            else "there is one answer: it is compared with those to other prompts",
            {f"answer {number}": "" for number in unknown[:_SHOWN]},
            hint="A column 'label' tells of each whether it is good: true or false.",
        )
    labels = [one.label for one in documents]
    return PackedPairs(_beside_others(documents), length, too_long, labels=labels)


def are_made(source: Any) -> bool:
    """Whether a list has documents, or pairs of them, already."""
    first = source[:1] if isinstance(source, list | tuple) else []
    return any(isinstance(one, Document | DocumentPair) for one in first)


def _check_kind(documents: list[Any], kind: type, names: str) -> None:
    bad = [n for n, one in enumerate(documents) if not isinstance(one, kind)]
    if bad:
        raise DataError(
            _OP,
            f"{len(bad)} of {len(documents)} rows are not what the loss learns from",
            {f"row {n}": type(documents[n]).__name__ for n in bad[:_SHOWN]},
            hint=f"Its rows have {names}.",
        )


def _beside_others(documents: list[Document]) -> Iterator[DocumentPair]:
    """Each answer with its prompt, and the prompt with the answer before it."""
    starts = [int(np.argmax(one.counted)) for one in documents]
    for number, (one, start) in enumerate(zip(documents, starts, strict=True)):
        other, begin = documents[number - 1], starts[number - 1]
        parts = (one.tokens[:start], other.tokens[begin:])
        flags = (one.counted[:start], other.counted[begin:])
        yield DocumentPair(one, Document(np.concatenate(parts), np.concatenate(flags)))
