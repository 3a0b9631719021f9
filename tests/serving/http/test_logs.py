import contextlib
import io
import json
import logging

import pytest

from exburn.serving.http.logs import (
    LOGGER,
    JSONFormatter,
    TextFormatter,
    log_to,
    request_id,
)


def test_ids_of_callers_are_taken_if_they_cannot_do_harm():
    assert request_id({b"x-request-id": b"a-1.b:2/c=="}) == "a-1.b:2/c=="
    ids = {request_id({b"x-request-id": bad}) for bad in (b"", b"a\nb", b"x" * 129)}
    assert len(ids) == 3 and all(len(id) == 16 for id in ids)


@contextlib.contextmanager
def logging_to(stream):
    uvicorn = logging.getLogger("uvicorn.error")
    before = uvicorn.handlers[:]
    handler = log_to(stream)
    try:
        yield handler
    finally:
        for logger in (LOGGER, uvicorn):
            logger.propagate = True
            logger.setLevel(logging.NOTSET)
        LOGGER.removeHandler(handler)
        uvicorn.handlers[:] = before


class Terminal(io.StringIO):
    def isatty(self):
        return True


REQUEST = {"method": "POST", "path": "/v2\x1b[2J", "status": 200, "ms": 1.23}


@pytest.mark.parametrize(
    ("message", "fields", "line"),
    [
        ("request", REQUEST | {"rows": 2}, "POST /v2\\x1b[2J  200  1.2 ms  2 rows"),
        ("request", REQUEST | {"rows": 1}, "POST /v2\\x1b[2J  200  1.2 ms  1 row"),
        ("refused", {"status": 400, "reason": "no request"}, "refused: no request"),
        ("Serving a at http://h", {"url": "http://h"}, "Serving a at http://h"),
    ],
)
def test_a_terminal_gets_lines_for_people(message, fields, line):
    stream = Terminal()
    with logging_to(stream) as handler:
        LOGGER.info(message, extra={"fields": fields})
        logging.getLogger("uvicorn.error").info("Waiting for application startup.")
    assert stream.getvalue()[8:] == f" {line}\n"
    assert isinstance(handler.formatter, TextFormatter)


def test_a_terminal_gets_the_traceback_of_a_failure():
    stream = Terminal()
    with logging_to(stream):
        try:
            raise ValueError("wrong")
        except ValueError:
            LOGGER.exception("a request failed")
    lines = stream.getvalue().splitlines()
    assert lines[0].endswith("ERROR: a request failed")
    assert lines[-1] == "ValueError: wrong"


def test_a_record_is_one_line_of_json():
    stream = io.StringIO()
    with logging_to(stream) as handler:
        LOGGER.info("two\nlines", extra={"fields": {"rows": 3, "other": {1, 2}}})
        try:
            raise ValueError("wrong")
        except ValueError:
            LOGGER.exception("failed")
        LOGGER.debug("left out")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["message"] == "two\nlines" and first["rows"] == 3
    assert first["time"].endswith("Z") and first["level"] == "INFO"
    assert "ValueError: wrong" in second["exception"]
    assert isinstance(handler.formatter, JSONFormatter)
