"""The page's section "Devices and precision"."""

import jax
import numpy as np
import pytest
from tests.distribution.devices import on_devices
from tests.from_keras.page import says
from tests.from_keras.small import BOTH, X, Y, compiled, fit

import exburn
from exburn import distribution
from exburn.errors import ArgumentError, LayoutError
from exburn.runtime.sharding import joining

keras = pytest.importorskip("keras")

UNTESTED = {
    "Several processes pass the same arrays": (
        "takes several processes; tests/distribution/test_own_data.py compares them"
    ),
}


@says("There is one backend: JAX")
def test_where_it_runs():
    assert exburn.backend.backend() == "jax"
    info = exburn.device_info()
    assert info["name"] == exburn.device_name()
    assert info["device"] == jax.default_backend() and info["count"] >= 1
    assert not hasattr(keras, "device_name") and not hasattr(keras, "device_info")


@says("`exburn.set_precision` does what `keras.config.set_dtype_policy` does")
@pytest.mark.parametrize("framework", BOTH)
def test_the_precision_of_the_process(framework):
    put = exburn.set_precision if framework is exburn else keras.config.set_dtype_policy
    before = framework.config.dtype_policy()
    put("mixed_bfloat16")
    try:
        dense = framework.layers.Dense(1)
        assert framework.config.dtype_policy().name == "mixed_bfloat16"
        assert str(dense(np.ones((2, 3), "float32")).dtype) == "bfloat16"
        assert str(dense.kernel.dtype) == "float32"
    finally:
        put(before)


@says("`exburn.distribution` has Keras' names")
def test_a_model_s_own_distribution_counts_first():
    names = {n for n in dir(keras.distribution) if n[0] != "_"}
    assert names <= set(dir(exburn.distribution))
    model = compiled(exburn, mesh={"data": 1})
    with distribution.DataParallel(devices=["cpu:0"]).scope():
        assert model._training_session.distribution_in_force.batch_axes == ("data",)


@says("`distribution.initialize` does nothing when it is called again")
@pytest.mark.parametrize("framework", BOTH)
def test_to_join_twice(framework, monkeypatch):
    monkeypatch.setattr(joining, "_cluster", None)
    framework.layers.Dense(1)(np.ones((1, 2), "float32"))
    initialize = framework.distribution.initialize
    if framework is keras:
        for _ in range(2):
            with pytest.raises((RuntimeError, ValueError)):
                initialize(num_processes=1)
        return
    for _ in range(2):
        initialize(num_processes=1)
    monkeypatch.setattr(joining, "_cluster", None)
    with pytest.raises(ArgumentError, match="SLURM_JOB_ID"):
        initialize()


def network(**settings):
    model = exburn.Sequential(
        [exburn.Input((4,)), exburn.layers.Dense(8, name="up"), exburn.layers.Dense(1)]
    )
    model.compile("adam", "mse", seed=0, **settings)
    return model


def devices_of(model):
    return len(model.layers[-1].kernel.value.devices())


@says("A distribution holds for what runs from then on")
@on_devices
def test_weights_follow_the_distribution_in_force():
    model = network()
    with distribution.DataParallel().scope():
        fit(model)
        assert devices_of(model) == 8
    fit(model)
    assert devices_of(model) == 1
    made = keras.layers.Dense(1)
    made.build((None, 4))
    with keras.distribution.DataParallel().scope():
        assert len(made.kernel.value.devices()) == 1
        other = keras.layers.Dense(1)
        other.build((None, 4))
    assert len(other.kernel.value.devices()) == 8


@says("A batch, or its rest, that the devices cannot divide evenly")
@on_devices
def test_rows_that_do_not_divide():
    x, y = X[:45], Y[:45]
    one, eight = network(), network(mesh="data")
    histories = [fit(model, x, y, batch_size=10, epochs=3) for model in (one, eight)]
    np.testing.assert_allclose(histories[1]["loss"], histories[0]["loss"], rtol=1e-5)
    for op in ("evaluate", "predict"):
        both = [
            getattr(model, op)(x, *([y] * (op == "evaluate")), batch_size=10, verbose=0)
            for model in (one, eight)
        ]
        np.testing.assert_allclose(both[1], both[0], rtol=1e-5)
    with keras.distribution.DataParallel().scope():
        theirs = compiled(keras)
        with pytest.raises(Exception, match="[Dd]ivi"):
            theirs.fit(x, y, batch_size=10, verbose=0)


@says("A rule of a `LayoutMap` that matches no weight")
@on_devices
@pytest.mark.parametrize(
    "layout, said",
    [
        ({"up/kernel": ("model",), "down/kernel": ("model",)}, "matches no weight"),
        ({"up/kernel": ("model", "model")}, "can divide one axis only"),
        ({"dense/kernel": (None, "model")}, "cannot be divided evenly"),
    ],
)
def test_rules_are_checked(layout, said):
    with pytest.raises(LayoutError, match=said):
        fit(network(mesh={"data": 2, "model": 4}, layout=layout))
    mesh = keras.distribution.DeviceMesh((2, 4), ["data", "model"])
    theirs = keras.distribution.LayoutMap(mesh)
    theirs["nowhere"] = (None, "model")
    with keras.distribution.ModelParallel(layout_map=theirs).scope():
        fit(compiled(keras))


@says("`DeviceMesh` refuses devices that are not there")
@pytest.mark.parametrize("framework", BOTH)
def test_devices_of_a_mesh(framework):
    mesh = framework.distribution.DeviceMesh
    for names in (["cpu:99"], ["cpu:0", "cpu:0"]):
        if framework is exburn:
            with pytest.raises(LayoutError):
                mesh((len(names),), ["batch"], names)
            continue
        assert mesh((len(names),), ["batch"], names).devices.tolist() == names
    ours = exburn.distribution.DeviceMesh((1,), ["batch"], jax.devices("cpu")[:1])
    assert ours.devices.tolist() == ["cpu:0"]


@says("`DataParallel` of a mesh of several axes")
@pytest.mark.parametrize("framework", BOTH)
def test_the_first_axis_of_a_mesh_divides_the_batch(framework):
    mesh = framework.distribution.DeviceMesh((1, 1), ["batch", "model"], ["cpu:0"])
    if framework is keras:
        with pytest.raises(TypeError, match="category"):
            framework.distribution.DataParallel(mesh)
        return
    with pytest.warns(UserWarning, match="along 'batch' alone"):
        assert framework.distribution.DataParallel(mesh).batch_axes == ("batch",)
