"""The routes of the Open Inference Protocol, and those beside it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.resources
import inspect
import re
from collections.abc import AsyncGenerator, Callable
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from exburn.core.version import __version__
from exburn.serving.http.body import parse_object
from exburn.serving.http.exchange import Exchange
from exburn.serving.http.failures import RequestFailure
from exburn.serving.http.health import Health
from exburn.serving.http.inference import Inference, Result
from exburn.serving.http.metrics import CONTENT_TYPE, Metrics
from exburn.serving.http.openai.routes import OpenAIRoutes
from exburn.serving.http.openapi import FAILURES, describe_api
from exburn.serving.http.registry import Entry, Registry
from exburn.serving.http.route import BINARY, EVENTS, JSON, TEXT, ServerRoute
from exburn.serving.http.streaming import (
    Generation,
    body_part,
    send_events,
    until_left,
    write_events,
)
from exburn.serving.http.texts import TextAnswers

EXTENSIONS = ["binary_tensor_data"]
_NEVER = ("default-src", "base-uri", "form-action", "frame-ancestors")
_LARGE = 64 << 10  # bytes of an answer that a connection does not take at once


class Routes:
    """The routes, each a row of the table: see ``ServerRoute``.

    Attributes:
        table: The routes; the one that is asked most comes first.
    """

    def __init__(
        self,
        registry: Registry,
        inference: Inference,
        generation: Generation,
        texts: TextAnswers,
        health: Health,
        metrics: Metrics,
    ):
        self._registry, self._page = registry, read_page()
        self._health, self._metrics = health, metrics
        infer = _Infer(registry, inference)
        generate = _Generate(registry, inference, generation, texts)
        openai = OpenAIRoutes(registry, inference, texts)
        own = self._of_models(infer, generate)
        self.table = (*own, *openai.table, *self._of_server())

    def _of_models(self, infer: _Infer, generate: _Generate) -> tuple[ServerRoute, ...]:
        model = "/v2/models/{model}"
        return (
            ServerRoute(
                model + "/infer",
                "infer",
                infer,
                "The outputs for some rows of inputs.",
                method="POST",
                takes=(JSON, BINARY),
                answers=(JSON, BINARY),
                failures=tuple(FAILURES),
                models="serving",
            ),
            ServerRoute(
                model + "/generate_stream",
                "generate_stream",
                generate,
                "An answer in parts, as server-sent events.",
                method="POST",
                takes=(JSON,),
                answers=(EVENTS,),
                failures=tuple(FAILURES),
                models="stream",
            ),
            ServerRoute(
                model + "/ready",
                "model_ready",
                self.model_ready,
                "Whether the model answers.",
                failures=(404, 503),
            ),
            ServerRoute(
                model,
                "model",
                self.describe_model,
                "Inputs and outputs of the model.",
                failures=(404,),
            ),
        )

    def _of_server(self) -> tuple[ServerRoute, ...]:
        return (
            ServerRoute(
                "/v2/health/live",
                "live",
                self.live,
                "Whether the process should go on.",
                failures=(503,),
                is_open=True,
            ),
            ServerRoute(
                "/v2/health/ready",
                "ready",
                self.ready,
                "Whether every model answers.",
                failures=(503,),
                is_open=True,
            ),
            ServerRoute(
                "/v2",
                "server",
                self.describe_server,
                "Name, version and extensions of the server.",
            ),
            ServerRoute(
                "/metrics",
                "metrics",
                self.write_metrics,
                "Metrics for Prometheus.",
                answers=(TEXT,),
            ),
            ServerRoute(
                "/",
                "page",
                self.show_page,
                "A page on which a model is tried by hand.",
                is_open=True,
                is_listed=False,
            ),
            ServerRoute(
                "/openapi.json",
                "openapi",
                self.describe_api,
                "These routes, with the inputs of the models that are served now.",
                is_listed=False,
            ),
        )

    @property
    def open_paths(self) -> frozenset[str]:
        """The paths for which nobody needs a key."""
        return frozenset(
            path for row in self.table if row.is_open for path in row.paths
        )

    def routing(self) -> list[Route]:
        """The table as starlette's routes."""
        return [
            Route(path, _naming(row), methods=[row.method])
            for row in self.table
            for path in row.paths
        ]

    # ------------------------------------------------------------------ health
    async def live(self, request: Request) -> Response:
        """Tells whether the process should go on."""
        live = self._health.is_live()
        return _json({"live": live}, 200 if live else 503)

    async def ready(self, request: Request) -> Response:
        """Tells whether requests to every model are answered."""
        self._health.start()
        ready = self._health.all_ready()
        return _json({"ready": ready}, 200 if ready else 503)

    async def model_ready(self, request: Request) -> Response:
        """Tells whether requests to a model are answered."""
        entry = self._entry(request)
        self._health.start()
        ready = self._health.is_ready(entry)
        return _json({"name": entry.name, "ready": ready}, 200 if ready else 503)

    # ------------------------------------------------------------------ descriptions
    async def describe_server(self, request: Request) -> Response:
        """Name, version and extensions."""
        return _json(
            {
                "name": "exburn",
                "version": __version__,
                "extensions": EXTENSIONS,
                "models": self._registry.names(),
            }
        )

    async def describe_model(self, request: Request) -> Response:
        """Inputs, outputs and versions of a model."""
        entry = self._entry(request)
        generates: dict[str, Any] = {}
        if entry.stream is not None:  # its request: {"text_input": …}, or its own
            generates = {"generates": _form_of(entry)}
        if entry.text is not None and entry.text.adapters:
            generates["adapters"] = entry.text.adapters
        return _json(
            {
                "name": entry.name,
                "versions": self._registry.versions(entry.name),
                "platform": "exburn_jax",
                "inputs": entry.signature.describe_inputs(),
                "outputs": [t.describe() for t in entry.signature.outputs.values()],
                **generates,
            }
        )

    async def describe_api(self, request: Request) -> Response:
        """The OpenAPI description of what is served now."""
        return _json(describe_api(self.table, self._registry))

    async def show_page(self, request: Request) -> Response:
        """The page on which a model is tried by hand."""
        page, headers = self._page
        return Response(page, headers=headers)

    async def write_metrics(self, request: Request) -> Response:
        """The metrics, for Prometheus."""
        return Response(self._metrics.write(), headers={"content-type": CONTENT_TYPE})

    def _entry(self, request: Request) -> Entry:
        exchange, names = request.scope["exburn.exchange"], request.path_params
        entry = self._registry.get(names["model"], names.get("version"))
        exchange.model, exchange.version = entry.name, entry.version
        return entry


def _form_of(entry: Entry) -> str:
    """What a model that generates is asked: a chat, a text, or JSON of its own."""
    if entry.text is None:
        return "json"
    return "chat" if entry.text.takes_chats else "text"


def _naming(row: ServerRoute) -> Callable[..., Any]:
    """A row's handler, which notes the route's name; an application does so itself."""
    if not inspect.ismethod(row.handler):
        return row.handler

    async def answer(request: Request) -> Response:
        request.scope["exburn.exchange"].route = row.name
        return await row.handler(request)

    return answer


class _Infer:
    """The route for inference, as an ASGI application.

    Starlette's requests and responses would take a sixth of a small request's time.
    """

    def __init__(self, registry: Registry, inference: Inference):
        self._registry, self._inference = registry, inference

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the outputs for the inputs in the body."""
        exchange: Exchange = scope["exburn.exchange"]
        name = scope["path_params"]["model"]
        version = scope["path_params"].get("version")
        entry = self._registry.get(name, version)
        exchange.route, exchange.model, exchange.version = "infer", name, entry.version
        with self._inference.memory.reserve() as reservation:
            result = await self._inference.answer(
                name, version, exchange.headers, receive, reservation
            )
            exchange.version, exchange.rows = result.version, result.rows
            await self._send(result, send)

    @staticmethod
    async def _send(result: Result, send: Send) -> None:
        headers = [(b"content-length", str(len(result.body)).encode())]
        if result.json_length is None:
            headers.append((b"content-type", b"application/json"))
        else:
            headers.append((b"content-type", b"application/octet-stream"))
            length = str(result.json_length).encode()
            headers.append((b"inference-header-content-length", length))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if len(result.body) > _LARGE:
            # What follows is sent when the client has read it: until then its memory
            # is reserved.
            await send(body_part(result.body, more=True))
            await send(body_part(b""))
        else:
            await send(body_part(result.body))


class _Generate:
    """The route for answers in parts, as an ASGI application.

    What a client no longer waits for is given up at once, also before its first part.
    """

    def __init__(
        self,
        registry: Registry,
        inference: Inference,
        generation: Generation,
        texts: TextAnswers,
    ):
        self._registry, self._inference = registry, inference
        self._generation, self._texts = generation, texts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the parts as server-sent events."""
        exchange: Exchange = scope["exburn.exchange"]
        names = scope["path_params"]
        entry = self._registry.get(names["model"], names.get("version"))
        exchange.route = "generate_stream"
        exchange.model, exchange.version = entry.name, entry.version
        if entry.stream is None:
            raise RequestFailure(400, "this model does not generate")
        with self._inference.memory.reserve() as reservation:
            body = await self._inference.read(exchange.headers, receive, reservation)
            request = parse_object(body)
        if entry.text is not None:
            parts = self._texts.parts(entry, request, exchange.caller)
        else:
            parts = self._generation.parts(entry.stream, request)
        names = {"model_name": entry.name, "model_version": entry.version}
        await until_left(_send_parts(parts, names, send), receive)


async def _send_parts(
    parts: AsyncGenerator[dict[str, Any], None], names: dict[str, str], send: Send
) -> None:
    async with contextlib.aclosing(parts):
        await send_events(write_events(parts, names), send)


def _json(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


def read_page() -> tuple[bytes, dict[str, str]]:
    """The page on which a model is tried by hand, and the headers it is sent with.

    It is one file without anything from elsewhere, and knows nothing: it asks the
    routes what there is, as every client does, and draws a field for each input. What
    the server answers becomes text, never markup; the browser is told to run this one
    script alone.
    """
    file = importlib.resources.files("exburn.serving.http") / "page.html"
    page = file.read_text("utf-8")
    policy = [f"{what} 'none'" for what in _NEVER]
    policy.append(f"script-src {_hash(page, 'script')}")
    policy.append(f"style-src {_hash(page, 'style')}")
    policy += ["connect-src 'self'", "img-src 'self' blob: data:"]
    headers = {
        "content-security-policy": "; ".join(policy),
        "content-type": "text/html; charset=utf-8",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    return page.encode(), headers


def _hash(page: str, tag: str) -> str:
    """The name that a policy gives the text of the page's one element of a kind."""
    (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
