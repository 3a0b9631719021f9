"""What a program was made of, and whether that is as it was.

A program holds more than shapes as constants: the numbers that layers, regularizers and
losses hold, what functions of the user's close over or find under global names, the
attributes of objects that are no modules. All of it can change while the program stays.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from flax import nnx

from exburn.core.batch_independence import our_class
from exburn.module.graph import Graph
from exburn.module.layer import Layer
from exburn.module.symbolic_tensor import Lifted, Operation
from exburn.module.traversal import iter_modules, iter_weights
from exburn.module.variable import Static, Weight

_MANY = 20_000  # things that are looked at: data that an object holds are no settings
_IN_METADATA = "regularizer", "constraint"
_STEPS = (  # the methods that programs run
    *("call", "compute_mask", "compute_loss", "compute_metrics", "__call__"),
    *("train_step", "test_step", "predict_step"),
)
_LIBRARIES = frozenset(
    "builtins exburn flax functools jax jaxlib numpy optax orbax pathlib logging"
    " threading collections".split()
)
_LEAF, _INNER, _VARIABLE, _SEQUENCE, _MAPPING, _CELLS, _OTHER = range(7)
_PLAIN = bool, int, float, str, type(None)
_NOTHING = Static("nothing")
_kinds: dict[type, int] = {}  # isinstance() of flax' variables takes a microsecond


@dataclasses.dataclass(frozen=True, eq=False)
class SettingSlot:
    """A place that holds a value: an attribute, an entry, or what a function sees.

    Attributes:
        holder: A module or another object, a list, a dict, or a cell of a function.
        key: The attribute's name, the entry's key or place; ``None`` for a cell.
        name: What messages call it: ``"dropout.rate"``.
    """

    holder: Any
    key: Any
    name: str

    @property
    def place(self) -> tuple[int, Any]:
        """Equal for the same places."""
        return id(self.holder), self.key

    def read(self) -> Any:
        """The value."""
        if isinstance(self.holder, types.CellType):
            return _content(self.holder)
        return _entries(self.holder)[self.key]

    def write(self, value: Any) -> None:
        """Puts another value there, past what an assignment would check."""
        if isinstance(self.holder, types.CellType):
            self.holder.cell_contents = value
        else:
            _entries(self.holder)[self.key] = value


@dataclasses.dataclass(frozen=True, eq=False)
class Change:
    """A value that is not what it was."""

    slot: SettingSlot
    old: Any
    new: Any

    @property
    def is_number(self) -> bool:
        """Whether both are numbers, which a program could take as an argument."""
        kinds = type(self.old), type(self.new)
        return all(kind in (int, float) for kind in kinds)

    def __str__(self) -> str:
        return f"{self.slot.name} {_short(self.old)} → {_short(self.new)}"


class Fingerprint:
    """What a module and its losses consist of: parts, settings, sizes of weights.

    To be told in microseconds whether it is the same as before: splitting a module to
    compare it takes milliseconds. The values of weights may differ.

    Args:
        others: Losses and metrics, by what messages call them.

    Example:
        >>> import exburn
        >>> layer = exburn.layers.Dropout(0.5, name="drop")
        >>> before = Fingerprint(layer)
        >>> before.holds(layer)
        True
        >>> layer.rate = 0.4
        >>> before.holds(layer), [str(change) for change in before.changes()]
        (False, ['drop.rate 0.5 → 0.4'])
    """

    def __init__(self, module: Any, others: Mapping[str, Any] | None = None):
        self._module = module
        self._names: set[str] = set()
        while True:  # until the code that is reached reads no other attributes
            before = len(self._names)
            # What each holder held. If all of it is the same, so are those in it.
            self._holders: list[_Holder] = []
            self._variables: list[_Variable] = []
            self._walk(module, others or {})
            if len(self._names) == before:
                break

    def holds(self, module: Any) -> bool:
        """Whether the module is the same one, and unchanged."""
        return (
            module is self._module
            and all(_same(holder.now(), holder.values) for holder in self._holders)
            and all(variable.is_same() for variable in self._variables)
        )

    def changes(self) -> list[Change]:
        """The settings that are not what they were.

        Left out are attributes that no code is seen to read, and those with a leading
        underscore, which are for the next run.
        """
        names = self._paths()
        changes = [
            Change(holder.slot(key, names), old, new)
            for holder in self._holders
            for key, old, new in holder.differences()
            if self._matters(holder, key)
        ]
        for part in self._variables:
            now = part.variable.get_metadata()
            for key, old in zip(now, part.metadata, strict=False):
                if key in _IN_METADATA and now[key] is not old:
                    name = f"{part.name(names)}.{key}"
                    changes.append(
                        Change(SettingSlot(part.variable, key, name), old, now[key])
                    )
        return changes

    def accept(self, changes: Iterable[Change]) -> None:
        """Takes values for what they are now."""
        holders = {id(change.slot.holder) for change in changes}
        for holder in self._holders:
            cells = holder.of if holder.kind == _CELLS else ()
            if id(holder.of) in holders or any(id(cell) in holders for cell in cells):
                holder.look()

    def plain(self) -> dict[str, Any]:
        """Values of what is no module, by name: for messages."""
        names = self._paths()
        return {
            holder.slot(key, names).name: value
            for holder in self._holders
            if holder.kind in (_OTHER, _CELLS) or holder.keys is not None
            for key, value in zip(holder.places, holder.values, strict=True)
            if type(value) in _PLAIN
        }

    def others(self) -> dict[str, nnx.Variable]:
        """Variables of plain flax modules that no part of the module holds, by name.

        A function closes over one of those, say. Programs would keep their values.
        """
        parts = [p for p in self._variables if not isinstance(p.variable, Weight)]
        if not parts:
            return {}
        own = {id(weight) for _, weight, _ in iter_weights(self._module)}
        names = self._paths()
        return {
            part.name(names): part.variable
            for part in parts
            if id(part.variable) not in own
        }

    def _paths(self) -> dict[int, str]:
        """What messages call modules and their weights."""
        top = getattr(self._module, "name", None) or type(self._module).__name__
        names = {id(m): path or top for path, m in iter_modules(self._module)}
        return names | {id(w): path for path, w, _ in iter_weights(self._module)}

    def _matters(self, holder: _Holder, key: Any) -> bool:
        if not isinstance(key, str) or holder.kind not in (_INNER, _OTHER):
            return True
        if key.startswith("_") or key == "built":
            return False
        layer = holder.of
        ours = our_class(type(layer)) if isinstance(layer, Layer) else None
        bare = ours is not None and not hasattr(ours, key) and _is_bare(ours)
        return not bare or key in self._names

    def _walk(self, module: Any, others: Mapping[str, Any]) -> None:
        waiting: list[tuple[Any, _Holder | None, Any]] = []

        def wait_for(values: Iterable[Any], holder: Any, keys: Iterable[Any]) -> None:
            for value, key in zip(values, keys, strict=True):
                kind = _kinds.get(type(value))
                if kind is None:
                    kind = _kinds[type(value)] = _kind(type(value))
                if kind != _LEAF:
                    waiting.append((value, holder, key))

        wait_for([*others.values(), module], None, [*others, ""])
        seen: set[int] = set()
        while waiting and len(seen) < _MANY:
            value, parent, key = waiting.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            kind = _kinds[type(value)]
            if kind == _VARIABLE:
                part = _Variable(value, parent, key)
                self._variables.append(part)
                metadata = value.get_metadata()
                wait_for(map(metadata.get, _IN_METADATA), part, _IN_METADATA)
                continue
            for part in self._parts(value, kind, str(key)):
                holder = _Holder(*part, value, parent, key)
                self._holders.append(holder)
                wait_for(holder.values, holder, holder.places)

    def _parts(self, value: Any, kind: int, key: str) -> Iterator[tuple[Any, int, Any]]:
        """What of a value is looked at: holders, their kinds, and their keys."""
        if kind != _OTHER:
            yield value, kind, None
            if kind == _INNER:
                yield from self._methods(value)
        elif isinstance(value, functools.partial):
            yield (value.func, value.args, value.keywords), _SEQUENCE, None
        elif isinstance(value, types.MethodType):
            yield (value.__self__, value.__func__), _SEQUENCE, None
        elif isinstance(value, types.FunctionType):
            yield from self._function(value)
        elif isinstance(value, Static):
            if isinstance(value.value, Graph):
                targets = [node.target for node in value.value.nodes]
                called = [
                    t.fn if isinstance(t, Lifted) else t
                    for t in targets
                    if isinstance(t, Operation)
                ]
                yield tuple(called), _SEQUENCE, None
        elif not key.endswith("_initializer"):  # which is done
            settings = hasattr(value, "get_config")
            keys = [
                name
                for name, attribute in vars(value).items()
                if name in self._names or (settings and _is_setting(name, attribute))
            ]
            yield value, _OTHER, keys
            yield from self._methods(value)

    def _methods(self, value: Any) -> Iterator[tuple[Any, int, Any]]:
        """The functions of a user's class that programs may run."""
        names = self._names.union(_STEPS)
        for cls in type(value).__mro__:
            if is_library(cls):
                break
            functions = [
                function
                for key, function in vars(cls).items()
                if key in names and isinstance(function, types.FunctionType)
            ]
            yield tuple(functions), _SEQUENCE, None

    def _function(self, function: types.FunctionType) -> Iterator[tuple[Any, int, Any]]:
        if is_library(function):
            return
        names = read_names(function.__code__)
        self._names |= names
        if function.__closure__:
            yield function.__closure__, _CELLS, function.__code__.co_freevars
        keys = [key for key in names if key in function.__globals__]
        if keys:
            yield function.__globals__, _MAPPING, sorted(keys)
        if function.__defaults__:
            yield function.__defaults__, _SEQUENCE, None


def _is_bare(cls: type) -> bool:
    """Whether a class of ours computes nothing by itself, like ``Layer``."""
    return cls.__name__ in ("Layer", "Model", "Sequential")


def _is_setting(name: str, value: Any) -> bool:
    """Whether an attribute may be one of an object's settings, and is no state."""
    is_value = type(value) in (*_PLAIN, list, tuple, dict) or callable(value)
    return is_value and not name.startswith("_")


class _Part:
    """Something that was reached from a holder, under a key."""

    def __init__(self, value: Any, parent: Any, key: Any):
        self._value, self._parent, self._key = value, parent, key

    def name(self, names: Mapping[int, str]) -> str:
        """What messages call it."""
        if (name := names.get(id(self._value))) is not None:
            return name
        if isinstance(self._value, types.FunctionType):
            return self._value.__name__
        if self._parent is None:
            return str(self._key)
        return self._parent.entry(self._key, names)

    def entry(self, key: Any, names: Mapping[int, str]) -> str:
        """What messages call something in it."""
        return f"{self.name(names)}.{key}"


class _Variable(_Part):
    """A variable, and what it was."""

    def __init__(self, variable: Any, parent: Any, key: Any):
        super().__init__(variable, parent, key)
        self.variable = variable
        self.metadata, self._size = (
            list(variable.get_metadata().values()),
            _size(variable),
        )

    def is_same(self) -> bool:
        """Whether its metadata and its size are what they were."""
        metadata = self.variable.get_metadata().values()
        if not _same(metadata, self.metadata):
            return False
        array, (kind, shape, dtype) = self.variable.get_raw_value(), self._size
        if type(array) is not kind or shape is None or dtype is None:
            return _size(self.variable) == self._size
        return array.shape == shape and array.dtype == dtype


class _Holder(_Part):
    """Something that holds values, and what it held.

    Args:
        of: The module or another object, the list, tuple, dict, or a function's cells.
        kind: Which of these it is.
        keys: The names of the cells, or of the attributes or entries that are looked
            at; all of them if ``None``.
        value, parent, key: What it is a part of, and where that was reached from.
    """

    def __init__(
        self, of: Any, kind: int, keys: Any, value: Any, parent: Any, key: Any
    ):
        super().__init__(value, parent, key)
        self.of, self.kind, self.keys = of, kind, keys
        self.now: Callable[[], Any] = self._reader()
        self.look()

    def look(self) -> None:
        """Takes what it holds for what it is to hold."""
        self.values, self.places = list(self.now()), self._places()

    def _reader(self) -> Callable[[], Any]:
        if self.kind == _CELLS:
            return lambda: [_content(cell) for cell in self.of]
        if self.kind == _SEQUENCE:
            return lambda: self.of
        entries = _entries(self.of)
        if self.keys is None:
            return entries.values
        return lambda: [entries.get(key) for key in self.keys]

    def _places(self) -> list[Any]:
        if self.kind == _SEQUENCE:
            return list(range(len(self.of)))
        return list(_entries(self.of) if self.keys is None else self.keys)

    def entry(self, key: Any, names: Mapping[int, str]) -> str:
        item = self.kind == _SEQUENCE or (self.kind == _MAPPING and self.keys is None)
        name = self.name(names)
        return f"{name}[{key!r}]" if item else f"{name}.{key}"

    def slot(self, key: Any, names: Mapping[int, str]) -> SettingSlot:
        """The place of one of its values."""
        name = self.entry(key, names)
        if self.kind == _CELLS:
            return SettingSlot(self.of[self.keys.index(key)], None, name)
        return SettingSlot(self.of, key, name)

    def differences(self) -> Iterator[tuple[Any, Any, Any]]:
        """Keys of values that differ, are new or gone; what was there, and what is."""
        if _same(self.now(), self.values):
            return
        before = dict(zip(self.places, self.values, strict=True))
        now = dict(zip(self._places(), self.now(), strict=True))
        for key in dict.fromkeys([*before, *now]):
            old, new = before.get(key, _NOTHING), now.get(key, _NOTHING)
            if old is not new and not (type(old) in _PLAIN and old == new):
                yield key, old, new


def _entries(holder: Any) -> Any:
    return holder if isinstance(holder, dict | list | tuple) else vars(holder)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is yet to be set
        return None


_is = operator.is_


def _same(values: Any, before: list[Any]) -> bool:
    return len(values) == len(before) and all(map(_is, values, before))


def _size(variable: Any) -> tuple:
    array = variable.get_raw_value()  # or a spec: yet to be filled
    shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
    return type(array), shape, dtype


def _kind(of: type) -> int:
    if issubclass(of, nnx.Variable):
        return _VARIABLE
    if issubclass(of, list | tuple):
        return _SEQUENCE
    if issubclass(of, dict):
        return _MAPPING
    if issubclass(of, nnx.Pytree):
        return _INNER
    if issubclass(of, functools.partial | types.FunctionType | types.MethodType):
        return _OTHER
    if issubclass(of, Static):
        return _OTHER
    # A regularizer or a loss of ours has settings; our other objects keep theirs.
    fixed = is_library(of) and not hasattr(of, "get_config")
    plain = issubclass(of, type | types.ModuleType) or fixed
    return _LEAF if plain or not hasattr(of, "__dict__") else _OTHER


def is_library(value: Any) -> bool:
    """Whether a class or a function is of a library that keeps its settings."""
    return str(value.__module__).partition(".")[0] in _LIBRARIES


def read_names(code: types.CodeType) -> set[str]:
    """The names of globals and attributes that a function's code reads."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= read_names(constant)
    return names


def _short(value: Any) -> str:
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
