"""The server as an ASGI application."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.routing import Router

from exburn.runtime.gc_pause import frozen_heap
from exburn.serving.http.entrance import ASGIApp, Entrance
from exburn.serving.http.exchange import Exchange
from exburn.serving.http.health import Health
from exburn.serving.http.inference import Inference
from exburn.serving.http.limits import Keys, Rate
from exburn.serving.http.logs import LOGGER
from exburn.serving.http.metrics import Metrics
from exburn.serving.http.origins import Hosts, Origins
from exburn.serving.http.registry import Registry
from exburn.serving.http.routes import Routes
from exburn.serving.http.streaming import Generation
from exburn.serving.http.tracing import make_tracer

__all__ = ["make_app"]


def make_app(
    registry: Registry,
    inference: Inference,
    generation: Generation,
    health: Health,
    *,
    keys: Keys,
    rate: Rate | None,
    hosts: Hosts,
    origins: Origins,
    version: str,
    close: Callable[[], Any],
) -> ASGIApp:
    """The application of a server.

    Args:
        registry, inference, generation, health: Its parts.
        keys, rate: Who may ask, and how often.
        hosts, origins: Under which names, and for which pages.
        version: ExBurn's.
        close: Coroutine function that is awaited when the host shuts down.
    """
    metrics = Metrics(registry, health)
    routes = Routes(registry, inference, generation, health, metrics, version)

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        health.start()
        # To look through all that JAX has made for garbage takes 0.1 s, in which nobody
        # is served. (Shorter turns of the interpreter, as training has them, cost an
        # eighth more of the processor here, and no request was answered sooner.)
        with frozen_heap():
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
        hosts=hosts,
        origins=origins,
        observers=(metrics.observe, _write_log),
        tracer=make_tracer(),
    )


def _write_log(exchange: Exchange) -> None:
    if LOGGER.isEnabledFor(20):  # INFO
        LOGGER.info("request", extra={"fields": exchange.fields()})
