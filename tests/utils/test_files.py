"""Tests of ``exburn.utils.files``."""

import functools
import hashlib
import http.server
import io
import resource
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

from exburn import errors, utils

TEXT = b"one two three"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        self.server.asked.append(self.path)

    def do_GET(self):
        if self.path.startswith("/redirect/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/redirect/"))
            self.end_headers()
        elif self.path == "/short.bin":  # promises more than it sends
            self.send_response(200)
            self.send_header("Content-Length", "99")
            self.end_headers()
            self.wfile.write(b"too short")
            self.log_message()
        else:
            super().do_GET()


@pytest.fixture
def server(tmp_path):
    """The URL of a server, its folder, and the paths it was asked for."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as web:
        web.asked = []
        thread = threading.Thread(target=web.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{web.server_port}", folder, web.asked
        web.shutdown()
        thread.join()


@pytest.fixture
def get(tmp_path):
    return functools.partial(utils.get_file, cache_dir=tmp_path / "cache")


def leftovers(tmp_path):
    return [p.name for p in (tmp_path / "cache").rglob(".*")]


def archive(path, members):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as file:
            for name, data in members.items():
                file.writestr(name, data)
        return
    with tarfile.open(path, "w:gz") as file:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))


def test_a_file_is_fetched_once(server, get, tmp_path):
    url, folder, asked = server
    (folder / "words.txt").write_bytes(TEXT)
    path = Path(get(origin=f"{url}/words.txt?version=2"))
    assert path == tmp_path / "cache" / "datasets" / "words.txt"
    assert path.read_bytes() == TEXT
    assert get(origin=f"{url}/words.txt") == str(path) and len(asked) == 1
    (folder / "words.txt").write_bytes(b"new")
    get(origin=f"{url}/words.txt", force_download=True)
    assert path.read_bytes() == b"new" and leftovers(tmp_path) == []
    other = get("other.txt", f"{url}/words.txt", cache_subdir="texts")
    assert Path(other).parent.name == "texts"


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_digests(server, get, tmp_path, algorithm):
    url, folder, _ = server
    (folder / "words.txt").write_bytes(TEXT)
    digest = hashlib.new(algorithm, TEXT).hexdigest()
    path = Path(get(origin=f"{url}/words.txt", file_hash=digest))
    path.write_bytes(b"damaged")  # on disk: noticed, and fetched again
    get(origin=f"{url}/words.txt", file_hash=digest)
    assert path.read_bytes() == TEXT
    path.unlink()
    with pytest.raises(errors.FileFormatError, match="not the expected file"):
        get(origin=f"{url}/words.txt", file_hash="0" * len(digest))
    assert not path.exists() and leftovers(tmp_path) == []


def test_md5_hash_as_it_used_to_be_given(server, get):
    url, folder, _ = server
    (folder / "words.txt").write_bytes(TEXT)
    assert get(origin=f"{url}/words.txt", md5_hash=hashlib.md5(TEXT).hexdigest())
    with pytest.raises(errors.FileFormatError):
        get("b.txt", f"{url}/words.txt", md5_hash="0" * 32)


@pytest.mark.parametrize("name", ["data.zip", "data.tar.gz"])
def test_archives_are_unpacked(server, get, tmp_path, name):
    url, folder, asked = server
    archive(folder / name, {"a/b.txt": TEXT})
    where = Path(get(origin=f"{url}/{name}", extract=True))
    assert (where / "a" / "b.txt").read_bytes() == TEXT and where.name == name
    named = Path(get(name, f"{url}/{name}", extract=True, cache_subdir="named"))
    assert named.name == "data_extracted"
    assert (named / "a" / "b.txt").read_bytes() == TEXT
    get(origin=f"{url}/{name}", extract=True)
    assert len(asked) == 2 and leftovers(tmp_path) == []


@pytest.mark.parametrize("name", ["evil.zip", "evil.tar.gz"])
@pytest.mark.parametrize("member", ["../escaped.txt", "a/../../escaped.txt"])
def test_archives_cannot_leave_their_folder(server, get, tmp_path, name, member):
    url, folder, _ = server
    archive(folder / name, {"good.txt": TEXT, member: TEXT})
    with pytest.raises(errors.FileFormatError, match="leaves its folder"):
        get(origin=f"{url}/{name}", extract=True)
    assert not list(tmp_path.rglob("escaped.txt")) and leftovers(tmp_path) == []


@pytest.mark.parametrize("filters", [True, False])
def test_links_in_archives_cannot_leave_either(
    filters, server, get, tmp_path, monkeypatch
):
    url, folder, _ = server
    if not filters:  # as in Python 3.11.2
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    with tarfile.open(folder / "evil.tar.gz", "w:gz") as file:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "../../outside"
        file.addfile(link)
    with pytest.raises(errors.FileFormatError):
        get(origin=f"{url}/evil.tar.gz", extract=True)
    assert leftovers(tmp_path) == []


def test_what_is_no_archive(server, get):
    url, folder, _ = server
    (folder / "words.txt").write_bytes(TEXT)
    with pytest.raises(errors.FileFormatError, match="no archive"):
        get(origin=f"{url}/words.txt", extract=True)


def test_failed_downloads_leave_nothing(server, get, tmp_path):
    url, _, _ = server
    for origin in (f"{url}/absent.txt", f"{url}/short.bin", "http://127.0.0.1:9/x"):
        with pytest.raises(errors.DataError, match="could not be downloaded"):
            get(origin=origin)
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file()] == []


@pytest.mark.parametrize(
    "target", ["file:///etc/hostname", "data:,text", "gopher://a/"]
)
def test_a_server_leads_to_no_files_of_this_machine(server, get, tmp_path, target):
    url, _, _ = server
    with pytest.raises(errors.DataError, match="could not be downloaded"):
        get("a.txt", origin=f"{url}/redirect/{target}")
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file()] == []


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"origin": "http://host/"},
        {"fname": "a/b.txt", "origin": "http://host/x"},
        {"fname": "..", "origin": "http://host/x"},
        {"origin": "http://host/x", "file_hash": "1", "hash_algorithm": "crc"},
    ],
)
def test_refusals(get, arguments):
    with pytest.raises(errors.ExBurnError):
        get(**arguments)


KILLED = """
import os, signal, sys, tarfile, zipfile
from exburn import utils
from exburn.export import staging

def kill(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

origin, cache, moment = sys.argv[1:]
places = {
    "download": (utils.files, "_extract"),
    "folder": (utils.files, "_check_member"),
    "first": (tarfile.TarFile, "extract"),
    "first of zip": (zipfile.ZipFile, "extract"),
    "complete": (os, "sync"),
    "exchange": (staging, "_exchange"),
    "replaced": (staging, "sync_folder"),
}
owner, name = places[moment]
original = getattr(owner, name)
if moment in ("first", "first of zip", "replaced"):
    def after(*args, **kwargs):
        original(*args, **kwargs)
        kill()
    setattr(owner, name, after)
else:
    setattr(owner, name, kill)
utils.get_file(origin=origin, extract=True, cache_dir=cache, force_download=True)
"""


@pytest.mark.parametrize("name", ["data.tar.gz", "data.zip"])
def test_a_killed_unpacking_is_not_seen_and_is_removed(name, tmp_path):
    folder, cache = tmp_path / "served", tmp_path / "cache"
    folder.mkdir()
    origin, place = (folder / name).as_uri(), cache / "datasets" / name
    options = {"origin": origin, "extract": True, "cache_dir": cache}

    def version(number):
        archive(folder / name, {file: b"%d" % number for file in "abc"})

    def content():
        files = [file.read_bytes() for file in place.iterdir()]
        assert len(files) == 3 and len({*files}) == 1
        return int(files[0])

    for moment in ("download", "folder", "first", "complete"):  # into an empty cache
        version(0)
        killed(name, origin, cache, moment)
        assert not place.exists()
    utils.get_file(**options)
    assert content() == 0 and leftovers(tmp_path) == []
    for number, moment in enumerate(("first", "exchange", "replaced"), 1):
        version(number)
        killed(name, origin, cache, moment)
        assert content() == (number if moment == "replaced" else 0)
    version(9)
    utils.get_file(**options, force_download=True)
    assert content() == 9 and leftovers(tmp_path) == []


def killed(name, origin, cache, moment):
    if moment == "first" and name.endswith(".zip"):
        moment = "first of zip"
    command = [sys.executable, "-c", KILLED, origin, str(cache), moment]
    assert subprocess.run(command, capture_output=True).returncode == -9, moment


def test_a_full_disk_is_told_and_leaves_nothing(server, get, tmp_path):
    url, folder, _ = server
    archive(folder / "data.tar.gz", {"a": bytes(1 << 20)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, hard))
    try:
        with pytest.raises(errors.DataError, match="cannot be unpacked here"):
            get(origin=f"{url}/data.tar.gz", extract=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert leftovers(tmp_path) == []
    assert Path(get(origin=f"{url}/data.tar.gz", extract=True), "a").is_file()


def test_a_file_is_not_taken_for_what_was_unpacked(server, get):
    url, folder, _ = server
    archive(folder / "data.zip", {"a": TEXT})
    get(origin=f"{url}/data.zip")
    with pytest.raises(errors.ArgumentError, match="is a file"):
        get(origin=f"{url}/data.zip", extract=True)


def test_archives_of_many_files_are_unpacked(get, tmp_path):
    """Their directory is longer than that of any file of weights."""
    path = tmp_path / "many.zip"
    names = [f"{'d' * 200}/{number:05d}{'x' * 200}" for number in range(21_000)]
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(zipfile.ZipInfo(name), b"")
    where = Path(get(origin=path.as_uri(), extract=True))
    assert len(list(where.glob("*/*"))) == len(names)
