"""Documents in rows of one length, for ``fit``: see `PackedDocuments`."""

from __future__ import annotations

import functools
import hashlib
import itertools
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exburn.core.checks import check_choice, check_count
from exburn.core.random_keys import path_hash
from exburn.data import PackedTokens, StreamDataset, register_adapter
from exburn.data.best_fit import RowPacking, count_rows, pack_rows
from exburn.data.documents import Document
from exburn.datasets.contract.download import cache_folder
from exburn.errors import ArgumentError, DataError, SaveError
from exburn.errors.boundary import api_boundary, guard_methods
from exburn.text.reading import DocumentReader
from exburn.text.token_store import TokenArrays, key_of, store, stored

TOO_LONG = ("error", "cut", "drop")
"""What becomes of documents that are longer than a row."""
BATCH_TOKENS = 16_384
"""Tokens of a batch, where nothing is said."""
_STEP = 128  # tokens, of which the length of rows is a multiple
USUAL_ROW = 2048  # tokens of a row, unless a document is longer
_SHOWN = 5  # documents that an error names
_log = logging.getLogger("exburn")


@guard_methods
class PackedDocuments:
    """Documents that ``fit`` and ``evaluate`` take in rows of one length.

    Each epoch shuffles the documents, and puts each into one row, beside others that
    fit: best fit, the longest first. They do not see each other there.
    `exburn.text.pack` makes one of chats or texts.

    Args:
        documents: The documents, or the arrays that they are kept in.
        length: Tokens of a row; by default 2,048, or as many as the longest document
            has, but no more than all of them together or than the model's context.
        too_long: ``"error"`` refuses documents that are longer than a row, ``"cut"``
            takes their beginning, ``"drop"`` leaves them out. What was done is counted.

    Attributes:
        lengths: ``[documents]``: their tokens.
        cut, dropped: How many were.

    Raises:
        ArgumentError: An argument does not fit, or something is no document.
        DataError: There are no documents, or some are too long.

    Example:
        >>> documents = [Document(np.arange(1, n)) for n in (6, 4, 3)]
        >>> packed = PackedDocuments(documents, length=8)
        >>> packed.rows, packed.tokens, round(packed.fill_rate, 3)
        (2, 10, 0.625)
    """

    noun = "documents"
    shorter = "too_long='cut' takes their beginning, 'drop' leaves them out"

    def __init__(
        self,
        documents: Iterable[Document] | TokenArrays,
        length: int | None = None,
        too_long: str = "error",
    ):
        op = "PackedDocuments"
        arrays = documents
        if not isinstance(arrays, TokenArrays):
            arrays = store(None, _only_documents(documents, op))
        if not len(arrays.lengths):
            raise DataError(op, "there are no documents")
        self._tokens, self._counted, self.lengths = arrays
        self._starts = np.cumsum(self.lengths) - self.lengths
        self.too_long = check_choice(op, "too_long", too_long, TOO_LONG)
        self.length = None if length is None else check_count(op, "length", length, 2)
        self.cut = self.dropped = 0
        if self.length is not None:
            self._fit_into(self.length)

    # ------------------------------------------------------------------ what it is
    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> Document:
        start = self._starts[number]
        part = slice(start, start + self.lengths[number])
        return Document(np.array(self._tokens[part]), np.array(self._counted[part]))

    def __repr__(self) -> str:
        rows = "" if self.length is None else f", rows of {self.length:,} tokens"
        kind = type(self).__name__
        return f"{kind}({len(self):,} {self.noun}, {self.tokens:,} tokens{rows})"

    @property
    def tokens(self) -> int:
        """Tokens of all documents."""
        return int(self.lengths.sum())

    @functools.cached_property
    def rows(self) -> int:
        """Rows of an epoch."""
        return count_rows(self.lengths, self._known_length())

    @property
    def fill_rate(self) -> float:
        """The share of the rows that is documents."""
        return self.tokens / (self.rows * self._known_length())

    @functools.cached_property
    def digest(self) -> str:
        """A digest of the documents, and of the length of the rows."""
        digest = hashlib.sha256(f"{self.length} {len(self)} ".encode())
        for array in (self.lengths.astype(np.int64), self._starts.astype(np.int64)):
            digest.update(array.tobytes())
        for array in (self._tokens, self._counted):
            for start in range(0, len(array), 1 << 24):
                part = np.ascontiguousarray(array[start : start + (1 << 24)])
                digest.update(part.data)
        return digest.hexdigest()[:16]

    def _known_length(self) -> int:
        if self.length is None:
            raise ArgumentError(
                "PackedDocuments",
                "the length of the rows is chosen by fit",
                hint="packed.with_length(2048) says it.",
            )
        return self.length

    # ------------------------------------------------------------------ parts
    def with_length(self, length: int) -> PackedDocuments:
        """The same documents in rows of another length.

        Args:
            length: Tokens of a row.

        Raises:
            DataError: Documents are longer, and ``too_long`` is ``"error"``.
        """
        new = self._part(slice(None))
        new.cut, new.dropped = self.cut, self.dropped
        new.length = check_count("PackedDocuments", "length", length, 2)
        new._fit_into(new.length)
        return new

    def usual_length(
        self, context: int | None = None, batch_tokens: int | None = None
    ) -> int:
        """The length of rows that ``fit`` chooses.

        Args:
            context: Tokens that the model can see at once, if that has a limit.
            batch_tokens: Tokens of a batch.

        Example:
            >>> PackedDocuments([Document(np.arange(1, 200))]).usual_length()
            256
        """
        longest = int(self.lengths.max())
        asked = max(longest, min(USUAL_ROW, self.tokens, batch_tokens or USUAL_ROW))
        length = max(-(-asked // _STEP) * _STEP, 2)
        if batch_tokens and length > batch_tokens:  # but for the rounding it may fit
            length = max(batch_tokens, longest)
        return length if context is None else min(length, context)

    def divide(self, share: float, op: str = "fit") -> tuple[Any, Any]:
        """The first documents, and the last ones, before any shuffling.

        Args:
            share: How much of them are the last ones.

        Raises:
            DataError: One part would be empty.
        """
        at = int(len(self) * (1 - share))
        if not 0 < at < len(self):
            raise DataError(
                op,
                f"validation_split={share} of {len(self)} {self.noun} leaves {at} for "
                f"training and {len(self) - at} for validation",
                hint=f"Each part needs at least one {self.noun[:-1]}: pass "
                "validation_data.",
            )
        return self._part(slice(0, at)), self._part(slice(at, None))

    def _part(self, which: Any) -> Any:
        new = object.__new__(type(self))
        vars(new).update(vars(self))
        for name in ("rows", "digest"):  # of what it was
            vars(new).pop(name, None)
        new._keep(which)
        new.cut = new.dropped = 0
        return new

    def _counts(self, number: Any, most: int | None = None) -> bool:
        """Whether a document has a token to learn, among the first ``most``."""
        start, size = self._starts[number], self.lengths[number]
        end = start + (size if most is None else min(size, most))
        return bool(self._counted[start + 1 : end].any())

    def _fit_into(self, length: int) -> None:
        """Cuts documents that are longer than a row, or leaves them out."""
        longer = self.lengths > length
        if not longer.any():
            return
        if self.too_long == "error":
            first = np.flatnonzero(longer)[:_SHOWN]
            raise DataError(
                "PackedDocuments",
                f"{longer.sum()} of {len(self)} {self.noun} are longer than a row of "
                f"{length} tokens",
                {
                    f"{self.noun[:-1]} {at}": f"{self.lengths[at]} tokens"
                    for at in first
                },
                hint=f"{self.shorter}; or raise length.",
            )
        stays = ~longer
        if self.too_long == "cut":
            for at in np.flatnonzero(longer):  # of what nothing is counted goes
                stays[at] = self._counts(at, length)
            self.cut += int((longer & stays).sum())
        self.dropped += int((~stays).sum())
        if not stays.any():
            raise DataError(
                "PackedDocuments",
                f"no {self.noun[:-1]} fits into a row of {length} tokens",
            )
        self._keep(stays)
        self.lengths = np.minimum(self.lengths, length)

    def _keep(self, which: Any) -> None:
        """Leaves out all other documents."""
        self.lengths, self._starts = self.lengths[which], self._starts[which]

    # ------------------------------------------------------------------ batches
    def stream(self, rows_of_batch: int, op: str = "fit") -> StreamDataset:
        """Batches of packed rows, in an order that seed and epoch make.

        Args:
            rows_of_batch: Rows of a batch.

        Raises:
            DataError: None of the tokens is counted.
        """
        if not any(self._counts(number) for number in range(len(self))):
            raise DataError(
                op,
                "the loss counts none of the documents' tokens",
                {"documents": len(self)},
                hint="The first token of a document is never counted: nothing is "
                "before it.",
            )
        batches = -(-self.rows // rows_of_batch)

        def read(epoch: int, seed: int | None) -> Iterator[tuple]:
            packing = self._pack(rows_of_batch, batches, epoch, seed)
            numbers = iter(range(len(packing)))
            while part := list(itertools.islice(numbers, rows_of_batch)):
                yield self._batch([packing.row(number) for number in part])

        stream = StreamDataset(
            read,
            batches=batches,
            batch_size=rows_of_batch,
            shuffles=True,
            name="set of packed documents",
            op=op,
        )
        stream.digest, stream.tokens = self.digest, self.tokens
        return stream

    def apart(self) -> tuple:
        """Each document in a row of its own, in their order.

        Returns:
            Rows of tokens, the next tokens, and which of them are counted.
        """
        return self._batch([np.array([number]) for number in range(len(self))])

    def _pack(
        self, rows_of_batch: int, batches: int, epoch: int, seed: int | None
    ) -> RowPacking:
        random = None
        if seed is not None:
            key = [seed, path_hash("documents", epoch)]
            random = np.random.Generator(np.random.Philox(key=key))
        return pack_rows(
            self.lengths, self._known_length(), rows_of_batch, batches, random
        )

    def _batch(self, rows: list[np.ndarray]) -> tuple:
        """Packed rows, the next tokens, and which of them are counted."""
        shape = len(rows), self._known_length()
        tokens, segments = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        targets, weights = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
        for row, documents in enumerate(rows):
            at = 0
            for number, document in enumerate(documents.tolist(), 1):
                start, size = self._starts[document], self.lengths[document]
                own = self._tokens[start : start + size]
                end = at + size
                tokens[row, at:end], segments[row, at:end] = own, number
                targets[row, at : end - 1] = own[1:]
                weights[row, at : end - 1] = self._counted[start + 1 : start + size]
                at = end
        return PackedTokens(tokens, segments), targets, weights


@register_adapter
class _PackedAdapter:
    """Packed documents for what takes no ``batch_tokens``: predict, sweep …"""

    def accepts(self, value: Any) -> bool:
        return isinstance(value, PackedDocuments)

    def load(self, value: PackedDocuments) -> StreamDataset:
        length = value.length or value.usual_length()
        rows = max(BATCH_TOKENS // length, 1)
        return value.with_length(length).stream(rows)


def _only_documents(documents: Iterable[Any], op: str) -> Iterator[Document]:
    for number, one in enumerate(documents):
        if not isinstance(one, Document):
            raise ArgumentError(
                op,
                f"documents are needed, entry {number} is a {type(one).__name__}",
                hint="exburn.text.pack(rows, tokenizer) makes them of rows.",
            )
        yield one


@api_boundary
def pack(
    source: Any,
    tokenizer: Any = None,
    length: int | None = None,
    *,
    train_on: str = "answers",
    columns: Any = None,
    too_long: str = "error",
    bad_rows: str = "error",
    variables: Mapping[str, Any] | None = None,
    cache: bool | str | os.PathLike[str] = True,
    verbose: int | str = "auto",
) -> PackedDocuments:
    """Reads chats, pairs' prompts or texts as documents that ``fit`` packs into rows.

    The tokens of many rows are kept in a file of the cache folder, so that the second
    start is at once. It is found again for the same rows, tokenizer, template and
    arguments only; an iterator's rows are not kept.

    Args:
        source: Rows, or a path of them: see ``exburn.text.DocumentReader``.
        tokenizer: Cuts the texts; not needed for documents.
        length: Tokens of a row; ``fit`` chooses by default.
        train_on: What of a chat is counted: ``"answers"``, ``"all"`` or ``"last"``.
        columns: The kind of row, or the names of its columns.
        too_long: ``"error"``, ``"cut"`` or ``"drop"``: what becomes of documents that
            are longer than a row.
        bad_rows: ``"error"``, or ``"skip"``.
        variables: More names that the template reads.
        cache: Whether tokens are kept, or the folder for that; ``$EXBURN_CACHE`` or
            ``~/.cache/exburn`` by default.
        verbose: 0 for no progress bar.

    Raises:
        ArgumentError: An argument does not fit, or there is no tokenizer.
        DataError: Rows cannot be used, are too long, or there are none.
        SaveError: The folder of ``cache`` cannot be written to. The usual one is done
            without then, which is logged.

    Example:
        >>> from exburn.text import Tokenizer
        >>> tokenizer = Tokenizer.train(["so it is, so it was"] * 9, 270)
        >>> pack(["so it was", "it is so"], tokenizer, cache=False)
        PackedDocuments(2 documents, 9 tokens)
    """
    op = "pack"
    check_choice(op, "too_long", too_long, TOO_LONG)
    if are_documents(source):
        return PackedDocuments(source, length, too_long)
    most = length if too_long == "error" else None
    options = {
        "train_on": train_on,
        "columns": columns,
        "bad_rows": bad_rows,
        "variables": dict(variables or {}),
        "max_length": most,
    }
    reader = DocumentReader(source, tokenizer, **options)
    path = _file_of(source, tokenizer, options, cache)
    arrays = None if path is None else stored(path)
    try:
        arrays = arrays or store(path, _with_progress(reader, verbose))
    except (SaveError, OSError) as error:
        if cache is not True or path is None:
            raise
        _log.warning("the tokens are not kept: %s", error)
        arrays = store(None, _with_progress(reader, verbose))
    return PackedDocuments(arrays, length, too_long)


def are_documents(source: Any) -> bool:
    """Whether a list has documents already."""
    first = source[:1] if isinstance(source, list | tuple) else []
    return any(isinstance(one, Document) for one in first)


def _file_of(source: Any, tokenizer: Any, options: dict, cache: Any) -> Path | None:
    """Where the tokens are kept; ``None`` for nowhere."""
    if cache is False or (key := key_of(source, tokenizer, options)) is None:
        return None
    try:
        own = cache is True
        folder = cache_folder() / "tokens" if own else Path(cache).expanduser()
    except DataError as error:
        _log.warning("the tokens are not kept: %s", error)
        return None
    return folder / f"{key}.tokens"


def _with_progress(reader: DocumentReader, verbose: int | str) -> Iterator[Document]:
    """The documents of a reader, with a progress bar where somebody sees it."""
    import rich.console
    import rich.progress

    console = rich.console.Console(stderr=True)
    seen = bool(verbose) and (console.is_terminal or console.is_jupyter)
    bar = rich.progress.track(
        reader,
        "Cutting texts into tokens",
        total=reader.rows,
        console=console,
        transient=True,
        disable=not seen,
    )
    for document in bar:
        if not isinstance(document, Document):
            raise DataError(
                "pack",
                "pairs of answers are no texts to learn",
                hint="loss=losses.DPO() learns from them. Answers to learn are rows of "
                "'prompt' and 'completion'.",
            )
        yield document
