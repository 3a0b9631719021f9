"""The commands on files and runs: text, JSON, and exit codes."""

import argparse
import json

import pytest
from tests.runs.conftest import recorded, rows, small_model  # noqa: F401
from tests.saving.writers import WRITERS

import exburn
from exburn.command_line import main as command_line
from exburn.command_line.main import main


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    model, (x, y) = small_model(), rows()
    model.fit(x, y, verbose=0, run=folder / "run")
    model.save(folder / "m.exburn")
    model.save_weights(folder / "w.safetensors")
    (folder / "notes.txt").write_text("nothing")
    return folder


def told(capsys, *words, code=0):
    """What a command tells as JSON."""
    assert main([*map(str, words), "--json"]) == code, capsys.readouterr()
    return json.loads(capsys.readouterr().out)


def said(capsys, *words, code=0):
    """What a command tells people."""
    assert main([str(word) for word in words]) == code
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_every_command_takes_json():
    parser = command_line.make_parser()
    (actions,) = (
        a for a in parser._actions if isinstance(a, argparse._SubParsersAction)
    )
    for name, own in actions.choices.items():
        assert "--json" in own.format_help(), name


def test_doctor(capsys):
    found = told(capsys, "doctor")
    assert found["ok"] and found["checks"][0]["name"] == "ExBurn"
    assert "✓ Python" in said(capsys, "doctor")


def test_a_broken_machine_ends_with_1(capsys, monkeypatch):
    from exburn.diagnostics import doctor

    report = doctor.DoctorReport((doctor.Check("jax", "broken", "not installed"),))
    monkeypatch.setattr(doctor, "doctor", lambda: report)
    assert told(capsys, "doctor", code=1)["ok"] is False


def test_info(files, capsys):
    found = told(capsys, "info", files / "m.exburn")
    assert found["kind"] == "model" and found["model"]["parameters"] == 67
    assert found["input_shapes"] == [[None, 4]]
    assert "Total params: 67" in said(capsys, "info", files / "m.exburn")
    found = told(capsys, "info", files / "w.safetensors", "--tensors")
    assert (found["kind"], found["tensors"], found["numbers"]) == ("weights", 4, 67)
    assert [4, 8] in [tensor["shape"] for tensor in found["list"]]
    found = told(capsys, "info", files / "run")
    assert found["kind"] == "run" and found["state"] == "finished"
    found = told(capsys, "info", files / "run" / "checkpoints")
    assert found["kind"] == "checkpoints" and found["checkpoints"][0]["epoch"] == 1
    one = files / "run" / "checkpoints" / found["checkpoints"][0]["name"]
    assert told(capsys, "info", one)["kind"] == "checkpoint"
    for wrong in ("notes.txt", "absent"):
        found = told(capsys, "info", files / wrong, code=1)
        assert found["error"] in ("ArgumentError", "MissingFileError")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.exburn", b"", "is empty"),
        ("a.keras", b"hello", "does not hold what its suffix, .keras, says"),
        ("a.txt", b"hello", "is nothing that is known here"),
    ],
)
@pytest.mark.parametrize("command", ["info", "verify", "bench"])
def test_files_that_are_not_what_they_are_called(
    name, content, reason, command, capsys, tmp_path
):
    (tmp_path / name).write_bytes(content)
    assert reason in said(capsys, command, tmp_path / name, code=1)


def test_verify(files, capsys, tmp_path):
    whole = ["m.exburn", "w.safetensors", "run", "run/checkpoints"]
    found = told(capsys, "verify", *(files / name for name in whole))
    assert found["ok"] and all(one["checked"] for one in found["files"])
    data = bytearray((files / "m.exburn").read_bytes())
    data[-3] ^= 1
    (tmp_path / "bad.exburn").write_bytes(data)
    assert "✗ " in said(
        capsys, "verify", files / "m.exburn", tmp_path / "bad.exburn", code=1
    )
    found = told(capsys, "verify", tmp_path / "bad.exburn", code=1)
    assert "digest" in found["files"][0]["wrong"][0]


@pytest.mark.parametrize("kind", ["archive", "sweep"])
def test_verify_other_formats_of_our_own(kind, capsys, tmp_path):
    WRITERS[kind].write(tmp_path, 1)
    path = tmp_path / {"archive": "archive", "sweep": "sweep.json"}[kind]
    assert told(capsys, "info", path)["kind"] == kind
    assert "digest" in told(capsys, "verify", path)["files"][0]["checked"][0]
    file = next(path.glob("variables*")) if path.is_dir() else path
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    found = told(capsys, "verify", path, code=1)
    assert found["files"][0]["kind"] == kind and found["files"][0]["wrong"]


def test_verify_sees_a_damaged_checkpoint_of_a_run(files, capsys, tmp_path):
    import shutil

    shutil.copytree(files / "run", tmp_path / "run")
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    (checkpoint / "run.json").write_text("{}")
    found = told(capsys, "verify", tmp_path / "run", code=1)
    assert "run.json is not what was saved" in found["files"][0]["wrong"][0]


def test_convert(files, capsys, tmp_path):
    target = tmp_path / "w.safetensors"
    assert told(capsys, "convert", files / "m.exburn", target)["bytes"] > 200
    told(capsys, "convert", files / "m.exburn", target, code=1)  # it is there
    told(capsys, "convert", files / "m.exburn", target, "--force")
    copy = tmp_path / "copy.exburn"
    assert "copy.exburn" in said(capsys, "convert", files / "m.exburn", copy)
    x = rows(3)[0]
    before, after = (exburn.load_model(p) for p in (files / "m.exburn", copy))
    assert (before.predict(x, verbose=0) == after.predict(x, verbose=0)).all()
    for source, wrong in (("w.safetensors", "x.exburn"), ("m.exburn", "x.keras")):
        told(capsys, "convert", files / source, tmp_path / wrong, code=1)


def test_convert_exports(files, capsys, tmp_path):
    pytest.importorskip("onnxruntime")
    target = tmp_path / "m.onnx"
    found = told(capsys, "convert", files / "m.exburn", target)
    assert found["format"] == "onnx" and found["greatest_error"] < 1e-4
    found = told(capsys, "info", target)
    assert found["kind"] == "onnx" and found["inputs"][0]["shape"][1] == 4
    assert told(capsys, "verify", target)["ok"]
    target.write_bytes(target.read_bytes()[:100])
    told(capsys, "verify", target, code=1)
    told(capsys, "convert", files / "m.exburn", tmp_path / "m", code=1)


def test_bench(files, capsys):
    found = told(capsys, "bench", files / "m.exburn", "--rows", 2, "--runs", 3)
    assert found["rows"] == 2 and found["runs"] == 3 and found["median_ms"] > 0
    text = said(capsys, "bench", files / "m.exburn", "--runs", 3)
    assert all(f" {name} " in text for name in ("median", "p99", "warmup"))
    told(capsys, "bench", files / "w.safetensors", code=1)


def test_runs(recorded, capsys, monkeypatch, tmp_path):  # noqa: F811
    found = told(capsys, "runs", "list", recorded)
    assert [run["state"] for run in found["runs"]] == ["finished", "failed"]
    assert "first-2" in said(capsys, "runs", "list", recorded)
    found = told(capsys, "runs", "compare", recorded / "first", recorded / "first-2")
    assert found["differences"]["fit.epochs"] == [4, 3]
    monkeypatch.chdir(tmp_path)
    assert "fit(run='runs/first')" in said(capsys, "runs", code=1)
    assert told(capsys, "runs", "list", tmp_path) == {"runs": [], "unreadable": []}
    assert "there are no runs in" in said(capsys, "runs", "list", tmp_path)
    monkeypatch.chdir(recorded.parent)
    (recorded.parent / "notes.txt").write_text("nothing")
    error = told(capsys, "runs", "list", "nope", code=1)
    assert error["error"] == "MissingFileError"
    assert "folders with runs here: " in error["message"]
    assert recorded.name in error["message"]
    assert "is a file" in said(capsys, "runs", "list", "notes.txt", code=1)
    one = f"{recorded.name}/first"
    assert f"{one!r} is a run" in said(capsys, "runs", "list", one, code=1)
    first, absent = recorded / "first", recorded / "absent"
    error = told(capsys, "runs", "compare", first, absent, code=1)
    assert f"runs beside it: {first}" in error["message"]


def test_runs_that_cannot_be_read_are_listed_too(capsys, tmp_path):
    from exburn.runs.directory import RunDirectory

    for name in ("a", "b"):
        RunDirectory.create(tmp_path / name, {}, {}).close()
    (tmp_path / "b" / "config.json").write_text("{")
    found = told(capsys, "runs", "list", tmp_path, code=1)
    assert [run["name"] for run in found["runs"]] == ["a"]
    assert found["unreadable"][0]["error"] == "config.json is damaged"
    assert "config.json is damaged" in said(capsys, "runs", "list", tmp_path, code=1)
    # A folder of runs is none itself: it is told what is in it.
    assert str(tmp_path / "a") in said(capsys, "info", tmp_path, code=1)


def test_runs_are_removed_when_that_is_meant(capsys, tmp_path):
    from exburn.runs.directory import RunDirectory

    held = RunDirectory.create(tmp_path / "a", {}, {})
    RunDirectory.create(tmp_path / "b", {}, {}).close()
    told(capsys, "runs", "rm", tmp_path / "a", "--yes", code=1)  # it goes on
    told(capsys, "runs", "rm", tmp_path / "b", code=1)
    assert (tmp_path / "b").exists()
    told(capsys, "runs", "rm", tmp_path / "b", "--yes")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    held.close()


def test_report_and_dashboard(recorded, capsys, tmp_path):  # noqa: F811
    page = tmp_path / "page.html"
    found = told(capsys, "report", recorded / "first", "--output", page)
    assert found["bytes"] == page.stat().st_size
    text = said(capsys, "dashboard", recorded / "first", "--once")
    assert "finished" in text and "Epoch 4/4" in text and "⠀" in text
    assert told(capsys, "dashboard", recorded / "first")["epochs"] == 4
    told(capsys, "dashboard", tmp_path, code=1)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion(shell, capsys):
    pytest.importorskip("shtab")
    script = said(capsys, "completion", shell)
    assert "exburn" in script and "doctor" in script and "--json" in script


def test_the_package_of_completion_is_named(capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "shtab", None)
    assert "exburn[completion]" in said(capsys, "completion", "bash", code=1)
