"""Text for people, and names in it that are none."""

import ast
import contextlib
import io
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

import exburn
from exburn import layers
from exburn.compression import sparsity
from exburn.core.printing import (
    Plain,
    amount_text,
    notebook_shell,
    page_text,
    print_text,
    size_text,
)
from exburn.errors import (
    ArgumentError,
    CheckpointWarning,
    ModelFormatError,
    printable,
    unknown_name,
    warn,
)


@pytest.mark.parametrize(
    ("function", "number", "text"),
    [
        (size_text, 1023, "1023 B"),
        (size_text, 1536, "1.50 KB"),
        (size_text, 3 << 40, "3.00 TB"),
        (amount_text, 999, "999"),
        (amount_text, 2_500_000, "2.50 M"),
        (amount_text, 4e12, "4.00 T"),
    ],
)
def test_numbers(function, number, text):
    assert function(number) == text


def test_a_page_is_as_wide_as_it_is_told_and_has_no_colours():
    table = Table(title="A")
    table.add_column("b")
    table.add_row("long " * 20)
    text = page_text(table, 30)
    assert max(map(len, text.splitlines())) <= 30 and "\x1b" not in text


def test_only_the_kernel_of_a_notebook_is_a_notebook(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert notebook_shell() is None
    for shell, is_one in (
        (None, False),
        (types.SimpleNamespace(), False),  # a terminal
        (types.SimpleNamespace(kernel=None), False),
        (types.SimpleNamespace(kernel=1), True),
    ):
        module = types.SimpleNamespace(get_ipython=lambda shell=shell: shell)
        monkeypatch.setitem(sys.modules, "IPython", module)
        assert (notebook_shell() is shell) == is_one or shell is None
        assert (notebook_shell() is not None) == is_one


ODD = {
    "escapes": "\x1b[2J\x1b]0;title\x07\x9b31m",
    "controls": "\x00\x08\r\x7f\x85",
    "directions": "\u202e\u2066\u200f\ufeff",
    "separators": "\u2028\u2029",
    "a lone surrogate": "\ud800",
    "tags": "\U000e0041",
}
PLAIN = "naïve ✓ – 你好 👩\u200d🔬 a\tb\nc | [x] \\ ä\u00a0b"


def is_shown(text):
    """Tells whether a terminal shows all of a text, and an encoding has all of it."""
    text.encode()
    return printable(text) == text


@pytest.mark.parametrize("kind", ODD)
def test_what_acts_on_a_terminal_is_escaped(kind):
    shown = printable(f"a{ODD[kind]}b")
    assert is_shown(shown) and shown.isascii() and shown.isprintable()
    assert shown.startswith("a\\") and shown.endswith("b")


def test_ordinary_text_stays_as_it_is():
    assert printable(PLAIN) == PLAIN
    assert printable(printable(ODD["escapes"])) == printable(ODD["escapes"])


@pytest.mark.parametrize("kind", ODD)
def test_errors_and_warnings_show_names(kind):
    name = ODD[kind]
    error = ArgumentError(name, name, {name: name}, hint=name)
    assert is_shown(str(error)) and str(error).count("\n") == 2
    assert is_shown(str(unknown_name("layer", name, [name, f"{name}x"])))
    with pytest.warns(CheckpointWarning) as caught:
        warn(name, CheckpointWarning)
    assert is_shown(str(caught[0].message))


def test_a_name_of_megabytes_is_cut_in_errors():
    name = "n" * 3_000_000
    error = ArgumentError("load", f"no {name}", {name[:50]: name}, hint=name)
    assert len(str(error)) < 10_000
    assert len(str(unknown_name("layer", name, [name + "x", name + "y"]))) < 10_000


@pytest.mark.parametrize("kind", [*ODD, "markup"])
def test_tables_and_lines_show_names(kind, capsys):
    name = ODD.get(kind, "[/nothing] [red]x :fire:")
    table = Table(title="title")
    table.add_column("name")
    table.add_row(name)
    colored = Console(file=io.StringIO(), force_terminal=True, width=90)
    colored.print(Plain(table))
    print_text(name)
    for text in (page_text(table, 90), capsys.readouterr().out):
        assert is_shown(text)
        if kind == "markup":
            assert name in text
    assert name not in colored.file.getvalue() or kind == "markup"


def named_model(name):
    """A model whose names are all odd, also those that it logs."""
    x = exburn.Input((3,), name=f"x{name}")
    y = layers.Dense(2, name=f"dense{name}")(x)
    model = exburn.Model(x, y, name=f"model{name}")
    metric = exburn.metrics.MeanSquaredError(name=f"mse{name}")
    model.compile("sgd", "mse", metrics=[metric])
    return model


def output(model, tmp_path):
    """Everything that is printed of a model."""
    data = np.ones((8, 3), "float32"), np.ones((8, 2), "float32")
    shown = io.StringIO()
    terminal = Console(file=io.StringIO(), color_system=None, width=90)
    with contextlib.redirect_stdout(shown):
        model.summary()
        model.summary(print_fn=print)
        history = model.fit(*data, verbose=2, epochs=2)
        model.evaluate(*data, verbose=2)
        model.fit(*data, verbose=0, callbacks=[exburn.callbacks.LoggingCallback()])
        print(model, model.layers, model.inputs, model.weights[0], history)
        print(model.profile(*data), model.explain_plan())
        bar = exburn.utils.Progbar(2, verbose=2)
        bar.update(2, [(model.layers[-1].name, 0.5)])
        model.save_weights(tmp_path / "w.safetensors")
        print(model.load_weights(tmp_path / "w.safetensors"))
        print(sparsity(model))
    for thing in (model.profile(*data), sparsity(model)):
        terminal.print(thing)
    return shown.getvalue() + terminal.file.getvalue()


@pytest.mark.parametrize("kind", ["escapes", "directions"])
def test_what_is_printed_of_a_model_shows_its_names(kind, tmp_path):
    text = output(named_model(ODD[kind]), tmp_path)
    assert is_shown(text)
    assert "dense\\" in text and "mse\\" in text


def test_errors_about_a_file_show_the_names_in_it(tmp_path):
    model = named_model(ODD["escapes"])
    model.save_weights(tmp_path / "w.safetensors")
    with pytest.raises(ModelFormatError) as caught:
        exburn.load_model(tmp_path / "w.safetensors")
    assert is_shown(str(caught.value))


PRINTS = {  # where print itself may stand, since no name goes through it
    "exburn/core/printing.py",
    "exburn/command_line/demo.py",
    "exburn/runtime/sharding/joining.py",
    "exburn/runtime/sharding/liveness.py",
    "exburn/command_line/dashboard.py",
    "exburn/command_line/output.py",
    "exburn/utils/keras_alias.py",
    "exburn/utils/keras_private.py",
}


def test_nothing_else_prints():
    """Text goes through print_text, page_text and errors, where names are escaped."""
    root = Path(exburn.__file__).resolve().parents[1]
    found = set()
    for folder in ("exburn", "layers", "optimizers", "callbacks", "datasets"):
        for path in (root / folder).rglob("*.py"):
            text = path.read_text("utf-8")
            for node in ast.walk(ast.parse(text)) if "print(" in text else ():
                called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                if called and node.func.id == "print":
                    found.add(path.relative_to(root).as_posix())
    assert found == PRINTS
