"""Tests of ``exburn.utils.drawing``."""

import sys
import types

import pytest

import exburn
from exburn import errors, utils
from exburn.layers import Dense
from exburn.utils import drawing


def model():
    x = exburn.Input((4,), name="x")
    inner_input = exburn.Input((3,))
    inner = exburn.Model(inner_input, Dense(3, "tanh")(inner_input), name="inner")
    y = inner(Dense(3, name="first")(x))
    return exburn.Model(x, exburn.ops.concatenate([y, x * 2], axis=-1))


def test_the_source_of_a_picture(tmp_path):
    path = tmp_path / "model.dot"
    utils.plot_model(model(), path, show_shapes=True, show_layer_names=True)
    text = path.read_text()
    assert text.count("->") == 5
    assert "<b>Dense</b>" in text and "first" in text and "(None, 3)" in text
    assert "cluster" not in text
    full = {"show_layer_activations": True, "show_dtype": True, "show_trainable": True}
    utils.plot_model(model(), path, expand_nested=True, **full)
    text = path.read_text()
    assert text.count("subgraph cluster_") == 1 and text.count("->") == 5
    assert all(word in text for word in ("tanh", "float32", "Trainable: <b>True"))


def test_every_arrow_joins_boxes_that_exist(tmp_path):
    path = tmp_path / "model.dot"
    utils.plot_model(model(), path, expand_nested=True)
    lines = [line.strip(" ;") for line in path.read_text().splitlines()]
    boxes = {line.split()[0] for line in lines if "[label=" in line}
    arrows = [line.split(" -> ") for line in lines if " -> " in line]
    assert arrows and {end for arrow in arrows for end in arrow} <= boxes


def test_arrows_reach_the_right_box_of_models_with_several_inputs(tmp_path):
    p, q = exburn.Input((3,), name="p"), exburn.Input((3,), name="q")
    inner = exburn.Model([p, q], [Dense(3, name="left")(p), Dense(3, name="right")(q)])
    x = exburn.Input((3,), name="x")
    left, right = inner([x, x])
    path = tmp_path / "model.dot"
    outer = exburn.Model(x, [exburn.ops.tanh(right), exburn.ops.exp(left)])
    utils.plot_model(outer, path, expand_nested=True, show_layer_names=True)
    text = path.read_text()
    boxes = {}
    for line in text.splitlines():
        for name in ("left", "right", "tanh", "exp"):
            if "[label=<" in line and f"<td>{name} " in line:
                boxes[name] = line.split()[0]
    assert f"{boxes['right']} -> {boxes['tanh']};" in text
    assert f"{boxes['left']} -> {boxes['exp']};" in text


def test_pictures_without_graphviz(tmp_path, monkeypatch):
    monkeypatch.setattr(drawing.shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "pydot", None)
    with pytest.raises(errors.MissingDependencyError, match="graphviz"):
        utils.plot_model(model(), tmp_path / "model.png")
    with pytest.raises(errors.MissingDependencyError, match="pip install pydot"):
        utils.model_to_dot(model())
    with pytest.raises(errors.UnknownNameError):
        utils.plot_model(model(), tmp_path / "model.dot", rankdir="UP")

    class Own(exburn.Model):
        def call(self, x):
            return x

    with pytest.raises(errors.NotBuiltError):
        utils.plot_model(Own(), tmp_path / "model.dot")


def test_pydot_reads_the_source(monkeypatch):
    fake = types.ModuleType("pydot")
    fake.graph_from_dot_data = lambda text: [text]
    monkeypatch.setitem(sys.modules, "pydot", fake)
    assert utils.model_to_dot(model()).startswith("digraph")


def test_graphviz_is_run_and_its_complaint_is_shown(tmp_path, monkeypatch):
    program = tmp_path / "dot"
    program.write_text("#!/bin/sh\ncat\n")
    program.chmod(0o755)
    monkeypatch.setattr(drawing.shutil, "which", lambda name: str(program))
    utils.plot_model(model(), tmp_path / "model.svg")
    assert (tmp_path / "model.svg").read_text().startswith("digraph")
    program.write_text("#!/bin/sh\ncat >/dev/null\necho bad font >&2\nexit 1\n")
    with pytest.raises(errors.ExBurnError, match="bad font"):
        utils.plot_model(model(), tmp_path / "model.svg")
