"""Tests of ``exburn.module.notebook``: what models and layers show of themselves."""

import numpy as np
import pytest
from tests.visualization.html_pages import Page

import exburn
from exburn import layers


def read(layer):
    return Page(layer._repr_html_()).check()


class Block(layers.Layer):
    def __init__(self, units, **options):
        super().__init__(**options)
        self.up, self.parts = layers.Dense(units), [layers.LayerNormalization()]

    def call(self, x):
        return self.parts[0](self.up(x))


class Net(exburn.Model):
    def __init__(self):
        super().__init__()
        self.block, self.out = Block(3, name="block"), layers.Dense(2)

    def call(self, x):
        return self.out(self.block(x))


def nested():
    x = exburn.Input((4,), name="x")
    inner = exburn.Sequential([layers.Dense(4), Block(4)], name="<inner>")
    return exburn.Model(x, inner(x) * 2, name="nested")


def trained_in_part():
    model = nested()
    model.get_layer("<inner>").trainable = False
    return model


def called():
    model = Net()
    model.predict(np.ones((2, 4), np.float32), verbose=0)
    return model


SHOWN = {
    "nested": (nested, 2, ["nested", "<inner>", "multiply", "(None, 4)", "params: 48"]),
    "frozen": (trained_in_part, 2, ["Sequential · frozen", "Frozen params: 48"]),
    "a subclass": (
        called,
        1,
        ["block", "(None, 3)", "LayerNormalization", "params: 29"],
    ),
    "without shapes": (Net, 1, ["block", "?", "unbuilt", "Total params: 0"]),
    "empty": (exburn.Sequential, 0, ["Sequential", "not built yet"]),
    "a layer": (lambda: called().out, 0, ["kernel", "(3, 2)", "8 (32 B)"]),
    "a block": (
        lambda: called().block,
        0,
        ["layer_normalization", "Dense", "params: 21"],
    ),
    "a new layer": (lambda: layers.Dense(3), 0, ["Dense", "not built yet"]),
    "no weights": (lambda: nested().layers[0], 0, ["no weights"]),
}


@pytest.mark.parametrize("case", SHOWN)
def test_what_is_shown(case):
    make, folds, words = SHOWN[case]
    page = read(make())
    assert page.names.count("details") == folds
    assert [word for word in words if word not in page.text] == []


def test_plain_text_stays():
    assert repr(nested()) == "<Model name=nested, built=True>"


def test_long_models_are_cut(monkeypatch):
    monkeypatch.setattr("exburn.module.notebook._MOST_ROWS", 3)
    stack = [layers.Dense(2) for _ in range(5)]
    page = read(exburn.Sequential([exburn.Input((2,)), *stack]))
    assert "2 more: summary()" in page.text and page.names.count("tr") == 4


NAMES = {  # of a family's layers, and the blocks that are folded
    "conv{}_block{}_{}_conv": ["conv0", "conv0_block0", "conv1_block2", "conv2"],
    "block_{}{}_{}_expand": ["block_00", "block_12"],
    "encoder_layer_{}_part_{}_{}": ["encoder_layer_0", "encoder_layer_0_part_1"],
}


@pytest.mark.parametrize("names", NAMES)
def test_blocks_of_a_long_flat_model_are_folded(names):
    stack = [
        layers.Dense(2, name=names.format(a, b, c))
        for a in range(3) for b in range(3) for c in range(5)
    ]  # fmt: skip
    last = layers.Dense(2, name="predictions")
    model = exburn.Sequential([exburn.Input((2,)), *stack, last])
    page = read(model)
    rows = page.text.split("Params")[1]
    for name in NAMES[names]:
        assert f"{name} " in rows
    assert page.names.count("details") in (9, 12)
    assert page.names.count("summary") == page.names.count("details")
    assert all(layer.name in rows for layer in model.layers)
    assert "15 layers" in rows or "5 layers" in rows
