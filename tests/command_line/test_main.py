"""The command ``exburn``: what it says, and the codes it ends with."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

import exburn
from exburn.command_line import main as command_line
from exburn.errors import ArgumentError


def test_each_command_has_a_help(capsys):
    for name in command_line.COMMANDS:
        with pytest.raises(SystemExit) as end:
            command_line.main([name, "--help"])
        assert end.value.code == 0
        assert f"usage: exburn {name}" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        command_line.main(["--help"])
    shown = capsys.readouterr().out
    assert end.value.code == 0 and all(name in shown for name in command_line.COMMANDS)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["no-such-command"],
        ["runs", "no-such-action"],
        ["info"],
        ["completion", "fish"],
        ["serve"],
        ["--wrong"],
        ["bench", "m.exburn", "--rows", "-3"],
        ["bench", "m.exburn", "--runs", "0"],
        ["bench", "m.exburn", "--length", "x"],
        ["dashboard", "run", "--every", "nan"],
        ["dashboard", "run", "--every", "0"],
        ["runs", "compare", "run"],
    ],
)
def test_a_wrong_command_line_ends_with_2(words, capsys):
    with pytest.raises(SystemExit) as end:
        command_line.main(words)
    assert end.value.code == 2 and "usage: exburn" in capsys.readouterr().err
    for place in (0, len(words)):
        with pytest.raises(SystemExit) as end:
            command_line.main([*words[:place], "--json", *words[place:]])
        told = json.loads(capsys.readouterr().out)
        assert end.value.code == 2 and told["message"] and told["error"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rnus"], "unknown command 'rnus'\n  known: "),
        (["rnus"], "Did you mean 'runs'"),
        (["bench", "--rows", "0"], "exburn bench: argument --rows: must be a whole"),
        (["runs", "compare", "a"], "exburn runs compare: the following arguments"),
        (["info", "a", "--\x1b[2J"], "exburn: unrecognized arguments: --\\x1b[2J"),
    ],
)
def test_why_a_command_line_is_wrong(words, said, capsys):
    with pytest.raises(SystemExit):
        command_line.main(words)
    assert said in capsys.readouterr().err


def test_an_error_that_nobody_foresaw_is_json_too(monkeypatch, capsys):
    def fail(options):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(command_line.COMMANDS["doctor"], "run", fail)
    with pytest.raises(ZeroDivisionError):
        command_line.main(["doctor", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told == {"error": "ZeroDivisionError", "message": "by zero"}


@pytest.mark.parametrize(
    ("outcome", "code", "said"),
    [
        (None, 0, ""),
        (3, 3, ""),
        (ArgumentError("f", "no", hint="Yes."), 1, "exburn work: f: no\n  → Yes.\n"),
        (ArgumentError("work", "no"), 1, "exburn work: no\n"),
        (PermissionError(13, "Denied", "keys"), 1, "Denied: 'keys'"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_how_a_command_ends(outcome, code, said, monkeypatch, capsys):
    def run(options):
        assert options.number == 7
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def add_arguments(parser):
        parser.add_argument("number", type=int)

    command = SimpleNamespace(
        __doc__="Works.\n\n  exburn work 7\n", add_arguments=add_arguments, run=run
    )
    monkeypatch.setitem(command_line.COMMANDS, "work", command)
    assert command_line.main(["work", "7"]) == code
    assert said in capsys.readouterr().err


def test_the_module_is_the_command(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "exburn", "--version"],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, f"exburn {exburn.__version__}\n")
