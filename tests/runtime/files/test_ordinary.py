"""Tests of ``exburn.runtime.files.ordinary``."""

import os
import socket
import tempfile
from pathlib import Path

import pytest

from exburn.errors import FileFormatError, LoadError, MissingFileError
from exburn.runtime.files import ordinary
from exburn.runtime.files.ordinary import Source, check_ordinary, read_text, read_whole


@pytest.fixture
def folder(tmp_path):
    """A folder with one of each kind that a file system has."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    os.symlink("/dev/zero", tmp_path / "link to a device")
    os.symlink(tmp_path / "pipe", tmp_path / "link to a pipe")
    os.symlink(tmp_path / "nothing", tmp_path / "link to nothing")
    os.symlink(tmp_path / "loop", tmp_path / "loop")
    return tmp_path


OPENERS = {
    "check": lambda path: check_ordinary(path, "load"),
    "open": lambda path: Source(path),
    "bytes": lambda path: read_whole(path, "load", 10),
    "text": lambda path: read_text(path, "load", 10),
}
OTHERS = {
    "folder": "it is a folder",
    "pipe": "it is a pipe",
    "link to a device": "it is a device",
    "link to a pipe": "it is a pipe",
    "link to nothing": "there is no file",
    "nothing": "there is no file",
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("opener", OPENERS)
def test_what_is_no_ordinary_file_is_refused_at_once(opener, name, folder):
    with pytest.raises(MissingFileError, match=OTHERS[name]) as info:
        OPENERS[opener](folder / name)
    assert isinstance(info.value, FileNotFoundError)


@pytest.mark.parametrize("opener", OPENERS)
def test_a_link_to_itself_is_an_error_of_the_system(opener, folder):
    with pytest.raises(LoadError, match="could not be read"):
        OPENERS[opener](folder / "loop")


# A path in a folder with the folders "data/train" and a file "model.exburn", the line
# that says what there is, and the hint.
ABSENT = {
    "near": ("data/trian", "folders in {}/data: train", "Did you mean 'data/train'?"),
    "parent": ("daat/train", "folders in {}: data", "Did you mean 'data/train'?"),
    "deep": ("no/such", "folders in {}: data", "Give the path of the folder."),
    "file": ("model.exburn", None, "Give the folder that it is in: ."),
    "many": ("data/train/x", "folders in {}/data/train: none", "Give the path of th"),
}


@pytest.mark.parametrize("case", ABSENT)
@pytest.mark.parametrize("absolute", [False, True])
def test_a_folder_that_is_absent(case, absolute, tmp_path, monkeypatch):
    (tmp_path / "data" / "train").mkdir(parents=True)
    (tmp_path / "model.exburn").touch()
    monkeypatch.chdir(tmp_path)
    path, there, hint = ABSENT[case]
    assert ordinary.check_folder("data", "load") == Path("data")
    path = tmp_path / path if absolute else path
    with pytest.raises(MissingFileError, match="load: there is no folder") as caught:
        ordinary.check_folder(path, "load")
    text = str(caught.value)
    assert f"looked at: {tmp_path / path}" in text
    assert ("current folder" in text) != absolute
    assert there is None or there.format(tmp_path) in text
    if not absolute:
        assert f"→ {hint}" in text
    elif "mean" in hint:
        assert f"Did you mean '{tmp_path}/data/train'?" in text


def test_a_file_that_is_absent_has_near_ones(tmp_path, monkeypatch):
    (tmp_path / "model.exburn").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingFileError, match="Did you mean 'model.exburn'"):
        ordinary.check_ordinary("modle.exburn", "load")
    with pytest.raises(MissingFileError) as caught:
        ordinary.check_ordinary("nothing/like/this", "load")
    assert caught.value.hint.startswith("Look at the folder")


def test_a_folder_that_may_not_be_listed(monkeypatch, tmp_path):
    def refuse(path):
        raise PermissionError(path)

    monkeypatch.setattr(ordinary.os, "scandir", refuse)
    with pytest.raises(MissingFileError, match="folders in .*: none"):
        ordinary.check_folder(tmp_path / "x", "load")


def test_a_socket_is_refused():
    with tempfile.TemporaryDirectory() as folder:  # a short path, as sockets need
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"{folder}/s")
            with pytest.raises(MissingFileError, match="it is a socket"):
                Source(f"{folder}/s")


def test_a_pipe_that_takes_the_place_of_a_file_meanwhile(folder, monkeypatch):
    monkeypatch.setattr(ordinary, "check_ordinary", lambda path, op: None)
    with pytest.raises(MissingFileError, match="it is a pipe"):
        Source(folder / "pipe")


def test_an_ordinary_file_is_read_up_to_its_greatest_size(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("ünïcode", "utf-8")
    link = tmp_path / "link"
    link.symlink_to(path)
    assert read_text(link, "load", 9) == "ünïcode"
    assert read_whole(str(path), "load", 9) == path.read_bytes()
    with pytest.raises(FileFormatError, match="has 9 bytes, at most 8 are read"):
        read_whole(path, "load", 8)
    path.write_bytes(b"\xff")
    with pytest.raises(FileFormatError, match="no text in UTF-8"):
        read_text(path, "load", 8)
