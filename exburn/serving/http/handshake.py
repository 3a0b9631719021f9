"""Connections that are in the handshake of TLS.

An event loop that accepts TLS by itself tells nobody of a connection before its
handshake is done: as many as a client opens would stay outside of any count. Here a
connection is taken as it comes, counted, and may have to make room, as any other.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Any

from uvicorn.server import ServerState

from exburn.serving.http.connections import WatchedProtocol, make_room
from exburn.serving.http.logs import LOGGER

__all__ = ["SecureServer"]

_PAUSE = 1.0  # seconds, where the system has no more files or memory
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class SecureServer:
    """Accepts connections of TLS, as the server of an event loop does.

    Args:
        listening: The socket.
        state: uvicorn's, whose connections are counted.
        context: Of TLS.
        make: Makes the protocol that goes on behind a handshake.
        seconds: How long a handshake may take.
        most: Connections that there may be.
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
    """A connection until its handshake is done.

    Args:
        server: What accepted it.
        connection: Its socket.
    """

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
