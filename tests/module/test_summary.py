"""Golden texts of model.summary()."""

import numpy as np
import pytest
from rich.cells import cell_len

import exburn
from exburn import layers
from exburn.errors import ArgumentError, ExBurnError
from exburn.module import summary
from exburn.module.outline import outline


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


def long_names():
    name = "block_{}_of_the_encoder_residual_expand_batch_normalization_layer"
    x = exburn.Input((4,), name="sensor_values_of_the_second_station_in_the_valley")
    parts = [layers.BatchNormalization(name=name.format(i))(x) for i in range(9)]
    return exburn.Model(x, layers.Add(name="sum")(parts))


def foreign_names():
    x = exburn.Input((4,), name="传感器数据")
    y = layers.Dense(4, name="第一个全连接层的非常长的名字用于测试表格宽度的名字")(x)
    z = layers.Dense(4, name="зʼєднання_🙂 of\nlines\t[red]\x1b[2J")(x)
    return exburn.Model(x, layers.Concatenate()([y, z, x]), name="模型" * 40)


def deep():
    model = exburn.Sequential([exburn.Input((4,)), layers.Dense(4)], name="level_0")
    for level in range(1, 9):
        model = exburn.Sequential([exburn.Input((4,)), model], name=f"level_{level}")
    return model


def mixed():
    x = exburn.Input((4,), name="x")
    policies = ["float32", "mixed_bfloat16", "bfloat16"]
    parts = [
        layers.Dense(
            2, name=f"a_layer_with_a_name_of_its_own_{i}", dtype=policies[i % 3]
        )
        for i in range(8)
    ]
    return exburn.Model(x, layers.Concatenate()([part(x) for part in parts]))


MODELS = {f.__name__: f for f in (mlp, nested, long_names, foreign_names, deep, mixed)}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param]()


@pytest.mark.parametrize("width", [34, 60, 80, 140, 300])
def test_each_layer_has_one_row_that_fits_any_line(model, width):
    shown = text(model, line_length=width, expand_nested=True)
    lines = shown.splitlines()
    assert max(map(cell_len, lines)) <= width
    count = len(outline(model, lambda layer: layer.is_model)[0])
    assert sum(line.startswith("│") for line in lines) == count
    assert "\x1b" not in shown and "\t" not in shown


@pytest.mark.parametrize("width", [60, 80])
def test_shortened_names_can_be_told_apart(width):
    rows = text(long_names(), line_length=width).splitlines()
    cells = [row.split("│")[1].strip() for row in rows if row.startswith("│")]
    assert len(set(cells)) == len(cells) == 11
    assert sum("…" in cell for cell in cells) == 10
    assert any(cell.startswith("block_8…") for cell in cells)


@pytest.mark.parametrize(
    ("width", "titles", "notes"),
    [
        (120, "Layer (type)|Output shape|Param #|dtype|Connected to", []),
        (70, "Layer (type)|Output shape|Param #|Connected to", ["dtype: float32"]),
        (
            48,
            "Layer (type)|Output shape|Param #",
            ["dtype: float32", "Left out, since the line is short: Connected to"],
        ),
    ],
)
def test_columns_go_one_after_another(width, titles, notes):
    lines = text(nested(), line_length=width).splitlines()
    assert "|".join(t.strip() for t in lines[2].strip("┃").split("┃")) == titles
    after = next(i for i, line in enumerate(lines) if line.startswith("└")) + 1
    assert [line.strip() for line in lines[after : after + len(notes)]] == notes
    assert lines[after + len(notes)].startswith(" Total params")


def test_a_few_other_dtypes_are_told_below_the_table():
    x = exburn.Input((4,), name="x")
    y = layers.Dense(2, name="low", dtype="bfloat16")(layers.Dense(3)(x))
    shown = text(exburn.Model(x, layers.Dense(2)(y)), line_length=62)
    assert " dtype: float32, bfloat16 of low\n" in shown


def test_a_terminal_of_a_few_columns_gets_its_rows(monkeypatch):
    monkeypatch.setattr(summary, "_width", lambda print_fn: 9)
    assert sum(line.startswith("│") for line in text(mlp()).splitlines()) == 3


def test_positions_say_where_columns_end():
    keras = text(mlp(), line_length=60, positions=[0.45, 0.80, 1.0]).splitlines()
    assert [i for i, c in enumerate(keras[2] + " ") if c == "┃"] == [0, 27, 48, 59]
    assert " dtype: float32" in keras
    ends = [20, 40, 50, 60]
    exact = text(mlp(), line_length=60, positions=ends, show_trainable=False)
    assert [i + 1 for i, c in enumerate(exact.splitlines()[2]) if c == "┃"] == [
        1,
        *(end + 1 for end in ends[:-1]),
        60,
    ]
    shown = text(
        mlp(), line_length=80, positions=[0.45, 0.80, 1.0], show_trainable=True
    )
    assert "Trainable" in shown and max(map(len, shown.splitlines())) == 80


BAD_OPTIONS = {
    "positions of another table": ({"positions": [0.5, 1.0]}, "where each of 4"),
    "positions that fall": ({"positions": [0.9, 0.5, 1.0]}, "leave each column"),
    "positions that are none": ({"positions": "wide"}, "must be numbers"),
    "a line without room": ({"line_length": 12}, "line_length must be at least"),
    "no length": ({"line_length": 0}, "line_length"),
    "one name": ({"layer_range": ["dense"]}, "a first and a last layer"),
    "a name alone": ({"layer_range": "ab"}, "a first and a last layer"),
    "numbers": ({"layer_range": (0, 1)}, "a first and a last layer"),
    "no expression": ({"layer_range": ("(", "dense")}, "is no regular expression"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_options_without_a_meaning_are_refused(case):
    options, message = BAD_OPTIONS[case]
    with pytest.raises(ArgumentError, match=message):
        text(mlp(), **options)


@pytest.mark.parametrize(
    ("span", "names"),
    [
        (("first", "inner"), ["first", "multiply", "inner", "└ dense", "└ dense_1"]),
        (("inner", "first"), ["first", "multiply", "inner", "└ dense", "└ dense_1"]),
        (("mul", "mul"), ["multiply"]),
        ((".*i", "b"), ["first", "multiply", "inner", "└ dense", "└ dense_1", "b"]),
    ],
)
def test_a_range_of_layers_holds_what_is_in_them(span, names):
    lines = text(nested(), layer_range=span, expand_nested=True).splitlines()
    cells = [line.split("│")[1].strip() for line in lines if line.startswith("│")]
    assert [cell.split(" (")[0] for cell in cells] == names


def test_print_fn_of_keras_with_line_break():
    seen = []
    mlp().summary(print_fn=lambda text, line_break=False: seen.append(text))
    assert "235,146" in seen[0]
