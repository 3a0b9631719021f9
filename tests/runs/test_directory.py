"""The folder of a run: whole, held by one process, never another's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exburn import runs
from exburn.errors import ArgumentError, MissingFileError, ModelFormatError
from exburn.runs import directory
from exburn.runs.directory import RunDirectory


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


@pytest.mark.slow
def test_what_a_killed_run_lists_is_there(tmp_path):
    killed(5, tmp_path)


@pytest.mark.long
@pytest.mark.longest
def test_a_thousand_kills(tmp_path):
    killed(1000, tmp_path)
