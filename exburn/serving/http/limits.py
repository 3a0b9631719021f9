"""Limits of callers: keys, rates, memory and connections."""

from __future__ import annotations

import hashlib
import hmac
import math
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Self

from exburn.core.checks import check_count, check_number
from exburn.errors import ArgumentError
from exburn.saving.shards import byte_count
from exburn.serving.http.failures import RequestFailure

_SHORTEST = 16  # characters of a key, so that nobody finds it by trying
_CONNECTIONS = 1000
_MOST_CALLERS = 10_000  # whose rates are known at once
# Memory that a byte of a body takes while it is read, in the worst case: Python's list
# of short numbers has 32 bytes for two, and one of empty lists 64 for three.
_TIMES = 24


def size_in_bytes(op: str, name: str, size: Any) -> int:
    """A number of bytes, from ``"8 MB"`` or a number.

    Example:
        >>> size_in_bytes("Server", "max_body", "8 MB")
        8000000
    """
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    try:
        if isinstance(size, str) and (count := byte_count(size, op)):
            return count
    except ArgumentError:
        pass
    raise ArgumentError(op, f"{name} must be a size such as '8 MB', received {size!r}")


def most_connections(op: str, count: int | None) -> int:
    """A greatest number of connections, by default one that leaves files to open.

    Example:
        >>> most_connections("Server", 50)
        50
    """
    if count is not None:
        return check_count(op, "max_connections", count)
    if sys.platform == "win32":  # sockets are no files
        return _CONNECTIONS
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _CONNECTIONS
    return min(_CONNECTIONS, max(files // 2, 1))


class ApiKeys:
    """The API keys of a server; without any, everybody may ask.

    A key comes as ``Authorization: Bearer <key>`` or ``X-API-Key: <key>``. Digests of
    equal length are compared in constant time, with all keys: how long that takes tells
    neither how much of a key is right nor which one it is.
    """

    def __init__(self, keys: Iterable[str]):
        keys = [keys] if isinstance(keys, str) else list(keys)
        for key in keys:
            fits = isinstance(key, str) and key.isascii() and len(key) >= _SHORTEST
            if not fits or key != key.strip():
                raise ArgumentError(
                    "Server",
                    f"an API key must have {_SHORTEST} ASCII characters or more",
                    hint="python -c 'import secrets; print(secrets.token_urlsafe(32))'",
                )
        self._digests = [_digest(key.encode()) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def check(self, headers: Mapping[bytes, bytes]) -> str:
        """Short name of the key that the headers hold; nothing of it can be told by it.

        Raises:
            RequestFailure: 401, it is none of ours.
        """
        key = headers.get(b"x-api-key")
        if key is None:
            scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer":
                key = b""
        digest, match = _digest(key.strip()), None
        for own in self._digests:
            if hmac.compare_digest(digest, own):
                match = own
        if match is None:
            raise RequestFailure(
                401, "a valid API key is needed", {"www-authenticate": "Bearer"}
            )
        return match.hex()[:8]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class Rate:
    """Requests per second of each caller: a token bucket each.

    Args:
        burst: Requests that may come at once; as many as come in a second by default.
    """

    def __init__(self, rate: float, burst: int | None = None):
        self.rate = float(check_number("Server", "rate", rate))
        if self.rate <= 0:
            raise ArgumentError("Server", f"rate must be above 0, received {rate}")
        self.burst = float(burst or max(math.ceil(self.rate), 1))
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> None:
        """Counts a request of a caller."""
        now = time.monotonic()
        tokens, at = self._buckets.pop(caller, (self.burst, now))
        tokens = min(self.burst, tokens + (now - at) * self.rate)
        allowed = tokens >= 1
        self._buckets[caller] = (tokens - allowed, now)
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        if not allowed:
            seconds = math.ceil((1 - tokens) / self.rate)
            raise RequestFailure(
                429,
                f"{self.rate:g} requests per second are allowed",
                {"retry-after": str(max(seconds, 1))},
            )


class RequestMemory:
    """Host memory for the requests that are under way."""

    def __init__(self, most: int):
        self.most, self.used = most, 0
        self._lock = threading.Lock()

    def reserve(self) -> Reservation:
        """The part of one request, to be used in a ``with`` block."""
        return Reservation(self)

    def change(self, size: int) -> None:
        """Takes memory, or gives some back.

        Raises:
            RequestFailure: 503, others have it; 413, there will never be so much.
        """
        if size > self.most:
            raise RequestFailure(413, "the request needs more memory than there is")
        with self._lock:
            if size > 0 and self.used + size > self.most:
                raise RequestFailure(
                    503,
                    "there is no memory for this request now",
                    {"retry-after": "1"},
                )
            self.used += size


class Reservation:
    """Memory of one request, which grows as its body comes.

    A thread that goes on with a request that is over gives back what it takes.
    """

    __slots__ = ("_memory", "_over", "_size")

    def __init__(self, memory: RequestMemory):
        self._memory, self._size, self._over = memory, 0, False

    def grow(self, body: int) -> None:
        """Keeps what the reading of further bytes of a body may take in the worst case.

        Raises:
            RequestFailure: 503, others have it; 413, there will never be so much.
        """
        self.take(body * _TIMES)

    def take(self, size: int) -> None:
        """Keeps so many bytes."""
        self._memory.change(size)
        self._size += size
        if self._over:
            self._give_back()

    def _give_back(self) -> None:
        size, self._size = self._size, 0
        self._memory.change(-size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._over = True
        self._give_back()
