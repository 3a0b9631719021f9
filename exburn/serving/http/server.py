"""The server that users make."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import uvicorn
from starlette.routing import Router

from exburn.errors import ArgumentError, BusyError, printable
from exburn.errors.boundary import guard_methods
from exburn.runtime.gc_pause import frozen_heap
from exburn.runtime.host_memory import free_host_bytes
from exburn.serving.http.connections import WatchedProtocol
from exburn.serving.http.draining import DrainingServer
from exburn.serving.http.entrance import ASGIApp, Entrance, make_tracer
from exburn.serving.http.exchange import Exchange
from exburn.serving.http.health import Health
from exburn.serving.http.inference import Inference
from exburn.serving.http.limits import ApiKeys, Rate, RequestMemory, most_connections
from exburn.serving.http.logs import LOGGER, log_to
from exburn.serving.http.metrics import Metrics
from exburn.serving.http.options import ServerOptions
from exburn.serving.http.origins import Hosts, Origins
from exburn.serving.http.registry import Registry
from exburn.serving.http.routes import Routes
from exburn.serving.http.streaming import Generation
from exburn.serving.http.texts import TextAnswers
from exburn.serving.options import ServingOptions, change_options, names_of, seconds
from exburn.serving.server import Serving

_OP = "Server"
_START_SECONDS = 60.0


@guard_methods
class Server:
    """Serves models over HTTP, by the Open Inference Protocol (version 2).

    Every model is compiled before the constructor returns, and its requests share
    batches, as those of ``exburn.Serving`` do. The routes, errors and limits are in
    docs/server.md.

    Args:
        models: ``{name: model}``. A model is what ``Serving`` takes, a ``Serving``, the
            path of a saved model, or an ``Endpoint``, which says more of one of these;
            or ``{version: model}``, of which the last one is the default. A server
            without any is not ready until ``load`` gives it one.
        host, port: Where ``run`` listens: only this machine can reach the default host.
            Port 0 is a free one, see ``url``.
        api_keys: Keys of which each request must have one, 16 characters or more;
            without any, everybody may ask.
        max_body: Most bytes of a body.
        max_rows: Most rows of a request.
        rate: Requests per second that each key (without keys: each address) may send.
        max_queue: Requests to a model that may wait; one more gets 429.
        max_streams: Answers in parts that are generated at once; one more gets 429.
        max_connections: Connections; one more takes the place of the one that has kept
            the server waiting the longest. By default 1,000, or half of the files that
            the process may open if these are fewer.
        timeout: Longest time for an answer, or a part of one; then it gets 504.
        read_timeout: Longest time for a request to arrive.
        drain: How long the server goes on to answer after SIGTERM, while it says that
            it is not ready, before it stops. Ctrl-C leaves this out.
        canary: Time within which a batch must come through each partition for the
            server to be ready.
        max_memory: Host memory for requests under way: others get 503. By default half
            of what is free now.
        allowed_hosts: Names under which the server is asked (``Host``), beside
            addresses, ``localhost``, ``host`` and the machine's name;
            ``"*.example.com"`` is all of a domain, ``"*"`` any name.
        cors_origins: Pages from elsewhere that may ask, as ``"https://example.com"``,
            or ``"*"`` for all. Without it only the server's own page may.
        batch_size, batch_timeout: As of ``Serving``. A lone request does not wait.
        ssl_certfile, ssl_keyfile: Files of a certificate and its key, for HTTPS.
        reuse_port: Whether other processes may listen at the port, too: new connections
            are divided among all of them, where the system does so.
        log_level: Of ``run``: ``"INFO"`` writes a line for each request.
        **serving: Further options of each ``Serving``.

    Raises:
        ArgumentError: An option or a name is not allowed, or what ``Serving`` raises.

    Example:
        >>> import json, urllib.request
        >>> import exburn
        >>> twice = exburn.layers.Rescaling(2.0)
        >>> model = exburn.Sequential([exburn.Input((2,), name="x"), twice])
        >>> x = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2.5]}
        >>> with Server({"twice": model}, port=0) as server:
        ...     url = f"{server.url}/v2/models/twice/infer"
        ...     body = json.dumps({"inputs": [x]}).encode()
        ...     answer = json.load(urllib.request.urlopen(url, body))
        >>> answer["outputs"][0]["data"]
        [2.0, 5.0]
    """

    def __init__(
        self,
        models: Mapping[str, Any],
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        api_keys: Iterable[str] = (),
        max_body: Any = "8 MB",
        max_rows: int | None = None,
        rate: float | None = None,
        max_queue: int = 1024,
        max_streams: int = 16,
        max_connections: int | None = None,
        timeout: Any = "2 s",
        read_timeout: Any = "10 s",
        drain: Any = "20 s",
        canary: Any = "5 s",
        max_memory: Any = None,
        allowed_hosts: Iterable[str] | None = None,
        cors_origins: Iterable[str] | None = None,
        batch_size: int = 32,
        batch_timeout: Any = 0,
        ssl_certfile: str | Path | None = None,
        ssl_keyfile: str | Path | None = None,
        reuse_port: bool = False,
        log_level: str = "INFO",
        **serving: Any,
    ):
        _check_models(models)
        queue = ServingOptions(
            batch_size=batch_size, batch_timeout=batch_timeout, max_queue=max_queue
        )
        own = names_of(ServerOptions)
        self._options = options = ServerOptions(
            host=host,
            port=port,
            api_keys=api_keys,
            max_body=max_body,
            max_rows=max_rows,
            rate=rate,
            max_streams=max_streams,
            max_connections=max_connections,
            timeout=timeout,
            read_timeout=read_timeout,
            drain=drain,
            canary=canary,
            max_memory=max_memory,
            allowed_hosts=allowed_hosts,
            cors_origins=cors_origins,
            ssl_certfile=ssl_certfile,
            ssl_keyfile=ssl_keyfile,
            reuse_port=reuse_port,
            log_level=log_level,
            serving=change_options(queue, serving, _OP, own),
        )
        self.host, self._port = options.host, options.port
        self._connections = most_connections(_OP, options.max_connections)
        self._registry = Registry(options.serving)
        self._health = Health(self._registry, options.canary)
        memory = options.max_memory or free_host_bytes() // 2
        self._inference = Inference(
            self._registry,
            RequestMemory(memory),
            max_body=options.max_body,
            max_rows=options.max_rows,
            timeout=options.timeout,
            read_timeout=options.read_timeout,
        )
        self._generation = Generation(options.max_streams, options.timeout)
        self._app = self._make_app()
        self._engine: DrainingServer | None = None
        self._thread: threading.Thread | None = None
        try:
            for name, model in models.items():
                versions = model if isinstance(model, Mapping) else {"1": model}
                for version, each in versions.items():
                    self.load(name, each, version=version)
        except BaseException:
            self._registry.close(0)
            raise

    def _make_app(self) -> ASGIApp:
        """The application: the routes, behind what every request passes."""
        options = self._options
        metrics = Metrics(self._registry, self._health)
        texts = TextAnswers(metrics.observe_tokens)
        parts = self._registry, self._inference, self._generation, texts
        routes = Routes(*parts, self._health, metrics)

        @contextlib.asynccontextmanager
        async def lifespan(app: Any) -> AsyncIterator[None]:
            self._health.start()
            # To look through all that JAX has made for garbage takes 0.1 s, in which
            # nobody is served. (Shorter turns of the interpreter, as training has them,
            # cost an eighth more of the processor here, and no request was answered
            # sooner.)
            with frozen_heap():
                try:
                    yield
                finally:
                    await self._health.stop()
                    await self._close_models()

        async def route(scope: Any, receive: Any, send: Any) -> None:
            scope["app"] = router  # so that the router raises its 404 and 405
            await router(scope, receive, send)

        router = Router(routes.routing(), redirect_slashes=False, lifespan=lifespan)
        return Entrance(
            route,
            open_paths=routes.open_paths,
            keys=ApiKeys(options.api_keys),
            rate=None if options.rate is None else Rate(options.rate),
            health=self._health,
            hosts=Hosts(options.host, options.allowed_hosts or ()),
            origins=Origins(options.cors_origins or ()),
            observers=(metrics.observe, _write_log),
            tracer=make_tracer(),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """For other processes: these make a server of the same models and options.

        Raises:
            ArgumentError: It serves a ``Serving``, whose threads and devices are here.
        """
        models: dict[str, dict[str, Any]] = {}
        for entry in self._registry:
            if isinstance(entry.endpoint.model, Serving):
                raise ArgumentError(
                    _OP,
                    f"the serving of {entry.name!r} stays in this process",
                    hint="Pass the model itself, and the serving's options to Server.",
                )
            versions = models.setdefault(entry.name, {})
            versions[entry.version] = entry.endpoint
        return functools.partial(type(self), **self._options.arguments()), (models,)

    # ------------------------------------------------------------------ models
    def load(self, name: str, model: Any, *, version: str = "1") -> None:
        """Serves another model, or another one in the place of one, without a break.

        It is compiled first. Then all requests that come go to it, while the one whose
        place it takes answers those that it has. It becomes the model's default
        version.

        Args:
            name: The model's name in requests.
            model: As for the constructor.
            version: The version's name.

        Raises:
            ArgumentError: The name is not allowed, the server is closed, or what
                ``Serving`` raises.
        """
        self._registry.load(name, model, version)

    def unload(self, name: str, *, version: str | None = None) -> None:
        """Serves a model, or a version of it, no more; it answers what it has.

        Raises:
            ArgumentError: There is none.
        """
        self._registry.unload(name, version)

    @property
    def models(self) -> dict[str, list[str]]:
        """The versions of each model; the last one is its default."""
        names = self._registry.names()
        return {name: self._registry.versions(name) for name in names}

    # ------------------------------------------------------------------ running
    def asgi(self) -> ASGIApp:
        """The application, for any ASGI host.

        The host's lifespan closes the models. Draining before that is the host's part,
        or that of who sends it no more requests.
        """
        return self._app

    def run(self, *, listening: Callable[[str], object] | None = None) -> None:
        """Serves until SIGTERM or Ctrl-C, drains, and returns.

        Its first line says where it serves: lines for people in a terminal, of JSON
        elsewhere, on the standard error.

        Args:
            listening: Called with the address as soon as connections are accepted.

        Raises:
            ArgumentError: The address cannot be used, or an event loop runs in this
                thread.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise ArgumentError(
                _OP,
                "run() needs a thread without an event loop, as a notebook's has",
                hint="Use server.start() and server.close(), or another host for "
                "server.asgi().",
            )
        log_to(level=self._options.log_level)
        engine, place = self._listen()
        try:
            if listening is not None:
                listening(self.url)
            names = ", ".join(self.models) or "no model yet"
            fields = {"url": self.url, "models": self.models}
            LOGGER.info("Serving %s at %s", names, self.url, extra={"fields": fields})
            engine.run(sockets=[place])
        finally:
            self._end()

    def start(self) -> Self:
        """Serves in a thread, and returns when it listens: for notebooks and tests.

        Raises:
            ArgumentError: The address cannot be used.
        """
        engine, listening = self._listen()
        self._thread = threading.Thread(
            target=engine.run, args=([listening],), name="exburn-http", daemon=True
        )
        self._thread.start()
        for _ in range(int(_START_SECONDS * 100)):
            if engine.started or not self._thread.is_alive():
                break
            self._thread.join(0.01)
        if not engine.started:
            self._end()
            raise ArgumentError(_OP, "the server did not start; its log says why")
        return self

    def close(self, *, drain: Any = 0) -> None:
        """Ends what ``start`` began; requests that are under way are answered.

        Args:
            drain: As of the constructor.
        """
        if self._engine is not None and self._thread is not None:
            self._engine.drain(seconds("close", "drain", drain))
            self._thread.join()
        self._end()

    def _listen(self) -> tuple[DrainingServer, socket.socket]:
        if self._registry.closed:
            raise ArgumentError(_OP, "the server was closed", hint="Make another one.")
        if self._engine is not None:
            raise BusyError(_OP, f"it is serving already, at {self.url}")
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            listening = socket.create_server(
                (self.host, self._port),
                family=family,
                backlog=2048,
                reuse_port=self._options.reuse_port,
            )
        except ValueError:
            raise ArgumentError(
                _OP, "reuse_port: this system divides no port among processes"
            ) from None
        except OSError as error:
            raise ArgumentError(
                _OP,
                f"cannot listen at {self.host}, port {self._port}: {error.strerror}",
                hint="Another port: port=8001; port=0 takes a free one.",
            ) from error
        self._port = listening.getsockname()[1]
        read_timeout = self._options.read_timeout
        limits = {"seconds": read_timeout, "most": self._connections}
        protocol = type("Protocol", (WatchedProtocol,), limits)
        config = uvicorn.Config(
            self._app,
            http=protocol,
            ws="none",
            lifespan="on",
            access_log=False,
            log_config=None,
            server_header=False,
            ssl_certfile=self._options.ssl_certfile,
            ssl_keyfile=self._options.ssl_keyfile,
            # A request that came just now is read and answered within these.
            timeout_graceful_shutdown=int(self._options.timeout + read_timeout) + 1,
        )
        self._engine = DrainingServer(
            config,
            listening,
            self._health,
            self._options.drain,
            read_timeout,
            self._connections,
        )
        return self._engine, listening.dup()

    def _end(self) -> None:
        self._health.draining = True
        self._registry.close(self._options.timeout)
        self._inference.end()
        self._generation.end()
        self._engine = self._thread = None

    async def _close_models(self) -> None:
        self._health.draining = True
        self._inference.end()
        self._generation.end()
        await asyncio.to_thread(self._registry.close, self._options.timeout)

    @property
    def port(self) -> int:
        """The port; of a server that listens, the one that it has."""
        return self._port

    @property
    def url(self) -> str:
        """The address: ``"http://127.0.0.1:8000"``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "http" if self._options.ssl_certfile is None else "https"
        return f"{scheme}://{host}:{self.port}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "at " + self.url if self._engine is not None else "not running"
        return printable(f"<Server of {', '.join(self.models)}, {state}>")


def _check_models(models: Any) -> None:
    if not isinstance(models, Mapping):
        raise ArgumentError(
            _OP,
            "models must be a dict {name: model}",
            {"received": type(models).__name__},
        )
    for name, model in models.items():
        if isinstance(model, Mapping) and not model:
            raise ArgumentError(
                _OP,
                f"the model {name!r} has no version",
                hint="{name: model}, or {name: {version: model}}.",
            )


def _write_log(exchange: Exchange) -> None:
    if LOGGER.isEnabledFor(logging.INFO):
        LOGGER.info("request", extra={"fields": exchange.fields()})
