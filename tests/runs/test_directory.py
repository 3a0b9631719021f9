"""The folder of a run: whole, held by one process, never another's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from exburn import runs
from exburn.callbacks.dashboard.frame import draw_frame, to_text
from exburn.command_line.dashboard import state_of
from exburn.command_line.main import main
from exburn.errors import (
    ArgumentError,
    FileFormatError,
    MissingFileError,
    ModelFormatError,
    SaveError,
    printable,
)
from exburn.runs import directory
from exburn.runs.directory import RunDirectory
from exburn.saving.seal import seal_document, seal_line


def test_names_are_numbered_and_held(tmp_path, monkeypatch):
    monkeypatch.setattr(directory, "_PATIENCE", 0.0)
    (tmp_path / "b").mkdir()  # an empty folder is used
    made = [RunDirectory.create(tmp_path / name, {}, {}) for name in "aabaa"]
    assert [m.path.name for m in made] == ["a", "a-2", "b", "a-3", "a-4"]
    assert runs.read(tmp_path / "a").state == "running"
    with pytest.raises(ArgumentError, match="another process writes"):
        RunDirectory.go_on(tmp_path / "a")
    for one in made:
        one.close()
    assert runs.read(tmp_path / "a").state == "killed"
    RunDirectory.go_on(tmp_path / "a").close()


def test_leftovers_of_killed_processes_go_and_those_of_living_ones_stay(tmp_path):
    old, young = tmp_path / ".a.0.unfinished", tmp_path / ".a.1.unfinished"
    for left in (old, young):
        left.mkdir()
    os.utime(old, (0, 0))
    RunDirectory.create(tmp_path / "a", {}, {}).close()
    assert not old.exists() and young.exists()
    assert [run.name for run in runs.find(tmp_path)] == ["a"]


def test_what_is_damaged_is_told(tmp_path):
    RunDirectory.create(tmp_path / "a", {"id": "x"}, {}).close()
    with open(tmp_path / "a" / "metrics.jsonl", "a") as file:
        file.write('{"kind": "epoch", "epo')  # the power was lost
    assert runs.read(tmp_path / "a").damaged == 1
    again = RunDirectory.go_on(tmp_path / "a")
    again.metrics.add({"kind": "epoch", "epoch": 0, "logs": {"loss": 1.0}})
    again.close()
    run = runs.read(tmp_path / "a")
    assert run.damaged == 1 and run.last == {"loss": 1.0}
    (tmp_path / "a" / "config.json").write_text("{")
    with pytest.raises(ModelFormatError, match=r"config\.json is damaged"):
        runs.read(tmp_path / "a")
    with pytest.raises(MissingFileError, match="no run"):
        runs.read(tmp_path / "b")


@pytest.mark.parametrize(
    ("file", "value", "said"),
    [
        ("config.json", {"fit": [1]}, "fit has another type"),
        ("config.json", {"model": {"parameters": "7"}}, r"model\.parameters has"),
        ("config.json", {"fit": {"epochs": 10**400}}, r"fit\.epochs has"),
        ("environment.json", {"device": 3}, "device has another type"),
        ("environment.json", None, r"environment\.json is absent"),
        ("events.jsonl", None, r"events\.jsonl is absent"),
    ],
)
def test_a_run_that_cannot_be_read_is_an_error(file, value, said, tmp_path):
    RunDirectory.create(tmp_path / "a", {"id": "x"}, {}).close()
    RunDirectory.create(tmp_path / "b", {}, {}).close()
    if value is None:
        (tmp_path / "a" / file).unlink()
    else:
        format = directory._FORMATS[file]
        (tmp_path / "a" / file).write_bytes(seal_document(format, value))
    with pytest.raises(ModelFormatError, match=said):
        runs.read(tmp_path / "a")
    assert [run.name for run in runs.find(tmp_path)] == ["b"]


@pytest.mark.parametrize(
    "record",
    [
        {"epoch": 0, "step": 10**30, "kind": "chunk"},
        {"epoch": 0, "kind": "epoch", "logs": [1]},
        {"epoch": 0, "kind": "epoch", "host_bytes": "many"},
        {"time": "noon", "event": "begin"},
        {"event": 5},
        {"event": "nan", "values": 3, "time": 1.0},
    ],
)
def test_a_record_of_other_types_is_damaged(record, tmp_path):
    RunDirectory.create(tmp_path / "a", {}, {}).close()
    name = "metrics.jsonl" if "kind" in record else "events.jsonl"
    (tmp_path / "a" / name).write_bytes(seal_line(record) + b"\n")
    assert runs.read(tmp_path / "a").damaged == 1


def test_values_that_say_nothing_are_shown_all_the_same(tmp_path):
    """Null, text, and numbers that are too long: the run is read and reported."""
    RunDirectory.create(tmp_path / "a", {"fit": None, "created": None}, {}).close()
    odd = {"kind": "epoch", "epoch": 0, "seconds": "NaN", "host_bytes": None}
    logs = {"loss": 10**400, "name": "text", "accuracy": None}
    (tmp_path / "a" / "metrics.jsonl").write_bytes(seal_line(odd | {"logs": logs}))
    begun = seal_line({"event": "begin"}) + b"\n" + seal_line({"event": "nan"})
    (tmp_path / "a" / "events.jsonl").write_bytes(begun)
    run = runs.read(tmp_path / "a")
    assert run.damaged == 0 and run.seconds == 0 and run.last == {"loss": float("inf")}
    assert runs.write_report(run).exists() and run.to_dict()["epochs"] == 1
    assert "inf" in str(runs.compare(run, run))
    assert state_of(run).elapsed_time == 0


FILES = ("config.json", "environment.json", "metrics.jsonl", "events.jsonl")
OTHERS = {"pipe": os.mkfifo, "device": lambda path: os.symlink("/dev/zero", path)}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("file", FILES)
def test_a_file_that_is_no_ordinary_one_is_an_error_at_once(file, kind, tmp_path):
    RunDirectory.create(tmp_path / "a", {"id": "x"}, {}).close()
    (tmp_path / "a" / file).unlink()
    OTHERS[kind](tmp_path / "a" / file)
    with pytest.raises((MissingFileError, ModelFormatError), match=f"no run|{file}"):
        runs.read(tmp_path / "a")
    with pytest.raises((MissingFileError, ModelFormatError)):
        runs.write_report(tmp_path / "a")
    assert runs.find(tmp_path) == []
    if file.endswith(".jsonl"):
        with pytest.raises(SaveError, match="could not be written"):
            RunDirectory.go_on(tmp_path / "a")


def test_a_file_of_lines_has_a_greatest_size(tmp_path, monkeypatch):
    RunDirectory.create(tmp_path / "a", {"id": "x"}, {}).close()
    os.truncate(tmp_path / "a" / "metrics.jsonl", 1 << 40)
    with pytest.raises(FileFormatError, match="at most"):
        runs.read(tmp_path / "a")


NAMES = {
    "a lone surrogate": "loss\ud800",
    "escapes of a terminal": "\x1b[2Jloss\x9b31m",
    "three megabytes": "n" * 3_000_000,
    "text that runs backwards": "\u202eloss",
    "markup": "</td><script>",
}


@pytest.mark.parametrize("kind", NAMES)
def test_names_of_any_kind_are_reported_and_shown(kind, tmp_path, capsys):
    name = NAMES[kind]
    made = RunDirectory.create(tmp_path / "a", {"model": {"name": name}, name: 1}, {})
    for epoch in range(4):
        logs = {name: 1.0 / (epoch + 1), f"val_{name}": 2.0}
        made.metrics.add({"kind": "epoch", "epoch": epoch, "logs": logs})
    made.events.add({"event": "nan", "values": {name: "NaN"}, "time": 1.0, name: name})
    made.events.add({"event": "failed", "error": name, "traceback": name})
    made.close()
    run = runs.read(tmp_path / "a")
    assert run.damaged == 0 and len(run.last) == 2
    page = runs.write_report(run).read_text("utf-8")
    assert len(page) < 1_000_000 and "<script" not in page
    shown = [str(runs.compare(run, run)), repr(run)]
    shown += ["\n".join(to_text(draw_frame(state_of(run), 100, 22), Console()))]
    for command in ("info", "verify", "dashboard", "report"):
        words = ["--once"] if command == "dashboard" else []
        assert main([command, str(run.path), *words]) == 0
        shown.append(capsys.readouterr().out)
    assert main(["runs", "list", str(tmp_path)]) == 0
    for text in (page, *shown, capsys.readouterr().out):
        assert printable(text) == text
        text.encode()
    assert all(len(text) < 100_000 for text in shown)


def killed(count, folder):
    farm = Path(__file__).with_name("kill_farm.py")
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(farm), str(count), str(folder)],
        env=os.environ | {"PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"{count} kills, 0 wrong" in done.stdout, done.stdout[-3000:]


def test_what_a_killed_run_lists_is_there(tmp_path):
    killed(5, tmp_path)


def test_a_thousand_kills(tmp_path):
    killed(1000, tmp_path)
