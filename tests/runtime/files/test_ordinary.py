"""Tests of ``exburn.runtime.files.ordinary``."""

import os
import socket
import tempfile

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
