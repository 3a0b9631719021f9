import asyncio
import json
import time

import numpy as np
import pytest
from tests.serving.conftest import Gate
from tests.serving.http.conftest import FAST, tensor

from exburn.errors import BatchFailedError, DeadlineExceededError, ServingClosedError
from exburn.serving.http.body import ClientLeft
from exburn.serving.http.inference import Inference
from exburn.serving.http.limits import RequestMemory
from exburn.serving.http.registry import Registry
from exburn.serving.options import ServingOptions

EXAMPLE = np.zeros((1, 1), np.float32)
OPTIONS = {**FAST, "batch_timeout": 0, "example": EXAMPLE}


def inference(model, timeout=5.0, **options):
    models = Registry(ServingOptions(**{**OPTIONS, **options}))
    models.load("m", model)
    limits = {"max_body": 1 << 24, "max_rows": None, "read_timeout": 5.0}
    return models, Inference(models, RequestMemory(1 << 32), timeout=timeout, **limits)


def ask(asked, x, *, leaves=None, **message):
    """A coroutine that asks for the values of x, and may leave before the answer."""
    body = json.dumps({"inputs": [tensor("x", x)], **message}).encode()
    messages = [{"type": "http.request", "body": body}]

    async def receive():
        if messages:
            return messages.pop()
        await (leaves or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def run():
        result = await asked.answer("m", None, {}, receive)
        data = json.loads(result.body)["outputs"][0]["data"]
        return np.array(data).reshape(np.shape(x))

    return run()


def test_small_and_large_requests_are_answered():
    models, asked = inference(lambda x: 2 * x)
    for count in (1, 20_000):  # the second is read and written by a thread
        x = np.arange(count)[:, None]
        np.testing.assert_array_equal(asyncio.run(ask(asked, x)), 2 * x)
    models.close(5)


def test_a_client_that_leaves_takes_its_request_back(gate):
    models, asked = inference(gate, batch_size=1, padding=[1])
    serving = models.get("m").serving

    async def run():
        leaves = asyncio.Event()
        task = asyncio.create_task(ask(asked, [[3.0]], leaves=leaves))
        await asyncio.sleep(0.05)
        assert serving.status()["queue_depth"] == 1
        leaves.set()
        with pytest.raises(ClientLeft):
            await task

    gate.block(serving)
    asyncio.run(run())
    gate.open.set()
    gate.held.result(10)
    models.close(5)
    assert [3.0] not in gate.batches
    assert serving.statistics().requests["cancelled"] == 1


def test_deadlines_are_the_shorter_of_both(gate):
    models, asked = inference(gate, batch_size=1, padding=[1], timeout=30)
    gate.block(models.get("m").serving)
    began = time.monotonic()
    with pytest.raises(DeadlineExceededError):
        asyncio.run(ask(asked, [[1.0]], parameters={"timeout": 50_000}))
    assert time.monotonic() - began < 5
    gate.open.set()
    models.close(5)


def test_a_failed_batch_is_that_of_its_callers_alone():
    models, asked = inference(Gate(), batch_size=1, padding=[1])

    async def run():
        values = [ask(asked, [[float(i)]]) for i in (1, -1, 2, -1, 3)]
        return await asyncio.gather(*values, return_exceptions=True)

    results = asyncio.run(run())
    assert [isinstance(r, BatchFailedError) for r in results] == [0, 1, 0, 1, 0]
    assert [float(r[0, 0]) for r in results[::2]] == [2, 4, 6]
    models.close(5)


def test_a_request_that_meets_a_closing_model_goes_to_the_next():
    models, asked = inference(lambda x: x)
    before = models.get("m")
    found = models.get
    models.get = lambda *names: before  # as it was before the other came
    models.load("m", lambda x: 2 * x)
    assert before.serving.closed
    answers = iter([before, before])
    models.get = lambda *names: next(answers, None) or found(*names)
    assert asyncio.run(ask(asked, [[4.0]])).tolist() == [[8.0]]
    models.close(5)
    models.get = found
    with pytest.raises(ServingClosedError):
        asyncio.run(ask(asked, [[4.0]]))
