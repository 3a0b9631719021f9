"""Which status a failure has, and what its caller is told."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator

from exburn.errors import (
    ArgumentError,
    BatchFailedError,
    DataError,
    DeadlineExceededError,
    DTypeError,
    QueueFullError,
    ServingClosedError,
    ShapeError,
    UnknownNameError,
)

__all__ = ["RequestFailure", "failure_of"]

# Of the caller: its message says what must hold, and names nothing of the server.
_OF_THE_CALLER = (ArgumentError, DataError, DTypeError, ShapeError, UnknownNameError)
_RETRY = {"retry-after": "1"}


class RequestFailure(Exception):
    """A request that is not answered, with its HTTP status.

    Args:
        status: The status.
        message: What the caller is told.
        headers: Further headers of the response.
    """

    def __init__(
        self, status: int, message: str, headers: dict[str, str] | None = None
    ):
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


def failure_of(error: BaseException) -> RequestFailure:
    """What the caller of a request is told about an error.

    Nothing of a fault inside of the server is told: the log has it, under the id of the
    request.

    Example:
        >>> failure_of(QueueFullError("serving", "4 requests wait")).status
        429
        >>> failure_of(ZeroDivisionError("secret")).message
        'the server failed; its log tells more under the id of this request'
    """
    if isinstance(error, RequestFailure):
        return error
    if isinstance(error, QueueFullError):
        return RequestFailure(429, "too many requests wait: try again later", _RETRY)
    if isinstance(error, DeadlineExceededError):
        return RequestFailure(504, "there was no answer within the time allowed")
    if isinstance(error, ServingClosedError):
        return RequestFailure(503, "the server is closing", _RETRY)
    if any(map(_is_lack_of_memory, _causes(error))):
        return RequestFailure(503, "there is no memory for this request now", _RETRY)
    if isinstance(error, BatchFailedError):
        return RequestFailure(
            500, "the model failed; the log tells more under the id of this request"
        )
    if isinstance(error, _OF_THE_CALLER):
        return RequestFailure(400, str(error))
    if isinstance(error, concurrent.futures.CancelledError):
        return RequestFailure(503, "the request was cancelled", _RETRY)
    return RequestFailure(
        500, "the server failed; its log tells more under the id of this request"
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _is_lack_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)[:200]
