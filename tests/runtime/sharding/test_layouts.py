"""Layouts of arrays and rules for them, as in Keras; bad ones are refused."""

import keras
import pytest
from jax.sharding import PartitionSpec

import exburn
from exburn.distribution import DeviceMesh, LayoutMap, TensorLayout
from exburn.errors import LayoutError

BOTH = pytest.mark.parametrize("framework", [exburn, keras])
ONE = ["cpu:0"]


def mesh_of(framework=exburn):
    return framework.distribution.DeviceMesh((1, 1), ["batch", "model"], ONE)


@BOTH
def test_a_layout(framework):
    mesh = mesh_of(framework)
    layout = framework.distribution.TensorLayout([None, "model"], mesh)
    assert layout.axes == (None, "model") and layout.device_mesh is mesh
    assert layout.backend_layout.spec == PartitionSpec(None, "model")
    with pytest.raises(ValueError):
        framework.distribution.TensorLayout((None, "modle"), mesh)


@BOTH
def test_a_layout_gets_its_mesh_once(framework):
    mesh = mesh_of(framework)
    layout = framework.distribution.TensorLayout(("model",))
    assert layout.device_mesh is None
    with pytest.raises(ValueError):
        _ = layout.backend_layout
    layout.device_mesh = mesh
    assert layout.device_mesh is mesh
    with pytest.raises(ValueError):
        layout.device_mesh = mesh
    other = framework.distribution.TensorLayout(("modle",))
    with pytest.raises(ValueError):
        other.device_mesh = mesh


def test_one_axis_of_the_mesh_divides_one_axis():
    with pytest.raises(LayoutError, match="can divide one axis only"):
        TensorLayout(("model", "model"))
    two = TensorLayout((("batch", "model"), None), mesh_of())
    assert two.spec == PartitionSpec(("batch", "model"), None)


@BOTH
def test_rules_match_whole_paths(framework):
    mesh = mesh_of(framework)
    layout = framework.distribution.LayoutMap(mesh)
    layout[".*dense.*kernel"] = (None, "model")
    layout["special/dense/kernel"] = framework.distribution.TensorLayout(("model",))
    assert layout["block/dense_1/kernel"].axes == (None, "model")
    assert layout["special/dense/kernel"].axes == ("model",)  # itself, before rules
    assert layout["block/dense_1/kernel_2"] is None and layout["gamma"] is None
    assert layout.get("gamma") is None and layout.device_mesh is mesh
    assert list(layout) == [".*dense.*kernel", "special/dense/kernel"]
    assert len(layout) == 2 and layout["special/dense/kernel"].device_mesh is mesh
    del layout[".*dense.*kernel"]
    assert layout["block/dense_1/kernel"] is None
    with pytest.raises(KeyError):
        del layout["nothing"]


@BOTH
def test_what_both_refuse_of_rules(framework):
    layout = framework.distribution.LayoutMap(mesh_of(framework))
    layout[".*kernel"] = ("model",)
    with pytest.raises(ValueError):
        layout[".*kernel"] = ("batch",)
    with pytest.raises(ValueError):
        layout["bias"] = "model"
    with pytest.raises(ValueError):
        layout["bias"] = ("modle",)
    layout["dense/.*"] = ("model",)
    with pytest.raises(ValueError, match="dense/kernel"):
        _ = layout["dense/kernel"]


def test_a_rule_is_a_regular_expression():
    with pytest.raises(LayoutError, match="regular expression"):
        LayoutMap()["*kernel"] = ("model",)


def test_the_rules_that_match_are_named():
    layout = LayoutMap(mesh_of())
    layout[".*kernel"], layout["dense/.*"] = ("model",), ("model",)
    with pytest.raises(LayoutError) as caught:
        _ = layout["dense/kernel"]
    assert "'dense/kernel' is matched by 2 rules" in str(caught.value)
    assert ".*kernel" in str(caught.value) and "dense/.*" in str(caught.value)


def test_rules_go_to_another_mesh():
    layout = LayoutMap()
    layout["kernel"] = (None, "model")
    mesh = DeviceMesh((1,), ["model"], ONE)
    assert layout.device_mesh is None and layout["kernel"].device_mesh is None
    assert layout.with_mesh(mesh)["kernel"].device_mesh is mesh
    with pytest.raises(LayoutError, match="no axis 'model'"):
        layout.with_mesh(DeviceMesh((1,), ["data"], ONE))


def test_a_rule_that_matches_nothing():
    layout, paths = LayoutMap(), ["block/up/kernel", "block/up/bias", "norm/gamma"]
    layout["up/kernel"] = (None, "model")
    with pytest.raises(LayoutError) as caught:
        layout.check_use(paths)
    said = str(caught.value)
    assert "'up/kernel' matches no weight" in said and "block/up/kernel" in said
    assert "'.*up/kernel' would match" in said
    layout = LayoutMap()
    layout["blok/up/kernel"] = (None, "model")
    with pytest.raises(LayoutError, match="nearest paths: block/up/kernel"):
        layout.check_use(paths)


def test_a_rule_whose_paths_are_rules_themselves_is_used():
    layout = LayoutMap()
    layout[".*kernel"], layout["dense/kernel"] = ("model",), (None,)
    layout.check_use(["dense/kernel"])
