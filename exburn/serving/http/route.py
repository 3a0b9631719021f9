"""A route of the server as data: what routing, OpenAPI, the entrance and docs read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

JSON, BINARY = "application/json", "application/octet-stream"
EVENTS, TEXT = "text/event-stream", "text/plain"
_VERSIONS = "/versions/{version}"


@dataclasses.dataclass(frozen=True)
class ServerRoute:
    """A route of the server.

    Attributes:
        path: Its path, in which ``{model}`` stands for a model's name. Such a route
            answers for each version of the model, too.
        name: What metrics call it.
        handler: Answers a request: a coroutine function of starlette's ``Request``, or
            an ASGI application.
        takes: Media types of the request's body; none if it has no body.
        answers: Media types of the answer.
        failures: Statuses of its answer beside 200, and 401 where a key is asked for.
        models: Which models have it: all, those that answer in batches
            (``"serving"``), or those that generate (``"stream"``).
        is_open: Whether everybody may call it, without a key.
        is_listed: Whether OpenAPI describes it.
    """

    path: str
    name: str
    handler: Callable[..., Any]
    text: str
    method: str = "GET"
    takes: tuple[str, ...] = ()
    answers: tuple[str, ...] = (JSON,)
    failures: tuple[int, ...] = ()
    models: Literal["all", "serving", "stream"] = "all"
    is_open: bool = False
    is_listed: bool = True

    @property
    def of_model(self) -> bool:
        """Tells whether the route answers for one model."""
        return "{model}" in self.path

    @property
    def paths(self) -> list[str]:
        """Its path, and that for a version of the model.

        Example:
            >>> ServerRoute("/v2/models/{model}/ready", "ready", print, "").paths[1]
            '/v2/models/{model}/versions/{version}/ready'
        """
        if not self.of_model:
            return [self.path]
        return [self.path, self.path.replace("{model}", "{model}" + _VERSIONS)]
