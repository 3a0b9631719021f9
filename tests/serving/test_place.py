"""Where a serving computes: on devices, or on a mesh that divides the weights."""

import numpy as np
import pytest
from tests.distribution.devices import on_devices
from tests.distribution.models import compiled, data

from exburn import distribution
from exburn.distribution import FSDP
from exburn.errors import ArgumentError
from exburn.serving import Serving

X, Y, _ = data("mlp")


def layouts(serving):
    weights = serving._partitions[0].weights
    return {name: tuple(value.sharding.spec) for name, value in weights.items()}


def halves():
    names = distribution.list_devices()
    return [FSDP(devices=names[:4], min_size=1), FSDP(devices=names[4:], min_size=1)]


@on_devices
@pytest.mark.parametrize("way", ["data", "fsdp", "tensor", "two meshes", "default"])
def test_answers_of_a_mesh(way):
    model = compiled("mlp", FSDP(min_size=1))
    model.fit(X, Y, verbose=0)
    options = {
        "data": {"mesh": "data"},
        "fsdp": {"mesh": FSDP(min_size=1)},
        "tensor": {
            "mesh": {"data": 2, "model": 4},
            "layout": {".*dense/kernel": (None, "model")},
        },
        "two meshes": {"partitions": halves() if way == "two meshes" else None},
        "default": {},
    }[way]
    with Serving(model, batch_size=16, burst=1, **options) as serving:
        wanted = model.predict(X[:37], verbose=0)
        np.testing.assert_allclose(serving(X[:37]), wanted, rtol=1e-5, atol=1e-6)
        divided = any(map(any, layouts(serving).values()))
        assert divided is (way != "data") and len(serving.devices) == 8
        assert len(serving.status()["devices"]) == 1 + (way == "two meshes")
        model.fit(X, Y, verbose=0)  # consumes the model's arrays, not the copy
        serving.update_weights()
        wanted = model.predict(X[:37], verbose=0)
        np.testing.assert_allclose(serving(X[:37]), wanted, rtol=1e-5, atol=1e-6)


@on_devices
def test_weights_of_a_function_are_whole():
    weights = {"w": np.eye(3, dtype=np.float32)}
    example = np.ones((1, 3), np.float32)

    def function(weights, x):
        return x @ weights["w"]

    options = {"weights": weights, "example": example, "mesh": "data"}
    with Serving(function, batch_size=8, burst=1, **options) as serving:
        assert serving(np.ones((5, 3), np.float32)).tolist() == [[1, 1, 1]] * 5
        assert layouts(serving) == {"w": ()}


def test_a_mesh_or_partitions():
    with pytest.raises(ArgumentError, match="pass one of them"):
        Serving(compiled("mlp"), mesh="data", partitions=1)
