"""The handlers of OpenAI's routes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from exburn.serving.http.body import ClientLeft, parse_object
from exburn.serving.http.exchange import Exchange
from exburn.serving.http.failures import RequestFailure, describe_failure, failure_of
from exburn.serving.http.inference import Inference
from exburn.serving.http.logs import LOGGER
from exburn.serving.http.openai.answers import CompletionWriter
from exburn.serving.http.openai.requests import (
    TextCall,
    questions_of,
    read_chat,
    read_completion,
)
from exburn.serving.http.registry import Entry, Registry
from exburn.serving.http.route import EVENTS, JSON, ServerRoute
from exburn.serving.http.streaming import send_events, until_left
from exburn.serving.http.texts import TextAnswers
from exburn.serving.text import TextStream
from exburn.serving.text_rows import TextRows

_FAILURES = (400, 403, 404, 408, 413, 429, 500, 503, 504)
_OWNER = "exburn"


class OpenAIRoutes:
    """OpenAI's routes for the models that write texts.

    A model is asked for by its name; one of its adapters by ``name:adapter``.
    """

    def __init__(self, registry: Registry, inference: Inference, texts: TextAnswers):
        self._registry, self._began = registry, int(time.time())
        parts = registry, inference, texts
        chat = _Completions("chat_completions", read_chat, *parts)
        text = _Completions("completions", read_completion, *parts)
        posts = {"method": "POST", "takes": (JSON,), "answers": (JSON, EVENTS)}
        self.table = (
            ServerRoute(
                "/v1/chat/completions",
                chat.name,
                chat,
                "The answer to a chat, by OpenAI's API.",
                failures=_FAILURES,
                **posts,
            ),
            ServerRoute(
                "/v1/completions",
                text.name,
                text,
                "How texts go on, by OpenAI's API.",
                failures=_FAILURES,
                **posts,
            ),
            ServerRoute(
                "/v1/models",
                "openai_models",
                self.list_models,
                "The models that write texts, and their adapters, by OpenAI's API.",
            ),
            ServerRoute(
                "/v1/models/{name}",
                "openai_model",
                self.describe_model,
                "One of them.",
                failures=(404,),
            ),
        )

    async def list_models(self, request: Request) -> Response:
        """The names that requests may ask for."""
        names = [
            name
            for model in self._registry.names()
            if (text := self._registry.get(model).text) is not None
            for name in (model, *(f"{model}:{adapter}" for adapter in text.adapters))
        ]
        return _json({"object": "list", "data": list(map(self._describe, names))})

    async def describe_model(self, request: Request) -> Response:
        """One of the names."""
        name = request.path_params["name"]
        find_model(self._registry, name)
        return _json(self._describe(name))

    def _describe(self, name: str) -> dict[str, Any]:
        base, _, adapter = name.partition(":")
        model = {"id": name, "object": "model", "created": self._began}
        parent = {"parent": base} if adapter else {}
        return {**model, "owned_by": _OWNER, **parent}


def find_model(registry: Registry, name: str) -> tuple[Entry, str | None]:
    """The model of a name, and the adapter that it asks for.

    Raises:
        RequestFailure: 404, there is none that writes texts.
    """
    base, _, adapter = name.partition(":")
    with contextlib.suppress(RequestFailure):
        entry = registry.get(base)
        if entry.text is not None and (not adapter or adapter in entry.text.adapters):
            return entry, adapter or None
    raise RequestFailure(
        404,
        f"there is no model {name!r} that writes texts",
        param="model",
        code="model_not_found",
    )


class _Completions:
    """A route for texts, as an ASGI application.

    Args:
        name: What metrics call it.
        read: Reads and checks the object of a request.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[Any], TextCall],
        registry: Registry,
        inference: Inference,
        texts: TextAnswers,
    ):
        self.name, self._read = name, read
        self._registry, self._inference, self._texts = registry, inference, texts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the answer, or its chunks as server-sent events."""
        exchange: Exchange = scope["exburn.exchange"]
        exchange.route = self.name
        with self._inference.memory.reserve() as reservation:
            body = await self._inference.read(exchange.headers, receive, reservation)
            # Templates and tokenizers take their time.
            call, text, rows = await asyncio.to_thread(self._begin, body, exchange)
        try:
            writer = CompletionWriter(call, text, rows.rows, exchange.id)
            answer = self._stream if call.stream else self._whole
            await until_left(answer(writer, rows, send), receive)
        finally:
            rows.cancel()

    def _begin(
        self, body: bytes, exchange: Exchange
    ) -> tuple[TextCall, TextStream, TextRows]:
        call = self._read(parse_object(body))
        if call.model is None:
            raise RequestFailure(400, "model is missing", param="model")
        entry, adapter = find_model(self._registry, call.model)
        exchange.model, exchange.version = entry.name, entry.version
        assert entry.text is not None
        questions = questions_of(call, entry.text, adapter)
        exchange.rows = len(questions)
        rows = self._texts.ask(entry, questions, exchange.caller)
        return call, entry.text, rows

    @staticmethod
    async def _whole(writer: CompletionWriter, rows: TextRows, send: Send) -> None:
        async for row, piece in rows.pieces():
            writer.add(row, piece)
        body = orjson.dumps(writer.whole())
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    @staticmethod
    async def _stream(writer: CompletionWriter, rows: TextRows, send: Send) -> None:
        await send_events(_events(writer, rows), send)


async def _events(
    writer: CompletionWriter, rows: TextRows
) -> AsyncGenerator[bytes, None]:
    """The chunks as server-sent events; a failure behind the first is the last."""
    begun = False
    try:
        async for row, piece in rows.pieces():
            if not begun:
                begun = True
                for chunk in writer.begin():
                    yield _event(chunk)
            if (chunk := writer.chunk(row, piece)) is not None:
                yield _event(chunk)
    except Exception as error:
        if not begun or isinstance(error, ClientLeft):
            raise
        failure = failure_of(error)
        if failure.status == 500:
            LOGGER.error("a text failed", exc_info=error)
        yield _event(describe_failure(failure))
        return
    for chunk in writer.end():
        yield _event(chunk)
    yield b"data: [DONE]\n\n"


def _event(value: Any) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def _json(value: Any) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")
