"""Values in short texts that are equal where the values are, in any process.

Plain values are told as they are, all others by what they are and a digest: of the
bytes of arrays, of the configurations of objects, of the code of functions with all
that it sees.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import hashlib
import os
import types
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import jax
import numpy as np
from flax import nnx

from exburn.core import registry
from exburn.core.batch_independence import is_foreign
from exburn.errors.boundary import is_guarded

_LONG = 60  # characters of a value that is told as it is
_DIGITS = 16  # hexadecimal ones of a digest
_PIECE = 16 << 20  # bytes that a thread digests at a time
_WHOLE = 8 << 30  # bytes of an array that is digested as a whole
_SAMPLES = 4096  # rows that are digested of a larger one
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_LIBRARIES = frozenset(
    "builtins exburn flax functools jax jaxlib math numpy operator optax".split()
)
_CLOSING = frozenset(
    ("exburn", "optax")
)  # libraries whose functions close over options
_NO_SETTINGS = ("name", "built")
_CODE, _VALUE = "code", "#"  # what a digest begins with: one of code, or none


def describe_value(value: Any, names: Mapping[int, str] | None = None) -> str:
    """A short text of a value, equal for equal values in any process.

    The text of a function depends on its code, its defaults, and on the values that it
    closes over or reads from its module; that of an object on its class, its
    configuration, and the functions that it holds, but not on its own name.

    Args:
        names: Texts of objects that are described elsewhere, by their ids.
    """
    plain = _plain_text(value)
    if plain is not None and len(plain) <= _LONG:
        return plain
    if isinstance(value, np.ndarray | jax.Array):
        return describe_array(value)
    fold = _Fold(names or {})
    fold.add(value)
    return f"{_label(value)} <{fold.kind}{fold.digest}>".lstrip()


def describe_array(array: Any, stop: Event | None = None) -> str:
    """The dtype, the shape, and a digest of the bytes of an array.

    Of an array beyond eight gibibytes it is the digest of four thousand of its rows,
    from all over it, and of the last one.

    Args:
        stop: Ends the work when it is set.

    Example:
        >>> describe_array(np.arange(3)) == describe_array(np.arange(3) + 1)
        False
    """
    form = f"{array.dtype}{str(list(array.shape)).replace(' ', '')}"
    if jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return f"{form} <{_VALUE}{_digest_of_rows(array, stop or Event())}>"


def without_code(text: str) -> str:
    """The text of a value without the digest of its code, if there is one.

    Versions of Python compile the same text to different code.

    Example:
        >>> without_code("function <code12>"), without_code("float32[2] <#34>")
        ('function', 'float32[2] <#34>')
    """
    return text.partition(f" <{_CODE}")[0]


def with_digest(text: str, digest: str) -> str:
    """The text of a value whose digest is known.

    Example:
        >>> with_digest("float32[2]", "34")
        'float32[2] <#34>'
    """
    return f"{text} <{_VALUE}{digest}>"


def without_digest(text: str) -> str:
    """The text of a value without any digest: what it is.

    Example:
        >>> without_digest("float32[2] <#34>"), without_digest("0.1")
        ('float32[2]', '0.1')
    """
    return without_code(text).partition(f" <{_VALUE}")[0]


def _digest_of_rows(array: Any, stop: Event) -> str:
    if array.nbytes > _WHOLE:
        rows = np.linspace(0, len(array) - 1, _SAMPLES).astype(np.int64)
        array = array[np.unique(rows)]
    array = np.asarray(array)
    if array.dtype.hasobject:
        text = "\0".join(map(repr, array.reshape(-1).tolist()))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[
            :_DIGITS
        ]
    array = array.reshape(1) if array.ndim == 0 else array
    each = max(1, _PIECE * len(array) // max(1, array.nbytes))

    def digest(first: int) -> bytes:
        if stop.is_set():
            return b""
        piece = np.ascontiguousarray(array[first : first + each])
        return hashlib.sha256(piece.reshape(-1).view(np.uint8).data).digest()

    starts = range(0, len(array), each)
    if len(starts) < 2:  # without threads, for the many small ones
        parts = map(digest, starts)
    else:
        with ThreadPoolExecutor(os.cpu_count(), "exburn-digests") as threads:
            parts = list(threads.map(digest, starts))
    return hashlib.sha256(b"".join(parts)).hexdigest()[:_DIGITS]


def _plain_text(value: Any) -> str | None:
    """What Python shows of a value of plain parts; ``None`` for any other."""
    if isinstance(value, np.generic) and value.dtype.isbuiltin:
        value = value.item()
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        parts = [_plain_text(part) for part in value]
        shown = [part for part in parts if part is not None]
        return f"[{', '.join(shown)}]" if len(shown) == len(parts) else None
    if type(value) is dict:
        pairs = {str(key): _plain_text(part) for key, part in value.items()}
        shown = [f"{key}: {part}" for key, part in sorted(pairs.items()) if part]
        return f"{{{', '.join(shown)}}}" if len(shown) == len(pairs) else None
    return None


def _label(value: Any) -> str:
    """What a value is, in a word or two."""
    if isinstance(value, functools.partial):
        return _label(value.func)
    name = getattr(value, "__name__", None)
    if name is None or not callable(value):
        name = type(value).__name__
    options: Any = None
    if not isinstance(value, type):
        if dataclasses.is_dataclass(value):
            fields = [field.name for field in dataclasses.fields(value)]
            options = {field: getattr(value, field, None) for field in fields}
        elif hasattr(value, "get_config"):
            options = _without_names(_config_of(value))
    text = _plain_text(options) if options else None
    return f"{name}({text[1:-1]})" if text and len(text) <= _LONG else name


def _config_of(value: Any) -> Any:
    """The configuration of an object; ``None`` where it has none."""
    with registry.leaving_functions():
        try:
            return value.get_config()
        except Exception:  # a lambda, say, has no name: what the object holds is told
            return None


def _without_names(config: Any) -> Any:
    """A configuration without the names of what it describes."""
    if isinstance(config, Mapping):
        return {k: _without_names(v) for k, v in config.items() if k != "name"}
    if isinstance(config, list | tuple):
        return [_without_names(v) for v in config]
    return config


class _Fold:
    """Folds values into one digest."""

    def __init__(self, names: Mapping[int, str]):
        self.kind = _VALUE
        self._names, self._hash = names, hashlib.sha256()
        self._known: dict[int, Any] = {}  # objects that are folded already, kept alive

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()[:_DIGITS]

    def add(self, value: Any) -> None:
        """Folds a value, with what it holds."""
        if (plain := _plain_text(value)) is not None:
            self._put("plain", plain)
        elif isinstance(value, np.ndarray | np.generic | jax.Array):
            self._put("array", describe_array(value))
        elif isinstance(value, list | tuple | set | frozenset):
            self._add_all("sequence", value)
        elif isinstance(value, Mapping):
            self._add_mapping(value)
        elif (name := self._names.get(id(value))) is not None:
            self._put("name", name)
        elif id(value) in self._known:
            self._put("again", str([*self._known].index(id(value))))
        else:
            self._known[id(value)] = value
            self._add_object(value)

    def _put(self, kind: str, text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        self._hash.update(f"{kind} {len(data)} ".encode() + data)

    def _add_all(self, kind: str, values: Any) -> None:
        if isinstance(values, set | frozenset):
            values = sorted(values, key=repr)
        self._put(kind, str(len(values)))
        for value in values:
            self.add(value)

    def _add_mapping(self, value: Mapping[Any, Any]) -> None:
        self._put("mapping", str(len(value)))
        keys = {_plain_text(key) or _path_of(key): key for key in value}
        for text in sorted(keys):
            self._put("key", text)
            self.add(value[keys[text]])

    def _add_object(self, value: Any) -> None:
        if isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, nnx.Variable):
            self.add(value.get_raw_value())
        elif isinstance(value, functools.partial):
            self._put("partial", "")
            self._add_all("parts", (value.func, value.args, value.keywords))
        elif isinstance(value, types.MethodType):
            self._put("method", value.__func__.__name__)
            self.add(value.__self__)
        elif isinstance(value, types.FunctionType):
            self._add_function(value)
        elif isinstance(value, types.CellType):
            self.add(_content(value))
        elif callable(value) and hasattr(value, "__wrapped__"):  # by jit, say
            self.add(value.__wrapped__)
        elif dataclasses.is_dataclass(value):
            self._add_class(type(value))
            for field in dataclasses.fields(value):
                self._put("field", field.name)
                self.add(getattr(value, field.name, None))
        elif hasattr(value, "get_config"):
            self._add_class(type(value))
            self._add_configured(value)
        elif is_foreign(value) and not _is_of_library(type(value)):
            self._add_class(type(value))
            self._add_settings(vars(value) if hasattr(value, "__dict__") else {})
        else:
            self._put("thing", _path_of(value))
        if isinstance(value, nnx.Module):  # of no model that is described
            for path, variable in nnx.to_flat_state(nnx.state(value)):
                self._put("weight", "/".join(map(str, path)))
                self.add(variable)

    def _add_configured(self, value: Any) -> None:
        """An object's configuration, the user's functions in it, and its settings."""
        attributes = vars(value) if hasattr(value, "__dict__") else {}
        config = _config_of(value)
        if config is None:
            self._add_settings(attributes)
        else:
            self.add(_without_names(config))
        if is_foreign(value):
            self._add_settings(attributes)
        else:
            for name, part in attributes.items():
                if _has_function(part):
                    self._put("holds", name)
                    self.add(part)

    def _add_settings(self, attributes: Mapping[str, Any]) -> None:
        """The attributes of a user's object, but for its state and private ones."""
        for name in sorted(attributes):
            state = hasattr(attributes[name], "assign") or isinstance(
                attributes[name], nnx.Module
            )
            if not state and not name.startswith("_") and name not in _NO_SETTINGS:
                self._put("attribute", name)
                self.add(attributes[name])

    def _add_class(self, cls: type) -> None:
        self._put("class", cls.__name__)
        for base in cls.__mro__:
            if _is_of_library(base):
                self._put("base", base.__qualname__)
                break
            for name, part in sorted(vars(base).items()):
                part = getattr(part, "__func__", None) or getattr(part, "fget", part)
                if isinstance(part, types.FunctionType):
                    self._put("method", name)
                    self.add(part)
                elif isinstance(part, _PLAIN) and not name.startswith("__"):
                    self._put("constant", name)
                    self.add(part)

    def _add_function(self, function: types.FunctionType) -> None:
        function = _bare(function)
        if _is_of_library(function):
            self._put("function", _path_of(function))
        else:
            self.kind = _CODE
            self._add_code(function.__code__, function.__doc__)
            globals_read = sorted(_globals_of(function.__code__))
            for name in globals_read:
                part = function.__globals__.get(name)
                if not isinstance(part, types.ModuleType) and part is not None:
                    self._put("global", name)
                    self.add(part)
            self._add_all("defaults", function.__defaults__ or ())
            self._add_mapping(function.__kwdefaults__ or {})
        if not _is_of_library(function) or _package_of(function) in _CLOSING:
            self._add_all("cells", function.__closure__ or ())

    def _add_code(self, code: types.CodeType, doc: str | None = None) -> None:
        self._put("code", code.co_code.hex())
        self._put("names", repr((code.co_names, code.co_freevars)))
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._add_code(constant)
            else:
                self.add(None if constant is doc else constant)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is yet to be set
        return None


def _has_function(value: Any) -> bool:
    """Whether a value is a function of the user's, or of optax, or holds one."""
    if isinstance(value, list | tuple):
        return any(map(_has_function, value))
    if isinstance(value, functools.partial):
        return True
    if isinstance(value, types.FunctionType):
        return not _is_of_library(value) or bool(_bare(value).__closure__)
    return False


def _bare(function: types.FunctionType) -> types.FunctionType:
    """The function below guards and operators of ExBurn's, which compute nothing."""
    while is_guarded(function) or _is_operation(function):
        function = vars(function)["__wrapped__"]
    return function


def _is_operation(function: types.FunctionType) -> bool:
    """Tells whether a wrapper of ExBurn's holds functions alone, and no option."""
    own = function.__globals__.get("__name__", "").partition(".")[0] == "exburn"
    parts = map(_content, function.__closure__ or ())
    return (
        own
        and hasattr(function, "__wrapped__")
        and all(isinstance(part, types.FunctionType) for part in parts)
    )


def _is_of_library(value: Any) -> bool:
    """Whether a class or function is of a library, whose version is told elsewhere.

    A function of the user's that ``functools.wraps`` has named after another is not.
    """
    home = getattr(value, "__globals__", {}).get("__name__", "builtins")
    return _package_of(value) in _LIBRARIES and home.partition(".")[0] in _LIBRARIES


def _package_of(value: Any) -> str:
    return str(getattr(value, "__module__", "")).partition(".")[0]


def _path_of(value: Any) -> str:
    if not hasattr(value, "__qualname__"):
        value = type(value)
    return f"{_package_of(value)}.{value.__qualname__}"


def _globals_of(code: types.CodeType) -> Iterator[str]:
    """Names that a function's code reads from its module."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals_of(constant)
