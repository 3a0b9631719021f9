"""Requests that come one after the other, and answers as they come."""

import asyncio
import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest

from exburn import Serving
from exburn.errors import ArgumentError, ShapeError


@pytest.fixture(scope="module")
def square():
    options = {"batch_size": 4, "batch_timeout": 0.0, "example": np.zeros((1, 2))}
    with Serving(jnp.square, **options) as serving:
        yield serving


def requests(count, seed=0):
    rng = np.random.default_rng(seed)
    return [
        rng.random((int(rng.integers(1, 9)), 2), np.float32) for _ in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("ahead", [None, 1, 50])
def test_a_stream_answers_in_order(square, ahead):
    sent = requests(20)
    answers = list(square.stream(iter(sent), ahead=ahead))
    assert len(answers) == 20
    for x, answer in zip(sent, answers, strict=True):
        np.testing.assert_array_equal(answer, x**2)


def test_concurrent_streams_are_all_answered(square):
    """Nx #1511: of concurrent streams, some requests were dropped and never ended."""
    failures, done = [], []

    def work(seed):
        sent = requests(25, seed)
        for x, answer in zip(sent, square.stream(sent), strict=True):
            if not np.array_equal(answer, x**2):
                failures.append(seed)
        done.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(done) == list(range(8)) and not failures


def test_the_source_is_drawn_from_as_answers_are_taken(square):
    drawn = []

    def source():
        for i in range(100):
            drawn.append(i)
            yield np.full((1, 2), i, np.float32)

    stream = square.stream(source(), ahead=3)
    assert next(stream)[0, 0] == 0
    assert len(drawn) <= 3
    stream.close()
    assert len(drawn) <= 3


def test_one_large_request_comes_in_parts(square):
    x = np.arange(18, dtype=np.float32).reshape(9, 2)
    parts = list(square.batches(x))
    assert [len(part) for part in parts] == [4, 4, 1]
    np.testing.assert_array_equal(np.concatenate(parts), x**2)


def test_a_bad_request_ends_its_stream(square):
    stream = square.stream([np.ones((1, 2)), np.ones((1, 3)), np.ones((1, 2))], ahead=1)
    assert next(stream).shape == (1, 2)
    with pytest.raises(ShapeError):
        list(stream)
    assert square(np.ones((1, 2))).shape == (1, 2)
    with pytest.raises(ArgumentError, match="batches"):
        square.stream(np.ones((3, 2)))


def test_a_stream_waits_for_itself_when_the_queue_is_full(gate):
    options = {"batch_size": 1, "batch_timeout": 0.0, "max_queue": 1}
    with Serving(gate, example=gate.row(0), **options) as serving:
        sent = [gate.row(float(v)) for v in range(1, 20)]
        answers = [a.item() for a in serving.stream(sent, ahead=10)]
        assert answers == [2.0 * v for v in range(1, 20)]

        async def collect():
            return [a.item() async for a in serving.astream(sent, ahead=10)]

        assert asyncio.run(collect()) == answers


def test_streams_of_coroutines(square):
    sent = requests(12)

    async def source():
        for x in sent:
            await asyncio.sleep(0)
            yield x

    async def collect(items):
        return [answer async for answer in square.astream(items)]

    async def both():
        return await asyncio.gather(collect(source()), collect(sent))

    for answers in asyncio.run(both()):
        for x, answer in zip(sent, answers, strict=True):
            np.testing.assert_array_equal(answer, x**2)

    async def first():
        answers = square.astream(source())
        async for answer in answers:
            await answers.aclose()
            return answer

    np.testing.assert_array_equal(asyncio.run(first()), sent[0] ** 2)
    with pytest.raises(ShapeError):
        asyncio.run(collect([np.ones((1, 3))]))


def test_answers_come_while_the_source_is_slow(square):
    async def slow():
        yield np.ones((1, 2), np.float32)
        await asyncio.sleep(0.6)
        yield np.ones((1, 2), np.float32)

    async def times():
        began, seen = time.monotonic(), []
        async for _ in square.astream(slow()):
            seen.append(time.monotonic() - began)
        return seen

    first, second = asyncio.run(times())
    assert first < 0.5 < second
