"""Meshes of devices, as in Keras; bad ones are refused."""

import jax
import keras
import numpy as np
import pytest
from jax.sharding import AxisType
from tests.distribution.devices import on_devices

import exburn
from exburn.distribution import DeviceMesh, get_device_count, list_devices
from exburn.errors import LayoutError

BOTH = pytest.mark.parametrize("framework", [exburn, keras])
ONE = ["cpu:0"]


@BOTH
def test_devices_have_names(framework):
    distribution = framework.distribution
    assert distribution.list_devices("cpu")[0] == "cpu:0"
    assert distribution.list_devices("CPU") == distribution.list_devices("cpu")
    assert distribution.get_device_count() == len(distribution.list_devices())
    with pytest.raises((LayoutError, RuntimeError)):
        distribution.list_devices("tpu")


@BOTH
def test_a_mesh_tells_what_it_was_made_of(framework):
    mesh = framework.distribution.DeviceMesh((1, 1), ["batch", "model"], ONE)
    assert tuple(mesh.shape) == (1, 1) and mesh.axis_names == ["batch", "model"]
    assert isinstance(mesh.devices, np.ndarray) and mesh.devices.tolist() == [["cpu:0"]]
    assert mesh.backend_mesh.axis_names == ("batch", "model")
    assert mesh.backend_mesh.devices.shape == (1, 1)
    assert framework.distribution.DeviceMesh((1,), ["x"], ONE).devices.tolist() == ONE


def test_its_axes_are_auto():
    mesh = DeviceMesh((1,), ["batch"], ONE)
    assert mesh.backend_mesh.axis_types == (AxisType.Auto,)
    assert mesh.backend_mesh is mesh.backend_mesh
    assert DeviceMesh((1,), ["batch"], jax.devices("cpu")[:1]).devices.tolist() == ONE


@pytest.mark.parametrize(
    "arguments",
    [
        ((), ["batch"], ONE),
        ((1,), [], ONE),
        ((1,), ["batch", "model"], ONE),
        ((2,), ["batch"], ONE),
        ((1,), ["batch"], []),
    ],
)
@BOTH
def test_what_both_refuse(framework, arguments):
    with pytest.raises(ValueError):
        framework.distribution.DeviceMesh(*arguments)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (((1, 1), ["batch", "batch"], ONE), "two axes have one name"),
        (((1.0,), ["batch"], ONE), "positive integers"),
        (((0,), ["batch"], []), "positive integers"),
        (((1,), ["batch"], ["cpu:99"]), "there is no device 'cpu:99'"),
        (((1,), ["batch"], ["nothing:0"]), "there is no device of type 'nothing'"),
        (((2,), ["batch"], ONE * 2), "a device is there twice"),
    ],
)
def test_what_keras_takes(arguments, said):
    with pytest.raises(LayoutError, match=said):
        DeviceMesh(*arguments)


def test_more_devices_than_there_are():
    there = get_device_count()
    with pytest.raises(LayoutError, match=rf"needs 64 devices, not {there}") as caught:
        DeviceMesh((8, 8), ["batch", "model"])
    assert "--xla_force_host_platform_device_count=64" in str(caught.value)


@on_devices
def test_a_mesh_of_eight():
    mesh = DeviceMesh((2, 4), ["batch", "model"])
    assert mesh.devices.tolist() == np.reshape(list_devices(), (2, 4)).tolist()
    assert (mesh.size("model"), mesh.size(("batch", "model")), mesh.size(None)) == (
        4,
        8,
        1,
    )
    turned = DeviceMesh((2,), ["batch"], ["cpu:7", "cpu:3"])
    assert [d.id for d in turned.backend_mesh.devices] == [7, 3]
    with pytest.raises(LayoutError, match=r"list_devices\(\)\[:n\]"):
        DeviceMesh((4,), ["batch"])
