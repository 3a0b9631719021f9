"""Logs as lines of JSON, one for each request, with its id."""

from __future__ import annotations

import logging
import re
import secrets
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

import orjson

__all__ = ["JSONFormatter", "LOGGER", "log_to", "request_id"]

LOGGER = logging.getLogger("exburn.http")
_ID = re.compile(rb"[A-Za-z0-9._:/=+-]{1,128}")


def request_id(headers: Mapping[bytes, bytes]) -> str:
    """The id of a request: the one that it brings as ``X-Request-ID``, or a new one.

    Example:
        >>> request_id({b"x-request-id": b"42"})
        '42'
        >>> len(request_id({b"x-request-id": b"no id: " + bytes(3)}))
        16
    """
    given = headers.get(b"x-request-id")
    if given is not None and _ID.fullmatch(given):
        return given.decode()
    return secrets.token_hex(8)


class JSONFormatter(logging.Formatter):
    """Writes a record as one line of JSON.

    What a record was given as ``extra={"fields": {…}}`` stands beside its message.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        at = time.gmtime(record.created)
        line: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', at)}.{int(record.msecs):03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def log_to(stream: TextIO | None = None, level: str = "INFO") -> logging.Handler:
    """Writes the server's and uvicorn's logs to a stream, by default the errors'.

    Returns:
        The handler, for ``logging.Logger.removeHandler``.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JSONFormatter())
    for name in (LOGGER.name, "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False
    return handler
