"""Many callers at once, some of them bad: every one gets exactly its own answer."""

import asyncio
import random
import threading
from collections import Counter

import jax
import numpy as np
import pytest

from exburn import Serving
from exburn.errors import (
    DataError,
    DeadlineExceededError,
    DTypeError,
    QueueFullError,
    ServingClosedError,
    ShapeError,
)

POOL = 400  # rows that requests are cut from
THREADS, COROUTINES = 64, 256

BAD = [
    (lambda x: x[:, :5], ShapeError),
    (lambda x: np.where(np.arange(8) == 3, np.nan, x), DataError),
    (lambda x: x.astype(str), DTypeError),
    (lambda x: x[:0], DataError),
    (lambda x: {"a": x, "b": x}, DataError),
]


class Compilations:
    """Counts what JAX traces and compiles, anywhere in the process."""

    def __init__(self):
        self.seen: Counter[str] = Counter()
        self.on = False

    def note(self, event: str, duration: float, **_) -> None:
        if self.on and ("trace" in event or "compile" in event):
            self.seen[event] += 1


@pytest.fixture(scope="module")
def compilations():
    compilations = Compilations()
    jax.monitoring.register_event_duration_secs_listener(compilations.note)
    yield compilations
    jax.monitoring.unregister_event_duration_listener(compilations.note)


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_answer_is_lost_or_mixed_up(mlp, compilations, count):
    rng = np.random.default_rng(0)
    pool = rng.standard_normal((POOL, 8)).astype(np.float32)
    expected = mlp.predict(pool, verbose=0)
    outcomes: Counter[str] = Counter()
    lock = threading.Lock()

    def request(i):
        """The i-th request, the rows it is cut from, and the error it deserves."""
        rng = random.Random(i)
        rows = 1 if rng.random() < 0.3 else rng.randint(1, 80)
        start = rng.randint(0, POOL - rows)
        x = pool[start : start + rows]
        if rng.random() < 0.05:
            spoil, error = rng.choice(BAD)
            return spoil(x), None, error
        return x, expected[start : start + rows], None

    def judge(answer, right, error):
        if error is not None:
            good = type(answer) is error
        else:
            good = isinstance(answer, np.ndarray) and answer.shape == right.shape
            good = good and np.allclose(answer, right, rtol=2e-5, atol=2e-6)
        with lock:
            kind = "good" if error is None else "bad"
            outcomes[f"{kind} {'right' if good else 'WRONG'}"] += 1

    def by_thread(numbers):
        for i in numbers:
            x, right, error = request(i)
            try:
                answer = serving.submit(x).result() if i % 3 == 0 else serving(x)
            except Exception as raised:
                answer = raised
            judge(answer, right, error)

    async def by_coroutine(numbers):
        for i in numbers:
            x, right, error = request(i)
            try:
                answer = await serving.arun(x, timeout=60)
            except Exception as raised:
                answer = raised
            judge(answer, right, error)

    async def coroutines():
        numbers = range(count // 2, count)
        shares = (numbers[i::COROUTINES] for i in range(COROUTINES))
        await asyncio.gather(*map(by_coroutine, shares))

    options = {"batch_size": 32, "batch_timeout": "2 ms", "check_numerics": True}
    with Serving(mlp, **options) as serving:
        traces = serving.trace_counts
        compilations.on, compilations.seen = True, Counter()
        threads = [
            threading.Thread(target=by_thread, args=(range(i, count // 2, THREADS),))
            for i in range(THREADS)
        ]
        threads.append(threading.Thread(target=lambda: asyncio.run(coroutines())))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
        compilations.on = False
        assert serving.trace_counts == traces
        statistics = serving.statistics()
    assert compilations.seen == {}
    assert set(outcomes) == {"good right", "bad right"}
    assert sum(outcomes.values()) == count
    assert 0.03 * count < outcomes["bad right"] < 0.07 * count
    counted = statistics.requests
    assert counted["answered"] == counted["accepted"] == outcomes["good right"]
    assert counted["invalid"] == outcomes["bad right"]
    assert statistics.queue_depth == statistics.rows_waiting == 0
    assert statistics.fill > 0.5  # requests did share batches


def test_the_count_of_compilations_counts(compilations):
    compilations.on, compilations.seen = True, Counter()
    jax.jit(lambda x: x * 3 + 1)(np.ones(7))
    compilations.on = False
    assert sum(compilations.seen.values()) >= 2


@pytest.mark.parametrize("drain", [True, False])
def test_every_request_ends_whatever_happens_to_it(drain):
    """Cancelled, late, refused, or cut off by close: nobody waits for ever."""
    examples = {n: np.zeros((1, n), np.float32) for n in (2, 3)}
    seen: Counter[str] = Counter()
    options = {"batch_timeout": "1 ms", "batch_keys": examples, "max_queue": 20}
    serving = Serving(lambda x: 2 * x, 8, **options)

    def work(seed):
        rng = random.Random(seed)
        for i in range(60):
            if i == 45 and seed == 0:
                serving.close(drain=drain)
            x = np.full((rng.randint(1, 30), rng.choice((2, 3))), i, np.float32)
            try:
                future = serving.submit(x, timeout=rng.choice((None, 0.001, 20)))
                if rng.random() < 0.2 and future.cancel():
                    seen["cancelled"] += 1
                    continue
                right = np.array_equal(future.result(30), 2 * x)
                seen["right" if right else "WRONG"] += 1
            except (QueueFullError, DeadlineExceededError, ServingClosedError) as error:
                seen[type(error).__name__] += 1

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    serving.close()
    assert {"right", "cancelled", "DeadlineExceededError"} < set(seen)
    assert "ServingClosedError" in seen and "WRONG" not in seen
    counts = serving.statistics().requests
    ends = ("answered", "failed", "expired", "cancelled")
    assert counts["accepted"] == sum(counts[end] for end in ends)
    status = serving.status()
    assert (status["state"], status["running"]) == ("closed", [0])
    assert status["queue_depth"] == status["rows_waiting"] == 0
