"""Files of ``torch.save``: zip archives, and those from before PyTorch 1.6.

A description, a pickle, says which tensors there are, as views of storages, which are
rows of numbers beside it. It is read by an interpreter of our own
(``tensor_pickle.py``), storages when they are wanted.
"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from exburn.errors import ModelFormatError
from exburn.runtime.files.bounds import ArrayBudget, Budget
from exburn.runtime.files.ordinary import ONCE, ZIP, Source
from exburn.runtime.files.zip_directory import open_zip
from exburn.saving.header import MAX_NAME, damage_error
from exburn.saving.tensor_pickle import (
    MAX_BYTES,
    STORAGES,
    UNTYPED,
    PickledName,
    PickledTensor,
    PickleStream,
    Storage,
    memory_budget,
    read_pickle,
)

LEGACY = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # what such a file begins with
_PROTOCOL = 1001
_MOST_MEMBERS = 100_000
_MOST_TENSORS = 100_000
_DEEPEST = 32
_ENTRY = 320  # bytes of what is noted of a tensor or container here
_LIBRARY = (
    EOFError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
    struct.error,
    zipfile.error,
    zlib.error,
)


def is_torch_zip(path: Path, op: str) -> bool:
    """Whether a zip file is one of PyTorch's.

    Raises:
        ModelFormatError: The zip file is damaged.
    """
    try:
        with open_zip(path, op) as archive:
            return any(_is_description(name) for name in archive.namelist())
    except ModelFormatError:
        raise
    except _LIBRARY as error:
        raise damage_error(op, path, "the zip file is damaged", cause=error) from error


def _is_description(name: str) -> bool:
    return name.count("/") == 1 and name.endswith("/data.pkl")


class _StoragePlace(NamedTuple):
    """Where a storage lies in the file, and the digest of its bytes."""

    start: int
    size: int
    crc: int | None


class TorchFile:
    """The tensors of such a file by their names.

    Those of dicts in dicts have the keys of all of them, joined by dots. Where only one
    entry of the outermost dict has tensors, but for an optimizer's, they go without its
    name: ``{"epoch": 3, "state_dict": {…}}`` holds the tensors of the inner one.

    Attributes:
        tensors: What they are, by name.

    Raises:
        ModelFormatError: The file is damaged, or asks for more than tensors.
        MissingFileError: There is no such file.
        LoadError: The system refuses to read it.
    """

    def __init__(self, path: Any, *, op: str = "load"):
        self.op, self.path = op, Path(path)
        self._file = Source(path, op=op)
        self._places: dict[str, _StoragePlace] = {}
        self._last: tuple[str, np.ndarray] | None = None
        self._budget = memory_budget(self._file)  # of all that is not numbers
        try:
            zipped = self._file.read(0, len(ZIP)) == ZIP
            value = self._read_zip() if zipped else self._legacy()
            self.tensors = self._tensors_in(value)
            self._check_memory()
        except BaseException:
            self.close()
            raise

    @property
    def lengths(self) -> tuple[int, int]:
        """Bytes of the tensors, and of the file."""
        tensors = self.tensors.values()
        total = sum(math.prod(t.shape) * t.dtype.itemsize for t in tensors)
        return total, self._file.size

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor."""
        return {name: tensor.shape for name, tensor in self.tensors.items()}

    def damage_error(self, reason: str, **details: Any) -> ModelFormatError:
        """The error for such a file."""
        return damage_error(self.op, self.path, reason, **details)

    # ------------------------------------------------------------------ zip archives
    def _read_zip(self) -> Any:
        try:
            with open_zip(self.path, self.op) as archive:
                members = archive.infolist()
        except ModelFormatError:
            raise
        except _LIBRARY as error:
            reason = "the zip file is damaged"
            raise self.damage_error(reason, cause=error) from error
        if len(members) > _MOST_MEMBERS:
            raise self.damage_error(f"the zip file has {len(members)} members")
        descriptions = [m.filename for m in members if _is_description(m.filename)]
        if len(descriptions) != 1:
            raise self.damage_error("the zip file has no data.pkl of weights")
        folder = descriptions[0].removesuffix("data.pkl")
        inside = {m.filename.removeprefix(folder): m for m in members}
        if len(inside) != len(members):
            raise self.damage_error("a name occurs twice in the zip file")
        if "constants.pkl" in inside:
            raise ModelFormatError(
                self.op,
                "the file holds a TorchScript program, which is not run",
                {"file": self.path},
                hint="Save the weights alone: torch.save(model.state_dict(), path).",
            )
        if "byteorder" in inside:
            place = self._member(inside["byteorder"])
            if self._file.read(place.start, 16)[: place.size].strip() != b"little":
                raise self.damage_error("its numbers are big-endian")
        about = self._member(inside["data.pkl"])
        if about.size > MAX_BYTES:
            raise self.damage_error("the description in the file is too long")
        if zlib.crc32(self._file.read(about.start, about.size)) != about.crc:
            raise self.damage_error("the description does not fit its checksum")

        def storage(reference: Any) -> Storage:
            result = self._storage(reference)
            if result.key not in self._places:
                member = inside.get(f"data/{result.key}")
                if member is None:
                    raise self.damage_error("a row of numbers is missing in the file")
                self._places[result.key] = self._member(member)
            self._check_size(result)
            return result

        stream = PickleStream(self._file, about.start, about.start + about.size)
        return read_pickle(stream, self._budget, storage)

    def _member(self, info: zipfile.ZipInfo) -> _StoragePlace:
        place = info.header_offset
        head = self._file.read(place, 30) if place >= 0 else b""
        if len(head) < 30 or head[:4] != ZIP or info.flag_bits & 1:
            raise self.damage_error(f"{info.filename!r} is not where the zip file says")
        names, extra = struct.unpack("<HH", head[26:30])
        start = info.header_offset + 30 + names + extra
        size = info.file_size
        is_plain = (
            info.compress_type == zipfile.ZIP_STORED and size == info.compress_size
        )
        if not is_plain or start + size > self._file.size:
            raise self.damage_error(f"{info.filename!r} is not stored as PyTorch does")
        return _StoragePlace(start, size, info.CRC)

    # ------------------------------------------------------------------ before 1.6
    def _legacy(self) -> Any:
        stream = PickleStream(self._file, len(LEGACY), self._file.size)
        if read_pickle(stream, self._budget) != _PROTOCOL:
            raise self.damage_error("it is of another version of PyTorch's format")
        about = read_pickle(stream, self._budget)
        if not isinstance(about, dict) or about.get("little_endian") is not True:
            raise self.damage_error("its numbers are big-endian")
        wholes: dict[str, Storage] = {}

        def storage(reference: Any) -> Storage:
            part = self._storage(reference)
            whole = wholes.setdefault(part.key, part)
            if whole.dtype != part.dtype or whole.count != part.count:
                raise ValueError
            if reference[5] is None:
                return part
            _, start, count = reference[5]  # a part of it, which others have, too
            if type(start) is not int or type(count) is not int:
                raise TypeError
            if not 0 <= start <= start + count <= part.count:
                raise ValueError
            return Storage(part.key, part.dtype, count, start)

        value = read_pickle(stream, self._budget, storage)
        keys = read_pickle(stream, self._budget)
        if not isinstance(keys, list) or not all(isinstance(k, str) for k in keys):
            raise self.damage_error("the file does not list its rows of numbers")
        place = stream.place
        for key in keys:
            whole = wholes.get(key)
            if whole is None or whole.dtype is None or key in self._places:
                raise self.damage_error("the file lists a row of numbers of no tensor")
            size = whole.count * whole.dtype.itemsize
            if self._file.read(place, 8) != whole.count.to_bytes(8, "little"):
                raise self.damage_error("a row of numbers has another length")
            self._places[key] = _StoragePlace(place + 8, size, None)
            place += 8 + size
        if set(wholes) - set(self._places) or place > self._file.size:
            raise self.damage_error("a row of numbers is missing in the file")
        return value

    # ------------------------------------------------------------------ storages
    def _storage(self, reference: Any) -> Storage:
        """A storage by what the description says of it."""
        kind, of, key, _, count = reference[:5]
        if (
            kind != "storage"
            or not isinstance(of, PickledName)
            or not isinstance(key, str)
        ):
            raise TypeError
        if type(count) is not int or not 0 <= count < 2**60 or len(key) > 64:
            raise ValueError
        if of.name not in STORAGES and of.name != UNTYPED:
            raise self.damage_error("numbers of a kind that is not known")
        return Storage(key, STORAGES.get(of.name), count)

    def _check_size(self, storage: Storage) -> None:
        itemsize = 1 if storage.dtype is None else storage.dtype.itemsize
        if storage.count * itemsize > self._places[storage.key].size:
            raise self.damage_error("a row of numbers is shorter than its tensors")

    def _check_memory(self) -> None:
        """Refuses tensors that would take far more than their storages have."""
        lengths: dict[str, int] = {}
        examples: dict[str, str] = {}
        for name, tensor in self.tensors.items():
            key = tensor.storage.key
            if key not in self._places:
                raise self.damage_error(f"the numbers of {name!r} are missing")
            length = math.prod(tensor.shape) * tensor.dtype.itemsize
            lengths[key] = lengths.get(key, 0) + length
            examples.setdefault(key, name)
        budget = ArrayBudget(self._file.size, self.damage_error)
        for key, length in lengths.items():
            budget.add(examples[key], length, self._places[key].size)

    def _read_storage(self, key: str) -> np.ndarray:
        """The bytes of a storage; the last one is kept for the tensors beside it."""
        if self._last is not None and self._last[0] == key:
            return self._last[1]
        self._last = None
        place = self._places[key]
        data = np.empty(place.size, np.uint8)
        digest = 0
        for at in range(0, place.size, ONCE):
            part = data.data[at : at + ONCE]
            if self._file.read_into(place.start + at, part) != len(part):
                raise self.damage_error("the file is cut off")
            if place.crc is not None:
                digest = zlib.crc32(part, digest)
        if place.crc is not None and digest != place.crc:
            raise self.damage_error("numbers do not fit their checksum")
        self._last = key, data
        return data

    # ------------------------------------------------------------------ tensors
    def read(self, name: str) -> np.ndarray:
        """A tensor, as a view of its storage, which is not to be written to.

        Raises:
            ModelFormatError: The numbers do not fit their checksum.
        """
        tensor = self.tensors[name]
        storage = tensor.storage
        data = self._read_storage(storage.key)
        itemsize = tensor.dtype.itemsize
        own = itemsize if storage.dtype is None else storage.dtype.itemsize
        numbers = data[storage.start * own :]
        numbers = numbers[: len(numbers) // itemsize * itemsize].view(tensor.dtype)
        return np.lib.stride_tricks.as_strided(
            numbers[tensor.offset :],
            tensor.shape,
            [step * itemsize for step in tensor.strides],
            writeable=False,
        )

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Names by their storages, so that each is read once: the largest first."""

        def place(name: str) -> tuple[int, int]:
            position = self._places[self.tensors[name].storage.key]
            return -position.size, position.start

        return sorted(names, key=place)

    def verify(self, names: Iterable[str]) -> None:
        """Compares the storages of these tensors with their checksums.

        Raises:
            ModelFormatError: One does not fit.
        """
        for name in self.in_order(names):
            self._read_storage(self.tensors[name].storage.key)
        self._last = None

    # ------------------------------------------------------------------ names
    def _tensors_in(self, value: Any) -> dict[str, PickledTensor]:
        """The tensors that a value holds, by their names."""
        holders = _holders(value, self._budget)

        def holds(part: Any) -> bool:
            return isinstance(part, PickledTensor) or id(part) in holders

        if isinstance(value, dict):
            value = {
                key: part
                for key, part in value.items()
                if holds(part) and not _is_optimizer(key, part)
            }
            (only,) = value.values() if len(value) == 1 else (None,)
            value = only if isinstance(only, dict) else value
        tensors: dict[str, PickledTensor] = {}
        todo, visited = [("", value, 0)], {id(value)}
        while todo:
            path, part, depth = todo.pop()
            if isinstance(part, PickledTensor):
                self._add(tensors, path, part)
                continue
            if depth > _DEEPEST:
                raise self.damage_error("tensors lie too deep in dicts and lists")
            inner = []
            for key, one in _entries(part):
                if not holds(one) or id(one) in visited:
                    continue
                if not isinstance(one, PickledTensor):
                    visited.add(id(one))  # a container that occurs twice counts once
                if len(path) + len(key) > MAX_NAME:
                    raise self.damage_error("a tensor's name is too long")
                name = f"{path}.{key}" if path else key
                self._budget.spend(_ENTRY + 4 * len(name))
                inner.append((name, one, depth + 1))
            todo += reversed(inner)
        if not tensors:
            raise self.damage_error("the file holds no tensors")
        return tensors

    def _add(
        self, tensors: dict[str, PickledTensor], name: str, tensor: PickledTensor
    ) -> None:
        if len(tensors) >= _MOST_TENSORS:
            raise self.damage_error("it has too many tensors")
        if name in tensors:
            raise self.damage_error(f"tensor {name!r} occurs twice")
        tensors[name] = tensor

    def close(self) -> None:
        self._last = None
        self._file.close()

    def __enter__(self) -> TorchFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """What a container holds, by its keys or numbers."""
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list | tuple):
        yield from ((str(number), part) for number, part in enumerate(value))


def _holders(value: Any, budget: Budget) -> set[int]:
    """The identities of the containers with tensors in them, at any depth.

    Each container is looked at once, however many others name it.
    """
    above: dict[int, list[int]] = {}  # the containers that name one
    holders: set[int] = set()
    todo, visited = [value], {id(value)}
    while todo:
        outer = todo.pop()
        for _, part in _entries(outer):
            if isinstance(part, PickledTensor):
                holders.add(id(outer))
            elif isinstance(part, dict | list | tuple):
                budget.spend(_ENTRY)
                above.setdefault(id(part), []).append(id(outer))
                if id(part) not in visited:
                    visited.add(id(part))
                    todo.append(part)
    news = list(holders)
    while news:
        for outer in above.get(news.pop(), ()):
            if outer not in holders:
                holders.add(outer)
                news.append(outer)
    return holders


def _is_optimizer(key: str, value: Any) -> bool:
    return key[:5] == "optim" and not isinstance(value, PickledTensor)
