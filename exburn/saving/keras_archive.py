"""A ``.keras`` archive: a zip file of which single members are read into memory."""

from __future__ import annotations

import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from exburn.errors import ModelFormatError
from exburn.runtime.files.bounds import ArrayBudget
from exburn.runtime.files.zip_directory import open_zip
from exburn.saving.hdf5 import HDF5File
from exburn.saving.header import MAX_HEADER, damage_error

CONFIG, WEIGHTS, METADATA = "config.json", "model.weights.h5", "metadata.json"
_ASSETS = "assets/"
_MOST_MEMBERS = 10_000
_LIBRARY = (
    OSError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    UnicodeDecodeError,
    zipfile.error,
    zlib.error,
)


def is_keras_archive(path: Path, op: str) -> bool:
    """Whether a zip file is one of Keras, whatever its name.

    Raises:
        ModelFormatError: The zip file is damaged.
    """
    try:
        with open_zip(path, op) as archive:
            return WEIGHTS in archive.namelist() or CONFIG in archive.namelist()
    except _LIBRARY as error:
        raise damage_error(op, path, "the zip file is damaged", cause=error) from error


class KerasArchive:
    """The members of an archive; nothing of it is written anywhere.

    Raises:
        ModelFormatError: It is damaged, or a name in it leads out of it.
    """

    def __init__(self, path: Path, op: str):
        self.path, self.op = path, op
        self._names: set[str] = set()
        self._counted: set[str] = set()
        try:
            self._archive = open_zip(path, op)
        except _LIBRARY as error:
            raise self._damage_error("the archive is damaged", cause=error) from error
        try:
            self._check()
        except BaseException:
            self._archive.close()
            raise

    def __enter__(self) -> KerasArchive:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()

    def _damage_error(self, reason: str, **details) -> ModelFormatError:
        return damage_error(self.op, self.path, reason, **details)

    def _check(self) -> None:
        members = self._archive.infolist()
        self._budget = ArrayBudget(self.path.stat().st_size, self._damage_error)
        if len(members) > _MOST_MEMBERS:
            raise self._damage_error(f"the archive has {len(members)} members")
        self._names = {info.filename for info in members}
        for info in members:
            parts = PurePosixPath(info.filename).parts
            outside = info.filename.startswith("/") or ".." in parts
            if outside or "\\" in info.filename or ":" in info.filename:
                raise self._damage_error(f"{info.filename!r} leads out of the archive")
            if stat.S_ISLNK(info.external_attr >> 16):
                raise self._damage_error(f"{info.filename!r} is a link")

    def read(self, name: str, most: int | None = None) -> bytes:
        """One member.

        Args:
            name: Its name.
            most: Bytes that it may have at most. All that is read may have 20 times the
                archive's bytes, and 64 MB.

        Raises:
            ModelFormatError: It is not there, larger, or damaged.
        """
        try:
            info = self._archive.getinfo(name)
        except KeyError:
            raise self._damage_error(f"the archive has no {name}") from None
        size = info.file_size
        if most is not None and size > most:
            raise self._damage_error(
                f"{name} is too large: {size} bytes, at most {most}"
            )
        if name not in self._counted:
            self._budget.add(name, size, info.compress_size)
            self._counted.add(name)
        try:
            with self._archive.open(name) as file:
                data = file.read(size + 1)
        except _LIBRARY as error:
            raise self._damage_error("the archive is damaged", cause=error) from error
        if len(data) != size:
            raise self._damage_error(f"{name} is not as long as the archive says")
        return data

    def config(self) -> bytes:
        """The configuration of the model."""
        return self.read(CONFIG, MAX_HEADER)

    def metadata(self) -> bytes | None:
        """What Keras says about itself, if it is there."""
        has_metadata = METADATA in self._names
        return self.read(METADATA, 1 << 16) if has_metadata else None

    def weights(self, entries: int) -> HDF5File:
        """The file of weights.

        Args:
            entries: How many groups and arrays it may have.
        """
        if f"{WEIGHTS[:-3]}.npz" in self._names:
            raise self._damage_error("weights in an .npz file are not read")
        data = self.read(WEIGHTS)
        size = self._archive.getinfo(WEIGHTS).compress_size
        return HDF5File(self.path, self.op, entries, data, size)

    def assets(self, group: str) -> dict[str, bytes]:
        """The files that a layer has beside its weights, by their names.

        Args:
            group: Where Keras put the layer, such as ``"layers/string_lookup"``.
        """
        start = f"{_ASSETS}{group}/" if group else _ASSETS
        names = (n.removeprefix(start) for n in self._names if n.startswith(start))
        inner = [name for name in names if name and "/" not in name]
        return {name: self.read(start + name) for name in inner}

    def asset(self, group: str, name: str) -> bytes | None:
        """One of them, if it is there."""
        whole = f"{_ASSETS}{group}/{name}" if group else f"{_ASSETS}{name}"
        return self.read(whole) if whole in self._names else None
