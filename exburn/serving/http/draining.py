"""An end without a lost request.

On SIGTERM the server says that it is not ready and has every connection closed behind
its next answer, but goes on to answer for a while: until then, load balancers have
seen that it is not ready, and clients that keep connections open have left. Only then
it stops to accept connections, answers what it has, and ends.

To close a listening socket resets the connections that wait to be accepted. So these
are taken first, and all that have not asked yet are given a moment to do so.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from types import FrameType
from typing import Any

import uvicorn

from exburn.serving.http.handshake import SecureServer
from exburn.serving.http.health import Health

__all__ = ["DrainingServer"]


_MOMENT = 0.3  # seconds
_FAILED = 3  # uvicorn's exit code where the application does not start


class DrainingServer(uvicorn.Server):
    """uvicorn's server, which drains before it shuts down.

    Args:
        config: uvicorn's.
        listening: The socket; ``run`` takes a duplicate of it, which it closes.
        health: Of the server: says that it is not ready.
        seconds: How long it goes on to answer.
        handshake: Seconds that a client has for the handshake of TLS.
        most: Connections that there may be.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        listening: socket.socket,
        health: Health,
        seconds: float,
        handshake: float = 10.0,
        most: int = 1000,
    ):
        super().__init__(config)
        self._handshake, self._most = handshake, most
        self._listening = listening
        self._health, self._seconds = health, seconds
        self._ends: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's, which would not know of connections in the handshake of TLS."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(_FAILED)
        self.servers = [await self._accepting(place) for place in sockets or []]
        self.started = True

    def drain(self, seconds: float | None = None) -> None:
        """Begins to drain; from any thread, and in handlers of signals."""
        seconds = self._seconds if seconds is None else seconds
        self._health.draining = True
        self._ends = time.monotonic() + seconds

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drains at the first signal, and stops at the second.

        Ctrl-C is of somebody who waits for the end: there is no balancer to tell.
        uvicorn would also raise the signal again in the end, so that nothing that
        follows in the program would run.
        """
        if self._ends is not None:
            self.force_exit = self.should_exit
            self.should_exit = True
        else:
            self.drain(0 if sig == signal.SIGINT else None)

    async def on_tick(self, counter: int) -> bool:
        """uvicorn's, ten times a second: whether it is time to end."""
        if self._ends is not None and time.monotonic() >= self._ends:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's, behind which no request is left."""
        self._health.draining = True  # so that answers from now on close connections
        for server in self.servers:
            server.close()
        self._listening.setblocking(False)
        waiting = []
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                break
            connection.setblocking(False)
            waiting.append(self._connect(connection))
        self._listening.close()
        await asyncio.gather(*waiting)
        until = time.monotonic() + (2 * _MOMENT if self.config.is_ssl else _MOMENT)
        while self.server_state.connections and time.monotonic() < until:
            await asyncio.sleep(0.01)
        await super().shutdown(sockets)

    async def _accepting(self, listening: socket.socket) -> Any:
        """The acceptor of a socket's connections."""
        if self.config.is_ssl and self.config.ssl is not None:
            return SecureServer(
                listening,
                self.server_state,
                self.config.ssl,
                self._protocol,
                self._handshake,
                self._most,
            )
        loop = asyncio.get_running_loop()
        return await loop.create_server(
            self._protocol, sock=listening, backlog=self.config.backlog
        )

    async def _connect(self, connection: socket.socket) -> None:
        for server in self.servers:
            if isinstance(server, SecureServer):
                server.take(connection)
                return
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):  # it is gone
            await loop.connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> Any:
        make: Any = self.config.http_protocol_class
        return make(
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
