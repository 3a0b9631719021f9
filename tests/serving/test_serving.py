"""What a caller of a serving sees: answers, batches, programs, processing."""

import asyncio
import concurrent.futures
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
    ShapeError,
    UnknownNameError,
)


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
