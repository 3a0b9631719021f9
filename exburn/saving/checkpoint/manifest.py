"""The list of a checkpoint's files with their sizes and digests."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from exburn.errors import CheckpointError, ExBurnError
from exburn.runtime.files.atomic import sync_folder
from exburn.saving.json_text import is_count
from exburn.saving.seal import read_document, seal_document

MANIFEST = "manifest.json"
_FORMAT = "exburn-checkpoint-1"


def digest_files(folder: Path, paths: Iterable[Path]) -> dict[str, list[Any]]:
    """Brings files of a folder to disk; their sizes and digests by name."""
    files = {}
    for path in paths:
        digest = _digest(path, sync=True)
        files[path.relative_to(folder).as_posix()] = [path.stat().st_size, digest]
    return files


def write_manifest(
    folder: Path,
    facts: Mapping[str, Any],
    digests: Mapping[str, list[Any]] | None = None,
) -> None:
    """Writes the manifest of everything in the folder, and brings all of it to disk.

    Args:
        folder: The checkpoint, complete but for its manifest.
        facts: JSON values that a listing shows.
        digests: Other processes' files on disk, as of ``digest_files``.
    """
    files = dict(digests or {})
    new = (p for p in _files(folder) if p.relative_to(folder).as_posix() not in files)
    files |= digest_files(folder, new)
    for parent, _, _ in os.walk(folder, onerror=_raise):
        sync_folder(parent)
    with open(folder / MANIFEST, "wb") as file:
        file.write(seal_document(_FORMAT, {**facts, "files": files}))
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest, checked against its own digest.

    Raises:
        CheckpointError: There is none, or it is damaged.
    """
    try:
        body = read_document(folder / MANIFEST, _FORMAT, "checkpoint")
        if not _is_sound(body):
            raise ValueError("its entries are not those of a checkpoint")
    except (ExBurnError, ValueError) as error:
        raise CheckpointError(
            "checkpoint",
            f"the manifest of {folder.name} is missing or damaged",
            {"folder": folder, "cause": error},
            hint="An older checkpoint of the same folder may be intact.",
        ) from error
    return body


def verify_files(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Compares every listed file with its size and digest.

    Raises:
        CheckpointError: A file is missing or differs, or the folder holds a link, a
            pipe or a device: what reads arrays would open it.
    """
    for parent, folders, names in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *names)):
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise _damage_error(folder, path.name, "it is no ordinary file")
    for name, (size, digest) in manifest["files"].items():
        path = folder / name
        try:
            status = path.lstat()
            length = status.st_size
            intact = stat.S_ISREG(status.st_mode) and length == size
            intact = intact and _digest(path) == digest
            what = f"{length} bytes instead of {size}" if length != size else "bytes"
        except OSError as error:
            intact, what = False, str(error)
        if not intact:
            raise _damage_error(folder, name, what)


def _damage_error(folder: Path, name: str, what: str) -> CheckpointError:
    return CheckpointError(
        "checkpoint",
        f"{folder.name} is damaged: {name} is not what was saved",
        {"folder": folder, "different": what},
        hint="An older checkpoint of the same folder may be intact.",
    )


def _is_sound(body: Mapping[str, Any]) -> bool:
    """Whether a manifest has what a listing needs, and names only its own files."""
    numbers = [body.get(name) for name in ("step", "epoch", "batch")]
    score, files = body.get("score"), body.get("files")
    return (
        all(is_count(number) for number in numbers)
        and (score is None or isinstance(score, float) or _is_whole(score))
        and isinstance(body.get("run"), str)
        and isinstance(files, dict)
        and all(_is_own(name) and _is_entry(entry) for name, entry in files.items())
    )


def _is_whole(score: Any) -> bool:
    return type(score) is int and is_count(abs(score))


def _is_own(name: str) -> bool:
    parts = name.split("/")
    return "\0" not in name and not {"", ".", ".."} & {*parts}


def _is_entry(entry: Any) -> bool:
    pair = entry if isinstance(entry, list) and len(entry) == 2 else [None, None]
    return is_count(pair[0]) and isinstance(pair[1], str)


def _files(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder, onerror=_raise):
        yield from (Path(parent, name) for name in sorted(names))


def _raise(error: OSError) -> None:
    """A folder that cannot be listed is not an empty one."""
    raise error


def _digest(path: Path, sync: bool = False) -> str:
    with open(path, "rb") as file:
        if sync:
            os.fsync(file.fileno())
        return hashlib.file_digest(file, _blake2b).hexdigest()


def _blake2b() -> Any:
    return hashlib.blake2b(digest_size=32)
