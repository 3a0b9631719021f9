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
    assert text(model).count("0 (unbuilt)") == 3
    model.predict(np.ones((2, 8, 8, 1), np.float32), verbose=0)
    shown = text(model)
    assert "(None, 6, 6, 4)" in shown and "(None, 2)" in shown
    assert "Non-trainable state: 8 (32 B)" in shown
    # 6·6 positions × 4 filters × 3·3 inputs, and 4 × 2, two operations each
    assert "FLOPs per sample: 2.61 K (forward)" in shown


def test_operations_of_all_steps_of_a_sequence_are_counted():
    class Net(exburn.Model):
        def __init__(self):
            super().__init__()
            self.out = layers.Dense(8)

        def call(self, x):
            return self.out(x)

    model = Net()
    model.predict(np.ones((2, 10, 4), np.float32), verbose=0)
    assert "FLOPs per sample: 640 (forward)" in text(model)  # 2 · 10 · 4 · 8


def test_a_stack_without_shapes_is_shown_unbuilt():
    model = exburn.Sequential([layers.Dense(8), layers.Dense(2)])
    model.compile("adam", "mse")
    shown = text(model)
    assert shown.count("?") == 2 and "dense_1 (Dense)" in shown
    assert "Total params: 0" in shown and "Optimizer state" not in shown
    assert "Total params: 0" in text(exburn.Sequential())


@pytest.mark.parametrize("width", [72, 80])
@pytest.mark.parametrize("functional", [False, True])
def test_long_names_break_between_words(width, functional):
    name = "block_12_of_the_encoder_residual_expand_batch_normalization_layer"
    x = exburn.Input((4,), name="sensor_values_of_the_second_station_in_the_valley")
    y = layers.BatchNormalization(name=name)(x)
    model = exburn.Model(x, layers.Add(name="sum")([x, y]) if functional else y)
    shown = []
    model.summary(line_length=width, print_fn=shown.append)
    lines = shown[0].splitlines()
    assert max(map(len, lines)) <= width
    cells = [line.split("│")[1].strip() for line in lines if "│" in line]
    assert any(cell.endswith("_") for cell in cells)
    words = {word for cell in cells for word in cell.replace("_", " ").split()}
    assert {"block", "encoder", "residual", "expand", "normalization"} <= words


def test_print_fn_of_keras_with_line_break():
    seen = []
    mlp().summary(print_fn=lambda text, line_break=False: seen.append(text))
    assert "235,146" in seen[0]
