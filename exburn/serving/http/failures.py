"""The status of a failure, and the message for its caller."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from typing import Any

from exburn.errors import (
    ArgumentError,
    BatchFailedError,
    BusyError,
    DataError,
    DeadlineExceededError,
    DTypeError,
    ExBurnError,
    QueueFullError,
    ServingClosedError,
    ShapeError,
    UnknownNameError,
)
from exburn.errors.boundary import raised_in

# Of the caller, where one of these operations raises them: they look at requests.
_OF_THE_CALLER = (ArgumentError, DataError, DTypeError, ShapeError, UnknownNameError)
_OF_REQUESTS = ("serving", "generate", "generate_stream")
_OF_THE_MODEL = ("layer",)  # details that tell of its code
_LONGEST = 1000  # characters of a message
_RETRY = {"retry-after": "1"}


class RequestFailure(Exception):
    """A request that is not answered, with its HTTP status.

    Args:
        message: What the caller is told; a long one is cut off.
        param: The entry of the request that it is about.
        code: A word for programs, by which OpenAI's clients tell failures apart.
    """

    def __init__(
        self,
        status: int,
        message: str,
        headers: dict[str, str] | None = None,
        *,
        param: str | None = None,
        code: str | None = None,
    ):
        self.param, self.code = param, code
        if len(message) > _LONGEST:  # some tell what was received
            message = message[: _LONGEST - 1] + "…"
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


def failure_of(error: BaseException) -> RequestFailure:
    """The failure that the caller of a request is told about an error.

    Nothing of a fault inside of the server is told: the log has it, under the id of the
    request. Nor are hints, which are for who writes programs, and what layers say of
    themselves. A ``DataError`` that a function of the user's raises is told as it is.
    """
    if isinstance(error, RequestFailure):
        return error
    if isinstance(error, QueueFullError):
        return RequestFailure(429, "too many requests wait: try again later", _RETRY)
    if isinstance(error, DeadlineExceededError):
        return RequestFailure(504, "there was no answer within the time allowed")
    if isinstance(error, ServingClosedError):
        return RequestFailure(503, "the server is closing", _RETRY)
    if isinstance(error, BusyError):
        return RequestFailure(503, "the model is being trained", _RETRY)
    if any(map(_is_lack_of_memory, _causes(error))):
        return RequestFailure(503, "there is no memory for this request now", _RETRY)
    if isinstance(error, BatchFailedError):
        return RequestFailure(
            500, "the model failed; the log tells more under the id of this request"
        )
    if isinstance(error, _OF_THE_CALLER) and error.op in _OF_REQUESTS:
        return RequestFailure(400, _message_of(error.reason, error))
    if isinstance(error, DataError):
        if _is_raised_here(error):
            reason = "the model takes no such value as there is in an input"
            return RequestFailure(400, _message_of(reason, error))
        return RequestFailure(400, str(error))
    if isinstance(error, concurrent.futures.CancelledError):
        return RequestFailure(503, "the request was cancelled", _RETRY)
    return RequestFailure(
        500, "the server failed; its log tells more under the id of this request"
    )


_TYPES = {
    401: ("authentication_error", "invalid_api_key"),
    403: ("permission_error", None),
    404: ("not_found_error", "not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("service_unavailable_error", None),
    504: ("timeout_error", "timeout"),
}


def describe_failure(failure: RequestFailure) -> dict[str, Any]:
    """A failure in the form that OpenAI's clients read.

    Example:
        >>> describe_failure(RequestFailure(404, "none"))["error"]["type"]
        'not_found_error'
    """
    general = "server_error" if failure.status >= 500 else "invalid_request_error"
    kind, code = _TYPES.get(failure.status, (general, None))
    return {
        "error": {
            "message": failure.message,
            "type": kind,
            "param": failure.param,
            "code": failure.code or code,
        }
    }


def _message_of(reason: str, error: ExBurnError) -> str:
    details = error.details.items()
    lines = (f"{k}: {str(v)[:200]}" for k, v in details if k not in _OF_THE_MODEL)
    return "\n  ".join([reason, *lines])


def _is_raised_here(error: BaseException) -> bool:
    """Tells whether ExBurn raised an error, not a function of the user's."""
    return raised_in(error).partition(".")[0] == "exburn"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _is_lack_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)[:200]
