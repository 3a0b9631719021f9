"""Files of llama.cpp, GGUF: facts, and tensors that may be stored in few bits.

Every count in the header is compared with the bytes that are left in the file before
anything is made of it, and all tensors together with its length.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from exburn.runtime.files.bounds import ArrayBudget
from exburn.runtime.files.ordinary import Source
from exburn.saving.gguf_blocks import BLOCKS, NAMES, decode
from exburn.saving.header import damage_error
from exburn.saving.weight_sources import WeightSource

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_AHEAD = 1 << 20  # bytes of the header that are read at a time
_LEAST_FACT, _LEAST_TENSOR = 13, 32  # bytes of one, however short its name is
_MOST_AXES = 4
_TEXT, _LIST = 8, 9
_NUMBERS = {  # by the number of a kind of values
    0: "u1",
    1: "i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}


class StoredTensor(NamedTuple):
    """A tensor in the file.

    Attributes:
        shape: Its axes in NumPy's order.
        kind: The number of the form that it is stored in: a key of ``BLOCKS``.
        offset: Where it begins in the file.
        nbytes: How many bytes it has there.
    """

    shape: tuple[int, ...]
    kind: int
    offset: int
    nbytes: int


class GGUFFile:
    """A GGUF file whose header has been read.

    Attributes:
        facts: What the file says of the model, by names as ``"llama.block_count"``.
        tensors: What it says of its tensors, by name.

    Raises:
        ModelFormatError: It is none, damaged, or of a form that is not read.
    """

    def __init__(self, path: Any, op: str):
        self.path, self.op = Path(path), op
        self._source = Source(path, op=op)
        try:
            self.facts, self.tensors = _Header(self._source, self._refuse).read()
        except BaseException:
            self._source.close()
            raise

    def _refuse(self, reason: str) -> Exception:
        return damage_error(self.op, self.path, reason)

    def read(self, name: str) -> np.ndarray:
        """A tensor's numbers: float32, or the halves that are stored."""
        tensor = self.tensors[name]
        data = self._source.read(tensor.offset, tensor.nbytes)
        if len(data) < tensor.nbytes:  # the file has become shorter
            raise self._refuse(f"it ends within {name!r}")
        return decode(np.frombuffer(data, np.uint8), tensor.kind).reshape(tensor.shape)

    def close(self) -> None:
        """Closes the file."""
        self._source.close()

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class GGUFSource(WeightSource):
    """The tensors of a GGUF file under the names that they have there."""

    sequential = dtypes_known = True

    def __init__(self, file: GGUFFile):
        self._file = file
        self.shapes = {name: tensor.shape for name, tensor in file.tensors.items()}

    def each(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        for name in names:
            yield name, self._file.read(name)

    def dtype(self, name: str) -> np.dtype | None:
        return np.dtype(BLOCKS[self.kind(name)].dtype)

    def kind(self, name: str) -> int:
        """The number of the form in which a tensor is stored."""
        return self._file.tensors[name].kind


class _Header:
    """Reads the header, and never more of it than the file has.

    Args:
        refuse: Makes the error of a reason.
    """

    def __init__(self, source: Source, refuse: Any):
        self._source, self._refuse = source, refuse
        self._place, self._buffer, self._start = 0, b"", 0

    def read(self) -> tuple[dict[str, Any], dict[str, StoredTensor]]:
        """The facts and the tensors."""
        if self._take(4) != MAGIC:
            raise self._refuse("it is no GGUF file")
        version = self._number("<I")
        if version not in _VERSIONS:
            raise self._refuse(
                f"it has version {version} of GGUF; {_VERSIONS[0]} and {_VERSIONS[1]} "
                "of little-endian machines are read"
            )
        tensors = self._count("<Q", _LEAST_TENSOR, "tensors")
        facts = self._count("<Q", _LEAST_FACT, "facts")
        values: dict[str, Any] = {}
        for _ in range(facts):
            key = self._text()
            if key in values:
                raise self._refuse(f"it says {key!r} twice")
            values[key] = self._value(self._number("<I"))
        return values, self._tensors(tensors, values.get("general.alignment", 32))

    def _tensors(self, count: int, alignment: Any) -> dict[str, StoredTensor]:
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise self._refuse(f"'general.alignment' is {alignment!r}")
        stubs: dict[str, StoredTensor] = {}
        for _ in range(count):
            name = self._text()
            if name in stubs:
                raise self._refuse(f"it has two tensors {name!r}")
            axes = self._number("<I")
            if axes > _MOST_AXES:
                raise self._refuse(
                    f"{name!r} has {axes} axes, {_MOST_AXES} are allowed"
                )
            shape = tuple(self._number("<Q") for _ in range(axes))[::-1]
            kind, offset = self._number("<I"), self._number("<Q")
            stubs[name] = self._tensor(name, shape, kind, offset, alignment)
        start = -(-self._place // alignment) * alignment
        size, result = self._source.size, {}
        budget = ArrayBudget(size, self._refuse)
        for name, stub in stubs.items():
            tensor = stub._replace(offset=start + stub.offset)
            if tensor.offset + tensor.nbytes > size:
                raise self._refuse(f"it ends before the end of {name!r}")
            itemsize = np.dtype(BLOCKS[tensor.kind].dtype).itemsize
            length = math.prod(tensor.shape) * itemsize
            budget.add(name, length, tensor.nbytes)
            result[name] = tensor
        self._check_apart(result)
        return result

    def _check_apart(self, tensors: dict[str, StoredTensor]) -> None:
        """Raises if two tensors share bytes, as after a flipped bit of a place."""
        end, before = 0, ""
        for name, tensor in sorted(tensors.items(), key=lambda item: item[1].offset):
            if tensor.nbytes and tensor.offset < end:
                raise self._refuse(f"{before!r} and {name!r} share bytes")
            end, before = tensor.offset + tensor.nbytes, name

    def _tensor(
        self, name: str, shape: tuple, kind: int, offset: int, alignment: int
    ) -> StoredTensor:
        if kind not in BLOCKS:
            known = ", ".join(block.name for block in BLOCKS.values())
            raise self._refuse(
                f"{name!r} is stored as {NAMES.get(kind, kind)}, which is not read; "
                f"read are {known}"
            )
        block = BLOCKS[kind]
        row = shape[-1] if shape else 1
        if row % block.size or offset % alignment:
            raise self._refuse(f"{name!r} does not consist of whole blocks")
        count = math.prod(shape)
        return StoredTensor(shape, kind, offset, count // block.size * block.nbytes)

    # ------------------------------------------------------------------ values
    def _value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self._text()
        if kind == _LIST:
            return self._list()
        return self._array(kind, 1)[0].item()

    def _list(self) -> Any:
        """A list of texts, or an array of numbers."""
        kind = self._number("<I")
        if kind == _TEXT:
            count = self._count("<Q", 8, "texts")
            return [self._text() for _ in range(count)]
        if kind not in _NUMBERS:
            raise self._refuse(f"it has a list of values of the kind {kind}")
        count = self._count("<Q", np.dtype(_NUMBERS[kind]).itemsize, "numbers")
        return self._array(kind, count).copy()

    def _array(self, kind: int, count: int) -> np.ndarray:
        if kind not in _NUMBERS:
            raise self._refuse(f"it has a value of the kind {kind}")
        dtype = np.dtype(_NUMBERS[kind])
        data = self._take(count * dtype.itemsize)
        if dtype.kind == "b" and set(data) - {0, 1}:
            raise self._refuse("a flag is neither 0 nor 1")
        return np.frombuffer(data, dtype)

    def _text(self) -> str:
        data = self._take(self._count("<Q", 1, "bytes of a text"))
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self._refuse("a text in its header is no UTF-8") from None

    def _count(self, form: str, least: int, what: str) -> int:
        """How many values follow, each of which takes some bytes at least."""
        count = self._number(form)
        if count * least > self._source.size - self._place:
            raise self._refuse(f"it is to have {count} {what}, more than it has bytes")
        return count

    def _number(self, form: str) -> int:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _take(self, count: int) -> bytes:
        """The next bytes."""
        begin = self._place - self._start
        if begin + count > len(self._buffer):
            self._start, begin = self._place, 0
            self._buffer = self._source.read(self._place, max(count, _AHEAD))
        data = self._buffer[begin : begin + count]
        if len(data) < count:
            raise self._refuse("it ends within its header")
        self._place += count
        return data


def is_gguf(path: Path, op: str) -> bool:
    """Whether a file begins as a GGUF file does."""
    with Source(path, op=op) as file:
        return file.read(0, len(MAGIC)) == MAGIC
