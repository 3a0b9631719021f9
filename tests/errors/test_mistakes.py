"""The mistakes of a first day: how long a traceback is, and what its last line says."""

import itertools
import linecache
import os
import subprocess
import sys
import traceback

import pytest
from tests.errors.mistakes import MISTAKES, PREAMBLE

SCRIPT_LINES = 12
CELL_LINES = 40
KERAS = "layers of Keras"  # which takes seconds to import
# Of each kind one: a call, a user's function, a name, a file.
IN_PROCESSES = [
    *("columns that are missing", "shapes that do not fit in call"),
    *("a layer that is misspelt", "a file that is no model"),
]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def check(name, text, most):
    """Not too many lines; the cause, and in the last one the cure."""
    mistake, lines = MISTAKES[name], text.rstrip().splitlines()
    assert len(lines) <= most, text
    assert mistake.cause in text, text
    assert mistake.cure in ("-", *lines) or mistake.cure in lines[-1], text
    assert not lines[-1].startswith(("in ", "For simplicity", "  received")), text
    for hidden in ("site-packages", "exburn/errors", "exburn/models", "jax/_src"):
        assert hidden not in text.replace(str(os.getcwd()), ""), text


def raised_by(name):
    """What a script raises, run in this process."""
    source = PREAMBLE + MISTAKES[name].program
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    code = compile(source, name, "exec")
    with pytest.raises(Exception) as caught:
        exec(code, {"__name__": "__main__"})
    return caught.value


@pytest.mark.parametrize("name", MISTAKES)
def test_a_script_ends_in_a_few_lines_of_which_the_last_says_what_to_do(name):
    error = raised_by(name)
    line = error.__traceback__.tb_next  # without this test's
    text = "".join(traceback.format_exception(type(error), error, line))
    check(name, text, SCRIPT_LINES)
    frames = traceback.extract_tb(line)
    assert [frame.filename for frame in frames] == [name] * (1 + MISTAKES[name].frames)


@pytest.fixture(scope="module")
def shell():
    """A shell of IPython, which shows errors as notebooks do."""
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    shell = interactive.InteractiveShell.instance(colors="nocolor")
    yield shell
    interactive.InteractiveShell.clear_instance()


@pytest.mark.parametrize("name", MISTAKES)
def test_a_cell_ends_in_few_lines_too(name, shell, capsys):
    assert shell.run_cell(PREAMBLE).success
    capsys.readouterr()
    assert not shell.run_cell(MISTAKES[name].program).success
    text = capsys.readouterr().out
    check(name, text[text.index("-----") :], CELL_LINES)
    assert text.count("Cell In[") == text.count("line ") - text.count("skipping"), text


def test_there_are_as_many_mistakes_as_were_promised():
    assert len(MISTAKES) >= 49


@pytest.mark.parametrize("name", IN_PROCESSES)
def test_a_process_says_the_same(name, tmp_path):
    path = tmp_path / "first.py"
    path.write_text(PREAMBLE + MISTAKES[name].program)
    command = [sys.executable, "-P", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    text = done.stderr[done.stderr.index("Traceback") :]
    check(name, text, SCRIPT_LINES)


def test_everything_is_shown_where_the_environment_says_so(tmp_path):
    path = tmp_path / "first.py"
    path.write_text(PREAMBLE + MISTAKES["shapes that do not fit in call"].program)
    command = [sys.executable, "-P", str(path)]
    environment = os.environ | {"EXBURN_TRACEBACK_FILTERING": "off"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment
    )
    assert "exburn/module/layer" in done.stderr and "jax/_src" in done.stderr


def test_a_notebook_says_the_same(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    programs = [PREAMBLE, *(MISTAKES[name].program for name in IN_PROCESSES)]
    cells = [nbformat.v4.new_code_cell(program) for program in programs]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client.NotebookClient(
        notebook, allow_errors=True, timeout=300, kernel_name="python3"
    ).execute(cwd=str(tmp_path))
    outputs = [cell.outputs for cell in notebook.cells[1:]]
    for name, output in zip(IN_PROCESSES, outputs, strict=True):
        (error,) = [part for part in output if part.output_type == "error"]
        text = _without_colours("\n".join(error.traceback))
        check(name, text, CELL_LINES)


def _without_colours(text):
    parts = text.split("\x1b[")
    rest = (part.partition("m")[2] for part in parts[1:])
    return "".join(itertools.chain(parts[:1], rest))
