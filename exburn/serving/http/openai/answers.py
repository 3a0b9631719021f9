"""Answers of OpenAI's routes, whole and in chunks."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any

from exburn.serving.http.openai.requests import TextCall
from exburn.serving.http.openai.tool_calls import ToolCallReader
from exburn.serving.text import TextStream
from exburn.serving.text_rows import TextPiece, TextRow, TokenLogprob


class CompletionWriter:
    """Makes the objects of one request's answer.

    Args:
        identity: The request's id.
        rows: Its rows, those of each prompt one after the other.
    """

    def __init__(
        self,
        call: TextCall,
        stream: TextStream,
        rows: Sequence[TextRow],
        identity: str,
    ):
        self._call, self._stream, self._rows = call, stream, rows
        self._choices = [_choice_of(call, stream, at) for at in range(len(rows))]
        kind = "chat.completion" if call.is_chat else "text_completion"
        self._head = {
            "id": ("chatcmpl-" if call.is_chat else "cmpl-") + identity,
            "object": kind,
            "created": int(time.time()),
            "model": call.model,
        }

    def begin(self) -> list[dict[str, Any]]:
        """The chunks in front of all text: who speaks."""
        if not self._call.is_chat:
            return []
        delta = {"role": "assistant", "content": ""}
        return [
            self._chunk({"index": at, "delta": delta, "finish_reason": None})
            for at in range(len(self._rows))
        ]

    def chunk(self, row: int, piece: TextPiece) -> dict[str, Any] | None:
        """The chunk of a piece, if there is something to tell."""
        part = self._choices[row].chunk(piece)
        return None if part is None else self._chunk(part)

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        chunk = {**self._head, "choices": [choice]}
        if self._call.is_chat:
            chunk["object"] = "chat.completion.chunk"
        if self._call.include_usage:
            chunk["usage"] = None
        return chunk

    def end(self) -> list[dict[str, Any]]:
        """The chunk behind all others."""
        if not self._call.include_usage:
            return []
        chunk = self._chunk({})
        return [{**chunk, "choices": [], "usage": self._usage()}]

    def add(self, row: int, piece: TextPiece) -> None:
        """Adds a piece to the whole answer."""
        self._choices[row].add(piece)

    def whole(self) -> dict[str, Any]:
        """The answer, once all rows have ended."""
        choices = [choice.whole() for choice in self._choices]
        return {**self._head, "choices": choices, "usage": self._usage()}

    def _usage(self) -> dict[str, Any]:
        """Tokens that were read and written; a prompt counts once for all its rows."""
        first = self._rows[:: self._call.n]
        prompt = sum(row.prompt_tokens for row in first)
        written = sum(row.tokens for row in self._rows)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": written,
            "total_tokens": prompt + written,
            "prompt_tokens_details": {
                "cached_tokens": sum(row.shared_tokens for row in first)
            },
        }


def _choice_of(call: TextCall, stream: TextStream, row: int) -> Any:
    if not call.is_chat:
        return _TextChoice(row, stream)
    reader = ToolCallReader.of(
        stream.tokenizer, call.tools, call.parallel, forced=bool(call.forced)
    )
    return _ChatChoice(row, stream, reader)


class _TextChoice:
    """One text of a completion."""

    def __init__(self, index: int, stream: TextStream):
        self._index, self._stream = index, stream
        self._pieces: list[TextPiece] = []

    def chunk(self, piece: TextPiece) -> dict[str, Any] | None:
        if not piece.text and piece.finish is None and not piece.logprobs:
            return None
        return {
            "index": self._index,
            "text": piece.text,
            "logprobs": self._logprobs(piece.logprobs) if piece.logprobs else None,
            "finish_reason": piece.finish,
        }

    def add(self, piece: TextPiece) -> None:
        self._pieces.append(piece)

    def whole(self) -> dict[str, Any]:
        logprobs = [one for piece in self._pieces for one in piece.logprobs]
        return {
            "index": self._index,
            "text": "".join(piece.text for piece in self._pieces),
            "logprobs": self._logprobs(logprobs) if logprobs else None,
            "finish_reason": self._pieces[-1].finish,
        }

    def _logprobs(self, tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
        text = functools.partial(_text_of, self._stream)
        return {
            "tokens": [text(one.token) for one in tokens],
            "token_logprobs": [one.logprob for one in tokens],
            "top_logprobs": [
                {text(token): logprob for token, logprob in one.top} or None
                for one in tokens
            ],
            "text_offset": [one.start for one in tokens],
        }


class _ChatChoice:
    """One answer to a chat.

    Args:
        reader: Finds calls of tools in it; ``None`` where there are no tools.
    """

    def __init__(self, index: int, stream: TextStream, reader: ToolCallReader | None):
        self._index, self._stream, self._reader = index, stream, reader
        self._text = ""
        self._logprobs: list[TokenLogprob] = []
        self._calls: list[dict[str, Any]] = []
        self._finish: str | None = None

    def chunk(self, piece: TextPiece) -> dict[str, Any] | None:
        text, calls = self._read(piece)
        delta: dict[str, Any] = {"content": text} if text else {}
        if calls:
            first = len(self._calls) - len(calls)
            delta["tool_calls"] = [
                {"index": first + at, **call} for at, call in enumerate(calls)
            ]
        if not delta and piece.finish is None and not piece.logprobs:
            return None
        return {
            "index": self._index,
            "delta": delta,
            "logprobs": self._describe(piece.logprobs) if piece.logprobs else None,
            "finish_reason": self._reason(piece.finish),
        }

    def add(self, piece: TextPiece) -> None:
        self._text += self._read(piece)[0]
        self._logprobs += piece.logprobs
        self._finish = piece.finish

    def whole(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self._text}
        if self._calls:
            message["content"] = self._text if self._text.strip() else None
            message["tool_calls"] = self._calls
        return {
            "index": self._index,
            "message": message,
            "logprobs": self._describe(self._logprobs) if self._logprobs else None,
            "finish_reason": self._reason(self._finish),
        }

    def _read(self, piece: TextPiece) -> tuple[str, list[dict[str, Any]]]:
        if self._reader is None:
            return piece.text, []
        text, calls = self._reader.read(piece.text, last=piece.finish is not None)
        self._calls += calls
        return text, calls

    def _reason(self, finish: str | None) -> str | None:
        return "tool_calls" if finish == "stop" and self._calls else finish

    def _describe(self, tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
        return {
            "content": [
                {
                    **_describe_token(self._stream, one.token, one.logprob),
                    "top_logprobs": [
                        _describe_token(self._stream, token, logprob)
                        for token, logprob in one.top
                    ],
                }
                for one in tokens
            ],
            "refusal": None,
        }


def _text_of(stream: TextStream, token: int) -> str:
    """The text of a token by itself; half a character is a mark."""
    return stream.bytes_of(token).decode("utf-8", "replace")


def _describe_token(stream: TextStream, token: int, logprob: float) -> dict[str, Any]:
    data = stream.bytes_of(token)
    text = data.decode("utf-8", "replace")
    return {"token": text, "logprob": logprob, "bytes": list(data)}
