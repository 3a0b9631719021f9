"""The pickles of PyTorch's files, read by an interpreter that can run nothing.

A pickle is a program for a stack machine. This one knows the instructions that build
dicts, lists, tuples, texts and numbers, and a table of the few names that files of
weights use; every name outside of the table is an error, so nothing is ever imported or
called that the file chooses.

What it makes is paid for from a budget before it is made, by every instruction and
every function of the table: a pickle can name one list a million times, but not copy it
as often. The keys of its dicts are texts here, numbers in decimal, because the hashes
of texts alone cannot be chosen by a file.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from exburn.errors import ModelFormatError
from exburn.runtime.files.bounds import ROOM, Budget, is_shape
from exburn.runtime.files.ordinary import Source
from exburn.saving.header import DTYPES, MAX_RANK, damage_error

MAX_BYTES = 8 << 20
# Bytes of memory, as the interpreter of Python counts them, rounded up.
_INSTRUCTION = 96  # an object without content, and its place on the stack
_ENTRY = 112  # of a dict
_ITEM = 8  # of a list
_CHARACTER = 4  # of a text
_MOST = 4 << 20  # bytes of one text
_LONGEST_NAME = 256
_BUFFER = 1 << 16
_NUMBERS = re.compile(r"[<|=]?[biufc]\d{1,2}")

# What PyTorch calls the kinds of numbers of a storage, by our codes.
STORAGES = {
    f"{name}Storage": DTYPES[code]
    for name, code in {
        "Float": "F32",
        "Double": "F64",
        "Half": "F16",
        "BFloat16": "BF16",
        "Long": "I64",
        "Int": "I32",
        "Short": "I16",
        "Char": "I8",
        "Byte": "U8",
        "Bool": "BOOL",
        "ComplexFloat": "C64",
    }.items()
}
UNTYPED = "UntypedStorage"
_DTYPES = {
    name: DTYPES[code]
    for name, code in {
        "float32": "F32",
        "float64": "F64",
        "float16": "F16",
        "bfloat16": "BF16",
        "int64": "I64",
        "int32": "I32",
        "int16": "I16",
        "int8": "I8",
        "uint8": "U8",
        "uint16": "U16",
        "uint32": "U32",
        "uint64": "U64",
        "bool": "BOOL",
        "complex64": "C64",
        "float8_e4m3fn": "F8_E4M3",
        "float8_e5m2": "F8_E5M2",
    }.items()
}


class Storage:
    """A row of numbers in a file, which tensors are views of.

    Attributes:
        key: Its name in the file.
        dtype: What the numbers are; ``None`` if every tensor says so itself.
        count: How many there are; bytes if there is no dtype.
        start: The first of them that counts, in one that is a part of another.
    """

    __slots__ = ("count", "dtype", "key", "start")

    def __init__(self, key: str, dtype: np.dtype | None, count: int, start: int = 0):
        self.key, self.dtype, self.count, self.start = key, dtype, count, start


class PickledTensor:
    """A view of a storage: nothing of it has been read."""

    __slots__ = ("dtype", "offset", "shape", "storage", "strides")

    def __init__(
        self,
        storage: Storage,
        dtype: np.dtype,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
    ):
        self.storage, self.dtype = storage, dtype
        self.offset, self.shape, self.strides = offset, shape, strides


class PickledName:
    """A name that a pickle refers to: text, and nothing else."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str):
        self.module, self.name = module, name

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class _Array:
    """An array of NumPy's, whose content the next instruction brings."""

    __slots__ = ("value",)

    def __init__(self):
        self.value: np.ndarray | None = None


class _Mark:
    __slots__ = ()


_MARK = _Mark()


class PickleStream:
    """The bytes of a file from some place on, a buffer at a time.

    Args:
        place: Where it begins.
        stop: Where it ends at the latest.
    """

    def __init__(self, file: Source, place: int, stop: int):
        self.file, self.place, self._stop = file, place, min(stop, file.size)
        self._buffer, self._at = b"", 0

    def take(self, count: int) -> bytes:
        """The next bytes.

        Raises:
            ModelFormatError: There are not as many.
        """
        if count > len(self._buffer) - self._at:
            if count > min(self._stop - self.place, _MOST):
                raise damage_error(
                    self.file.op, self.file.path, "the file ends within a description"
                )
            size = min(max(count, _BUFFER), self._stop - self.place)
            self._buffer, self._at = self.file.read(self.place, size), 0
        data = self._buffer[self._at : self._at + count]
        if len(data) != count:
            raise damage_error(self.file.op, self.file.path, "the file is cut off")
        self._at += count
        self.place += count
        return data

    def line(self) -> str:
        """The next line, of at most 256 bytes."""
        text = bytearray()
        while (byte := self.take(1)) != b"\n":
            text += byte
            if len(text) > _LONGEST_NAME:
                raise damage_error(self.file.op, self.file.path, "a name is too long")
        return text.decode("utf-8", "replace")


def memory_budget(file: Source) -> Budget:
    """The memory that all descriptions in a file may take together."""
    return Budget(ROOM, lambda reason: damage_error(file.op, file.path, reason))


def read_pickle(
    stream: PickleStream,
    budget: Budget,
    storage: Callable[[Any], Storage] | None = None,
) -> Any:
    """The value that a pickle describes; tensors are views of storages.

    Args:
        stream: Where it begins; afterwards, where it has ended.
        budget: The memory that is left for what it describes.
        storage: Makes a storage of what a pickle says of it.

    Raises:
        ModelFormatError: It is damaged, takes too much memory, or asks for anything
            else.
    """
    return _Machine(stream, budget, storage).run()


class _Machine:
    """A stack, a memo, and the instructions that are known."""

    def __init__(
        self,
        stream: PickleStream,
        budget: Budget,
        storage: Callable[[Any], Storage] | None,
    ):
        self._stream, self._storage = stream, storage
        self.spend = budget.spend
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def wrong(self, reason: str, **details: Any) -> ModelFormatError:
        file = self._stream.file
        return damage_error(file.op, file.path, reason, **details)

    def run(self) -> Any:
        stream, start = self._stream, self._stream.place
        library = (
            *(AttributeError, IndexError, KeyError, OverflowError, TypeError),
            *(ValueError, struct.error),
        )
        try:
            while (code := stream.take(1)[0]) != 0x2E:  # STOP
                self.spend(_INSTRUCTION)
                if stream.place - start > MAX_BYTES:
                    raise self.wrong("the description in the file is too long")
                instruction = _INSTRUCTIONS.get(code)
                if instruction is None:
                    raise self.wrong(f"an instruction of no weights: 0x{code:02x}")
                instruction(self)
            (value,) = self._stack
            return value
        except library as error:
            if isinstance(error, ModelFormatError):
                raise
            raise self.wrong("the description in the file is damaged") from error

    # ------------------------------------------------------------------ the stack
    def push(self, value: Any) -> None:
        self._stack.append(value)

    def pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise IndexError
        return value

    def top(self, kind: type) -> Any:
        value = self._stack[-1]
        if type(value) is not kind:
            raise TypeError
        return value

    def pop_marked(self) -> list[Any]:
        """What lies above the last mark, which goes, too."""
        place = len(self._stack) - 1
        while self._stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise IndexError
        items = self._stack[place + 1 :]
        del self._stack[place:]
        return items

    def number(self, size: int) -> int:
        return int.from_bytes(self._stream.take(size), "little")

    def text(self, size: int, encoding: str = "utf-8") -> str:
        length = self.number(size)
        self.spend(_CHARACTER * length)
        return self._stream.take(length).decode(encoding, "replace")

    def data(self, size: int) -> bytes:
        length = self.number(size)
        self.spend(length)
        return self._stream.take(length)

    # ------------------------------------------------------------------ instructions
    def long(self) -> None:
        data = self._stream.take(self.number(1))
        self.push(int.from_bytes(data, "little", signed=True))

    def remember(self, number: int) -> None:
        if self._stack[-1] is _MARK:
            raise IndexError
        self.spend(_ENTRY)
        self._memo[number] = self._stack[-1]

    def tuple_of(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(values)))

    def set_items(self, pairs: list[Any]) -> None:
        target = self.top(dict)
        if len(pairs) % 2:
            raise ValueError
        self.put(target, zip(pairs[::2], pairs[1::2], strict=True))

    def put(self, target: dict[str, Any], pairs: Iterable[Any]) -> None:
        """Makes entries of a dict, each of which may be set once."""
        for key, value in pairs:
            self.spend(_ENTRY)
            text = self.key(key)
            if text in target:
                raise self.wrong(f"the key {text[:80]!r} occurs twice")
            target[text] = value

    def key(self, key: Any) -> str:
        """A key as a text: hashes of numbers and of tuples are the file's to choose."""
        if isinstance(key, str):
            return key
        if isinstance(key, bytes):
            self.spend(_CHARACTER * len(key))
            return key.decode("latin1")
        if isinstance(key, int | float | None):
            self.spend(_CHARACTER * 700)  # of a number of 255 bytes
            return str(key)
        raise TypeError

    def set_item(self) -> None:
        value, key = self.pop(), self.pop()
        self.set_items([key, value])

    def append(self) -> None:
        value = self.pop()
        self.top(list).append(value)

    def append_all(self) -> None:
        values = self.pop_marked()
        self.top(list).extend(values)

    def push_named(self) -> None:
        module = self._stream.line()
        self.push(self.resolve(module, self._stream.line()))

    def named_on_stack(self) -> None:
        name, module = self.pop(), self.pop()
        if not (isinstance(name, str) and isinstance(module, str)):
            raise TypeError
        if max(len(name), len(module)) > _LONGEST_NAME:
            raise self.wrong("a name is too long")
        self.push(self.resolve(module, name))

    def resolve(self, module: str, name: str) -> Any:
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        entry = PickledName(module, name)
        storage = module in ("torch", "torch.storage") and name.endswith("Storage")
        if not storage and str(entry) not in _KNOWN:
            hint = "Save the weights alone: torch.save(model.state_dict(), path)."
            raise ModelFormatError(
                self._stream.file.op,
                f"the file asks for {entry}, which no weights need; nothing of it runs",
                {"file": self._stream.file.path},
                hint=hint,
            )
        return entry

    def persistent(self) -> None:
        about = self.pop()
        if self._storage is None:
            raise TypeError
        self.push(self._storage(about))

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if not (isinstance(function, PickledName) and isinstance(arguments, tuple)):
            raise TypeError
        make = _KNOWN.get(str(function))
        if make is None:
            raise TypeError
        self.push(make(self, *arguments))

    def build(self) -> None:
        state = self.pop()
        target = self._stack[-1]
        if isinstance(target, _Array):
            target.value = _array_of(self, state)
        elif isinstance(target, np.dtype):
            if state[1] not in ("<", "|"):
                raise ValueError
        elif isinstance(target, dict):  # attributes of a dict, or of a namespace
            if isinstance(state, dict) and "_metadata" not in state:
                self.put(target, state.items())
        else:
            raise TypeError


def _ints(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list | tuple) or len(values) > MAX_RANK:
        raise TypeError
    if any(type(v) is not int or not 0 <= v < 2**62 for v in values):
        raise ValueError
    return tuple(values)


def _tensor(
    machine: _Machine, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any
) -> PickledTensor:
    if storage.dtype is None:
        raise TypeError
    return _view(machine, storage, storage.dtype, offset, shape, strides)


def _tensor_with_dtype(
    machine: _Machine, storage: Any, offset: Any, shape: Any, strides: Any, grad: Any,
    hooks: Any, dtype: Any, *_: Any,
) -> PickledTensor:  # fmt: skip
    return _view(machine, storage, dtype, offset, shape, strides)


def _view(
    machine: _Machine, storage: Any, dtype: Any, offset: Any, shape: Any, strides: Any
) -> PickledTensor:
    if not isinstance(storage, Storage) or not isinstance(dtype, np.dtype):
        raise TypeError
    shape, strides, (offset,) = _ints(shape), _ints(strides), _ints((offset,))
    if len(shape) != len(strides) or not is_shape(shape, dtype.itemsize):
        raise ValueError
    itemsize = 1 if storage.dtype is None else storage.dtype.itemsize
    count = storage.count * itemsize // dtype.itemsize
    last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if 0 not in shape and not offset + last < count:
        raise ValueError
    machine.spend(_INSTRUCTION + 2 * (_ITEM + 32) * len(shape))
    return PickledTensor(storage, dtype, offset, shape, strides)


def _parameter(machine: _Machine, tensor: Any, *_: Any) -> Any:
    if not isinstance(tensor, PickledTensor):
        raise TypeError
    return tensor


def _dict(machine: _Machine, pairs: Any = (), *_: Any) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    if isinstance(pairs, PickledName):  # the factory of a dict with defaults
        return entries
    if not isinstance(pairs, list | tuple):
        raise TypeError
    machine.put(entries, pairs)
    return entries


def _namespace(machine: _Machine) -> dict[str, Any]:
    return {}


def _list(machine: _Machine, items: Any = ()) -> list[Any]:
    if not isinstance(items, list | tuple):
        raise TypeError
    machine.spend(_ITEM * len(items))
    return list(items)


def _size(machine: _Machine, sizes: Any = ()) -> tuple[int, ...]:
    return _ints(sizes)


def _bytes(machine: _Machine, text: Any, encoding: Any = "utf-8") -> bytes:
    if not isinstance(text, str) or not isinstance(encoding, str):
        raise TypeError
    if encoding not in ("latin1", "latin-1", "utf-8", "ascii"):
        raise ValueError
    machine.spend(_CHARACTER * len(text))
    return text.encode(encoding)


def _dtype(machine: _Machine, text: Any, *_: Any) -> np.dtype:
    if not isinstance(text, str) or not _NUMBERS.fullmatch(text):
        raise TypeError
    return np.dtype(text)


def _scalar(machine: _Machine, dtype: Any, data: Any) -> Any:
    if not isinstance(dtype, np.dtype):
        raise TypeError
    return np.frombuffer(_content(machine, data), dtype, 1)[0].item()


def _array_of(machine: _Machine, state: Any) -> np.ndarray:
    _, shape, dtype, fortran, data = state
    if not isinstance(dtype, np.dtype):
        raise TypeError
    numbers = np.frombuffer(_content(machine, data), dtype)
    return numbers.reshape(_ints(shape), order="F" if fortran else "C")


def _content(machine: _Machine, data: Any) -> bytes:
    """The bytes of numbers, which Python 2 wrote as texts."""
    return data if isinstance(data, bytes) else _bytes(machine, data, "latin1")


def _array(machine: _Machine, *_: Any) -> _Array:
    return _Array()


def _nothing(machine: _Machine, *_: Any) -> None:
    """Stands for a value that no weights need."""


_NUMPY = ("numpy.core.multiarray", "numpy._core.multiarray")
# What a file may name, and what is made of its arguments. Each of them is here.
_KNOWN: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _dict,
    "collections.defaultdict": _dict,
    "argparse.Namespace": _namespace,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_with_dtype,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch.Size": _size,
    "torch.device": _nothing,
    "torch.serialization._get_layout": _nothing,
    "_codecs.encode": _bytes,
    "numpy.dtype": _dtype,
    "numpy.ndarray": _array,
    **{f"{module}.scalar": _scalar for module in _NUMPY},
    **{f"{module}._reconstruct": _array for module in _NUMPY},
    **{
        f"{module}.{kind.__name__}": _nothing
        for module in ("builtins", "__builtin__")
        for kind in (dict, list, int, float, str, bool, object)
    },
    **{f"{module}.set": _list for module in ("builtins", "__builtin__")},
}

_INSTRUCTIONS: dict[int, Callable[[_Machine], Any]] = {
    0x80: lambda m: m.number(1),  # PROTO
    0x95: lambda m: m.number(8),  # FRAME
    ord("("): lambda m: m.push(_MARK),
    ord("N"): lambda m: m.push(None),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    ord("K"): lambda m: m.push(m.number(1)),
    ord("M"): lambda m: m.push(m.number(2)),
    ord("J"): lambda m: m.push(
        int.from_bytes(m._stream.take(4), "little", signed=True)
    ),
    0x8A: _Machine.long,
    ord("G"): lambda m: m.push(struct.unpack(">d", m._stream.take(8))[0]),
    ord("X"): lambda m: m.push(m.text(4)),
    0x8C: lambda m: m.push(m.text(1)),
    0x8D: lambda m: m.push(m.text(8)),
    ord("U"): lambda m: m.push(m.text(1, "latin1")),  # of Python 2
    ord("T"): lambda m: m.push(m.text(4, "latin1")),
    ord("B"): lambda m: m.push(m.data(4)),
    ord("C"): lambda m: m.push(m.data(1)),
    ord("}"): lambda m: m.push({}),
    ord("]"): lambda m: m.push([]),
    ord(")"): lambda m: m.push(()),
    ord("t"): lambda m: m.push(tuple(m.pop_marked())),
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    ord("s"): _Machine.set_item,
    ord("u"): lambda m: m.set_items(m.pop_marked()),
    ord("a"): _Machine.append,
    ord("e"): _Machine.append_all,
    ord("q"): lambda m: m.remember(m.number(1)),
    ord("r"): lambda m: m.remember(m.number(4)),
    0x94: lambda m: m.remember(len(m._memo)),
    ord("h"): lambda m: m.push(m._memo[m.number(1)]),
    ord("j"): lambda m: m.push(m._memo[m.number(4)]),
    ord("c"): _Machine.push_named,
    0x93: _Machine.named_on_stack,
    ord("Q"): _Machine.persistent,
    ord("R"): _Machine.reduce,
    0x81: _Machine.reduce,  # NEWOBJ
    ord("b"): _Machine.build,
}
