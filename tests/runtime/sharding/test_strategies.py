"""Distributions have Keras' names; what is divided along which axis."""

import types

import keras
import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn import distribution
from exburn.distribution import (
    FSDP,
    DataParallel,
    DeviceMesh,
    LayoutMap,
    ShardedModelParallel,
    ZeRO,
)
from exburn.errors import LayoutError
from exburn.runtime.sharding.strategies import make_distribution

BOTH = pytest.mark.parametrize("framework", [exburn, keras])
ONE = ["cpu:0"]
KERNEL = types.SimpleNamespace(path="dense/kernel", shape=(4, 8), _layout=None)
NORM = types.SimpleNamespace(path="norm/gamma", shape=(8,), _layout=None)


@BOTH
@pytest.mark.parametrize("given", ["nothing", "devices", "mesh"])
def test_data_parallel(framework, given):
    api = framework.distribution
    mesh = api.DeviceMesh((1,), ["data"], ONE)
    keys = {"nothing": {}, "devices": {"devices": ONE}, "mesh": {"device_mesh": mesh}}
    data = api.DataParallel(**keys[given])
    assert data.batch_dim_name == ("data" if given == "mesh" else "batch")
    assert data.device_mesh.axis_names == [data.batch_dim_name]
    assert (data.num_processes, data.num_model_replicas, data.data_shard_id) == (
        1,
        api.get_device_count() if given == "nothing" else 1,
        0,
    )
    assert data.auto_shard_dataset is True
    data.auto_shard_dataset = False
    assert data.auto_shard_dataset is False
    assert data.get_data_layout((6, 4)).axes == (data.batch_dim_name, None)
    assert data.get_variable_layout(KERNEL).axes == (None, None)
    assert data.get_tensor_layout("dense/output") is None
    assert data.distribute_dataset("as it is") == "as it is"


@BOTH
def test_model_parallel(framework):
    api = framework.distribution
    mesh = api.DeviceMesh((1, 1), ["batch", "model"], ONE)
    layout = api.LayoutMap(mesh)
    layout[".*kernel"] = (None, "model")
    parallel = api.ModelParallel(layout_map=layout)
    assert parallel.device_mesh is mesh and parallel.batch_dim_name == "batch"
    assert parallel.num_model_replicas == 1 and parallel.auto_shard_dataset is True
    assert parallel.get_data_layout((6, 4, 3)).axes == ("batch", None, None)
    assert parallel.get_variable_layout(KERNEL).axes == (None, "model")
    assert parallel.get_variable_layout(NORM).axes == (None,)
    assert parallel.get_tensor_layout("dense/kernel").axes == (None, "model")
    assert parallel.get_tensor_layout("norm/gamma") is None
    other = api.ModelParallel(layout_map=layout, batch_dim_name="model")
    assert other.batch_dim_name == "model"
    with pytest.raises(ValueError):
        api.ModelParallel()
    with pytest.raises(ValueError):
        api.ModelParallel(layout_map={".*kernel": (None, "model")})


@BOTH
def test_the_one_in_force(framework):
    api = framework.distribution
    first, second = api.DataParallel(devices=ONE), api.DataParallel(devices=ONE)
    assert api.distribution() is None
    with first.scope():
        assert api.distribution() is first
        with pytest.raises(KeyError), second.scope():
            assert api.distribution() is second
            raise KeyError
        assert api.distribution() is first
    assert api.distribution() is None
    api.set_distribution(first)
    assert api.distribution() is first
    api.set_distribution(None)
    assert api.distribution() is None


def test_wrong_distributions():
    mesh = DeviceMesh((1, 1), ["batch", "model"], ONE)
    with pytest.raises(LayoutError, match="must be a Distribution"):
        distribution.set_distribution("data")
    with pytest.raises(LayoutError, match="must be a DeviceMesh"):
        DataParallel((1,))
    with pytest.raises(LayoutError, match="no axis 'rows'"):
        distribution.ModelParallel(layout_map=LayoutMap(mesh), batch_dim_name="rows")
    with pytest.raises(LayoutError, match="has no device_mesh"):
        distribution.ModelParallel(layout_map=LayoutMap())
    with pytest.raises(LayoutError, match="unknown arguments: layout"):
        distribution.ModelParallel(layout_map=LayoutMap(mesh), layout=1)
    with pytest.warns(UserWarning, match="along 'batch' alone"):
        DataParallel(mesh)
    with pytest.raises(LayoutError, match="stage must be"):
        ZeRO(4)
    with pytest.raises(LayoutError, match="min_size"):
        FSDP(devices=ONE, min_size=0)


@pytest.mark.parametrize(
    "mesh, layout, said",
    [
        ("dota", None, "Did you mean 'data'"),
        (8, None, "sizes by axis names"),
        ({"data": 1, "model": 0}, None, "positive integers"),
        (DataParallel(devices=ONE), {".*": ("model",)}, "layouts of its own"),
        ({"data": 1}, "model", "must be a LayoutMap or a dict"),
        ({"data": 1}, {".*kernel": (None, "model")}, "no axis 'model'"),
        ({"data": 64}, None, "needs 64 devices"),
    ],
)
def test_what_compile_refuses(mesh, layout, said):
    with pytest.raises(LayoutError, match=said):
        make_distribution(mesh, layout)


@on_devices
def test_what_compile_makes():
    data = make_distribution("data")
    assert isinstance(data, DataParallel) and data.num_model_replicas == 8
    fsdp = make_distribution("fsdp")
    assert isinstance(fsdp, FSDP) and fsdp.batch_axes == ("fsdp",)
    hybrid = make_distribution({"data": 2, "fsdp": 4})
    assert isinstance(hybrid, FSDP) and hybrid.num_model_replicas == 8
    assert tuple(hybrid.weight_spec("kernel", (64, 32))) == ("fsdp",)
    some = make_distribution({"data": 4})
    assert some.device_mesh.devices.tolist() == [f"cpu:{n}" for n in range(4)]
    rules = {".*kernel": (None, "model")}
    parallel = make_distribution({"data": 2, "model": 4}, rules)
    assert parallel.batch_axes == ("data",) and parallel.num_model_replicas == 2
    assert tuple(parallel.weight_spec("kernel", (3, 8))) == (None, "model")
    both = make_distribution({"fsdp": 2, "model": 4}, rules)
    assert isinstance(both, ShardedModelParallel) and both.num_model_replicas == 2
    assert tuple(both.weight_spec("kernel", (64, 32))) == ("fsdp", "model")
    assert tuple(both.compute_spec("kernel", (64, 32))) == (None, "model")
    assert tuple(both.weight_spec("kernel", (5, 4000))) == (None, "model")
    assert tuple(both.weight_spec("table", (5, 4000))) == (None, "fsdp")
    assert both.rule_of("kernel", (64, 32)) == ".*kernel, and fsdp"
    assert both.rule_of("table", (5, 4000)) == "fsdp"
    assert both.rule_of("table", (5, 4)) == "whole on every device"
    with pytest.raises(LayoutError, match="the mesh has no axis 'fsdp'"):
        ShardedModelParallel(layout_map=parallel.layout_map)
    with pytest.raises(LayoutError, match="nothing is divided along the axis 'model'"):
        make_distribution({"data": 2, "model": 4})


@on_devices
def test_where_weights_and_slots_lie():
    shapes = {"kernel": (48, 64), "odd": (3, 5000), "norm": (64,), "scalar": ()}

    def specs(method):
        return {name: tuple(method(name, shape)) for name, shape in shapes.items()}

    whole = dict.fromkeys(shapes, ())
    along = whole | {"kernel": (None, "fsdp"), "odd": (None, "fsdp")}
    assert specs(FSDP().weight_spec) == specs(FSDP().slot_spec) == along
    assert specs(FSDP(min_size=16).weight_spec) == along | {"norm": ("fsdp",)}
    divided = {name: tuple("data" if a else a for a in v) for name, v in along.items()}
    kinds = [
        [specs(getattr(ZeRO(stage), kind)) for stage in (1, 2, 3)]
        for kind in ("weight_spec", "gradient_spec", "slot_spec")
    ]
    assert kinds == [[whole, whole, divided], [whole, divided, divided], [divided] * 3]
    data = DataParallel()
    assert specs(data.weight_spec) == specs(data.slot_spec) == whole
    assert tuple(data.batch_spec(64, 1)) == (None, "batch")
    assert tuple(data.batch_spec(60)) == ()


@on_devices
def test_sizes_that_do_not_divide():
    mesh = DeviceMesh((2, 4), ["batch", "model"])
    layout = LayoutMap(mesh)
    layout["dense/kernel"] = (None, "model")
    parallel = distribution.ModelParallel(layout_map=layout)
    parallel.check([("dense/kernel", (4, 8))])
    with pytest.raises(LayoutError) as caught:
        parallel.check([("dense/kernel", (4, 6))])
    said = str(caught.value)
    assert "an axis of 6 cannot be divided evenly by 4 devices" in said
    assert "dense/kernel (4, 6)" in said and "model of 4" in said
    with pytest.raises(LayoutError, match="more axes than 'dense/kernel'"):
        parallel.check([("dense/kernel", (8,))])


@pytest.mark.parametrize(
    "layout", [{".*kernel": (None, "model")}, {}, LayoutMap()], ids=repr
)
def test_a_layout_without_a_mesh_says_so(layout):
    with pytest.raises(LayoutError, match="it needs mesh="):
        make_distribution(None, layout, "Serving")
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(2)])
    with pytest.raises(LayoutError, match="Serving: .* needs mesh="):
        exburn.Serving(model, layout=layout)
