"""What a language model is trained on, to be looked at: tokens, and which count."""

from __future__ import annotations

import dataclasses
import html
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions
from rich.text import Text

from exburn.core.checks import check_count
from exburn.core.printing import notebook_shell
from exburn.data.documents import Document, DocumentPair
from exburn.data.frames import is_frame
from exburn.errors import ArgumentError, printable
from exburn.errors.boundary import api_boundary
from exburn.text.reading import DocumentReader
from exburn.text.tokenizer import Tokenizer
from exburn.visualization.page import cut, fragment, note, title

_OP = "text.show"
_MOST = 4000  # tokens that are shown of a document
_HALF = "\ufffd"  # of a character whose bytes are not all there
_LONGEST = 8  # tokens that may be one character
_FILES = (".jsonl", ".ndjson", ".json", ".parquet")
# Two tones each, so that one sees where a token ends.
_COUNTED = ("#000000 on #5fd787", "#000000 on #afffaf")
_OTHERS = ("", "dim")
_RULES = """
# .tokens{white-space:pre-wrap;overflow-wrap:anywhere;margin:0;
font:13px/1.7 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
# .tokens span{border-radius:3px}# .tokens .o1{opacity:.65}
# .tokens .c0{background:#2e9e5b;color:#fff}# .tokens .c1{background:#1d7442;color:#fff}
"""


@api_boundary
def show(
    example: Any,
    tokenizer: Any,
    *,
    index: int = 0,
    train_on: str = "answers",
    columns: str | Mapping[str, str] | None = None,
    variables: Mapping[str, Any] | None = None,
) -> None:
    """Shows the tokens of an example, with those in colour that the loss counts.

    Args:
        example: A chat, a text, an object with columns, or a ``Document``; or a data
            set of those, or a path of one.
        tokenizer: A ``Tokenizer``, or a model that has one.
        index: Which row of a data set is shown.
        train_on, columns, variables: As of ``DocumentReader``.

    Raises:
        ArgumentError: There is no tokenizer, or an argument does not fit.
        DataError: The row cannot be used, or there is none.

    Example:
        >>> tokenizer = Tokenizer.train(["so it is, so it was"] * 9, 270)
        >>> show({"prompt": "so it", "completion": " was"}, tokenizer)
        so it⟦ was<|endoftext|>⟧
        2 of 4 tokens are counted, in ⟦ ⟧
    """
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    if not isinstance(tokenizer, Tokenizer):
        raise ArgumentError(
            _OP,
            "a tokenizer is needed, or a model that has one, received "
            f"{printable(type(tokenizer).__name__)}",
        )
    check_count(_OP, "index", index, 0)
    reader = DocumentReader(
        example if _has_rows(example) else [example],
        tokenizer,
        train_on=train_on,
        columns=columns,
        variables=variables,
    )
    document = reader.document(index)
    pair = isinstance(document, DocumentPair)
    for one in (document.chosen, document.rejected) if pair else (document,):
        view = DocumentView.of(one, tokenizer)
        if notebook_shell() is not None:
            from IPython.display import display

            display(view)
        else:
            Console(soft_wrap=True).print(view)


def _has_rows(example: Any) -> bool:
    """Tells whether an example is a data set, and not one of its rows."""
    if isinstance(example, str):
        return example.lower().endswith(_FILES)
    if isinstance(example, Document | DocumentPair):
        return False
    if isinstance(example, Mapping):  # of parts, whose error names them
        return type(example).__name__.endswith("DatasetDict")
    if isinstance(example, list | tuple) and example:
        first = example[0]
        return not (isinstance(first, Mapping) and "role" in first)
    return isinstance(example, os.PathLike) or is_frame(example) or bool(example)


@dataclasses.dataclass(frozen=True, repr=False)
class DocumentView:
    """A document as pieces of text, each of one token, or of those of a character.

    Attributes:
        pieces: The texts, and whether the loss counts them.
        tokens, counted: How many tokens there are, and how many are counted.
    """

    pieces: Sequence[tuple[str, bool]]
    tokens: int
    counted: int

    @classmethod
    def of(cls, document: Document, tokenizer: Tokenizer) -> DocumentView:
        """The view of a document."""
        pieces = list(_pieces(document, tokenizer))
        return cls(pieces, len(document), int(document.counted.sum()))

    @property
    def _summary(self) -> str:
        more = f", the first {_MOST} are shown" if self.tokens > _MOST else ""
        return f"{self.counted} of {self.tokens} tokens are counted{more}"

    def __repr__(self) -> str:
        return f"DocumentView({self._summary})"

    def __str__(self) -> str:
        parts = []
        for counted, pieces in itertools.groupby(self.pieces, lambda piece: piece[1]):
            run = "".join(text for text, _ in pieces)
            parts.append(f"⟦{run}⟧" if counted else run)
        return f"{printable(''.join(parts))}\n{self._summary}, in ⟦ ⟧"

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[Text]:
        if console.color_system is None:
            yield Text(str(self))
            return
        line = Text(overflow="fold")
        for number, (text, counted) in enumerate(self.pieces):
            style = (_COUNTED if counted else _OTHERS)[number % 2]
            line.append(printable(text).replace("\n", "↵\n"), style)
        yield line
        yield Text(self._summary, "bold")

    def _repr_html_(self) -> str:
        parts = []
        for number, (text, counted) in enumerate(self.pieces):
            shown = cut(text, len(text)).replace("\n", "↵\n")
            kind = f"{'c' if counted else 'o'}{number % 2}"
            parts.append(f'<span class="{kind}">{_escape(shown)}</span>')
        return fragment(
            title("tokens", self._summary),
            f'<p class="tokens">{"".join(parts)}</p>',
            note("In colour: what the loss counts."),
            rules=_RULES,
        )


def _escape(text: str) -> str:
    """A text as HTML, in which no formula is looked for between two dollars."""
    return html.escape(text).replace("$", "<span>$</span>")


def _pieces(document: Document, tokenizer: Tokenizer) -> Iterator[tuple[str, bool]]:
    """The texts of the tokens; tokens that are one character together are one."""
    before: list[int] = []
    waiting: list[int] = []
    counted = False
    for token, counts in zip(
        document.tokens[:_MOST].tolist(), document.counted, strict=False
    ):
        waiting.append(token)
        counted = counted or bool(np.any(counts))
        text = _text_behind(tokenizer, before, waiting)
        if text.endswith(_HALF) and len(waiting) < _LONGEST:
            continue
        yield text, counted
        before, waiting, counted = waiting, [], False
    if waiting:
        yield _text_behind(tokenizer, before, waiting), counted


def token_texts(tokens: Any, tokenizer: Tokenizer) -> list[str]:
    """The text of each token; of those that are one character it is the last one's.

    Example:
        >>> tokenizer = Tokenizer.train(["so it is, so it was"] * 9, 270)
        >>> token_texts(tokenizer.encode("so it was"), tokenizer)
        ['so', ' it', ' was']
    """
    texts: list[str] = []
    before: list[int] = []
    waiting: list[int] = []
    for token in np.asarray(tokens).tolist():
        waiting.append(token)
        text = _text_behind(tokenizer, before, waiting)
        if text.endswith(_HALF) and len(waiting) < _LONGEST:
            texts.append("")
            continue
        texts.append(text)
        before, waiting = waiting, []
    if waiting:
        texts[-1] = _text_behind(tokenizer, before, waiting)
    return texts


def _text_behind(tokenizer: Tokenizer, before: list[int], tokens: list[int]) -> str:
    """The text of tokens, whose first blank may depend on those before them."""
    whole = tokenizer.decode([*before, *tokens], special=True, clean_up=False)
    front = tokenizer.decode(before, special=True, clean_up=False) if before else ""
    return whole[len(front) :]
