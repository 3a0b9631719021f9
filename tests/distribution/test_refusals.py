"""What cannot be divided is refused before any compile, and the model goes on."""

import numpy as np
import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn import distribution, layers
from exburn.errors import ArgumentError, LayoutError

X = np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)
Y = X.sum(1, keepdims=True)
MESH = {"data": 2, "model": 4}


def network(rows=None):
    model = exburn.Sequential(
        [
            exburn.Input((6,), batch_size=rows),
            layers.Dense(8, "relu", name="up"),
            layers.Dense(1, name="down"),
        ],
        name="network",
    )
    model.compile("adam", "mse", seed=0)
    return model


def refused(said, model, call):
    """Checks that a call is refused, compiles nothing, and changes nothing."""
    before = model.get_weights()
    with pytest.raises(LayoutError) as caught:
        call(model)
    for text in said:
        assert text in str(caught.value), str(caught.value)
    assert model.trace_counts == {}
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    model.compile("adam", "mse", seed=0)
    trained, other = model.fit(X, Y, 8, verbose=0), network(model.input_shape[0])
    assert trained.history == other.fit(X, Y, 8, verbose=0).history


RULES = {
    "unmatched": (
        {"up/kernell": (None, "model")},
        ["'up/kernell' matches no weight", "nearest paths: up/kernel"],
    ),
    "no whole path": (
        {"kernel": (None, "model")},
        ["'.*kernel' would match", "up/kernel", "down/kernel"],
    ),
    "twice": (
        {".*kernel": (None, "model"), "up/.*": ("model",)},
        ["'up/kernel' is matched by 2 rules", ".*kernel", "up/.*"],
    ),
    "indivisible": (
        {"down/kernel": (None, "model")},
        ["axis of 1 cannot be divided evenly by 4", "down/kernel (8, 1)", "model of 4"],
    ),
    "too many axes": ({"up/bias": (None, "model")}, ["more axes than 'up/bias'"]),
}


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("op", ["fit", "evaluate", "predict", "train_on_batch"])
@on_devices
def test_rules(kind, op):
    layout, said = RULES[kind]

    def call(model):
        model.compile("adam", "mse", seed=0, mesh=MESH, layout=layout)
        getattr(model, op)(X, *[Y] * (op != "predict"))

    refused(said, network(), call)


@pytest.mark.parametrize(
    "mesh, layout, said",
    [
        (MESH, {"up/kernel": (None, "modle")}, ["no axis 'modle'", "data, model"]),
        ({"data": 4, "model": 4}, {"up/kernel": (None, "model")}, ["needs 16", "8"]),
        (MESH, None, ["nothing is divided along the axis 'model'", "tensor_parallel"]),
    ],
)
@on_devices
def test_meshes(mesh, layout, said):
    def call(model):
        model.compile("adam", "mse", seed=0, mesh=mesh, layout=layout)

    refused(said, network(), call)


@pytest.mark.parametrize("op", ["fit", "evaluate", "predict", "train_on_batch"])
@on_devices
def test_a_fixed_batch(op):
    def call(model):
        model.compile("adam", "mse", seed=0, mesh={"data": 3})
        getattr(model, op)(X[:8], *[Y[:8]] * (op != "predict"))

    refused(["3 devices cannot divide the 8 rows"], network(8), call)


@pytest.mark.parametrize("op", ["fit", "evaluate", "predict"])
@on_devices
def test_the_distribution_of_all_models_is_checked(op):
    def call(model):
        layout = distribution.LayoutMap(distribution.DeviceMesh((2, 4), ["a", "b"]))
        layout["nowhere/kernel"] = (None, "b")
        with distribution.ModelParallel(layout_map=layout).scope():
            getattr(model, op)(X, *[Y] * (op != "predict"))

    refused(["'nowhere/kernel' matches no weight"], network(), call)


@on_devices
def test_a_device_and_a_mesh():
    with pytest.raises(ArgumentError, match="pass one of them"):
        network().compile("adam", "mse", device="cpu", mesh="data")


@pytest.mark.parametrize("rows", [1, 3, 8, 13])
@on_devices
def test_a_batch_smaller_than_the_axis(rows):
    one, eight = network(), network()
    eight.compile("adam", "mse", seed=0, mesh="data")
    x, y = X[:17], Y[:17]
    histories = [m.fit(x, y, rows, 3, verbose=0).history["loss"] for m in (one, eight)]
    np.testing.assert_allclose(histories[1], histories[0], rtol=1e-5)
    for op in ("evaluate", "predict"):
        given = x, *([y] if op == "evaluate" else [])
        both = [
            getattr(m, op)(*given, batch_size=rows, verbose=0) for m in (one, eight)
        ]
        np.testing.assert_allclose(both[1], both[0], rtol=1e-5, atol=1e-6)
