import concurrent.futures

import numpy as np
import pytest

from exburn import errors, layers
from exburn.serving.http.failures import RequestFailure, failure_of


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.ShapeError("serving", "shape"), 400),
        (errors.DataError("serving", "NaN"), 400),
        (errors.DataError("serving", "id", {"layer": "secret"}, hint="secret"), 400),
        (errors.ArgumentError("generate_stream", "top_k", hint="secret"), 400),
        (errors.UnknownNameError("reshape", "secret"), 500),
        (errors.ShapeError("dense", "secret"), 500),
        (errors.QueueFullError("serving", "full"), 429),
        (errors.DeadlineExceededError("serving", "late"), 504),
        (errors.ServingClosedError("serving", "closed"), 503),
        (errors.BatchFailedError("serving", "secret"), 500),
        (errors.OutOfMemoryError("serving", "secret"), 503),
        (MemoryError("secret"), 503),
        (concurrent.futures.CancelledError(), 503),
        (ValueError("secret"), 500),
        (RequestFailure(418, "teapot"), 418),
    ],
)
def test_each_error_has_its_status_and_tells_nothing_of_the_server(error, status):
    failure = failure_of(error)
    assert failure.status == status
    assert "secret" not in failure.message
    assert (status in (429, 503)) == ("retry-after" in failure.headers)


def test_a_batch_that_ran_out_of_memory_is_no_fault_of_the_model():
    error = errors.BatchFailedError("serving", "failed")
    error.__cause__ = RuntimeError("RESOURCE_EXHAUSTED: Out of memory")
    assert failure_of(error).status == 503


def test_a_users_own_data_error_is_told_as_it_is():
    def count():
        raise errors.DataError("count", "words are needed", hint="Say how many.")

    with pytest.raises(errors.DataError) as caught:
        count()
    failure = failure_of(caught.value)
    assert failure.status == 400 and failure.message == str(caught.value)


def test_what_a_layer_says_of_itself_is_not_told():
    lookup = layers.StringLookup(vocabulary=["a"], num_oov_indices=0)
    with pytest.raises(errors.DataError, match="num_oov_indices") as caught:
        lookup(np.array(["b"]))
    failure = failure_of(caught.value)
    assert failure.status == 400 and "num_oov" not in failure.message
    assert failure.message.endswith("first other: 'b'")


def test_what_was_received_does_not_come_back_at_length():
    failure = failure_of(errors.DataError("serving", "received " + "x" * 100_000))
    assert len(failure.message) == 1000 and failure.message.endswith("…")
