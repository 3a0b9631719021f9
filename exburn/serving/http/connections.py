"""Connections that do nothing are closed, whatever they should be doing."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["WatchedProtocol"]


class WatchedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with a limit for how long a client may keep it waiting.

    uvicorn closes a connection that is idle behind an answer. One that never sends a
    request, or only half of its headers, it would keep for ever, and one that does not
    read its answer, with the answer.

    Attributes:
        seconds: For headers to arrive, and for a full buffer to be read.
    """

    seconds = 10.0
    _alarm: Any = None
    _unread: Any = None

    def connection_made(self, transport: Any) -> None:
        """A connection came: its first headers have so long."""
        super().connection_made(transport)
        self._watch()

    def on_message_begin(self) -> None:
        """The first bytes of a request came: the rest of its headers has so long."""
        super().on_message_begin()
        self._watch()

    def on_headers_complete(self) -> None:
        """The headers came."""
        self._unwatch()
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """The client has much to read: it has so long for it."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.seconds, self._abort)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._unread.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._unwatch()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        self._unwatch()
        self._alarm = self.loop.call_later(self.seconds, self._close)

    def _unwatch(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _abort(self) -> None:
        self.transport.abort()  # close() would wait for the client

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
