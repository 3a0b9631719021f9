"""Checks of the headers ``Host`` and ``Origin``: whom a browser asks, for which page.

A browser sends requests for whatever page is open in it, also to servers that only its
own machine can reach. A page from elsewhere may post to them, and one whose name its
owner lets point to 127.0.0.1 (DNS rebinding) could even read the answers. Both are told
by what the browser says of them, which no page can change.

Source: Fetch Standard, *HTTP extensions* (CORS); RFC 9110, 7.2.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from typing import Any

from exburn.errors import ArgumentError
from exburn.serving.http.failures import RequestFailure

_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._~-]+)(?::([0-9]{0,5}))?")
_NAME = re.compile(r"(\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*)\.?")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@*\s]+|null|\*")
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]*)([^#]*)", re.DOTALL)
_ASKED = b"access-control-request-method"
_ALLOWED = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "authorization, content-encoding, content-type, "
    "inference-header-content-length, traceparent, tracestate, x-api-key, x-request-id",
    "access-control-max-age": "600",
}
_EXPOSED = b"inference-header-content-length, retry-after, x-request-id"
_VARIES = ((b"vary", b"Origin"),)

Headers = list[tuple[bytes, bytes]]


def absolute_form(target: bytes) -> tuple[bytes, bytes] | None:
    """Host and path of a request's target that is a URL; ``None`` for another."""
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        return None
    host, path = match.groups()
    return host, path if path.startswith(b"/") else b"/" + path


class Hosts:
    """The names under which a server is asked.

    A connection that comes to a loopback address may name this one, others any address:
    an address needs nobody's name server. Both may name this machine.

    Args:
        allowed: Further names; ``"*.example.com"`` stands for all below a domain, and
            ``"*"`` for any name.
    """

    def __init__(self, host: str, allowed: Iterable[str] = ()):
        self._names = {"localhost", _plain(host), _plain(socket.gethostname())}
        self._domains: tuple[str, ...] = ()
        for name in texts("allowed_hosts", allowed):
            plain = _plain(name)
            if _address(plain) is None and not _NAME.fullmatch(plain):
                raise ArgumentError(
                    "Server",
                    "each of allowed_hosts must be a name without scheme and port, "
                    f"received {name!r}",
                    hint='allowed_hosts=["models.example.com", "*.example.org"]',
                )
            if plain.startswith("*"):
                self._domains += (plain[1:],)
            self._names.add(plain)

    def check(self, headers: Headers, server: Any = None) -> None:
        """Refuses what is asked under another name.

        Args:
            headers: The request's. Without a ``Host``, no browser has sent it.
        """
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) > 1:
            raise RequestFailure(400, "a request has one header Host")
        if not hosts:
            return
        match = _AUTHORITY.fullmatch(hosts[0].decode("latin-1").strip().lower())
        if match is None or int(match[2] or 0) > 65535:
            raise RequestFailure(400, "the header Host must be a name, or name:port")
        name = _plain(match[1])
        if name not in self._names and not name.endswith(self._domains):
            own = _plain(server[0]) if server and server[0] else ""
            if name != own and not _is_address_of(name, own):
                raise RequestFailure(
                    400,
                    f"this server is not asked as {name[:100]!r}: who runs it may "
                    "allow that by allowed_hosts",
                )


def _plain(host: str) -> str:
    """A host in lower case, without brackets and the dot of the root."""
    host = host.strip().lower()
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host.removesuffix(".")


def _address(host: str) -> Any:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _is_address_of(name: str, own: str) -> bool:
    """Tells whether a host is an address that a connection to another may name."""
    address, bound = _address(name), _address(own)
    if address is None:
        return False
    return bound is None or address.is_loopback or not bound.is_loopback


class Origins:
    """The pages that may ask a server: its own, and those of some other origins.

    Args:
        allowed: Origins as browsers write them, ``"https://app.example.com"``; ``"*"``
            for all pages, ``"null"`` for those without an origin, as files.
    """

    def __init__(self, allowed: Iterable[str] = ()):
        self._allowed: set[bytes] = set()
        for origin in texts("cors_origins", allowed):
            plain = origin.lower().removesuffix("/")
            if not _ORIGIN.fullmatch(plain):
                raise ArgumentError(
                    "Server",
                    "each of cors_origins must be a scheme and a host, with a port if "
                    f"it is not the scheme's, received {origin!r}",
                    hint='cors_origins=["https://app.example.com"], or ["*"]',
                )
            self._allowed.add(plain.encode())

    def check(self, headers: Mapping[bytes, bytes]) -> Headers:
        """The headers by which a browser lets a page from elsewhere read the answer."""
        origin = headers.get(b"origin")
        if origin is None:
            return list(_VARIES) if self._allowed else []
        plain = origin.strip().lower()
        any_origin = b"*" in self._allowed
        if not (any_origin or plain in self._allowed):
            if plain.partition(b"://")[2] == headers.get(b"host", b"").strip().lower():
                return []  # a page of this server
            raise RequestFailure(
                403,
                f"pages of {origin[:100].decode('latin-1')!r} may not ask this server: "
                "who runs it may allow that by cors_origins",
            )
        return [
            (b"access-control-allow-origin", b"*" if any_origin else origin),
            (b"access-control-expose-headers", _EXPOSED),
            *_VARIES,
        ]

    @staticmethod
    def preflight(method: str, headers: Mapping[bytes, bytes]) -> Headers | None:
        """The answer to a browser that asks beforehand what it may; ``None`` else."""
        if method != "OPTIONS" or _ASKED not in headers or b"origin" not in headers:
            return None
        return [(name.encode(), value.encode()) for name, value in _ALLOWED.items()]


def texts(option: str, values: Iterable[str] | None) -> list[str]:
    """An option that is a list of texts, or one text, or none.

    Example:
        >>> texts("allowed_hosts", "models.example.com")
        ['models.example.com']
    """
    if values is None:
        return []
    several = not isinstance(values, str) and isinstance(values, Iterable)
    items: list[Any] = list(values) if several else [values]
    if not all(isinstance(text, str) for text in items):
        raise ArgumentError(
            "Server", f"{option} must be a list of texts, received {values!r}"
        )
    return items
