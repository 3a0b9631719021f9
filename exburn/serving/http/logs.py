"""Logs, a line for each request: for people in a terminal, as JSON elsewhere."""

from __future__ import annotations

import logging
import re
import secrets
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

import orjson

from exburn.errors import printable

LOGGER = logging.getLogger("exburn.http")
_ID = re.compile(rb"[A-Za-z0-9._:/=+-]{1,128}")


def request_id(headers: Mapping[bytes, bytes]) -> str:
    """The id of a request: the one that it brings as ``X-Request-ID``, or a new one."""
    text = headers.get(b"x-request-id")
    if text is not None and _ID.fullmatch(text):
        return text.decode()
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


class TextFormatter(logging.Formatter):
    """Writes a record as a line for people, a request by what they ask of it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, with the traceback of an error below it."""
        fields = getattr(record, "fields", {})
        if {"method", "path", "status", "ms"} <= set(fields):
            text = "{method} {path}  {status}  {ms:.1f} ms".format(**fields)
            rows = fields.get("rows", 0)
            text += f"  {rows} row{'s' * (rows != 1)}" if rows else ""
        else:
            text = record.getMessage()
            if "reason" in fields:
                text += f": {fields['reason']}"
        if record.levelno >= logging.WARNING:
            text = f"{record.levelname}: {text}"
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{at} {printable(text)}"
        if record.exc_info and record.exc_info[0] is not None:
            traceback = self.formatException(record.exc_info).splitlines()
            line = "\n".join([line, *map(printable, traceback)])
        return line


def log_to(stream: TextIO | None = None, level: str = "INFO") -> logging.Handler:
    """Writes the server's and uvicorn's logs to a stream, by default the errors'.

    A terminal gets lines for people, and of uvicorn's only what went wrong; a pipe or a
    file gets JSON.

    Returns:
        The handler, for ``logging.Logger.removeHandler``.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    terminal = handler.stream.isatty()
    handler.setFormatter(TextFormatter() if terminal else JSONFormatter())
    for name in (LOGGER.name, "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False
    if terminal and logger.level < logging.WARNING:
        logger.setLevel(logging.WARNING)
    return handler
