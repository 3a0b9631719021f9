"""Fetches a file once, checks its digest and keeps it in the cache folder."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from exburn.errors import DataError, FileFormatError

__all__ = ["KERAS_FOLDER", "cache_folder", "digest_of", "fetch", "locate"]

KERAS_FOLDER = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
TIMEOUT = 30.0
_BLOCK = 1 << 20
_TRIES = 3


def cache_folder() -> Path:
    """``$EXBURN_CACHE``, else ``~/.cache/exburn``; not created here.

    Raises:
        DataError: There is no home directory, as in some containers.
    """
    folder = os.path.expanduser(os.environ.get("EXBURN_CACHE") or "~/.cache/exburn")
    if folder[0] == "~":
        raise DataError(
            "cache_folder",
            "there is no home directory, in whose cache data sets are kept",
            {"received": folder},
            hint="Set EXBURN_CACHE to a folder.",
        )
    return Path(folder)


def digest_of(path: Path, *, algorithm: str = "sha256", contents: bool = False) -> str:
    """The file's digest in hex; with ``contents`` that of what gzip unpacks."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    opener = gzip.open if contents else open
    with opener(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def locate(path: str | os.PathLike) -> Path | None:
    """A file the user named: one that exists, or any absolute path; else None.

    Keras' loaders take a ``path`` that is a name inside the cache by default.

    Raises:
        DataError: An absolute path where there is no file.
    """
    file = Path(os.path.expanduser(path))
    if file.is_absolute() and not file.exists():
        raise DataError("load_data", "there is no such file", {"path": file})
    return file if file.is_absolute() or file.is_file() else None


def fetch(
    name: str,
    origin: str,
    digest: str,
    *,
    op: str,
    contents: bool = False,
    hint: str | None = None,
) -> Path:
    """The path of a file in the cache, downloaded on the first use.

    A partial download is kept beside it (``.part``) and resumed with an HTTP range;
    the finished file is checked, then renamed into place, so that the cache never
    holds half a file. A copy in Keras' own cache (``~/.keras/datasets``) is used if
    its digest is right. Two processes that want the same file wait for each other.

    Args:
        name: File name inside the cache folder (may hold a sub-folder).
        origin: URL.
        digest: Expected digest in hex: SHA-256, or MD5 if it has 32 digits.
        op: The operation named in errors.
        contents: The digest is that of the decompressed contents of a ``.gz`` file.
        hint: What to do when offline, instead of "put the file at …".

    Raises:
        DataError: The file can be neither found nor downloaded; says where to put it.
        FileFormatError: The file is not the expected one.
    """
    target = cache_folder() / name
    if target.is_file():
        _check(target, digest, contents, op, "Delete it to download it anew.")
        return target
    keras = Path(os.path.expanduser("~/.keras/datasets"), name)
    if keras.is_file() and _matches(keras, digest, contents):
        return keras
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not target.is_file():  # else another process has just finished it
                _complete(part, file, origin, digest, contents, op)
                os.replace(part, target)
    except (OSError, http.client.HTTPException) as error:
        raise DataError(
            op,
            f"{name} is not in the cache and could not be downloaded",
            {
                "from": origin,
                "cause": f"{type(error).__name__}: {error}",
                "expected " + _algorithm(digest): digest,
            },
            hint=hint
            or f"Put the file at {target}, or try again: "
            "a partial download is resumed.",
        ) from error
    return target


def _algorithm(digest: str) -> str:
    return "md5" if len(digest) == 32 else "sha256"


def _matches(path: Path, digest: str, contents: bool) -> bool:
    try:
        own = digest_of(path, algorithm=_algorithm(digest), contents=contents)
    except (gzip.BadGzipFile, EOFError):
        return False
    return own == digest


def _check(path: Path, digest: str, contents: bool, op: str, hint: str) -> None:
    if not _matches(path, digest, contents):
        raise FileFormatError(
            op,
            f"{path.name} is damaged, or not the expected file",
            {
                "path": path,
                "bytes": path.stat().st_size,
                "expected " + _algorithm(digest): digest,
            },
            hint=hint,
        )


def _complete(
    part: Path, file: IO[bytes], origin: str, digest: str, contents: bool, op: str
) -> None:
    """Downloads what is missing; a resumed file that proves wrong is begun anew."""
    resumed = file.tell() > 0
    for attempt in range(_TRIES):
        try:
            for block in _blocks(origin, file):
                file.write(block)
        except (ConnectionError, TimeoutError, http.client.HTTPException):
            if attempt == _TRIES - 1:
                raise
            continue  # the next attempt resumes where this one broke off
        file.flush()
        os.fsync(file.fileno())
        if not resumed or _matches(part, digest, contents):
            break
        resumed = False
        file.truncate(0)
    try:
        _check(part, digest, contents, op, f"Look at what {origin} gives.")
    except FileFormatError:
        file.truncate(0)  # nothing worth resuming
        raise


def _blocks(origin: str, file: IO[bytes]) -> Iterator[bytes]:
    """The bytes that follow those already in the file (which may be emptied)."""
    start = file.seek(0, os.SEEK_END)
    request = urllib.request.Request(origin, headers={"User-Agent": "exburn"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # nothing follows: the file was complete already
            return
        raise
    with response:
        begins = response.headers.get("Content-Range", "")
        if start and not (
            response.status == 206 and begins.startswith(f"bytes {start}-")
        ):
            file.truncate(0)  # the server sends the whole file
        length = response.headers.get("Content-Length", "")
        missing = int(length) if length.isdecimal() else -1
        while block := response.read1(_BLOCK):  # what is there, before a stall
            missing -= len(block)
            yield block
        if missing > 0:
            raise ConnectionError(f"the connection closed {missing} bytes early")
