"""Rows of prompts: texts, chats or tokens, with what their rewards read beside."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from exburn.core.random_keys import path_hash
from exburn.errors import ArgumentError, DataError, ExBurnError, printable
from exburn.models.generation.chat import end_of_answers
from exburn.models.generation.generate import check_tokens, generation_defaults
from exburn.models.generation.stops import read_stops
from exburn.models.network import Network
from exburn.text.records import open_records

_OP = "improve"
_PROMPT = "prompt"  # the column of rows that are objects
_SHOWN = 5  # bad rows that an error describes


@dataclasses.dataclass(frozen=True)
class PromptRow:
    """A prompt, and where it is.

    Attributes:
        tokens: int32, as the model is given them.
        columns: What the row has, the prompt as it was given among it.
    """

    place: str
    tokens: np.ndarray
    columns: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class PromptRows:
    """The rows that a user gave.

    Attributes:
        columns: Names of what all of them have.
        ends: Tokens that end an answer.
        decodes: Whether answers are shown to rewards as texts, else as tokens.
    """

    rows: list[PromptRow]
    columns: tuple[str, ...]
    ends: tuple[int, ...]
    decodes: bool

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def digest(self) -> str:
        """A digest of all that they hold."""
        digest = hashlib.sha256()
        for row in self.rows:
            digest.update(row.tokens.tobytes())
            digest.update(repr(sorted(row.columns.items(), key=str)).encode())
        return digest.hexdigest()[:16]

    def batch(self, seed: int, first: int, count: int) -> list[PromptRow]:
        """Rows of an endless sequence, in which each pass has another order.

        Args:
            first: Number of the first one, counted through all passes.
            count: How many follow each other.
        """
        size, batch = len(self), []
        for number in range(first, first + count):
            passed, at = divmod(number, size)
            batch.append(self.rows[_order(seed, passed, size)[at]])
        return batch


def _order(seed: int, passed: int, size: int) -> np.ndarray:
    key = [seed, path_hash("prompts", passed)]
    return np.random.Generator(np.random.Philox(key=key)).permutation(size)


def read_rows(model: Network, source: Any, room: Any, name: str) -> PromptRows:
    """The rows of prompts of a list, a file, a frame or a data set.

    Args:
        source: Texts, chats (lists of messages), token numbers, or objects with
            ``prompt``, one of these, and further columns.
        room: The prepared trainer and its plan, and how many tokens an answer may have.
        name: The argument, for errors.

    Raises:
        DataError: Rows cannot be used, which are named; or there are none.
    """
    bad: list[tuple[str, str]] = []
    rows: list[PromptRow] = []
    ends: set[int] = set()
    count = 0
    for place, record in open_records(source).rows():
        count += 1
        try:
            rows.append(_read_row(model, place, record, room, ends))
        except ExBurnError as error:
            if isinstance(error, ArgumentError):  # of the model: no row can be read
                raise
            bad.append((place, error.reason))
    if bad:
        raise DataError(
            _OP,
            f"{len(bad)} of {count} rows of {name} cannot be used",
            dict(bad[:_SHOWN]),
            hint="A row is a text, a chat, token numbers, or an object with 'prompt'.",
        )
    if not rows:
        raise DataError(_OP, f"there are no {name}")
    columns = {*rows[0].columns}.intersection(*(row.columns for row in rows))
    shared = tuple(column for column in rows[0].columns if column in columns)
    decodes = model.tokenizer is not None
    usual = generation_defaults(model).end_tokens
    stops = read_stops(None, model.tokenizer, decodes, usual).tokens
    tokens = [*dict.fromkeys([*ends, *(stop[0] for stop in stops)])]
    return PromptRows(rows, shared, tuple(tokens), decodes)


def _read_row(
    model: Network, place: str, record: Any, room: Any, ends: set[int]
) -> PromptRow:
    if isinstance(record, DataError):
        raise record
    columns = dict(record) if isinstance(record, Mapping) else {_PROMPT: record}
    prompt = columns.get(_PROMPT, columns.get("messages"))
    if prompt is None:
        listed = printable(", ".join(map(repr, [*columns][:12])))
        raise DataError(_OP, f"it has no 'prompt', but {listed}")
    columns.setdefault(_PROMPT, prompt)
    tokens = _tokens_of(model, prompt, columns, ends)
    if not tokens.size:
        raise DataError(_OP, "its prompt is empty")
    trainer, plan, length = room
    check_tokens(trainer, plan, [tokens], _OP)
    if plan.positions is not None and len(tokens) + length > plan.positions:
        raise DataError(
            _OP,
            f"its prompt has {len(tokens)} tokens, and the model has {plan.positions} "
            f"positions, {length} of which are for an answer (max_new_tokens)",
        )
    return PromptRow(place, tokens, columns)


def _tokens_of(
    model: Network, prompt: Any, columns: Mapping[str, Any], ends: set[int]
) -> np.ndarray:
    """The tokens of a prompt; the ends of a chat's answers are noted."""
    tokenizer = model.tokenizer
    if isinstance(prompt, str):
        if tokenizer is None:
            raise ArgumentError(
                _OP,
                "a prompt that is a text needs the model's tokenizer",
                hint="model.tokenizer = exburn.text.Tokenizer.load(path), or give "
                "token numbers.",
            )
        try:
            prompt.encode()
        except UnicodeEncodeError:
            raise DataError(_OP, "its prompt has half of a surrogate") from None
        return tokenizer.encode(prompt)
    messages = prompt if isinstance(prompt, list | tuple) else ()
    if messages and all(isinstance(message, Mapping) for message in messages):
        return _lay_out(model, messages, columns, ends)
    try:
        tokens = np.asarray(prompt)
    except ValueError:  # lists of unlike lengths
        tokens = np.zeros(())
    if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
        what = printable(type(prompt).__name__)
        raise DataError(
            _OP, f"its prompt is no text, chat or list of token numbers, but {what}"
        )
    return tokens.astype(np.int32)


def _lay_out(
    model: Network, messages: Any, columns: Mapping[str, Any], ends: set[int]
) -> np.ndarray:
    tokenizer = model.tokenizer
    template = None if tokenizer is None else tokenizer.chat_template
    if tokenizer is None or template is None:
        raise ArgumentError(
            _OP,
            "a chat is laid out by the template of the model's tokenizer, and there is "
            "none",
            hint="model.tokenizer = tokenizer.with_chat_template(exburn.text.CHATML)",
        )
    variables = columns.get("chat_template_kwargs")
    answered = messages[-1].get("role") == "assistant"
    text = template.render(
        messages,
        tools=columns.get("tools"),
        add_generation_prompt=not answered,
        continue_final_message=answered,
        variables=variables,
    )
    if not ends:
        ends.update(end_of_answers(template, tokenizer, messages, variables))
    return tokenizer.encode(text, special=False)
