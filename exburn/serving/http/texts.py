"""Texts that models write, for requests: asked for, timed, and counted."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from exburn.serving.http.registry import Entry
from exburn.serving.text import TextQuestion
from exburn.serving.text_rows import TextRows


class TextAnswers:
    """Asks models for texts.

    Args:
        observe: Called with a model, seconds, the tokens that these took, and whether
            they are a row's first.
    """

    def __init__(self, observe: Callable[[Entry, float, int, bool], None]):
        self._observe = observe

    def ask(
        self, entry: Entry, questions: Sequence[TextQuestion], caller: str
    ) -> TextRows:
        """Begins to write the rows of a request: all of them, or none.

        Raises:
            QueueFullError: Too many wait.
        """
        text = entry.text
        assert text is not None
        observe = functools.partial(self._observe, entry)
        return TextRows(text.ask(questions, caller), text.wait, observe)

    async def parts(
        self, entry: Entry, request: dict[str, Any], caller: str
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The parts of the answer to a request of Triton's form."""
        assert entry.text is not None
        question = await asyncio.to_thread(entry.text.read, request)
        rows = self.ask(entry, [question], caller)
        async with contextlib.aclosing(rows.pieces()) as pieces:
            async for _, piece in pieces:
                if piece.text:
                    yield {"text_output": piece.text}
