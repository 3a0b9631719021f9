"""The dashboard as text: it fills its window exactly, whatever is in it."""

import io
import itertools

import pytest
from rich.cells import cell_len
from rich.console import Console

from exburn.callbacks.dashboard.figure import LiveFigure
from exburn.callbacks.dashboard.frame import TABS, draw_frame, to_text
from exburn.callbacks.dashboard.state import DashboardState, Series


def state_of(epochs=5, metrics=("loss", "accuracy")):
    clock = itertools.count(0.0, 0.5)
    state = DashboardState("digits", "CPU (x86_64)", lambda: next(clock))
    state.plan({"epochs": 10, "steps": 4, "batch_size": 32, "samples": 128})
    for epoch in range(epochs):
        state.begin_epoch(epoch)
        logs = {name: 1.0 / (epoch + 1 + i) for i, name in enumerate(metrics)}
        for step in range(1, 5):
            state.advance(step, logs)
        state.end_epoch(epoch, logs | {f"val_{n}": v * 1.1 for n, v in logs.items()})
    return state


def texts(state, width, height, plain=False, tab=None):
    lines = draw_frame(state, width, height, plain=plain, tab=tab)
    return ["".join(segment.text for segment in line) for line in lines]


@pytest.mark.parametrize("size", [(80, 24), (200, 60), (20, 4), (37, 9), (300, 12)])
@pytest.mark.parametrize(
    "metrics", [(), ("loss",), tuple("abcdefgh"), ("損失 φ\x1b[2J",)]
)
def test_it_fills_the_window(size, metrics):
    width, height = size
    state = state_of(metrics=metrics)
    state.messages.extend(f"line {n} \x1b[2J" for n in range(100))
    for plain, tab in itertools.product((False, True), (None, *TABS)):
        lines = texts(state, width, height, plain, tab)
        assert len(lines) == height
        assert {cell_len(line) for line in lines} == {width}
        assert "\x1b" not in "".join(lines)
        if plain:
            assert all(line.isascii() for line in lines) or "損失 φ\x1b[2J" in metrics


def test_it_shows_loss_eta_device_and_curves():
    page = "\n".join(texts(state_of(), 80, 24))
    for part in (
        "digits",
        "Epoch 6/10",
        "ETA",
        "samples/s",
        "CPU",
        "val",
        "⠀",
        "loss 0.2",
    ):
        assert part in page, page
    state = state_of(10)
    state.end("finished")
    page = "\n".join(texts(state, 80, 24))
    assert "finished" in page and "ETA" not in page and "Epoch 10/10" in page


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_titles_are_whole(width):
    names = "loss", "sparse_top_k_categorical_accuracy", "accuracy"
    lines = texts(state_of(metrics=names), width, 40)
    boxes = "".join(line for line in lines if line.startswith("╭"))
    assert all(f"─ {name} " in boxes for name in names)
    below = "".join(line for line in lines if line[0] in "╭╰")
    if width in (100, 200):  # panels with room for the values, beside or below
        assert below.count("val ") == 3


def test_a_title_that_no_window_holds_is_shortened():
    state = state_of(metrics=("a" * 100,))
    state.title = "t" * 200
    lines = texts(state, 60, 20)
    assert "t…t" in lines[0] and lines[0].rstrip().endswith("s")
    assert any("a…a" in line for line in lines)
    assert "a.a" in "".join(texts(state, 60, 20, plain=True))


def test_what_was_printed_is_below():
    state = state_of()
    state.messages += ["first", "second\tline"]
    assert "second  line" in texts(state, 80, 24)[-1]


def test_tabs_show_a_table_of_the_epochs_and_the_output():
    state = state_of(epochs=30)
    state.messages.extend(f"line {number}" for number in range(40))
    page = texts(state, 80, 24, tab="epochs")
    assert page[4].split()[:5] == ["1", "curves", "2", "epochs", "3"]
    assert page[5].split() == ["epoch", "loss", "accuracy", "val_loss", "val_accuracy"]
    assert page[-1].split() == ["30", "0.0333", "0.0323", "0.0367", "0.0355"]
    assert page[6].split()[0] == "13"  # what there is room for
    page = texts(state, 80, 24, tab="output")
    assert page[-1].strip() == "line 39" and page[5].strip() == "line 21"
    narrow = "\n".join(texts(state, 32, 24, tab="epochs")[5:])
    assert "loss   accuracy" in narrow and "val_loss" not in narrow


def test_colours_are_those_of_the_terminal():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system=None, width=80)
    plain = to_text(draw_frame(state_of(), 80, 24), console)
    console = Console(file=file, force_terminal=True, color_system="256", width=80)
    colored = to_text(draw_frame(state_of(), 80, 24), console)
    assert len(plain) == len(colored) == 24
    assert "\x1b[38" not in "".join(plain) and "\x1b[" in "".join(colored)


def test_the_eta_is_that_of_the_pace():
    now = 0.0
    state = DashboardState("m", clock=lambda: now)
    state.plan({"epochs": 4, "steps": 10})
    state.begin_epoch(0)
    now = 100.0  # compiled
    state.advance(1, {})
    now = 109.0
    state.advance(10, {})
    assert state.eta == pytest.approx(30.0)


def test_a_long_training_keeps_its_extremes():
    series = Series()
    for x in range(100_000):
        series.add(x, -5.0 if x == 77_777 else 1.0)
    assert len(series.points) <= 2000 and min(y for _, y in series.points) == -5.0


def test_the_figure_of_a_notebook():
    figure = LiveFigure(state_of())
    picture = figure._repr_svg_()
    assert picture.startswith("<svg xmlns=") and picture.count("<polyline") == 5
    assert "digits · training · epoch 5 of 10" in repr(figure)
