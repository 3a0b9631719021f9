import io
import json
import logging

from exburn.serving.http.logs import LOGGER, JSONFormatter, log_to, request_id


def test_ids_of_callers_are_taken_if_they_cannot_do_harm():
    assert request_id({b"x-request-id": b"a-1.b:2/c=="}) == "a-1.b:2/c=="
    ids = {request_id({b"x-request-id": bad}) for bad in (b"", b"a\nb", b"x" * 129)}
    assert len(ids) == 3 and all(len(id) == 16 for id in ids)


def test_a_record_is_one_line_of_json():
    stream = io.StringIO()
    before = logging.getLogger("uvicorn.error").handlers[:]
    handler = log_to(stream)
    try:
        LOGGER.info("two\nlines", extra={"fields": {"rows": 3, "other": {1, 2}}})
        try:
            raise ValueError("wrong")
        except ValueError:
            LOGGER.exception("failed")
        LOGGER.debug("left out")
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.propagate = True
        LOGGER.setLevel(logging.NOTSET)
        uvicorn = logging.getLogger("uvicorn.error")
        uvicorn.handlers[:], uvicorn.propagate = before, True
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["message"] == "two\nlines" and first["rows"] == 3
    assert first["time"].endswith("Z") and first["level"] == "INFO"
    assert "ValueError: wrong" in second["exception"]
    assert isinstance(handler.formatter, JSONFormatter)
