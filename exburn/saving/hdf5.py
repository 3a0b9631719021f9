"""HDF5 files, read with suspicion.

HDF5 can refer to other files, compress without bound, load plugins, have arrays without
content, and several names for one array or text. Links, second names, external and
virtual data and unknown filters are refused when a file is opened, and so are arrays
that its bytes do not explain. Nothing is read before its shape is known to be wanted.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from exburn.errors import ModelFormatError, require
from exburn.runtime.files.bounds import PACKED, ROOM, ArrayBudget, Budget, is_shape
from exburn.runtime.files.ordinary import check_ordinary
from exburn.saving.hdf5_heap import SHORT, referenced_bytes
from exburn.saving.header import damage_error

_SHUFFLE, _DEFLATE, _CHECKSUM = 2, 1, 3  # filters that HDF5 itself has
_FILTERS = (_SHUFFLE, _DEFLATE, _CHECKSUM)  # in the order in which they are written
_DEEPEST = 64
_CHUNKS = 1000  # of a short file's arrays; each has an entry of 8 bytes or more
_LARGEST_CHUNK = 1 << 20  # bytes, or four times the array
_LONGEST_TEXT = 16 << 20  # bytes of an attribute


class HDF5File:
    """The groups and arrays of a file; what may not be in it is an error.

    Args:
        path: What errors call the file, and where it is if there are no ``data``.
        most: How many entries it may have.
        data: Its bytes, out of an archive.
        size: Bytes that they have in the archive.

    Attributes:
        shapes: Shape of each array by its path.
        groups: The paths of the groups.

    Raises:
        ModelFormatError: The file is damaged, or holds what is refused.
        MissingDependencyError: h5py is not installed.
    """

    def __init__(
        self,
        path: Path,
        op: str,
        most: int,
        data: bytes | None = None,
        size: int | None = None,
    ):
        self.path, self.op, self._left = path, op, most
        reason = "reading files of Keras needs h5py"
        self._h5py = require("h5py", op, reason, extra="keras", details={"file": path})
        self._size = check_ordinary(path, op).st_size if data is None else len(data)
        self._datasets: dict[str, Any] = {}
        self.groups: set[str] = set()
        self._seen: set[int] = set()  # addresses of groups and arrays
        size = self._size if size is None else size
        self._arrays = ArrayBudget(size, self.damage_error)
        self._chunks = Budget(_CHUNKS + size // 8, self.damage_error)
        self._text = Budget(ROOM, self.damage_error)
        self._data, self._long_texts = data, None
        try:
            self._file = self._h5py.File(path if data is None else io.BytesIO(data))
        except (OSError, RuntimeError, ValueError) as error:
            raise self.damage_error("the HDF5 file is damaged", cause=error) from error
        try:
            self._see(self._file.id, "the file")
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
        """Notes every array and group below one; nothing is read yet."""
        h5py: Any = self._h5py
        self._left -= len(group)
        if depth > _DEEPEST or self._left < 0:
            raise self.damage_error("the HDF5 file has too many entries for this model")
        for key in group:
            name = f"{path}/{key}" if path else key
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                raise self.damage_error(f"{name} is a link, which is not followed")
            item = group[key]
            self._see(item.id, name)
            if isinstance(item, h5py.Dataset):
                self._check(name, item)
                self._datasets[name] = item
            elif isinstance(item, h5py.Group):
                self.groups.add(name)
                self._visit(item, name, depth + 1)
            else:
                raise self.damage_error(f"{name} is neither a group nor a dataset")

    def _see(self, identifier: Any, name: str) -> None:
        """Refuses a second name: what lies behind it is read once for each."""
        h5py: Any = self._h5py
        address = h5py.h5g.get_objinfo(identifier).objno
        if address in self._seen:
            raise self.damage_error(f"{name} is a second name of another entry")
        self._seen.add(address)

    def _check(self, name: str, data: Any) -> None:
        """Refuses an array of other things, or larger than the file explains."""
        kind, size = data.dtype.kind, data.dtype.itemsize
        half = (kind, size) == ("V", 2) and self._is_half(data)
        if data.shape is None or data.dtype.fields or not (kind in "biuf" or half):
            raise self.damage_error(f"{name} holds {data.dtype}, not numbers")
        if data.is_virtual or data.external:
            raise self.damage_error(f"{name} refers to another file")
        if not is_shape(data.shape, size):
            raise self.damage_error(f"{name} has no shape of an array")
        filters = self._filters(data)
        if filters != [code for code in _FILTERS if code in filters]:
            raise self.damage_error(f"{name} needs a plugin to be read")
        length = int(np.prod(data.shape, dtype=object)) * size
        if data.chunks is not None:
            chunk = int(np.prod(data.chunks, dtype=object)) * size
            if chunk > max(_LARGEST_CHUNK, 4 * length):
                raise self.damage_error(
                    f"{name} is stored in chunks larger than itself"
                )
            sides = zip(data.shape, data.chunks, strict=True)
            grid = (-(-side // step) for side, step in sides)
            self._chunks.spend(int(np.prod(list(grid), dtype=object)))
        stored_size = data.id.get_storage_size()
        if stored_size > self._size:
            raise self.damage_error(f"{name} is longer than the file")
        self._arrays.add(name, length, stored_size)

    def _filters(self, data: Any) -> list[int]:
        plan = data.id.get_create_plist()
        return [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]

    def _is_half(self, data: Any) -> bool:
        """Whether two bytes of unknown kind are a number of bfloat16."""
        return next(self._texts_of(data.attrs, "dtype"), None) == "bfloat16"

    # ------------------------------------------------------------------ reading
    def read(self, name: str) -> np.ndarray:
        """An array, which has been found to be wanted."""
        data = self._datasets[name]
        with self._reading(name):
            if _DEFLATE in self._filters(data):
                self._check_packed(name, data)
            array = np.asarray(data[()])
            if array.dtype.kind == "V":
                import ml_dtypes

                array = array.view(ml_dtypes.bfloat16)
        return array

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """In the block, what HDF5 raises is the error for a damaged file."""
        try:
            yield
        except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
            if isinstance(error, ModelFormatError):
                raise
            raise self.damage_error(f"{name} cannot be read", cause=error) from error

    def _check_packed(self, name: str, data: Any) -> None:
        """Refuses chunks that unpack to more than a chunk: HDF5 makes room for it."""
        filters = self._filters(data)
        length = int(np.prod(data.chunks, dtype=object)) * data.dtype.itemsize
        chunks: list[Any] = []
        data.id.chunk_iter(chunks.append)
        for about in chunks:
            mask, chunk = data.id.read_direct_chunk(about.chunk_offset)
            if mask & 1 << filters.index(_DEFLATE):
                continue  # this one is not packed
            if filters[-1] == _CHECKSUM and not mask & 1 << len(filters) - 1:
                chunk = chunk[:-4]
            unpacking = zlib.decompressobj()
            try:
                unpacking.decompress(chunk, length + 1)
            except zlib.error as error:
                raise self.damage_error(f"{name} is damaged", cause=error) from error
            if not unpacking.eof:
                raise self.damage_error(
                    f"{name} has chunks that are longer than others"
                )

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
        parts: list[str] = []
        number = 0
        while self._has(f"{name}{number}", group):
            parts += self._texts(f"{name}{number}", group)
            number += 1
        return parts

    def attributes(self, group: str) -> dict[str, Any]:
        """All attributes of a group that are texts or numbers.

        Raises:
            ModelFormatError: One is something else.
        """
        with self._reading(f"{group or 'the file'}, its attributes"):
            attributes = self._attributes(group)
            return {name: self._value(attributes, name) for name in attributes}

    def _value(self, attributes: Any, name: str) -> Any:
        attribute = attributes.get_id(name)
        if attribute.dtype.kind not in "biuf":
            texts = list(self._texts_of(attributes, name))
            return texts if attribute.shape else texts[0]
        length = (
            int(np.prod(attribute.shape or (), dtype=object)) * attribute.dtype.itemsize
        )
        if attribute.shape is None or length > self._size:
            raise self.damage_error(f"the attribute {name} is no number")
        self._text.spend(length)
        with self._reading(name):
            value = attributes[name]
        return value.item() if isinstance(value, np.generic) else value

    def _attributes(self, group: str) -> Any:
        return (self._file[group] if group else self._file).attrs

    def _has(self, name: str, group: str) -> bool:
        with self._reading(name):
            return name in self._attributes(group)

    def _texts(self, name: str, group: str) -> Iterator[str]:
        yield from self._texts_of(self._attributes(group), name)

    def _check_references(self, count: int, name: str) -> None:
        """Refuses an array of texts that may take far more than the file has.

        HDF5 copies the text behind each reference, and many may refer to the same one.
        """
        if count <= 1 or count * self._size <= ROOM:
            return
        if self._long_texts is None:
            self._long_texts = self._referenced_bytes()
        if count * SHORT + self._long_texts > PACKED * self._size + ROOM:
            raise self.damage_error(
                f"the attribute {name} refers to far more text than the file has"
            )

    def _referenced_bytes(self) -> int:
        """Bytes that all references to long texts of the file stand for."""
        layout = self._file.id.get_create_plist()
        count = None
        if layout.get_sizes() == (8, 8) and layout.get_userblock() == 0:
            if isinstance(self._data, bytes):
                count = referenced_bytes(self._data)
            else:
                handle = self._file.id.get_vfd_handle()
                with mmap.mmap(handle, 0, access=mmap.ACCESS_READ) as data:
                    count = referenced_bytes(data)
        if count is None:
            raise self.damage_error("the HDF5 file has texts as no model's file has")
        return count

    def _texts_of(self, attributes: Any, name: str) -> Iterator[str]:
        with self._reading(name):
            if name not in attributes:
                return
            attribute = attributes.get_id(name)
            size = int(np.prod(attribute.shape or (), dtype=object))
            length = size * attribute.dtype.itemsize
            if attribute.dtype.kind not in "OSUf" or length > self._size:
                raise self.damage_error(f"the attribute {name} is no text")
            if attribute.dtype.kind == "O":
                if self._h5py.check_string_dtype(attribute.dtype) is None:
                    raise self.damage_error(f"the attribute {name} is no text")
                self._check_references(size, name)
            else:
                self._text.spend(length)
            values = np.asarray(attributes[name], dtype=object).ravel()
            texts = [v.decode() if isinstance(v, bytes) else v for v in values]
        if not all(isinstance(text, str) for text in texts):
            raise self.damage_error(f"the attribute {name} is no text")
        count = sum(map(len, texts))
        if count > _LONGEST_TEXT:
            raise self.damage_error(f"the attribute {name} is too long")
        self._text.spend(count)
        yield from texts
