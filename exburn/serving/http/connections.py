"""Connections: what their clients may send, and how long these may take for it.

uvicorn parses whatever comes, and keeps whom it has. Here a request's head is counted
before it is parsed, a request waits unparsed while the one before it is answered, and
everything that a client can leave undone has a time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, Protocol, cast

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from exburn.serving.http.logs import LOGGER
from exburn.serving.http.origins import absolute_form

MOST_HEAD = 64 << 10  # bytes of a request line and its headers
MOST_LINES = 100  # headers
# A chunked body is parsed in pieces of so many bytes: what follows it waits unparsed,
# but for the rest of the piece that it ends in.
_PIECE = 2 << 10
_MOST_FRAMING = 64 << 10  # bytes of chunks' sizes and trailers beyond those of the body
_END_OF_HEAD = b"\r\n\r\n"
_LINGER = 2.0  # seconds that a client who is refused has to read why
_MOST_DISCARDED = 16 << 20


class HeadHolder:
    """A transport that sends the head of an answer together with its body.

    uvicorn writes one after the other, and so wakes the client twice: with 32 of them
    beside the server on two cores, answers took 10.4 ms instead of 8.3.

    Args:
        seconds: How long a client may take to read what was written before ``close``.
    """

    def __init__(
        self, transport: Any, loop: asyncio.AbstractEventLoop, seconds: float = 10.0
    ):
        self._transport, self._loop, self._head = transport, loop, b""
        self._seconds = seconds
        self._end: asyncio.TimerHandle | None = None
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Writes, or holds a head until the next write or the loop's next turn."""
        if self._transport.is_closing():  # where uvloop would raise
            return
        if self._head:
            head, self._head = self._head, b""
            self._transport.writelines((head, data))
        elif data.startswith(b"HTTP/1.1 ") and data.endswith(_END_OF_HEAD):
            self._head = data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Closes behind what was written, or when nobody reads that in time."""
        self._flush()
        self._transport.close()
        if self._end is None:
            self._end = self._loop.call_later(self._seconds, self._abort)

    def forget(self) -> None:
        """Waits no more: the connection is gone."""
        if self._end is not None:
            self._end.cancel()

    def _abort(self) -> None:
        self._transport.abort()

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._transport.write(head)


class Connection(Protocol):
    """A connection that can make room for another.

    Attributes:
        caller: The client's address.
        waiting_since: Since when the server waits for it; ``None`` while it waits for
            an answer.
    """

    waiting_since: float | None

    @property
    def caller(self) -> str: ...

    def abort(self) -> None: ...


def make_room(connections: set[Any], newcomer: Connection, most: int) -> bool:
    """Closes a connection if there are too many: another one takes its place.

    It is one of the address that has the most of them, the one that keeps the server
    waiting the longest.

    Returns:
        Whether there is room; there is none where all others wait for answers.
    """
    if len(connections) <= most:
        return True
    counts = Counter(other.caller for other in connections)
    slow = [
        (-counts[other.caller], other.waiting_since, id(other), other)
        for other in connections
        if other is not newcomer and other.waiting_since is not None
    ]
    if not slow:
        return False
    *_, slowest = min(slow)
    connections.discard(slowest)  # it is lost in a later turn of the loop
    slowest.abort()
    return True


class WatchedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits for what a client may send, and how slowly.

    uvicorn closes a connection that is idle behind an answer. One that never sends a
    request, or only half of one, it would keep for ever, and one that does not read its
    answer, with the answer.

    Attributes:
        seconds: For headers to arrive, and for a full buffer to be read.
        most: Connections. One more takes the place of another that keeps the server
            waiting: of the address with the most connections, the one that does so the
            longest. It is refused only while all of them wait for answers.
    """

    seconds = 10.0
    most = 1000
    waiting_since: float | None = 0.0  # None: for an answer
    replaces: Any = None  # what was counted for the connection until now
    _alarm: Any = None
    _unread: Any = None
    _refused = False
    _discarded = 0
    # Of the message that is parsed: whether all of it has come; whether its head has
    # not, of which so many bytes and lines have; what is left of a body of known length
    # (-1: chunked), and how much more framing than body the chunks have had.
    _complete = _in_head = True
    _head = _lines = _body_left = _framing = 0
    _tail = b""

    def connection_made(self, transport: Any) -> None:
        """A connection came: its first headers have so long."""
        self._backlog: list[bytes] = []  # what came while a request is being answered
        self.waiting_since = self.loop.time()
        self.connections.discard(self.replaces)
        super().connection_made(transport)
        self._holder = HeadHolder(transport, self.loop, self.seconds)
        self.transport = cast(asyncio.Transport, self._holder)
        self._watch()
        if not make_room(self.connections, self, self.most):
            self._refuse(503, "there are too many connections: try again later")

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._unwatch()
        self._holder.forget()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    # ------------------------------------------------------------------ what comes
    def data_received(self, data: bytes) -> None:
        """Parses what came, unless a request is being answered, which goes first."""
        if self._refused:
            self._discarded += len(data)
            if self._discarded > _MOST_DISCARDED:
                self.abort()
            return
        self._unset_keepalive_if_required()
        if self._backlog:
            self._hold(data)
        else:
            self._parse(data)

    def eof_received(self) -> None:
        """The client sends nothing more: it has left, or says only half of a request.

        Which of the two cannot be known. To be told about half a request harms nobody.
        """
        if not self._complete or self._head:
            self._refuse(400, "the request was cut off")

    def _parse(self, data: bytes) -> None:
        """Parses one part of a message after the other, each within its limits."""
        view, at = memoryview(data), 0
        if self._in_head and self._alarm is None:
            self._watch()  # also if it is no more than an empty line
        while at < len(data) and not (self._refused or self.transport.is_closing()):
            if self._complete and self._is_answering():
                self._hold(data[at:])
                return
            size = self._next_size(data, at)
            if size:
                at += self._feed(view[at : at + size])

    def _next_size(self, data: bytes, at: int) -> int:
        """Bytes of what is to be parsed next; 0 where a limit is passed."""
        left = len(data) - at
        if not self._in_head:
            return min(left, _PIECE if self._body_left < 0 else self._body_left or left)
        size = self._head_size(data, at)
        self._head += size
        self._lines += data.count(b"\n", at, at + size)
        self._tail = (self._tail + data[max(at, at + size - 3) : at + size])[-3:]
        # Also counted: the request line, and the empty one at the end.
        if self._head > MOST_HEAD or self._lines > MOST_LINES + 2:
            message = f"a request may have {MOST_LINES} headers, of {MOST_HEAD} bytes"
            self._refuse(431, message)
            return 0
        return size

    def _head_size(self, data: bytes, at: int) -> int:
        """Bytes up to the end of the head, which may have begun in what came before."""
        before = len(self._tail)
        end = (self._tail + data[at : at + 3]).find(_END_OF_HEAD)
        if end >= 0:
            return end + len(_END_OF_HEAD) - before
        end = data.find(_END_OF_HEAD, at)
        return (len(data) if end < 0 else end + len(_END_OF_HEAD)) - at

    def _feed(self, part: memoryview) -> int:
        """Gives the parser a part, and returns how much of it was taken."""
        chunked = not self._in_head and self._body_left < 0
        try:
            self.parser.feed_data(part)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._complete:
                self._read_body_anyway()
            return upgrade.args[0]
        except httptools.HttpParserError:
            if not self._refused:  # by a callback, which stops the parser by raising
                self._refuse(400, "this is no request of HTTP/1.1")
        if chunked:
            self._framing += len(part)
            if self._framing > _MOST_FRAMING:
                self._refuse(400, "the chunks of the body add more than they hold")
        return len(part)

    def _read_body_anyway(self) -> None:
        """Goes on with a request that would rather change to another protocol.

        The server answers it as it is, and the parser leaves its body to the protocol.
        Java's client asks so for HTTP/2 by every request, with a body, too.
        """
        chunked, length = b"transfer-encoding: chunked", b"content-length: %d"
        how = chunked if self._body_left < 0 else length % self._body_left
        rest = SimpleNamespace(
            on_body=self.on_body, on_message_complete=self.on_message_complete
        )
        self.parser = httptools.HttpRequestParser(rest)
        self.parser.feed_data(b"POST / HTTP/1.1\r\n" + how + _END_OF_HEAD)
        self.cycle.keep_alive = False

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _hold(self, data: bytes) -> None:
        self._backlog.append(data)
        self.flow.pause_reading()

    # ------------------------------------------------------------------ the parser's
    def on_message_begin(self) -> None:
        """The first bytes of a request came: the rest of its headers has so long."""
        super().on_message_begin()
        self._complete = False
        self._watch()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. Trailers are left out: they must not pass for headers."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The headers came."""
        self._unwatch()
        self._in_head, self._head, self._lines, self._tail = False, 0, 0, b""
        self._framing = 0
        self._check_head()
        super().on_headers_complete()

    def _check_head(self) -> None:
        """Reads how the body comes, and for whom the request is."""
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise self._refusal(505, "this server speaks HTTP/1.1")
        names = [name for name, _ in self.headers]
        values = dict(self.headers)
        self._body_left = int(values.get(b"content-length", b"0"))
        if b"transfer-encoding" in values:
            self._body_left = -1
            chunked = values[b"transfer-encoding"].strip().lower() == b"chunked"
            if not chunked or names.count(b"transfer-encoding") > 1 or version == "1.0":
                message = "a body may come with Transfer-Encoding: chunked, no other"
                raise self._refusal(400, message)
        if names.count(b"host") != 1:
            raise self._refusal(400, "a request has one header Host")
        if self.url.startswith(b"/"):
            return
        target = absolute_form(self.url)  # as proxies are asked
        if target is not None:
            host, self.url = target  # which counts more than the header
            at = names.index(b"host")
            self.headers[at] = (b"host", host)
        elif (self.url, self.parser.get_method()) != (b"*", b"OPTIONS"):
            raise self._refusal(400, "a request is for a path, or for a URL")

    def on_body(self, body: bytes) -> None:
        """A part of a body came."""
        if self._body_left > 0:
            self._body_left -= len(body)
        else:  # chunked: as much framing as body is usual, where chunks are short
            self._framing = max(self._framing - 2 * len(body), 0)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of a request came."""
        if self._body_left and self.parser.should_upgrade():
            return  # see _read_body_anyway
        self._complete = self._in_head = True
        self.waiting_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer is written; what waited behind it is parsed."""
        super().on_response_complete()
        self.waiting_since = self.loop.time()
        if self.transport.is_closing():
            return
        unread = self.cycle.response_complete and self.cycle.more_body
        if unread or self._refused:
            self._close()  # the rest of its request would be in the way of the next
        elif self._backlog and not self._is_answering():
            self._unset_keepalive_if_required()
            data, self._backlog = b"".join(self._backlog), []
            self._parse(data)

    # ------------------------------------------------------------------ refusals
    def _refusal(self, status: int, message: str) -> httptools.HttpParserError:
        self._refuse(status, message)
        return httptools.HttpParserError(message)

    def _refuse(self, status: int, message: str) -> None:
        """Answers what is no request, and listens no more."""
        if self._refused:
            return
        self._refused, self.waiting_since = True, 0.0  # the first to make room
        self._unwatch()
        cycle = self.cycle if self._is_answering() else None
        fields = {"status": status, "reason": message, "caller": self.caller}
        LOGGER.info("refused", extra={"fields": fields})
        if self.pipeline:  # an earlier request is being answered, which is the last
            self.pipeline.clear()
            return
        if cycle is not None and not cycle.more_body:
            cycle.keep_alive = False  # its answer comes first, and is the last
            return
        if cycle is not None:
            if cycle.response_started:
                self._close()
                return
            cycle.disconnected = True
            cycle.message_event.set()
        body = orjson.dumps({"error": message})
        head = (
            b"content-type: application/json\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n" % len(body)
        )
        self.transport.write(STATUS_LINE[status] + head + body)
        # To close now would reset the connection of a client that still sends, which
        # would then not read this.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._alarm = self.loop.call_later(_LINGER, self._close)

    @property
    def caller(self) -> str:
        """The client's address."""
        return self.client[0] if self.client else ""

    # ------------------------------------------------------------------ times
    def pause_writing(self) -> None:
        """The client has much to read: it has so long for it."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.seconds, self.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._unread.cancel()

    def _watch(self) -> None:
        self._unwatch()
        self._alarm = self.loop.call_later(self.seconds, self._end_waiting)

    def _unwatch(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _end_waiting(self) -> None:
        if self._head:
            self._refuse(408, f"the headers took longer than {self.seconds:g} seconds")
        else:
            self._close()

    def abort(self) -> None:
        """Closes the connection at once."""
        self.transport.abort()  # close() would wait for the client

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
