"""Tests of ``exburn.datasets.contract.download``."""

import gzip
import hashlib
import pwd
import threading
from pathlib import Path

import numpy as np
import pytest

import exburn
from exburn.datasets.contract import download
from exburn.errors import DataError, FileFormatError, MissingFileError

DATA = np.random.default_rng(0).bytes(300_000)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def get(server, data=DATA, **options):
    return download.fetch(
        "file.bin", server.url + "file.bin", sha256(data), op="test", **options
    )


def ranges(server):
    return [wanted for _, wanted in server.requests]


def test_fetch_downloads_once(cache, server):
    server.files["file.bin"] = DATA
    path = get(server)
    assert path == cache / "file.bin" and path.read_bytes() == DATA
    assert get(server) == path
    assert ranges(server) == [None]
    assert [p.name for p in cache.iterdir()] == ["file.bin"]


def test_md5_is_told_by_its_length(cache, server):
    server.files["file.bin"] = DATA
    digest = hashlib.md5(DATA).hexdigest()
    path = download.fetch("f", server.url + "file.bin", digest, op="test")
    assert path.read_bytes() == DATA


def test_a_broken_connection_is_resumed_at_once(cache, server):
    server.files["file.bin"] = DATA
    server.break_after = 120_000
    assert get(server).read_bytes() == DATA
    assert ranges(server) == [None, "bytes=120000-", "bytes=240000-"]


def test_a_partial_file_is_resumed_by_the_next_call(cache, server):
    server.files["file.bin"] = DATA
    server.break_after = 50_000
    with pytest.raises(DataError, match="closed 150000 bytes early") as caught:
        get(server)
    assert "resumed" in caught.value.hint
    assert (cache / "file.bin.part").stat().st_size == 150_000
    assert not (cache / "file.bin").exists()
    server.break_after = None
    assert get(server).read_bytes() == DATA
    assert ranges(server)[-1] == "bytes=150000-"


def test_what_came_before_a_stall_is_kept(cache, server, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    server.files["file.bin"], server.break_after = DATA, 50_000
    server.stalls.clear()
    with pytest.raises(DataError, match="timed out"):
        get(server)
    server.stalls.set()
    assert (cache / "file.bin.part").stat().st_size == 150_000


def test_a_length_that_is_no_number(cache, server):
    server.files["file.bin"], server.length = DATA, "many"
    assert get(server).read_bytes() == DATA


def test_a_server_without_ranges_sends_all(cache, server):
    server.files["file.bin"], server.ranges = DATA, False
    cache.mkdir()
    (cache / "file.bin.part").write_bytes(DATA[:1000])
    assert get(server).read_bytes() == DATA


@pytest.mark.parametrize("left", [b"x" * 1000, DATA + b"more", DATA])
def test_a_wrong_or_complete_partial_file(cache, server, left):
    server.files["file.bin"] = DATA
    cache.mkdir()
    (cache / "file.bin.part").write_bytes(left)
    assert get(server).read_bytes() == DATA


def test_a_wrong_file_is_never_kept(cache, server):
    server.files["file.bin"] = b"<html>log in</html>"
    with pytest.raises(FileFormatError, match="not the expected file"):
        get(server)
    assert not (cache / "file.bin").exists()
    server.files["file.bin"] = DATA
    assert get(server).read_bytes() == DATA


def test_a_damaged_file_in_the_cache(cache, server):
    cache.mkdir()
    (cache / "file.bin").write_bytes(DATA[:-1] + b"!")
    with pytest.raises(FileFormatError, match="damaged") as caught:
        get(server)
    assert "Delete it" in caught.value.hint and str(cache) in str(caught.value)
    assert server.requests == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/file.bin", "missing"])
def test_offline_says_where_to_put_the_file(cache, server, url):
    url = server.url + url if url == "missing" else url
    with pytest.raises(DataError) as caught:
        download.fetch("sub/file.bin", url, sha256(DATA), op="mnist.load_data")
    text = str(caught.value)
    assert text.startswith("mnist.load_data: sub/file.bin is not in the cache")
    assert f"Put the file at {cache / 'sub' / 'file.bin'}" in text
    assert url in text and sha256(DATA) in text


def test_without_a_home_directory(cache, server, monkeypatch):
    server.files["file.bin"] = DATA
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # as in some containers
    assert get(server) == cache / "file.bin"
    monkeypatch.delenv("EXBURN_CACHE")
    with pytest.raises(DataError, match="Set EXBURN_CACHE to a folder"):
        get(server)
    with pytest.raises(MissingFileError, match="no folder ~nobody-of-this-name/data"):
        exburn.datasets.image_folder("~nobody-of-this-name/data")
    assert not Path("~").exists()


def test_a_cache_that_cannot_be_written(cache, server):
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("a file where the folder should be")
    with pytest.raises(DataError, match="could not be downloaded"):
        get(server)


def test_keras_cache_is_used_if_the_digest_is_right(cache, server):
    folder = Path.home() / ".keras" / "datasets"
    folder.mkdir(parents=True)
    (folder / "file.bin").write_bytes(DATA)
    assert get(server) == folder / "file.bin"
    (folder / "file.bin").write_bytes(b"other")
    server.files["file.bin"] = DATA
    assert get(server) == cache / "file.bin"


def test_the_digest_of_the_contents(cache, server):
    packed = [gzip.compress(DATA, mtime=0), gzip.compress(DATA, 1, mtime=9)]
    server.files["file.bin"] = packed[1]
    assert get(server, contents=True).read_bytes() == packed[1]
    (cache / "file.bin").write_bytes(packed[0])
    assert get(server, contents=True).read_bytes() == packed[0]
    (cache / "file.bin").write_bytes(packed[0][:-9])
    with pytest.raises(FileFormatError):
        get(server, contents=True)


def test_two_at_once_download_once(cache, server):
    server.files["file.bin"] = DATA
    found = []
    threads = [threading.Thread(target=lambda: found.append(get(server))) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [p.read_bytes() == DATA for p in found] == [True, True]
    assert len(server.requests) == 1


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("EXBURN_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert download.cache_folder() == tmp_path / ".cache" / "exburn"
