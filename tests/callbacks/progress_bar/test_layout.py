"""Rows of the progress that fit, with values in columns."""

import dataclasses
import math

import pytest
from rich.cells import cell_len

from exburn.callbacks.progress_bar.layout import Layout, Line, number_cell

LOSSES = [12.3456, 0.9, 1e-5, -0.25, math.nan, 123456.7, 2e9]
NAMES = {
    "loss": ["loss"],
    "classes": ["loss", "accuracy"],
    "words": ["loss", "准确率准确", "naïve_f1"],
    "outputs": [
        "loss",
        *(
            f"{n}_{m}"
            for n in ("steering", "throttle", "brake")
            for m in ("mse", "mae")
        ),
    ],
    "many": [f"metric_number_{i}_of_the_model" for i in range(14)],
}


def lines(names, validates=True, epochs=12, **options):
    """The finished lines of a run whose numbers, speeds and times differ widely."""
    made = []
    for epoch in range(epochs):
        value = LOSSES[epoch % len(LOSSES)]
        logs = [(name, value / (i + 1)) for i, name in enumerate(names)]
        if validates is True or epoch % 2:
            logs += [(f"val_{name}", value / (i + 2)) for i, name in enumerate(names)]
        seconds = ["0.1s", "59s", "1m00s", "9h59m"][epoch % 4]
        fields = {
            "fields": ("data wait 25%",) * (epoch % 3 == 0),
            "speed": f"{7 ** (epoch % 8):,} samples/s",
            "compiled": "compiled in 2.0s" * (epoch == 0),
        }
        fields |= options
        name = f"{epoch + 1}/{epochs}"
        made.append(
            Line(
                f"Epoch {name}", 11, 41, 41, "41/41", seconds, tuple(logs), epoch=name,
                **fields,
            )
        )  # fmt: skip
    return made


@pytest.mark.parametrize("width", [24, 40, 60, 80, 100, 120, 140, 200, None])
@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("expected", [True, False])
def test_rows_never_wrap_and_values_stand_below_each_other(names, width, expected):
    layout = Layout(width)
    if expected:
        layout.expect([*NAMES[names], *(f"val_{n}" for n in NAMES[names])])
    shown, places = [], {}
    for line in lines(NAMES[names]):
        live = layout.live(line)
        assert width is None or cells_of(live) <= width
        rows = layout.finish_line(line)
        assert width is None or max(map(cells_of, rows)) <= width
        shown.append(rows)
    if layout.table:
        assert len({len(rows) for rows in shown[1:]}) == 1  # the header stands once
        return
    for (row,) in shown:
        text = row.head + "━" * row.bar + "  " * bool(row.bar) + row.text
        for name in NAMES[names]:
            at = cell_len(text[: text.index(f"val_{name}: ")])
            places.setdefault(name, set()).add(at)
    slack = 1 if width is None else 0
    assert all(len(at) <= 1 + slack for at in places.values())


def cells_of(row):
    return cell_len(row.head) + (row.bar + 2 if row.bar else 0) + cell_len(row.text)


TABLE = """\
epoch    loss  accuracy  val_loss  val_accuracy   time
 1/12  12.346    6.1728    6.1728        4.1152   0.1s
 2/12  0.9000    0.4500    0.4500        0.3000    59s
 3/12  1.0e-5    5.0e-6    5.0e-6        3.3e-6  1m00s
 4/12  -0.250    -0.125    -0.125        -0.083  9h59m
 5/12     nan       nan       nan           nan   0.1s"""


@pytest.mark.parametrize("width", [54, 80])
def test_a_table_for_those_who_have_no_room(width):
    layout, rows = Layout(width), []
    for line in lines(NAMES["classes"])[:5]:
        rows += layout.finish_line(line)
    expected = TABLE.splitlines()
    expected[1] += "  compiled in 2.0s" if width == 80 else ""
    assert [row.head + row.text for row in rows] == expected


GRID = """\
epoch          loss  steering_mse  steering_mae   time
                val           val           val
       throttle_mse  throttle_mae     brake_mse
                val           val           val
          brake_mae
                val
 2/12        0.9000        0.4500        0.3000    59s
             0.4500        0.3000        0.2250
             0.2250        0.1800        0.1500
             0.1800        0.1500        0.1286
             0.1286
             0.1125"""


def test_validation_stands_below_training_where_one_row_is_not_enough():
    layout = Layout(54)
    rows = layout.finish_line(lines(NAMES["outputs"])[1])
    assert [row.text for row in rows] == GRID.splitlines()


def test_an_epoch_without_validation_leaves_its_places_free():
    names = ["loss", "learning_rate"]
    rows = []
    layout = Layout(None)
    for number, line in enumerate(lines(["loss"], validates=False, epochs=3)):
        more = Line(
            line.label, 9, 41, 41, line.count, line.time,
            (*line.metrics, ("learning_rate", 0.5)), epoch=line.epoch,
        )  # fmt: skip
        (row,) = layout.finish_line(more)
        rows.append(row.text.replace(str(number), str(number)))
    assert "val_loss" not in rows[0] and names[1] in rows[2]
    assert rows[1].index("learning_rate") == rows[2].index("learning_rate")


def test_a_table_at_any_width_and_a_new_column():
    layout = Layout(None, table=True)
    first, second, third = lines(["loss"], epochs=3)
    rows = layout.finish_line(first) + layout.finish_line(second)
    assert [row.text.split()[0] for row in rows] == ["epoch", "1/3", "2/3"]
    more = Line(
        third.label, 9, 1, 1, "", "", (*third.metrics, ("extra", 1.0)), epoch="3/3"
    )
    header, row = layout.finish_line(more)
    assert header.text.split() == ["epoch", "loss", "val_loss", "extra", "time"]


@pytest.mark.parametrize("width", [60, 80, 90, 100, 110, 120, 140])
def test_values_that_come_later_have_room(width):
    layout = Layout(width)
    names = [f"value_{i}" for i in range(8)]
    for number, line in enumerate(lines(["loss"], epochs=8)):
        logs = (*line.metrics, *((name, 0.5) for name in names[:number]))
        rows = layout.finish_line(dataclasses.replace(line, metrics=logs))
        assert max(map(cells_of, rows)) <= width
        assert "".join(row.text for row in rows).count("0.5000") >= number


def test_a_window_that_gets_narrower():
    layout = Layout(140)
    first, second = lines(NAMES["classes"], epochs=2)
    assert layout.finish_line(first)[0].bar
    layout.resize(60)
    assert [cells_of(row) <= 60 for row in layout.finish_line(second)] == [True, True]


def test_what_goes_on_is_shown_before_what_was_reached():
    line = lines(NAMES["classes"], fields=("ETA 3s", "validation 7"))[0]
    text = Layout(60).live(line).text
    assert "ETA 3s" in text and "val_loss" not in text
    assert "val_accuracy" in Layout(160).live(line).text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.0000"),
        (0.1961, "0.1961"),
        (9.99999, "10.000"),
        (12.3456, "12.346"),
        (-12.3456, "-12.35"),
        (123456.7, "123457"),
        (1e-4, "1.0e-4"),
        (-1e-4, "-1e-4"),
        (12345678.0, "1.23e7"),
        (1e300, "1e300"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        ("text", "text"),
        (None, "None"),
    ],
)
def test_a_number_takes_six_cells(value, text):
    assert number_cell(value) == text
