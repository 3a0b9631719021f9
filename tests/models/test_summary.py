"""Golden texts of model.summary()."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ExBurnError


def text(model, **options) -> str:
    seen = []
    model.summary(print_fn=seen.append, **options)
    assert len(seen) == 1
    return "\n".join(line.rstrip() for line in seen[0].splitlines())


def mlp():
    return exburn.Sequential(
        [
            exburn.Input((784,)),
            layers.Dense(256, activation="relu"),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ],
        name="mlp",
    )


MLP = """\
Model: mlp
┏━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━┓
┃ Layer (type)    ┃ Output shape ┃ Param # ┃ dtype   ┃
┡━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━┩
│ dense (Dense)   │ (None, 256)  │ 200,960 │ float32 │
│ dense_1 (Dense) │ (None, 128)  │  32,896 │ float32 │
│ dense_2 (Dense) │ (None, 10)   │   1,290 │ float32 │
└─────────────────┴──────────────┴─────────┴─────────┘
 Total params: 235,146 (918.54 KB)
 Trainable params: 235,146 (918.54 KB)
 Non-trainable state: 0 (0 B)
 FLOPs per sample: 469.50 K (forward)"""


def test_the_mlp_of_the_reference_system_has_235146_parameters():
    assert text(mlp()) == MLP


def test_compiled_frozen_and_with_a_column_for_it():
    model = mlp()
    model.layers[0].trainable = False
    model.compile("adam", "cross_entropy")
    lines = text(model, show_trainable=True).splitlines()
    assert lines[4] == (
        "│ dense (Dense) [frozen] │ (None, 256)  │ 200,960 │ float32 │ no        │"
    )
    assert lines[8:] == [
        " Total params: 235,146 (918.54 KB)",
        " Trainable params: 34,186 (133.54 KB)",
        " Frozen params: 200,960 (785.00 KB)",
        " Non-trainable state: 0 (0 B)",
        " Optimizer state: 68,378 (267.10 KB)",
        " FLOPs per sample: 469.50 K (forward)",
    ]


def nested():
    x = exburn.Input((8,), name="x")
    inner = exburn.Sequential([layers.Dense(4), layers.Dense(2)], name="inner")
    h = layers.Dense(4, name="first")(x)
    return exburn.Model(
        x, {"a": inner(h * 2), "b": layers.Dense(3, name="b")(h)}, name="nested"
    )


NESTED = """\
Model: nested
┏━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━━━┓
┃ Layer (type)        ┃ Output shape ┃ Param # ┃ dtype   ┃ Connected to ┃
┡━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━━┩
│ x (InputLayer)      │ (None, 8)    │       0 │ float32 │ -            │
│ first (Dense)       │ (None, 4)    │      36 │ float32 │ x            │
│ multiply (function) │ (None, 4)    │       0 │         │ first        │
│ inner (Sequential)  │ (None, 2)    │      30 │ float32 │ multiply     │
│   └ dense (Dense)   │ (None, 4)    │      20 │ float32 │ -            │
│   └ dense_1 (Dense) │ (None, 2)    │      10 │ float32 │ -            │
│ b (Dense)           │ (None, 3)    │      15 │ float32 │ first        │
└─────────────────────┴──────────────┴─────────┴─────────┴──────────────┘
 Total params: 81 (324 B)
 Trainable params: 81 (324 B)
 Non-trainable state: 0 (0 B)
 FLOPs per sample: 136 (forward)"""


def test_a_functional_model_with_a_nested_one():
    assert text(nested(), expand_nested=True) == NESTED
    assert "└ dense" not in text(nested())


def test_layer_range_and_line_length():
    lines = text(nested(), layer_range=("first", "inner"), line_length=90).splitlines()
    assert len(lines[1]) == 90
    assert sum(line.startswith("│") for line in lines) == 3
    with pytest.raises(ExBurnError, match="nothing"):
        text(nested(), layer_range=("first", "nothing"))


def test_a_subclass_shows_shapes_after_the_first_data():
    class Net(exburn.Model):
        def __init__(self):
            super().__init__()
            self.conv = layers.Conv2D(4, 3)
            self.norm = layers.BatchNormalization()
            self.out = layers.Dense(2)

        def call(self, x, training=False):
            x = self.norm(self.conv(x), training=training)
            return self.out(x.mean((1, 2)))

    model = Net()
    with pytest.raises(ExBurnError):
        model.summary()
    model.predict(np.ones((2, 8, 8, 1), np.float32), verbose=0)
    shown = text(model)
    assert "(None, 6, 6, 4)" in shown and "(None, 2)" in shown
    assert "Non-trainable state: 8 (32 B)" in shown
    # 6·6 positions × 4 filters × 3·3 inputs, and 4 × 2, two operations each
    assert "FLOPs per sample: 2.61 K (forward)" in shown


def test_print_fn_of_keras_with_line_break():
    seen = []
    mlp().summary(print_fn=lambda text, line_break=False: seen.append(text))
    assert "235,146" in seen[0]
