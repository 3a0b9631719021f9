"""Files from the web, kept in a cache folder, and archives."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from exburn.core.printing import print_text
from exburn.datasets.contract.download import cache_folder, digest_of
from exburn.errors import (
    ArgumentError,
    DataError,
    ExBurnError,
    FileFormatError,
    unknown_name,
)
from exburn.errors.boundary import api_boundary
from exburn.export.staging import stage
from exburn.runtime.files.atomic import staging
from exburn.runtime.files.bounds import ROOM
from exburn.runtime.files.tar_stream import MEMBER, open_tar
from exburn.runtime.files.zip_directory import open_zip
from exburn.utils.progress import Progbar

_OP = "get_file"
_TIMEOUT = 30.0
_BLOCK = 1 << 20
_UNPACKED = 100  # bytes that a byte of an archive may stand for
_DIGITS = {32: "md5", 64: "sha256"}


@api_boundary
def get_file(
    fname: Any = None,
    origin: str | None = None,
    untar: bool = False,
    md5_hash: str | None = None,
    file_hash: str | None = None,
    cache_subdir: str = "datasets",
    hash_algorithm: str = "auto",
    extract: bool = False,
    archive_format: Any = "auto",
    cache_dir: Any = None,
    force_download: bool = False,
) -> str:
    """Downloads a file once and returns where it is.

    The cache never holds half a file: a download is checked, then renamed into place.
    An archive is unpacked beside its place, which it takes when it is complete. It is
    refused if members point outside of their folder, or unpack to more than 100 times
    the archive's bytes and 64 MB.

    Args:
        fname: Name in the cache; the last part of the URL by default.
        origin: URL.
        untar: An older form of ``extract``.
        md5_hash: An older form of ``file_hash``.
        file_hash: Digest that the file must have, in hex.
        cache_subdir: Folder inside the cache, or an absolute one.
        hash_algorithm: ``"sha256"``, ``"md5"``, or ``"auto"`` by the digest's length.
        extract: Whether to unpack an archive; the folder is returned then.
        archive_format: ``"tar"``, ``"zip"``, ``"auto"`` (either) or ``None``.
        cache_dir: The cache; ``$EXBURN_CACHE`` or ``~/.cache/exburn`` by default.
        force_download: Whether to download it again.

    Raises:
        ArgumentError: ``origin`` is missing, or ``fname`` is no plain name.
        DataError: The file is not in the cache and cannot be downloaded.
        FileFormatError: The digest differs, or the archive cannot be unpacked safely.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "words.txt").write_text("one two")
        >>> origin = (folder / "words.txt").as_uri()
        >>> path = get_file(origin=origin, cache_dir=folder)  # doctest: +ELLIPSIS
        Downloading data from ...words.txt
        >>> pathlib.Path(path).read_text()
        'one two'
    """
    if not origin:
        raise ArgumentError(_OP, "origin, the URL, must be given")
    named = fname is not None
    name = os.fspath(fname) if named else PurePosixPath(urlsplit(origin).path).name
    if not name or name != os.path.basename(name) or name in (".", ".."):
        raise ArgumentError(
            _OP,
            f"a plain file name is needed, not {name!r}",
            {"origin": origin},
            hint="Pass fname='data.bin'; folders go into cache_dir or cache_subdir.",
        )
    digest, algorithm = _expected_hash(md5_hash, file_hash, hash_algorithm)
    root = cache_folder() if cache_dir is None else Path(os.path.expanduser(cache_dir))
    folder = root / cache_subdir
    unpack = extract or untar
    target, unpacked = folder / name, folder / name
    if unpack and named and "." in name:
        unpacked = folder / f"{name.partition('.')[0]}_extracted"
    elif unpack:
        target = folder / f"{name}_archive"

    present = target.is_file() and not force_download
    if present and digest and digest_of(target, algorithm=algorithm) != digest:
        print_text(f"{target} has not the expected digest and is downloaded again")
        present = False
    if not present:
        _download(origin, target, digest, algorithm)
    if not unpack:
        return str(target)
    if not present or not unpacked.is_dir():
        _extract(target, unpacked, "tar" if untar else archive_format)
    return str(unpacked)


def _expected_hash(md5: Any, digest: Any, algorithm: str) -> tuple[str | None, str]:
    if md5 is not None and digest is None:
        digest, algorithm = md5, "md5"
    if digest is None:
        return None, "sha256"
    if algorithm == "auto":
        algorithm = _DIGITS.get(len(digest), "sha256")
    if algorithm not in _DIGITS.values():
        raise unknown_name(
            "hash_algorithm", algorithm, ["auto", "md5", "sha256"], op=_OP
        )
    return digest.lower(), algorithm


def _download(origin: str, target: Path, digest: str | None, algorithm: str) -> None:
    print_text(f"Downloading data from {origin}")
    received = hashlib.new(algorithm, usedforsecurity=False)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with staging(target, op=_OP) as file:
            for block in _blocks(origin):
                file.write(block)
                received.update(block)
            if digest and received.hexdigest() != digest:
                raise FileFormatError(
                    _OP,
                    f"{origin} is not the expected file",
                    {"expected " + algorithm: digest, "received": received.hexdigest()},
                )
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise DataError(
            _OP,
            f"{target.name} is not in the cache and could not be downloaded",
            {"from": origin, "cause": f"{type(error).__name__}: {error}"},
            hint=f"Put the file at {target}, or try again.",
        ) from error


def _blocks(origin: str):
    request = urllib.request.Request(origin, headers={"User-Agent": "exburn"})
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
        total = int(response.headers.get("Content-Length", -1))
        bar = Progbar(total if total > 0 else None, unit_name="byte")
        done = 0
        while block := response.read(_BLOCK):
            done += len(block)
            yield block
            if total > _BLOCK:
                bar.update(done)
    if 0 <= done < total:
        raise ConnectionError(f"the connection closed {total - done} bytes early")


def _extract(archive: Path, target: Path, kinds: Any) -> None:
    """Unpacks into a hidden folder, which takes its place when it is complete."""
    kinds = ["tar", "zip"] if kinds == "auto" else kinds
    kinds = [kinds] if isinstance(kinds, str) else list(kinds or ())
    if unknown := set(kinds) - {"tar", "zip"}:
        names = ["auto", "tar", "zip"]
        raise unknown_name("archive_format", min(unknown), names, op=_OP)
    if target.is_file():
        raise ArgumentError(
            _OP,
            f"{target} is a file, and no folder for what is unpacked",
            hint="Remove it, or give another fname.",
        )
    limit = _UNPACKED * archive.stat().st_size + ROOM
    before = os.listdir(target) if target.is_dir() else ()
    try:
        with stage(target, own_names=before, op=_OP, many=True) as folder:
            folder.mkdir()
            if "zip" in kinds and zipfile.is_zipfile(archive):
                _extract_zip(archive, folder, limit)
            elif "tar" not in kinds or not _extract_tar(archive, folder, limit):
                raise FileFormatError(
                    _OP,
                    f"no archive of format {' or '.join(kinds) or 'None'}",
                    {"file": archive},
                )
    except OSError as error:
        raise DataError(
            _OP,
            f"{archive.name} cannot be unpacked here",
            {"into": target, "cause": f"{type(error).__name__}: {error}"},
            hint="Free some space, or give a cache_dir that may be written to.",
        ) from error


@contextlib.contextmanager
def _library_errors(archive: Path) -> Iterator[None]:
    """Makes an error of ours of whatever an archive's parser raises."""
    try:
        yield
    except ExBurnError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the system
        raise FileFormatError(
            _OP,
            "the archive is damaged, or a member of it leaves its folder",
            {"file": archive, "cause": f"{type(error).__name__}: {error}"},
        ) from error


def _extract_tar(archive: Path, folder: Path, limit: int) -> bool:
    """Unpacks a tar archive; false if it is none."""

    def refuse(reason: str) -> FileFormatError:
        return _refusal(archive, reason)

    with contextlib.ExitStack() as stack:
        stack.enter_context(_library_errors(archive))
        try:
            tar = stack.enter_context(open_tar(archive, limit, refuse))
        except (tarfile.TarError, EOFError):
            return False
        for member in tar:
            _check_member(member.name, folder)
            tar.extract(member, folder)
    return True


def _extract_zip(archive: Path, folder: Path, limit: int) -> None:
    size = archive.stat().st_size  # an object of a member explains itself by its bytes
    with _library_errors(archive), open_zip(archive, _OP, most=size) as zipped:
        members = zipped.infolist()
        length = sum(member.file_size + MEMBER for member in members)
        if length > limit:
            raise _refusal(archive, f"it would unpack to {length} bytes")
        for member in members:
            _check_member(member.filename, folder)
            zipped.extract(member, folder)


def _refusal(archive: Path, reason: str) -> FileFormatError:
    return FileFormatError(
        _OP,
        f"{reason}: an archive of {archive.stat().st_size} bytes may have "
        f"{_UNPACKED} times as many, and 64 MB more",
        {"file": archive},
        hint="If you trust it, unpack it yourself, with tar or unzip.",
    )


def _check_member(name: str, folder: Path) -> None:
    inside = os.path.normpath(os.path.join(folder, name.replace("\\", "/")))
    if not Path(inside).is_relative_to(folder):
        raise FileFormatError(
            _OP, "a member of the archive leaves its folder", {"member": name[:200]}
        )
