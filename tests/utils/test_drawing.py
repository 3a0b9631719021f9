"""Tests of ``exburn.utils.drawing``."""

import sys
import types
from xml.etree import ElementTree

import pytest

import exburn
from exburn import errors, utils
from exburn.layers import Dense


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
    assert all(word in text for word in ("tanh", "float32", "trainable: <b>yes"))


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


def test_svg_needs_no_other_package(tmp_path, monkeypatch):
    for name in ("matplotlib", "matplotlib.figure", "pydot"):
        monkeypatch.setitem(sys.modules, name, None)
    drawn = utils.plot_model(model(), tmp_path / "model.svg", show_layer_names=True)
    root = ElementTree.parse(tmp_path / "model.svg").getroot()
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Input", "Dense", "first", "inner", "Model", "concatenate"} <= set(texts)
    assert repr(drawn).endswith(": 5 boxes, 5 arrows>")
    with pytest.raises(errors.MissingDependencyError, match=r"exburn\[plot\]"):
        utils.plot_model(model(), tmp_path / "model.png")
    with pytest.raises(errors.MissingDependencyError, match="pip install pydot"):
        utils.model_to_dot(model())


class Own(exburn.Model):
    def call(self, x):
        return x


REFUSED = {
    "a direction": ({"rankdir": "UP"}, errors.UnknownNameError, "rankdir"),
    "arrows": ({"splines": "knots"}, errors.UnknownNameError, "splines"),
    "a format": ({"to_file": "model.docx"}, errors.UnknownNameError, "format"),
    "no dots": ({"dpi": 0}, errors.ArgumentError, "dpi"),
    "no range": ({"layer_range": "first"}, errors.ArgumentError, "layer_range"),
    "no layer": ({"layer_range": ("x", "y")}, errors.ArgumentError, "matches no"),
    "pixels": ({"dpi": 10**6}, errors.ArgumentError, "60,000 pixels"),
    "no graph": ({"model": Own()}, errors.NotBuiltError, "has no graph"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_drawn_is_refused_by_name(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        utils.plot_model(**{"model": model(), "to_file": "m.png"} | options)
    assert list(tmp_path.iterdir()) == []


ROWS = {
    "show_shapes": ["input: (None, 4)", "output: (None, 3)"],
    "show_dtype": ["dtype: float32"],
    "show_layer_names": ["first", "x"],
    "show_layer_activations": ["activation: linear"],
    "show_trainable": ["trainable: yes", "trainable: no"],
}


@pytest.mark.parametrize("option", ROWS)
def test_each_option_adds_lines_of_its_own(option):
    drawn = model()
    drawn.get_layer("inner").trainable = False
    svg = utils.plot_model(drawn, None, **{option: True}).to_svg()
    plain = utils.plot_model(drawn, None).to_svg()
    for text in ROWS[option]:
        assert f">{text}</text>" in svg and f">{text}</text>" not in plain


def test_nested_models_are_a_box_or_a_frame():
    folded = utils.plot_model(model(), None, show_layer_names=True)
    assert not folded.frames and ">inner</text>" in folded.to_svg()
    opened = utils.plot_model(model(), None, expand_nested=True)
    assert [f.title for f in opened.frames.values()] == ["inner (Model)"]
    assert len(opened.boxes) == len(folded.boxes) and len(opened.arrows) == 5


def test_a_range_of_layers_is_drawn_alone():
    drawn = utils.plot_model(
        model(), None, layer_range=("first", "inner"), expand_nested=True
    )
    assert [box.title for box in drawn.boxes.values()] == ["Dense", "Dense"]
    assert len(drawn.arrows) == 1 and len(drawn.frames) == 1


@pytest.mark.parametrize("kind", ["png", "pdf", "jpg", "svg", "dot"])
def test_the_suffix_says_the_format(kind, tmp_path):
    begins = {
        "png": b"\x89PNG", "pdf": b"%PDF", "jpg": b"\xff\xd8", "svg": b"<svg",
        "dot": b"digraph",
    }  # fmt: skip
    path = tmp_path / f"model.{kind.upper()}"
    utils.plot_model(model(), path, dpi=50)
    assert path.read_bytes().startswith(begins[kind])


def test_dots_per_inch_are_those_of_the_picture(tmp_path):
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "model"  # as in Keras, a file without suffix is a PNG
    drawn = utils.plot_model(model(), path, dpi=192)
    with image.open(path) as picture:
        width, height = picture.size
    assert abs(width - 2 * drawn.width) <= 2 and abs(height - 2 * drawn.height) <= 2


def test_pydot_reads_the_source(monkeypatch):
    fake = types.ModuleType("pydot")
    fake.graph_from_dot_data = lambda text: [text]
    monkeypatch.setitem(sys.modules, "pydot", fake)
    assert utils.model_to_dot(model()).startswith("digraph")
