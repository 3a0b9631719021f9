"""The server as an ASGI application."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.routing import Router

from exburn.serving.http.entrance import ASGIApp, Entrance
from exburn.serving.http.exchange import Exchange
from exburn.serving.http.health import Health
from exburn.serving.http.inference import Inference
from exburn.serving.http.limits import Keys, Rate
from exburn.serving.http.logs import LOGGER
from exburn.serving.http.metrics import Metrics
from exburn.serving.http.registry import Registry
from exburn.serving.http.routes import Routes

__all__ = ["make_app"]


def make_app(
    registry: Registry,
    inference: Inference,
    health: Health,
    *,
    keys: Keys,
    rate: Rate | None,
    version: str,
    close: Callable[[], Any],
) -> ASGIApp:
    """The application of a server.

    Args:
        registry, inference, health: Its parts.
        keys, rate: Who may ask, and how often.
        version: ExBurn's.
        close: Coroutine function that is awaited when the host shuts down.
    """
    metrics = Metrics(registry, health)
    routes = Routes(registry, inference, health, metrics, version)

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        health.start()
        try:
            yield
        finally:
            await health.stop()
            await close()

    async def route(scope: Any, receive: Any, send: Any) -> None:
        scope["app"] = router  # so that the router raises its 404 and 405
        await router(scope, receive, send)

    router = Router(routes.all(), redirect_slashes=False, lifespan=lifespan)
    return Entrance(
        route,
        keys=keys,
        rate=rate,
        health=health,
        observers=(metrics.observe, _write_log),
    )


def _write_log(exchange: Exchange) -> None:
    if LOGGER.isEnabledFor(20):  # INFO
        LOGGER.info("request", extra={"fields": exchange.fields()})
