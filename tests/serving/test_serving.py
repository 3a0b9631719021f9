"""What a caller of a serving sees."""

import asyncio
import concurrent.futures
import datetime
import gc
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import exburn
from exburn import Serving, layers
from exburn.errors import (
    ArgumentError,
    BatchFailedError,
    DataError,
    DeadlineExceededError,
    DTypeError,
    NotBuiltError,
    QueueFullError,
    ServingClosedError,
    ShapeError,
    UnknownNameError,
)


@pytest.fixture(scope="module")
def serving(mlp):
    with Serving(mlp, batch_size=8, batch_timeout="1 ms") as serving:
        yield serving


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("n", [1, 3, 8, 9, 50])
def test_an_answer_is_what_predict_gives(serving, mlp, rows, n):
    x = rows(n)
    expected = mlp.predict(x, verbose=0)
    answer = serving(x)
    close(answer, expected)
    assert type(answer) is np.ndarray and answer.flags.writeable
    close(serving.run(x), expected)
    close(serving.submit(x).result(), expected)
    close(asyncio.run(serving.arun(x)), expected)


def test_every_program_is_there_before_the_first_request(serving):
    assert serving.buckets == (1, 2, 4, 8)
    sizes = {("default", n) for n in (1, 2, 4, 8)}
    assert sizes <= set(serving.trace_counts)  # and, measured, bursts
    assert set(serving.trace_counts.values()) == {1}


def test_rows_of_many_callers_share_batches(mlp, rows):
    with Serving(mlp, batch_size=8, batch_timeout="500 ms") as serving:
        x = rows(8)
        answers = [serving.submit(x[i : i + 1]) for i in range(8)]
        close(np.concatenate([a.result() for a in answers]), mlp.predict(x, verbose=0))
        statistics = serving.statistics()
        assert (statistics.batches, statistics.rows, statistics.fill) == (1, 8, 1.0)


def test_a_batch_grows_while_all_partitions_are_busy(gate):
    with Serving(gate, batch_size=4, batch_timeout=0.0, example=gate.row(0)) as serving:
        gate.block(serving)
        answers = []
        for value in (1.0, 2.0, 3.0):  # each would be due at once
            answers.append(serving.submit(gate.row(value)))
            time.sleep(0.01)
        assert serving.status()["queue_depth"] == 3
        gate.open.set()
        assert [a.result(20).item() for a in answers] == [2, 4, 6]
        assert [sorted(set(b)) for b in gate.batches] == [[1, 2, 3]]


def test_a_full_batch_is_dispatched_behind_the_one_that_runs(gate):
    with Serving(gate, batch_size=2, batch_timeout=0.0, example=gate.row(0)) as serving:
        gate.block(serving)
        answers = [serving.submit(gate.row(v)) for v in (1.0, 2.0, 3.0)]
        gate.open.set()
        assert [a.result(20).item() for a in answers] == [2, 4, 6]
        assert gate.batches == [[1, 2], [3]]


TREES = {
    "dict": lambda a, b: {"a": a, "b": b},
    "list": lambda a, b: [a, b],
    "tuple": lambda a, b: (a, b),
}


@pytest.mark.parametrize("form", TREES)
def test_trees_go_in_and_out(form):
    a, b = layers.Input((3,), name="a"), layers.Input((2,), name="b")
    joined = layers.Concatenate()([a, b])
    outputs = {"one": layers.Dense(2, name="one")(joined), "two": joined}
    model = exburn.Model([a, b], outputs)
    x = np.ones((5, 3), np.float32), np.zeros((5, 2), np.float32)
    expected = model.predict(list(x), verbose=0)
    with Serving(model, batch_size=4, batch_timeout=0.0, padding=[4]) as serving:
        answer = serving(TREES[form](*x))
    assert list(answer) == list(expected)
    for name, value in expected.items():
        close(answer[name], value)


class Doubler(nnx.Module):
    def __init__(self):
        self.dense = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
        self.drop = nnx.Dropout(0.5, rngs=nnx.Rngs(1))

    def __call__(self, x):
        return self.drop(self.dense(x["x"])) + x["y"]


def test_nnx_modules_run_in_inference_mode():
    module = Doubler()
    x = {"x": np.ones((3, 3), np.float32), "y": np.ones((3, 2), np.float32)}
    options = {"batch_size": 2, "batch_timeout": 0.0, "example": x}
    with Serving(module, **options) as serving:
        close(serving(x), module.dense(x["x"]) + x["y"])
    assert module.drop.deterministic is False  # the module itself is as it was


def test_functions_with_and_without_weights():
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    with Serving(jnp.square, batch_size=2, batch_timeout=0.0, example=x) as serving:
        close(serving(x), x**2)
    weights = {"w": np.full((2, 1), 2.0, np.float32)}
    spec = jax.ShapeDtypeStruct((1, 2), jnp.float32)
    serving = Serving(
        lambda weights, x: x @ weights["w"],
        batch_size=2,
        batch_timeout=0.0,
        example=spec,
        weights=weights,
    )
    with serving:
        close(serving(x), x @ weights["w"])
        serving.update_weights({"w": -weights["w"]})
        close(serving(x), -x @ weights["w"])
        with pytest.raises(ArgumentError, match="must be float32"):
            serving.update_weights({"w": np.zeros((3, 1), np.float32)})
        with pytest.raises(ArgumentError, match="names"):
            serving.update_weights({"v": weights["w"]})
        close(serving(x), -x @ weights["w"])


def test_the_weights_are_a_snapshot(rows):
    model = exburn.Sequential([exburn.Input((8,)), layers.Dense(3)])
    model.compile("sgd", "mse", seed=0)
    x = rows(16)
    before = model.predict(x, verbose=0)
    options = {"batch_size": 16, "batch_timeout": 0.0, "padding": [16], "burst": 1}
    with Serving(model, **options) as serving:
        model.fit(x, np.zeros((16, 3)), epochs=1, verbose=0)  # donates its arrays
        close(serving(x), before)
        serving.update_weights()
        close(serving(x), model.predict(x, verbose=0))
        assert serving.trace_counts == {("default", 16): 1}
    assert not np.allclose(before, model.predict(x, verbose=0))


def test_batch_keys_have_programs_of_their_own():
    model = exburn.Sequential(
        [exburn.Input((None, 2)), layers.GlobalAveragePooling1D(), layers.Dense(3)]
    )
    with pytest.raises(ArgumentError, match="batch_keys"):
        Serving(model)
    shapes = {5: np.zeros((1, 5, 2)), "long": np.zeros((1, 9, 2))}
    options = {"batch_size": 2, "batch_timeout": 0.0, "batch_keys": shapes, "burst": 1}
    with Serving(model, **options) as serving:
        for length, key in ((5, 5), (9, "long")):
            x = np.random.default_rng(0).random((3, length, 2), np.float32)
            close(serving(x, key=key), model(x))
            close(serving(x), model(x))  # the key is found by the shape
        with pytest.raises(UnknownNameError, match="batch key"):
            serving(x, key="short")
        with pytest.raises(ShapeError, match="none of the batch keys"):
            serving(np.zeros((1, 7, 2)))
        assert set(serving.trace_counts) == {(5, 1), (5, 2), ("long", 1), ("long", 2)}


def test_processing_runs_in_the_caller(mlp, rows):
    import threading

    seen = []

    def before(request):
        seen.append(("before", threading.current_thread().name))
        return np.asarray(request["rows"], np.float32), request["id"]

    def after(output, info):
        seen.append(("after", threading.current_thread().name))
        if info == "bad":
            raise KeyError(info)
        return info, output.argmax(-1)

    x = rows(3)
    labels = mlp.predict(x, verbose=0).argmax(-1)
    options = {"batch_size": 4, "batch_timeout": 0.0, "padding": [4]}
    with Serving(mlp, preprocessing=before, postprocessing=after, **options) as serving:
        name, answer = serving({"rows": x.tolist(), "id": "a"})
        assert name == "a" and answer.tolist() == labels.tolist()
        future = serving.submit({"rows": x, "id": "b"})
        concurrent.futures.wait([future])
        assert future.result() is future.result()  # once
        name, _ = asyncio.run(serving.arun({"rows": x, "id": "c"}))
        assert name == "c"
        with pytest.raises(KeyError):
            serving({"rows": x, "id": "bad"})
        with pytest.raises(KeyError):
            asyncio.run(serving.arun({"rows": x, "id": "bad"}))
    assert {thread for _, thread in seen} == {threading.current_thread().name}
    assert [what for what, _ in seen] == ["before", "after"] * 5


@pytest.mark.parametrize("preprocessing", [lambda x: x, lambda x: (x, 1, 2)])
def test_preprocessing_returns_a_pair(preprocessing, mlp, rows):
    options = {"batch_size": 2, "padding": [2], "preprocessing": preprocessing}
    with Serving(mlp, **options) as serving:
        with pytest.raises(ArgumentError, match=r"\(x, info\)"):
            serving(rows(1))


BAD = {
    "shape": (lambda x: x[:, :7], ShapeError, r"float32\[None, 8\]"),
    "rank": (lambda x: x[0], ShapeError, "first axis"),
    "scalar": (lambda x: np.float32(1), ShapeError, "scalar"),
    "empty": (lambda x: x[:0], DataError, "empty"),
    "strings": (lambda x: np.array([["a"] * 8]), DTypeError, "strings"),
    "two": (lambda x: [x, x], DataError, "must hold"),
    "other name": (lambda x: {"a": x, "b": x}, DataError, "must hold"),
    "unknown name": (lambda x: {"other": x}, DataError, "must hold"),
    "nan": (lambda x: x * np.nan, DataError, "NaN"),
    "loader": (lambda x: iter([x]), DTypeError, "stream"),
    "none": (lambda x: None, DataError, "None"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_raises_before_it_is_queued(mlp, rows, name):
    change, error, text = BAD[name]
    with Serving(mlp, batch_size=2, padding=[2], check_numerics=True) as serving:
        for send in (serving, serving.submit, lambda x: asyncio.run(serving.arun(x))):
            with pytest.raises(error, match=text):
                send(change(rows(2)))
        counts = serving.statistics().requests
    assert (counts["invalid"], counts["accepted"]) == (3, 0)


def test_ids_beyond_the_table_are_refused():
    model = exburn.Sequential(
        [exburn.Input((2,), dtype="int32"), layers.Embedding(5, 3)]
    )
    with Serving(model, batch_size=2, batch_timeout=0.0, padding=[2]) as serving:
        assert serving(np.array([[0, 4]])).shape == (1, 2, 3)
        with pytest.raises(DataError, match="from 0 to 4"):
            serving(np.array([[0, 5]]))
        with pytest.raises(DataError, match="must hold int32"):
            serving(np.array([[0.0, 1.0]]))


def test_nan_passes_unless_it_is_refused(serving, rows):
    assert np.isnan(serving(rows(1) * np.nan)).all()


def test_a_failure_reaches_the_callers_of_its_batch_only(gate):
    with Serving(gate, batch_size=2, batch_timeout=0.0, example=gate.row(0)) as serving:
        gate.block(serving)
        good, poison, mate, later = (
            serving.submit(gate.row(*v)) for v in ([1.0, 2.0], [-1.0], [3.0], [4.0])
        )
        gate.open.set()
        assert good.result(20).tolist() == [[2], [4]]
        for future in (poison, mate):
            with pytest.raises(BatchFailedError, match="poison") as raised:
                future.result(20)
            assert raised.value.__cause__ is not None
        assert poison.exception() is not mate.exception()
        assert later.result(20).item() == 8
        assert serving(gate.row(5.0)).item() == 10  # the partition lives
        assert serving.statistics().requests["failed"] == 2
        assert serving.status()["running"] == [0]


def test_a_request_that_waits_can_be_cancelled_and_one_that_runs_cannot(gate):
    with Serving(gate, batch_size=2, batch_timeout=0.0, example=gate.row(0)) as serving:
        gate.block(serving)
        waiting = serving.submit(gate.row(1.0))
        assert not gate.held.cancel()
        assert waiting.cancel() and waiting.cancelled()
        assert serving.status()["queue_depth"] == 0

        async def cancelled():
            task = asyncio.ensure_future(serving.arun(gate.row(2.0)))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
        gate.open.set()
        assert gate.held.result(20).item() == 18
        assert serving(gate.row(3.0)).item() == 6
        assert [1.0] not in gate.batches and [2.0] not in gate.batches
        assert serving.statistics().requests["cancelled"] == 2
        with pytest.raises(concurrent.futures.CancelledError):
            waiting.result()


def test_deadlines_hold_whoever_waits(gate):
    with Serving(gate, batch_size=2, batch_timeout=0.0, example=gate.row(0)) as serving:
        gate.block(serving)
        began = time.monotonic()
        with pytest.raises(DeadlineExceededError):
            serving(gate.row(1.0), timeout="30 ms")
        with pytest.raises(DeadlineExceededError):
            asyncio.run(serving.arun(gate.row(1.0), timeout=0.03))
        future = serving.submit(gate.row(1.0), timeout=0.03)
        with pytest.raises(TimeoutError):
            future.result(timeout=0.01)
        assert not future.done()
        with pytest.raises(DeadlineExceededError):
            future.result()
        assert time.monotonic() - began < 5
        assert serving.status()["queue_depth"] == 0
        gate.open.set()
        gate.held.result(20)
        gate.open.clear()
        runs = serving.submit(gate.row(2.0), timeout=1.0)
        assert gate.entered.acquire(timeout=20)
        with pytest.raises(DeadlineExceededError):  # although it is running
            runs.result()
        gate.open.set()
        assert serving(gate.row(3.0)).item() == 6
        assert serving.statistics().requests["expired"] == 4
    assert gate.batches[-1] == [3.0]


def test_a_full_queue_says_so(gate):
    options = {"batch_size": 2, "batch_timeout": 0.0, "max_queue": 1}
    with Serving(gate, example=gate.row(0), **options) as serving:
        gate.block(serving)
        waiting = serving.submit(gate.row(1.0))
        with pytest.raises(QueueFullError, match="max_queue"):
            serving(gate.row(2.0))
        gate.open.set()
        assert waiting.result(20).item() == 2
        assert serving.statistics().requests["refused"] == 1


def test_closing_drains(gate):
    options = {"batch_size": 2, "batch_timeout": 10, "example": gate.row(0)}
    with Serving(gate, **options) as serving:
        futures = [serving.submit(gate.row(float(v))) for v in range(1, 6)]
    assert [f.result(0).item() for f in futures] == [2, 4, 6, 8, 10]
    assert serving.closed and serving.status()["state"] == "closed"
    with pytest.raises(ServingClosedError):
        serving(gate.row(1.0))
    serving.close()  # again does nothing


def test_closing_without_draining_or_time(gate):
    for options in ({"drain": False, "timeout": 20}, {"timeout": 0.05}):
        serving = Serving(gate, batch_size=2, batch_timeout=0.0, example=gate.row(0))
        gate.block(serving)
        waiting = serving.submit(gate.row(1.0))
        if not options.get("drain", True):
            gate.open.set()
        serving.close(**options)
        if options.get("drain", True):
            with pytest.raises(ServingClosedError):
                waiting.result(0)
        gate.open.set()
        assert gate.held.result(20).item() == 18  # what ran was awaited
        serving.close()


def test_a_request_leaves_nothing_behind(serving, rows):
    """Without the garbage collector: in a cycle, large arrays would pile up."""
    from exburn.serving.answer import Answer
    from exburn.serving.batcher import Request

    async def two():
        await serving.arun(rows(2), timeout=60)
        await serving.arun(rows(2))

    def left():
        return sum(isinstance(o, Request | Answer) for o in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = left()
        for timeout in (None, 60):
            serving(rows(20), timeout=timeout)
            serving.submit(rows(2), timeout=timeout).result()
        asyncio.run(two())
        # The thread of the device lets go of the last one after its caller has it.
        until = time.monotonic() + 10
        while left() > before and time.monotonic() < until:
            time.sleep(0.01)
        assert left() <= before
    finally:
        gc.enable()


def test_a_callback_cannot_end_the_partition(serving, rows, caplog):
    def leave(answer):
        raise SystemExit

    serving.submit(rows(1)).add_done_callback(leave)
    assert serving(rows(2), timeout=20).shape == (2, 3)
    assert "callback" in caplog.text


def test_the_callers_array_may_change_after_submit(gate):
    with Serving(gate, batch_size=1, batch_timeout=0.0, example=gate.row(0)) as serving:
        gate.block(serving)
        x = gate.row(1.0)
        future = serving.submit(x)
        seen = serving.submit(y := gate.row(1.0), copy=False)
        x[:] = y[:] = 100
        gate.open.set()
        assert (future.result(20).item(), seen.result(20).item()) == (2, 200)


@pytest.mark.parametrize(
    ("padding", "buckets"),
    [(True, (1, 2, 4, 6)), (False, (1, 2, 3, 4, 5, 6)), ([6, 3], (3, 6))],
)
def test_padding_to_buckets(padding, buckets):
    options = {"batch_size": 6, "batch_timeout": 0.0, "padding": padding}
    x = np.ones((3, 1), np.float32)
    with Serving(jnp.square, example=x, **options) as serving:
        assert serving(x).tolist() == x.tolist()
        assert serving.buckets == buckets
        size = min(n for n in buckets if n >= 3)
        bucket = serving.statistics().buckets[size]
        assert (bucket.batches, bucket.rows, bucket.fill) == (1, 3, 3 / size)


WRONG = {
    "batch_size": ({"batch_size": 0}, ArgumentError, "batch_size"),
    "milliseconds as a number": ({"batch_timeout": 50}, ArgumentError, '"50 ms"'),
    "negative": ({"batch_timeout": -1}, ArgumentError, "duration"),
    "no function": ({"preprocessing": 3}, ArgumentError, "function"),
    "unit": ({"batch_timeout": "50 parsecs"}, ArgumentError, "duration"),
    "partitions": ({"partitions": 99}, ArgumentError, "needs a device"),
    "no partition": ({"partitions": 0}, ArgumentError, "partitions"),
    "no devices": ({"partitions": ["gpu"]}, ArgumentError, "jax devices"),
    "padding": ({"batch_size": 8, "padding": [4]}, ArgumentError, "largest"),
    "max_queue": ({"max_queue": 0}, ArgumentError, "max_queue"),
    "both": ({"example": 1, "batch_keys": {}}, ArgumentError, "batch_keys"),
    "weights": ({"weights": {}}, ArgumentError, "has its own"),
    "hooks": ({"hooks": ["a"]}, UnknownNameError, "hook"),
}


@pytest.mark.parametrize("name", WRONG)
def test_options_are_checked(mlp, name):
    options, error, text = WRONG[name]
    with pytest.raises(error, match=text):
        Serving(mlp, **options)


def test_what_cannot_be_served():
    with pytest.raises(DTypeError, match="a model"):
        Serving(3)
    with pytest.raises(NotBuiltError, match="example"):
        Serving(exburn.Sequential([layers.Dense(2)]))
    with pytest.raises(DataError, match="one row for each"):
        Serving(jnp.sum, example=np.ones((2, 2)))
    with Serving(
        exburn.Sequential([layers.Dense(2)]), batch_size=1, example=np.ones((1, 3))
    ) as serving:
        assert serving(np.ones((2, 3))).shape == (2, 2)


def test_times_have_units():
    options = {"batch_size": 1, "example": np.ones((1, 1))}
    for value in ("20 ms", 0.02, datetime.timedelta(milliseconds=20), "0.02s"):
        with Serving(jnp.square, batch_timeout=value, **options) as serving:
            assert serving.status()["batch_timeout"] == 0.02


def test_statistics_and_status(mlp, rows):
    with Serving(mlp, batch_size=4, batch_timeout="60 ms") as serving:
        for n in (1, 4, 4, 4, 3):
            serving(rows(n))
        seen = serving.statistics()
        assert seen.requests["accepted"] == seen.requests["answered"] == 5
        assert (seen.batches, seen.rows, set(seen.buckets)) == (5, 16, {1, 4})
        assert seen.fill == pytest.approx(16 / 20)
        assert seen.buckets[4].fill == pytest.approx(15 / 16)
        small = seen.buckets[1]
        assert small.wait_ms["p50"] >= 50 > seen.buckets[4].wait_ms["p50"]
        for times in (small.run_ms, seen.wait_ms, seen.run_ms, seen.total_ms):
            assert 0 < times["p50"] <= times["p95"] <= times["p99"]
        assert seen.total_ms["p99"] >= 50  # the lone row waited for others
        assert "batches of 4" in str(seen)
        status = serving.status()
        assert (status["state"], status["model"]) == ("running", mlp.name)
        assert status["devices"] == [str(jax.devices()[0])]
        assert "running" in repr(serving)
        serving.reset_statistics()
        assert serving.statistics().batches == 0


def test_options_change_in_another_serving(mlp, rows):
    x = rows(3)
    with Serving(mlp, batch_size=2, padding=[2]) as serving:
        with serving.with_options(batch_size=4, padding=[4]) as other:
            assert (serving.buckets, other.buckets) == ((2,), (4,))
            close(other(x), serving(x))
        assert other.closed and not serving.closed
        with pytest.raises(UnknownNameError, match="batch_size"):
            serving.with_options(batchsize=4)
