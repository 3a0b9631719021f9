"""Rows of data as documents: the one way from chats and texts to what is trained on."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from exburn.core.checks import check_choice, check_count
from exburn.data.documents import Document, DocumentPair
from exburn.errors import ArgumentError, DataError, ExBurnError
from exburn.errors.boundary import guard_methods
from exburn.saving.json_text import parse_json
from exburn.text.chat_template import plain_value, read_messages
from exburn.text.chats import ANSWERS, ChatText, ChatWriter
from exburn.text.records import Columns, Records, open_records
from exburn.text.tokenizer import Tokenizer

_OP = "documents"
_AT_ONCE = 256  # rows whose texts are cut together
_SHOWN = 5  # bad rows that an error describes
_log = logging.getLogger("exburn")


@guard_methods
class DocumentReader:
    """Documents of chats, prompts with completions, pairs and texts, read as they go.

    A row has the columns ``messages`` (a list of ``role`` and ``content``),
    ``conversations`` (of ``from`` and ``value``), ``prompt`` and ``completion``
    (perhaps with a ``label``, true for a good one), ``chosen`` and ``rejected``,
    perhaps with ``prompt``, or ``text``; a list is a chat and a string a text. What
    cannot be used is told by its place: going through the documents raises at the end,
    with all bad rows counted, or leaves them out.

    Args:
        source: A path of JSON lines, a JSON list or Parquet; a list; a frame; a data
            set of Hugging Face's.
        tokenizer: Cuts texts; its template lays out chats.
        train_on: What of a chat is counted: the assistant's ``"answers"``, ``"all"``,
            or the ``"last"`` answer.
        columns: The kind of row, if the columns could be of several kinds, or the
            names of its columns by the usual ones: ``{"text": "body"}``.
        max_length: Tokens that a document may have. A longer text becomes several
            documents, each of which begins with the last token of the one before; a
            longer chat, completion or pair is a bad row.
        bad_rows: ``"error"``, or ``"skip"``, which logs how many.
        variables: More names that the template reads.

    Raises:
        ArgumentError: An argument does not fit, or the tokenizer has no template.
        DataError: Rows cannot be used, or there are none.
        FileFormatError, MissingFileError: A file cannot be read.

    Example:
        >>> tokenizer = Tokenizer.train(["so it is, so it was"] * 9, 270)
        >>> [document] = DocumentReader(["so it was"], tokenizer)
        >>> document
        Document(4 tokens, 4 counted)
    """

    def __init__(
        self,
        source: Any,
        tokenizer: Tokenizer,
        *,
        train_on: str = "answers",
        columns: str | Mapping[str, str] | None = None,
        max_length: int | None = None,
        bad_rows: str = "error",
        variables: Mapping[str, Any] | None = None,
    ):
        if not isinstance(tokenizer, Tokenizer):
            raise ArgumentError(
                _OP,
                f"a tokenizer cuts texts, received {type(tokenizer).__name__}",
                hint="model.tokenizer = exburn.text.Tokenizer.load(folder)",
            )
        self._tokenizer, self._columns = tokenizer, Columns(columns)
        self._train_on = check_choice(_OP, "train_on", train_on, ANSWERS)
        choice = check_choice(_OP, "bad_rows", bad_rows, ("error", "skip"))
        self._skips, self._template = choice == "skip", tokenizer.chat_template
        self._most = (
            None
            if max_length is None
            else check_count(_OP, "max_length", max_length, 2)
        )
        self._variables = dict(variables or {})
        self._records: Records = open_records(source)

    @property
    def rows(self) -> int | None:
        """How many rows there are, bad ones too; ``None`` if only the end tells."""
        return self._records.count

    def __iter__(self) -> Iterator[Document | DocumentPair]:
        bad = _BadRows()
        waiting: list[tuple[str, Any]] = []
        for place, row in self._records.rows():
            bad.rows += 1
            try:
                waiting.append((place, self._parts(row)))
            except DataError as error:
                bad.add(place, error)
            if len(waiting) == _AT_ONCE:
                yield from self._cut(waiting, bad)
                waiting = []
        yield from self._cut(waiting, bad)
        bad.report(skips=self._skips)

    def document(self, index: int) -> Document | DocumentPair:
        """The document of one row; of a long text the first one.

        Args:
            index: Its number, from 0 on.

        Raises:
            DataError: The row cannot be used, or there is none.

        Example:
            >>> tokenizer = Tokenizer.train(["so it is, so it was"] * 9, 270)
            >>> reader = DocumentReader(["so", "it was"], tokenizer)
            >>> tokenizer.decode(reader.document(1).tokens)
            'it was'
        """
        index = check_count(_OP, "index", index, 0)
        row = next(itertools.islice(self._records.rows(), index, None), None)
        if row is None:
            raise DataError(_OP, f"there is no row {index}")
        bad, documents = _BadRows(1), []
        try:
            documents = [*self._cut([(row[0], self._parts(row[1]))], bad)]
        except DataError as error:
            bad.add(row[0], error)
        bad.report(skips=False)
        return documents[0]

    # ------------------------------------------------------------------ texts
    def _parts(self, row: Any) -> Any:
        """What a row has to be cut: texts, or a document as it is."""
        if isinstance(row, Document | DocumentPair):
            return row
        kind, values = self._columns.read(row)
        if kind == "text":
            return (_Plain(values["text"], may_be_cut=True),)
        tools = _tools(values.get("tools"))
        if kind == "pairs":
            return self._pair(values, tools)
        if kind == "completion":
            prompt, answer = values["prompt"], values["completion"]
            part = self._answer(prompt, answer, tools, values)
            part.label = _label(values.get("label"))
            return (part,)
        return (self._writer(values).write(values["messages"], tools),)

    def _writer(self, values: Mapping[str, Any]) -> ChatWriter:
        if self._template is None:
            raise ArgumentError(
                _OP,
                "chats are laid out by the tokenizer's template, and it has none",
                hint="tokenizer.with_chat_template(exburn.text.CHATML), if it has the "
                "tokens <|im_start|> and <|im_end|>.",
            )
        own = plain_value(values.get("chat_template_kwargs", {}), "variables")
        if not isinstance(own, dict):
            raise DataError(_OP, "its 'chat_template_kwargs' must be an object")
        return ChatWriter(self._template, self._train_on, {**self._variables, **own})

    def _answer(self, prompt: Any, answer: Any, tools: Any, values: Any) -> Any:
        """A prompt with what follows it, both texts or both messages."""
        if isinstance(prompt, str) and isinstance(answer, str):
            all_counted = self._train_on == "all"
            return _Plain(prompt + answer, 0 if all_counted else len(prompt))
        if isinstance(prompt, str) or isinstance(answer, str):
            raise DataError(
                _OP, "a prompt and what follows it are both texts or both messages"
            )
        before, after = read_messages(prompt), read_messages(answer)
        writer = self._writer(values)
        return writer.write([*before, *after], tools, answers_from=len(before))

    def _pair(self, values: Mapping[str, Any], tools: Any) -> Any:
        chosen, rejected = values["chosen"], values["rejected"]
        prompt = values.get("prompt")
        if prompt is None:
            prompt, chosen, rejected = _split_prompt(chosen, rejected)
        if isinstance(prompt, str) and not isinstance(chosen, str):
            prompt = _without_prompt(prompt, chosen)
            chosen, rejected = chosen[len(prompt) :], rejected[len(prompt) :]
        return tuple(
            self._answer(prompt, answer, tools, values) for answer in (chosen, rejected)
        )

    # ------------------------------------------------------------------ tokens
    def _cut(self, waiting: list[tuple[str, Any]], bad: _BadRows) -> Iterator[Any]:
        """The documents of rows whose texts wait."""
        encoded = self._encode_all(waiting, bad)
        for number, (place, parts) in enumerate(waiting):
            if number in encoded:
                try:
                    yield from self._documents(parts, encoded[number])
                except DataError as error:
                    bad.add(place, error)

    def _encode_all(self, waiting: Any, bad: _BadRows) -> dict[int, list[Any]]:
        """The tokens of all texts, cut at once, by the numbers of their rows."""
        encoded: dict[int, list[Any]] = {}
        texts: dict[bool, list[tuple[int, int, str]]] = {True: [], False: []}
        for number, (place, parts) in enumerate(waiting):
            encoded[number] = [None] * 2
            for part, value in enumerate(parts if isinstance(parts, tuple) else ()):
                try:
                    value.text.encode()
                except UnicodeEncodeError:
                    bad.add(place, DataError(_OP, "a text has half of a surrogate"))
                    del encoded[number]
                    break
                texts[isinstance(value, _Plain)].append((number, part, value.text))
        for special, items in texts.items():
            items = [item for item in items if item[0] in encoded]
            lines = [text for _, _, text in items]
            rows = self._tokenizer.encode_with_offsets(lines, special=special)
            for (number, part, _), row in zip(items, rows, strict=True):
                encoded[number][part] = row
        return encoded

    def _documents(self, parts: Any, encoded: list[Any]) -> list[Any]:
        """The documents of a row: one, but of a long text."""
        if isinstance(parts, Document | DocumentPair):
            return [self._check(parts)]
        documents = [
            self._one(part, tokens)
            for part, tokens in zip(parts, encoded, strict=False)
        ]
        if len(documents) > 1:
            return [self._check(DocumentPair(*documents))]
        if isinstance(parts[0], _Plain) and parts[0].may_be_cut:
            return list(self._pieces(documents[0]))
        document = dataclasses.replace(documents[0], label=parts[0].label)
        return [self._check(document)]

    def _pieces(self, document: Document) -> Iterator[Document]:
        """A text in pieces that are not too long, all of whose tokens are targets."""
        most = self._most or len(document)
        for start in range(0, max(len(document) - 1, 1), max(most - 1, 1)):
            piece = slice(start, start + most)
            yield Document(document.tokens[piece], document.counted[piece])

    def _one(self, part: ChatText | _Plain, encoded: Any) -> Document:
        tokenizer = self._tokenizer
        if isinstance(part, ChatText):
            return part.document(encoded, tokenizer.special_numbers)
        tokens, offsets = encoded
        end = None if tokenizer.end is None else tokenizer.number_of(tokenizer.end)
        counted = offsets[:, 1] > part.counted_from
        counted |= (offsets[:, 0] == offsets[:, 1]) & (
            offsets[:, 0] > part.counted_from
        )
        if part.counted_from == 0:
            counted[:] = True
        if end is not None and (not len(tokens) or tokens[-1] != end):
            tokens = np.append(tokens, np.int32(end))
            counted = np.append(counted, True)
        elif end is not None:
            counted[-1] = True
        return Document(tokens, counted)

    def _check(self, document: Any) -> Any:
        pair = isinstance(document, DocumentPair)
        for one in (document.chosen, document.rejected) if pair else (document,):
            if self._most is not None and len(one) > self._most:
                raise DataError(
                    _OP, f"it has {len(one)} tokens, more than the {self._most} allowed"
                )
        return document


class _Plain:
    """A text that no template makes.

    Attributes:
        counted_from: The first character that is counted.
        may_be_cut: Whether it becomes several documents if it is long.
        label: As of ``Document``.

    Raises:
        DataError: It is no text, or nothing is counted.
    """

    label: bool | None = None

    def __init__(self, text: Any, counted_from: int = 0, *, may_be_cut: bool = False):
        if not isinstance(text, str):
            raise DataError(_OP, f"a text is needed, received {type(text).__name__}")
        if not text[counted_from:].strip():
            raise DataError(_OP, "there is no text")
        self.text, self.counted_from = text, counted_from
        self.may_be_cut = may_be_cut


class _BadRows:
    """Rows that cannot be used, of which the first are described.

    Attributes:
        rows: All rows that were looked at.
    """

    def __init__(self, rows: int = 0):
        self.rows, self.count = rows, 0
        self._first: list[tuple[str, DataError]] = []

    def add(self, place: str, error: DataError) -> None:
        """Notes a row."""
        self.count += 1
        if len(self._first) < _SHOWN:
            self._first.append((place, error))

    def report(self, *, skips: bool) -> None:
        """Says at the end what was left out.

        Raises:
            DataError: There are bad rows, and they are not to be left out; or there is
                nothing else.
        """
        if self.rows and not self.count:
            return
        if not self.rows:
            raise DataError(_OP, "there are no rows")
        count = f"{self.count} of {self.rows} rows cannot be used"
        if skips and self.count < self.rows:
            place, error = self._first[0]
            _log.warning("%s, first %s: %s", count, place, error.reason)
            return
        hints = [error.hint for _, error in self._first if error.hint]
        raise DataError(
            _OP,
            count,
            {place: error.reason for place, error in self._first},
            hint=hints[0]
            if hints
            else "Correct them, or leave them out: bad_rows='skip'.",
        )


def _label(value: Any) -> bool | None:
    """Whether an answer is good; ``None`` of a column that says something else."""
    try:
        return bool(value) if value in (True, False) else None
    except ValueError:  # an array
        return None


def _tools(value: Any) -> Any:
    """The tools of a row, which many data sets have as text."""
    if value is None or isinstance(value, str) and not value.strip():
        return None
    if isinstance(value, str):
        try:
            value = parse_json(value, _OP, "tools", "the text of 'tools'")
        except ExBurnError as error:
            raise DataError(_OP, error.reason) from None
    tools = plain_value(value, "tools")
    if not isinstance(tools, list):
        raise DataError(_OP, "its 'tools' must be a list")
    return tools or None


def _split_prompt(chosen: Any, rejected: Any) -> tuple[Any, Any, Any]:
    """What two answers have in common in front, and the rest of each.

    Example:
        >>> _split_prompt("Is it? Yes", "Is it? No")
        ('Is it?', ' Yes', ' No')
    """
    if isinstance(chosen, str) != isinstance(rejected, str):
        raise DataError(_OP, "'chosen' and 'rejected' are both texts or both messages")
    if not isinstance(chosen, str):
        chosen, rejected = read_messages(chosen), read_messages(rejected)
        same = [a == b for a, b in zip(chosen, rejected, strict=False)]
        cut = same.index(False) if False in same else len(same)
    else:
        cut = len(os.path.commonprefix([chosen, rejected]))
        cut -= bool(cut) and chosen[cut - 1] == " "  # it belongs to the next word
    if not cut:
        raise DataError(
            _OP, "'chosen' and 'rejected' begin in unlike ways: no 'prompt'"
        )
    return chosen[:cut], chosen[cut:], rejected[cut:]


def _without_prompt(prompt: str, chosen: Any) -> list[dict[str, Any]]:
    """The messages in front of an answer whose prompt is told as text, too.

    Raises:
        DataError: They do not begin with it.
    """
    before = [m for m in read_messages(chosen)[:-1] if m.get("role") != "system"]
    if len(before) != 1 or before[0].get("content") != prompt:
        raise DataError(_OP, "'prompt' is a text that the messages do not begin with")
    return read_messages(chosen)[:-1]
