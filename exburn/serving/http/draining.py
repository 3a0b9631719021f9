"""An end without a lost request.

On SIGTERM the server says that it is not ready and has every connection closed behind
its next answer, but goes on to answer for a while: until then, load balancers have
seen that it is not ready, and clients that keep connections open have left. Only then
it stops to accept connections, answers what it has, and ends.

To close a listening socket resets the connections that wait to be accepted. So these
are taken first, and all that have not asked yet are given a moment to do so.

An event loop that accepts TLS by itself tells nobody of a connection before its
handshake is done: as many as a client opens would stay outside of any count. Here a
connection is taken as it comes, counted, and may have to make room, as any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from exburn.serving.http.connections import WatchedProtocol, make_room
from exburn.serving.http.health import Health
from exburn.serving.http.logs import LOGGER

_MOMENT = 0.3  # seconds
_FAILED = 3  # uvicorn's exit code where the application does not start


class DrainingServer(uvicorn.Server):
    """uvicorn's server, which drains before it shuts down.

    Args:
        listening: The socket; ``run`` takes a duplicate of it, which it closes.
        health: Of the server: says that it is not ready.
        handshake: Seconds that a client has for the handshake of TLS.
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


_PAUSE = 1.0  # seconds, where the system has no more files or memory
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class SecureServer:
    """Accepts connections of TLS, as the server of an event loop does.

    Args:
        state: uvicorn's, whose connections are counted.
        make: Makes the protocol that goes on behind a handshake.
    """

    def __init__(
        self,
        listening: socket.socket,
        state: ServerState,
        context: ssl.SSLContext,
        make: Callable[[], WatchedProtocol],
        seconds: float,
        most: int,
    ):
        self._listening, self.state, self.context = listening, state, context
        self.make, self.seconds, self.most = make, seconds, most
        listening.setblocking(False)
        self._task = asyncio.get_running_loop().create_task(self._accept())

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listening)
            except OSError as error:
                if error.errno in _SCARCE:
                    LOGGER.error("no connection is accepted: %s", error.strerror)
                    await asyncio.sleep(_PAUSE)
                continue  # else it was gone before it was taken
            self.take(connection)

    def take(self, connection: socket.socket) -> None:
        """Begins the handshake of a connection."""
        connection.setblocking(False)
        _Handshake(self, connection)

    def close(self) -> None:
        """Accepts no more."""
        self._task.cancel()

    async def wait_closed(self) -> None:
        """Waits until nothing more is accepted."""
        await asyncio.wait([self._task])


class _Handshake:
    """A connection until its handshake is done."""

    def __init__(self, server: SecureServer, connection: socket.socket):
        self._server, self._connection = server, connection
        self._loop = asyncio.get_running_loop()
        self.waiting_since: float | None = self._loop.time()
        try:
            address: Any = connection.getpeername()
        except OSError:  # it is gone
            address = None
        self.caller = address[0] if isinstance(address, tuple) else ""
        self._begun = False
        connections: set[Any] = server.state.connections
        connections.add(self)
        self._task = self._loop.create_task(self._shake_hands())
        if not make_room(connections, self, server.most):
            self.abort()

    async def _shake_hands(self) -> None:
        server, self._begun = self._server, True
        try:
            await self._loop.connect_accepted_socket(
                self._protocol,
                self._connection,
                ssl=server.context,
                ssl_handshake_timeout=server.seconds,
            )
        except OSError:  # another protocol, no common cipher, too slow, gone
            pass
        finally:
            self._leave()

    def _protocol(self) -> WatchedProtocol:
        protocol = self._server.make()
        protocol.replaces = self
        return protocol

    def _leave(self) -> None:
        connections: set[Any] = self._server.state.connections
        connections.discard(self)

    def abort(self) -> None:
        """Closes the connection without a word: there is no secret to say it in."""
        self._leave()
        self._task.cancel()
        if not self._begun:
            self._connection.close()

    def shutdown(self) -> None:
        """uvicorn's, of each connection when the server ends."""
        self.abort()
