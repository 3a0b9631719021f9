import numpy as np
import pytest

import exburn
from exburn import Serving, layers
from exburn.errors import ArgumentError
from exburn.serving.http.endpoint import Endpoint
from exburn.serving.http.signature import Signature
from exburn.serving.http.tensor import Tensor


def signature(serving):
    return Signature(serving, Endpoint(serving))


def test_models_have_their_own_names(mlp, several):
    single = signature(mlp)
    assert single.inputs == {"x": Tensor("x", "FP32", (-1, 3))}
    assert single.outputs == {"scores": Tensor("scores", "FP32", (-1, 2))}
    x = np.ones((2, 3), np.float32)
    assert single.pack({"x": x}) is x
    assert single.unpack(x)["scores"] is x
    both = signature(several)
    assert {n: t.datatype for n, t in both.inputs.items()} == {
        "flags": "BOOL",
        "ids": "INT32",
    }
    assert {n: t.shape for n, t in both.outputs.items()} == {
        "both": (-1, 4),
        "not": (-1, 1),
    }
    answer = several.run({"ids": np.ones((1, 2), int), "flags": np.ones((1, 1), bool)})
    assert {n: v.shape for n, v in both.unpack(answer).items()} == {
        "both": (1, 4),
        "not": (1, 1),
    }


def test_functions_are_named_by_their_trees():
    def score(x):
        return [x["a"] + 1, x["b"][0]]

    example = {"a": np.zeros((1, 2)), "b": [np.zeros((1, 3), np.int8)]}
    with Serving(score, batch_size=1, batch_timeout=0, example=example) as serving:
        made = signature(serving)
        assert list(made.inputs) == ["a", "b_0"]
        assert [t.datatype for t in made.inputs.values()] == ["FP32", "INT8"]
        assert list(made.outputs) == ["y_0", "y_1"]
        packed = made.pack({"b_0": np.ones((1, 3), np.int8), "a": np.ones((1, 2))})
        assert made.unpack(serving.run(packed))["y_0"].tolist() == [[2, 2]]


def test_strings_of_a_model_are_inputs(words):
    made = signature(words)
    assert made.inputs == {"text": Tensor("text", "BYTES", (-1, 1))}


@pytest.fixture(scope="module")
def words():
    model = exburn.Sequential(
        [
            exburn.Input((1,), dtype="string", name="text"),
            layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot"),
            layers.Dense(1),
        ]
    )
    with Serving(model, batch_size=1, batch_timeout=0) as serving:
        yield serving


def test_batch_keys_leave_open_what_differs_between_them():
    keys = {n: np.zeros((1, n, 2), np.float32) for n in (3, 4)}
    options = {"batch_size": 1, "batch_timeout": 0}
    with Serving(lambda x: x, batch_keys=keys, **options) as serving:
        assert signature(serving).inputs["x"].shape == (-1, -1, 2)
    keys = {"one": np.zeros((1, 2)), "other": {"a": np.zeros((1, 2))}}
    with Serving(lambda x: x, batch_keys=keys, **options) as serving:
        with pytest.raises(ArgumentError, match="same names and types"):
            signature(serving)
