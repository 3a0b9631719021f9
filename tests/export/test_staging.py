"""Tests of ``exburn.export.staging``."""

import fcntl
import os
import signal
import subprocess
import sys
import time

import pytest

from exburn.errors import ArgumentError, SaveError
from exburn.export import staging
from exburn.export.staging import stage

NAMES = ("0.txt", "1.txt")


def test_a_folder_takes_the_place_of_the_one_before(tmp_path):
    place = tmp_path / "model"
    for number in range(2):
        with stage(place, own_names=NAMES) as path:
            path.mkdir()
            (path / f"{number}.txt").write_text("content")
    assert os.listdir(place) == ["1.txt"] and os.listdir(tmp_path) == ["model"]
    with pytest.raises(ArgumentError, match="is a file, and no folder"):
        with stage(place / "1.txt", own_names=NAMES):
            pass


def test_a_folder_with_anything_else_in_it_stays(tmp_path, monkeypatch):
    place = tmp_path / "photos"
    place.mkdir()
    (place / "1.txt").write_text("content")
    (place / "cat.png").write_text("dear")
    with pytest.raises(ArgumentError, match="something else than an earlier export"):
        with stage(place, own_names=NAMES):
            pass
    assert sorted(os.listdir(place)) == ["1.txt", "cat.png"]
    os.unlink(place / "cat.png")
    monkeypatch.chdir(place)
    with pytest.raises(ArgumentError, match="working folder"):
        with stage(".", own_names=NAMES):
            pass
    assert os.listdir(tmp_path) == ["photos"]


def test_a_system_that_cannot_exchange_two_folders(tmp_path, monkeypatch):
    """A writer that is killed between the two renamings loses nothing for good."""
    monkeypatch.setattr(staging, "_exchanger", lambda: None)
    place = tmp_path / "model"
    for number in range(2):
        with stage(place, own_names=NAMES) as path:
            path.mkdir()
            (path / f"{number}.txt").write_text("content")
    assert os.listdir(place) == ["1.txt"]
    room = tmp_path / f".model.{'a' * 16}.tmp"
    room.mkdir()
    os.rename(place, room / "model.old")
    with pytest.raises(ZeroDivisionError):
        with stage(place, own_names=NAMES):
            raise ZeroDivisionError
    assert os.listdir(place) == ["1.txt"] and os.listdir(tmp_path) == ["model"]


def test_leftovers_of_killed_writers_go_and_those_of_living_ones_stay(tmp_path):
    dead, alive = (tmp_path / f".m.onnx.{c * 16}.tmp" for c in "ab")
    for room in (dead, alive):
        room.mkdir()
        (room / "m.onnx").write_text("half")
    lock = os.open(alive, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with stage(tmp_path / "m.onnx") as path:
        path.write_text("whole")
    os.close(lock)
    assert sorted(os.listdir(tmp_path)) == [alive.name, "m.onnx"]


def test_a_full_disk_is_told(tmp_path):
    with pytest.raises(SaveError, match="the disk is full"):
        with stage(tmp_path / "m.onnx"):
            raise OSError(28, "No space left on device")
    assert os.listdir(tmp_path) == []


def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path):
    code = (
        "import sys, itertools\n"
        "from exburn.export.staging import stage\n"
        "for number in itertools.count():\n"
        "    with stage(sys.argv[1]) as path:\n"
        "        path.write_text(f'{number} ' * 100_000)\n"
        "    print(number, flush=True)\n"
    )
    place = tmp_path / "m.onnx"
    for delay in (0.0, 0.004, 0.01, 0.017):
        command = [sys.executable, "-P", "-c", code, str(place)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(delay)
            writer.send_signal(signal.SIGKILL)
        words = place.read_text().split()
        assert len(words) == 100_000 and len(set(words)) == 1
    with stage(place) as path:
        path.write_text("whole")
    assert os.listdir(tmp_path) == ["m.onnx"]
