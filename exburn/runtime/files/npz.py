"""NumPy's ``.npz``: arrays in a zip file, which are bounded by the file's length."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from exburn.errors import FileFormatError
from exburn.runtime.files.bounds import DAMAGED, ArrayBudget, is_shape
from exburn.runtime.files.ordinary import check_ordinary
from exburn.runtime.files.zip_directory import open_zip

_MOST_HEADER = 10_000  # bytes, NumPy's own limit
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class NpzFile:
    """The arrays of an ``.npz`` file by name, of numbers alone.

    Attributes:
        shapes, dtypes: Shape and dtype of each array by its name, of which nothing has
            been read.

    Raises:
        FileFormatError: The file is damaged, holds other things than numbers, or takes
            more memory than its length explains.
        MissingFileError: There is no such file.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "data.npz")
        >>> np.savez(path, x=np.ones((2, 3)))
        >>> file = NpzFile(path, "load")
        >>> file.shapes, file.read("x").sum()
        ({'x': (2, 3)}, np.float64(6.0))
    """

    def __init__(
        self, path: Path, op: str, kind: type[FileFormatError] = FileFormatError
    ):
        self._path, self._op, self._kind = path, op, kind
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, np.dtype] = {}
        budget = ArrayBudget(check_ordinary(path, op).st_size, self._error)
        with self._archive() as archive:
            for info in archive.infolist():
                name = info.filename.removesuffix(".npy")
                if name in self.shapes:
                    raise self._error(f"an array {name!r} occurs twice")
                self.shapes[name], self.dtypes[name] = self._header(archive, info)
                budget.add(name, info.file_size, info.compress_size)
            self._members = dict(zip(self.shapes, archive.namelist(), strict=True))

    def _error(self, reason: str, cause: Any = None) -> FileFormatError:
        details = {"file": self._path} | ({} if cause is None else {"cause": cause})
        return self._kind(self._op, reason, details, hint=DAMAGED)

    @contextlib.contextmanager
    def _archive(self) -> Iterator[zipfile.ZipFile]:
        try:
            with open_zip(self._path, self._op) as archive:
                yield archive
        except FileFormatError:
            raise
        except Exception as error:  # of zipfile, zlib, or NumPy's parser
            raise self._error("the zip file is damaged", error) from error

    def _header(
        self, archive: zipfile.ZipFile, info: zipfile.ZipInfo
    ) -> tuple[tuple[int, ...], np.dtype]:
        try:
            with archive.open(info) as file:
                read = _READERS[np.lib.format.read_magic(file)]
                shape, _, dtype = read(file, max_header_size=_MOST_HEADER)
                start = file.tell()
        except Exception as error:  # of zipfile, zlib, or NumPy's parser
            raise self._error(f"{info.filename} is no array", error) from error
        if dtype.hasobject or dtype.kind not in "biufc":
            raise self._error(f"{info.filename} holds {dtype}, not numbers")
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if not is_shape(shape, dtype.itemsize) or info.file_size != start + size:
            raise self._error(f"{info.filename} is not as long as its shape says")
        return tuple(shape), dtype

    def read(self, name: str) -> np.ndarray:
        """The array of this name.

        Raises:
            FileFormatError: It is damaged.
        """
        with self._archive() as archive, archive.open(self._members[name]) as file:
            return np.lib.format.read_array(
                file, allow_pickle=False, max_header_size=_MOST_HEADER
            )
