"""HDF5 files, read with suspicion.

HDF5 can refer to other files, compress without bound, and load plugins. Links, external
and virtual data and unknown filters are refused, and nothing is read before its shape
is known to be wanted.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from exburn.errors import ModelFormatError, require
from exburn.saving.header import damage_error

_FILTERS = {1, 2, 3}  # deflate, shuffle, fletcher32: those that HDF5 itself has
_DEEPEST = 64
_MOST_PACKED = 20  # times as long as in the file
_ROOM = 64 << 20  # bytes that an array may take whatever it has in the file
_LONGEST_TEXT = 16 << 20  # bytes of an attribute


class HDF5File:
    """The groups and arrays of a file; what may not be in it is an error.

    Args:
        path: What errors call the file, and where it is if there are no ``data``.
        op: The operation named in errors.
        most: How many entries it may have.
        data: Its bytes, out of an archive.

    Attributes:
        shapes: Shape of each array by its path.
        groups: The paths of the groups.

    Raises:
        ModelFormatError: The file is damaged, or holds what is refused.
        MissingDependencyError: h5py is not installed.
    """

    def __init__(self, path: Path, op: str, most: int, data: bytes | None = None):
        self.path, self.op, self._left = path, op, most
        reason = "reading files of Keras needs h5py"
        self._h5py = require("h5py", op, reason, extra="keras", details={"file": path})
        self._size = path.stat().st_size if data is None else len(data)
        self._datasets: dict[str, Any] = {}
        self.groups: set[str] = set()
        self._seen: set[int] = set()  # addresses of groups
        try:
            self._file = self._h5py.File(path if data is None else io.BytesIO(data))
        except (OSError, RuntimeError, ValueError) as error:
            raise self.damage_error("the HDF5 file is damaged", cause=error) from error
        try:
            self._visit(self._file, "", 0)
        except BaseException as error:
            self._file.close()
            library = (OSError, RuntimeError, KeyError, TypeError, ValueError)
            if isinstance(error, ModelFormatError) or not isinstance(error, library):
                raise
            raise self.damage_error("the HDF5 file is damaged", cause=error) from error
        self.shapes = {name: tuple(data.shape) for name, data in self._datasets.items()}

    def __enter__(self) -> HDF5File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def damage_error(self, reason: str, **details: Any) -> ModelFormatError:
        """The error for such a file."""
        return damage_error(self.op, self.path, reason, **details)

    # ------------------------------------------------------------------ what is there
    def _visit(self, group: Any, path: str, depth: int) -> None:
        """Every array and group below one; nothing is read yet."""
        h5py: Any = self._h5py
        address = h5py.h5g.get_objinfo(group.id).objno
        if address in self._seen:
            raise self.damage_error(f"{path} is a second name of another group")
        self._seen.add(address)
        self._left -= len(group)
        if depth > _DEEPEST or self._left < 0:
            raise self.damage_error("the HDF5 file has too many entries for this model")
        for key in group:
            name = f"{path}/{key}" if path else key
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                raise self.damage_error(f"{name} is a link, which is not followed")
            item = group[key]
            if isinstance(item, h5py.Dataset):
                self._check(name, item)
                self._datasets[name] = item
            elif isinstance(item, h5py.Group):
                self.groups.add(name)
                self._visit(item, name, depth + 1)
            else:
                raise self.damage_error(f"{name} is neither a group nor a dataset")

    def _check(self, name: str, data: Any) -> None:
        kind, size = data.dtype.kind, data.dtype.itemsize
        half = (kind, size) == ("V", 2) and data.attrs.get("dtype") == "bfloat16"
        if data.shape is None or data.dtype.fields or not (kind in "biuf" or half):
            raise self.damage_error(f"{name} holds {data.dtype}, not numbers")
        if data.is_virtual or data.external:
            raise self.damage_error(f"{name} refers to another file")
        plan = data.id.get_create_plist()
        filters = {plan.get_filter(i)[0] for i in range(plan.get_nfilters())}
        if filters - _FILTERS:
            raise self.damage_error(f"{name} needs a plugin to be read")
        if data.chunks is not None:
            chunk = int(np.prod(data.chunks, dtype=object)) * data.dtype.itemsize
            if chunk > max(1 << 20, 4 * data.size * data.dtype.itemsize):
                raise self.damage_error(
                    f"{name} is stored in chunks larger than itself"
                )

    def check_length(self, name: str) -> None:
        """Refuses an array that takes far more than it has in the file.

        For one of any shape; else that of the weight bounds it.
        """
        data = self._datasets[name]
        length = int(np.prod(data.shape, dtype=object)) * data.dtype.itemsize
        if length > max(_ROOM, _MOST_PACKED * data.id.get_storage_size()):
            raise self.damage_error(f"{name} would take {length} bytes")

    # ------------------------------------------------------------------ reading
    def read(self, name: str) -> np.ndarray:
        """An array, which has been found to be wanted."""
        data = self._datasets[name]
        try:
            array = np.asarray(data[()])
            if data.attrs.get("dtype") == "bfloat16":
                import ml_dtypes

                array = array.view(ml_dtypes.bfloat16)
        except (OSError, RuntimeError, ValueError, TypeError) as error:
            raise self.damage_error(f"{name} cannot be read", cause=error) from error
        return array

    def text(self, name: str, group: str = "") -> str | None:
        """An attribute that is text; ``None`` if there is none of that name."""
        return next(self._texts(name, group), None)

    def texts(self, name: str, group: str = "") -> list[str] | None:
        """An attribute that is a list of texts, also if Keras had to take it apart.

        HDF5 has no attributes above 64 KB, so there may be ``name0``, ``name1`` …
        """
        if self._has(name, group):
            return list(self._texts(name, group))
        if not self._has(f"{name}0", group):
            return None
        found: list[str] = []
        number = 0
        while self._has(f"{name}{number}", group):
            found += self._texts(f"{name}{number}", group)
            number += 1
        return found

    def _has(self, name: str, group: str) -> bool:
        return name in (self._file[group] if group else self._file).attrs

    def _texts(self, name: str, group: str) -> Iterator[str]:
        attributes = (self._file[group] if group else self._file).attrs
        if name not in attributes:
            return
        try:
            stored = attributes.get_id(name)
            size = int(np.prod(stored.shape or (), dtype=object))
            length = size * stored.dtype.itemsize
            if stored.dtype.kind not in "OSUf" or length > self._size:
                raise self.damage_error(f"the attribute {name} is no text")
            values = np.asarray(attributes[name], dtype=object).ravel()
            texts = [v.decode() if isinstance(v, bytes) else v for v in values]
        except (OSError, RuntimeError, ValueError, TypeError) as error:
            if isinstance(error, ModelFormatError):
                raise
            raise self.damage_error(f"{name} cannot be read", cause=error) from error
        if not all(isinstance(text, str) for text in texts):
            raise self.damage_error(f"the attribute {name} is no text")
        if sum(map(len, texts)) > _LONGEST_TEXT:
            raise self.damage_error(f"the attribute {name} is too long")
        yield from texts
