"""Files from the web, kept in a cache folder, and archives."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from exburn.datasets.download import cache_folder, digest_of
from exburn.errors import ArgumentError, DataError, FileFormatError, unknown_name
from exburn.utils.progress import Progbar

_TIMEOUT = 30.0
_BLOCK = 1 << 20
_DIGITS = {32: "md5", 64: "sha256"}


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
    An archive whose members point outside of their folder is refused.

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
        raise ArgumentError("get_file", "origin, the URL, must be given")
    named = fname is not None
    name = os.fspath(fname) if named else PurePosixPath(urlsplit(origin).path).name
    if not name or name != os.path.basename(name) or name in (".", ".."):
        raise ArgumentError(
            "get_file",
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

    kept = target.is_file() and not force_download
    if kept and digest and digest_of(target, algorithm=algorithm) != digest:
        print(f"{target} has not the expected digest and is downloaded again")
        kept = False
    if not kept:
        _download(origin, target, digest, algorithm)
    if not unpack:
        return str(target)
    if not kept or not unpacked.exists():
        _extract(target, unpacked, "tar" if untar else archive_format)
    return str(unpacked)


def _expected_hash(md5: Any, given: Any, algorithm: str) -> tuple[str | None, str]:
    if md5 is not None and given is None:
        given, algorithm = md5, "md5"
    if given is None:
        return None, "sha256"
    if algorithm == "auto":
        algorithm = _DIGITS.get(len(given), "sha256")
    if algorithm not in _DIGITS.values():
        raise unknown_name(
            "hash_algorithm", algorithm, ["auto", "md5", "sha256"], op="get_file"
        )
    return given.lower(), algorithm


def _download(origin: str, target: Path, digest: str | None, algorithm: str) -> None:
    print(f"Downloading data from {origin}")
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    found = hashlib.new(algorithm, usedforsecurity=False)
    try:
        with os.fdopen(handle, "wb") as file:
            for block in _blocks(origin):
                file.write(block)
                found.update(block)
        if digest and found.hexdigest() != digest:
            raise FileFormatError(
                "get_file",
                f"{origin} is not the expected file",
                {"expected " + algorithm: digest, "received": found.hexdigest()},
            )
        os.replace(part, target)
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise DataError(
            "get_file",
            f"{target.name} is not in the cache and could not be downloaded",
            {"from": origin, "cause": f"{type(error).__name__}: {error}"},
            hint=f"Put the file at {target}, or try again.",
        ) from error
    finally:
        if os.path.exists(part):
            os.remove(part)


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
    """Unpacks into a folder beside the target, then renames it into place."""
    kinds = ["tar", "zip"] if kinds == "auto" else kinds
    kinds = [kinds] if isinstance(kinds, str) else list(kinds or ())
    if unknown := set(kinds) - {"tar", "zip"}:
        raise unknown_name(
            "archive_format", min(unknown), ["auto", "tar", "zip"], op="get_file"
        )
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        if "tar" in kinds and tarfile.is_tarfile(archive):
            with tarfile.open(archive) as tar:
                for member in tar.getmembers():
                    _check_member(member.name, folder)
                if hasattr(tarfile, "data_filter"):
                    tar.extractall(folder, filter="data")
                else:  # Python before 3.11.4
                    tar.extractall(folder, _plain_members(tar))
        elif "zip" in kinds and zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                for name in zipped.namelist():
                    _check_member(name, folder)
                zipped.extractall(folder)
        else:
            raise FileFormatError(
                "get_file",
                f"no archive of format {' or '.join(kinds) or 'None'}",
                {"file": archive},
            )
        if target.exists():
            shutil.rmtree(target)
        os.replace(folder, target)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise FileFormatError(
            "get_file",
            "the archive is damaged, or a member of it leaves its folder",
            {"file": archive, "cause": f"{type(error).__name__}: {error}"},
        ) from error
    finally:
        if folder.exists():
            shutil.rmtree(folder)


def _plain_members(tar: tarfile.TarFile) -> list[tarfile.TarInfo]:
    """The files and folders of an archive, with the rights that new ones have.

    Raises:
        FileFormatError: There is something else in it, such as a link.
    """
    members = tar.getmembers()
    for member in members:
        if not (member.isfile() or member.isdir()):
            raise FileFormatError(
                "get_file",
                "a member of the archive is neither a file nor a folder",
                {"member": member.name},
                hint="Python 3.11.4 and newer unpack links within the folder.",
            )
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return members


def _check_member(name: str, folder: Path) -> None:
    inside = os.path.normpath(os.path.join(folder, name.replace("\\", "/")))
    if not Path(inside).is_relative_to(folder):
        raise FileFormatError(
            "get_file", "a member of the archive leaves its folder", {"member": name}
        )
