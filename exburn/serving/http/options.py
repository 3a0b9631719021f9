"""The options of a server, checked."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from exburn.core.checks import (
    check_count,
    check_flag,
    check_integer,
    check_optional,
    check_text,
)
from exburn.errors import ArgumentError
from exburn.serving.http.limits import size_in_bytes
from exburn.serving.http.origins import texts
from exburn.serving.options import (
    Argument,
    ServingOptions,
    normalize,
    number_or_text,
    seconds,
)

_OP = "Server"
_NO_KEYS = "Without keys, api_keys=(), whoever reaches the port may ask."


def split_names(text: str) -> list[str]:
    """Names between commas.

    Example:
        >>> split_names("a.example, *.b.example")
        ['a.example', '*.b.example']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The options of a ``Server``, which tells what each of them is.

    Attributes:
        serving: Those of each ``Serving`` that it makes for a model.
    """

    host: Annotated[
        str,
        Argument("ADDRESS", "address to listen at (127.0.0.1: this machine alone)"),
    ]
    port: Annotated[int, Argument("N", "port to listen at (8000); 0: a free one", int)]
    api_keys: Iterable[str]
    max_body: Annotated[
        int, Argument("SIZE", 'most bytes of a body ("8 MB")', number_or_text)
    ]
    max_rows: Annotated[int | None, Argument("N", "most rows of a request (any)", int)]
    rate: Annotated[
        float | None,
        Argument("N", "requests per second of each key or address (any)", float),
    ]
    max_streams: Annotated[int, Argument("N", "answers in parts at once (16)", int)]
    max_connections: Annotated[
        int | None,
        Argument("N", "connections at once (1000, or half of the files)", int),
    ]
    max_memory: Annotated[
        int | None,
        Argument(
            "SIZE", "host memory for requests (half of what is free)", number_or_text
        ),
    ]
    timeout: Annotated[
        float, Argument("TIME", 'longest time for an answer ("2 s")', number_or_text)
    ]
    read_timeout: Annotated[
        float,
        Argument(
            "TIME", 'longest time for a request to arrive ("10 s")', number_or_text
        ),
    ]
    drain: Annotated[
        float,
        Argument("TIME", 'how long it goes on after SIGTERM ("20 s")', number_or_text),
    ]
    canary: Annotated[
        float,
        Argument(
            "TIME",
            'time within which a test batch must come back ("5 s")',
            number_or_text,
        ),
    ]
    allowed_hosts: Annotated[
        Iterable[str] | None,
        Argument("NAMES", "names it is asked under, between commas (its)", split_names),
    ]
    cors_origins: Annotated[
        Iterable[str] | None,
        Argument("ORIGINS", "pages from elsewhere that may ask (none)", split_names),
    ]
    ssl_certfile: Annotated[
        str | Path | None,
        Argument("FILE", "certificate for TLS, in PEM (none: no TLS)"),
    ]
    ssl_keyfile: Annotated[
        str | Path | None,
        Argument("FILE", "its private key (in the certificate's file)"),
    ]
    reuse_port: Annotated[
        bool,
        Argument(
            "", "other processes may listen at the port, too (they may not)", bool
        ),
    ]
    log_level: str
    serving: ServingOptions

    def __post_init__(self) -> None:
        if self.api_keys is None:  # an absent variable must not open the server
            raise ArgumentError(
                _OP, "api_keys must be a list of texts, received None", hint=_NO_KEYS
            )
        hour = {"most": 3600.0}
        normalize(
            self,
            host=check_text(_OP, "host", self.host),
            port=_check_port(self.port),
            log_level=_check_level(self.log_level),
            api_keys=texts("api_keys", self.api_keys),
            allowed_hosts=texts("allowed_hosts", self.allowed_hosts),
            cors_origins=texts("cors_origins", self.cors_origins),
            drain=seconds(_OP, "drain", self.drain),
            canary=seconds(_OP, "canary", self.canary, **hour),
            read_timeout=seconds(_OP, "read_timeout", self.read_timeout, **hour),
            timeout=seconds(_OP, "timeout", self.timeout, **hour),
            max_body=size_in_bytes(_OP, "max_body", self.max_body),
            max_rows=check_optional(check_count, _OP, "max_rows", self.max_rows),
            max_streams=check_count(_OP, "max_streams", self.max_streams),
            reuse_port=check_flag(_OP, "reuse_port", self.reuse_port),
        )
        check_optional(check_count, _OP, "max_connections", self.max_connections)
        if self.max_memory is not None:
            size = size_in_bytes(_OP, "max_memory", self.max_memory)
            normalize(self, max_memory=size)

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of a ``Server`` of these options."""
        own = {name: value for name, value in vars(self).items() if name != "serving"}
        return own | vars(self.serving)


def _check_port(port: Any) -> int:
    port = check_integer(_OP, "port", port)
    if not 0 <= port <= 65535:
        raise ArgumentError(_OP, f"port must be from 0 to 65535, received {port}")
    return port


def _check_level(level: Any) -> Any:
    """A level of Python's `logging`, by its name or number."""
    names = logging.getLevelNamesMapping()
    if isinstance(level, int) or isinstance(level, str) and level in names:
        return level
    raise ArgumentError(
        _OP, f"log_level is one of {', '.join(names)}, received {level!r}"
    )
