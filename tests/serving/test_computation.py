"""What is served: models, modules and functions, with the weights of a moment."""

import asyncio
import concurrent.futures

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import exburn
from exburn import Serving, layers
from exburn.errors import ArgumentError, DataError, DTypeError, ShapeError


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


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
        assert serving(np.array([[0.0, 1.0]])).shape == (1, 2, 3)
        with pytest.raises(DataError, match="must hold int32"):
            serving(np.array([[0.0, 1.5]]))


def test_nan_passes_unless_it_is_refused(serving, rows):
    assert np.isnan(serving(rows(1) * np.nan)).all()


def test_the_callers_array_may_change_after_submit(gate):
    with Serving(gate, batch_size=1, batch_timeout=0.0, example=gate.row(0)) as serving:
        gate.block(serving)
        x = gate.row(1.0)
        future = serving.submit(x)
        seen = serving.submit(y := gate.row(1.0), copy=False)
        x[:] = y[:] = 100
        gate.open.set()
        assert (future.result(20).item(), seen.result(20).item()) == (2, 200)
