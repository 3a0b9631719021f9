"""Many callers at once, some of them bad: every one gets exactly its own answer."""

import asyncio
import random
import threading
from collections import Counter

import jax
import numpy as np
import pytest

import exburn
from exburn import Serving, layers
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


class Rows:
    """Requests of one array."""

    bad = (
        (lambda x: x[:, :5], ShapeError),
        (lambda x: np.where(np.arange(8) == 3, np.nan, x), DataError),
        (lambda x: x.astype(str), DTypeError),
        (lambda x: x[:0], DataError),
        (lambda x: {"a": x, "b": x}, DataError),
    )

    def __init__(self, mlp):
        self.served, self.options = mlp, {}
        rng = np.random.default_rng(0)
        self.pools = [rng.standard_normal((POOL, 8)).astype(np.float32)]
        self.expected = [mlp.predict(self.pools[0], verbose=0)]


class Trees:
    """Requests of a dict of arrays, in two lengths, which have a batch key each."""

    bad = (
        (lambda x: {"ids": x["ids"]}, DataError),
        (lambda x: x | {"extra": x["extra"][:, :2]}, ShapeError),
        (lambda x: x | {"extra": x["extra"] * np.inf}, DataError),
        (lambda x: x | {"ids": x["ids"][:, :5]}, ShapeError),
        (lambda x: x | {"ids": x["ids"] + 40}, DataError),
        (lambda x: x | {"ids": x["ids"][:0]}, DataError),
        (lambda x: x | {"extra": x["extra"].astype(object)}, DTypeError),
    )

    def __init__(self, _):
        ids = layers.Input((None,), dtype="int32", name="ids")
        extra = layers.Input((3,), name="extra")
        words = layers.GlobalAveragePooling1D()(layers.Embedding(40, 6)(ids))
        joined = layers.Concatenate()([words, extra])
        outputs = {"score": layers.Dense(2)(joined), "both": [joined, extra * 2.0]}
        self.served = exburn.Model({"ids": ids, "extra": extra}, outputs)
        rng = np.random.default_rng(0)
        self.pools = [
            {
                "ids": rng.integers(0, 40, (POOL, length)).astype(np.int32),
                "extra": rng.standard_normal((POOL, 3)).astype(np.float32),
            }
            for length in (6, 10)
        ]
        self.expected = [self.served.predict(pool, verbose=0) for pool in self.pools]
        examples = {
            n: cut(pool, 0, 1) for n, pool in zip("ab", self.pools, strict=True)
        }
        self.options = {"batch_keys": examples}


def cut(tree, start, rows):
    return jax.tree.map(lambda leaf: leaf[start : start + rows], tree)


def same(answer, right):
    """Whether an answer has the structure, shapes and values of predict's."""
    if jax.tree.structure(answer) != jax.tree.structure(right):
        return False
    return all(
        type(a) is np.ndarray
        and a.shape == b.shape
        and np.allclose(a, b, rtol=2e-5, atol=2e-6)
        for a, b in zip(jax.tree.leaves(answer), jax.tree.leaves(right), strict=True)
    )


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


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        (Rows, 1_000),
        (Trees, 1_000),
        (Rows, 10_000),
        (Trees, 10_000),
    ],
)
def test_no_answer_is_lost_or_mixed_up(mlp, compilations, kind, count):
    """Every good one equals predict's on that input, every bad one has its error."""
    load = kind(mlp)
    outcomes: Counter[str] = Counter()
    lock = threading.Lock()

    def request(i):
        """The i-th request, the right answer, and the error it deserves."""
        rng = random.Random(i)
        rows = 1 if rng.random() < 0.3 else rng.randint(1, 80)
        start = rng.randint(0, POOL - rows)
        which = rng.randrange(len(load.pools))
        x = cut(load.pools[which], start, rows)
        if rng.random() < 0.05:
            spoil, error = rng.choice(load.bad)
            return spoil(x), None, error
        return x, cut(load.expected[which], start, rows), None

    def judge(answer, right, error):
        good = type(answer) is error if error is not None else same(answer, right)
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

    options = {"batch_timeout": "2 ms", "burst": 16, "check_numerics": True}
    with Serving(load.served, 32, **options | load.options) as serving:
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
    assert statistics.calls < statistics.batches  # and batches shared calls


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
