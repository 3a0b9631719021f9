"""Class names in configurations: a closed registry, no import of what a file names."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Self, TypeVar, overload

import jax
import jax.numpy as jnp
import ml_dtypes  # noqa: F401 - names bfloat16 and its kin to NumPy
import numpy as np
from flax import nnx

from exburn.core import jax_dispatch, lazy_names
from exburn.core.catalogue_class import CatalogueClass
from exburn.core.jax_dispatch import original
from exburn.core.scoped import Scoped
from exburn.errors import (
    ArgumentError,
    FileFormatError,
    UnknownNameError,
    unknown_name,
)
from exburn.errors.boundary import api_boundary

_T = TypeVar("_T")
_C = TypeVar("_C", bound=type)

_registry: dict[str, Any] = {}
_global_objects: dict[str, Any] = {}  # a scope that lasts as long as the process


class _Shared:
    """Objects that a configuration holds more than once."""

    def __init__(self):
        self.numbers: dict[int, tuple[int, Any]] = {}  # by id; keeps the object alive
        self.made: dict[int, Any] = {}


@dataclasses.dataclass(frozen=True)
class _Describing:
    """How objects are described, and made from descriptions.

    Attributes:
        scopes: Names besides the registry, the innermost last.
        largest: The most entries of an array that the file has which is read.
        shared: What is described, or made, more than once.
        arrays: Receives long arrays, to which descriptions refer.
        leaves_functions: Whether functions without a name stand for themselves.
        copies: Where copies are made in this process: what stays as it is, by id.
    """

    scopes: tuple[Mapping[str, Any], ...] = (_global_objects,)
    largest: int | None = None
    shared: _Shared | None = None
    arrays: dict[str, np.ndarray] | None = None
    leaves_functions: bool = False
    copies: dict[int, Any] | None = None


_describing = Scoped(_Describing())
# Whose objects have descriptions, or are constants and functions.
_LIBRARIES = frozenset(
    "builtins exburn flax functools jax jaxlib ml_dtypes numpy".split()
)
_CLASS = "$class"  # entry of a description that a copy is made of: the class itself
_PACKAGES = ("activations", "losses", "metrics")  # of functions that need no prefix
_LONG = 256  # entries of an array that a file keeps as a tensor
_ARRAY_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 "
    "float64 complex64 complex128".split()
)


@overload
def register(obj: _T, *, package: str = ..., name: str | None = ...) -> _T: ...
@overload
def register(
    obj: None = None, *, package: str = ..., name: str | None = ...
) -> Callable[[_T], _T]: ...
@api_boundary
def register(
    obj: Any = None, *, package: str = "Custom", name: str | None = None
) -> Any:
    """Registers a class or function, so that a saved model may name it.

    Args:
        obj: The class or function; with ``None`` this is a decorator with options.
        package: Prefix of the registered name, as in Keras.
        name: Name to register under; the object's own name by default.

    A second class or function under a name takes the place of the first one, as in
    Keras; those of ExBurn itself have names without a prefix, which nothing replaces.

    Example:
        >>> @register
        ... def cube(x):
        ...     return x**3
        >>> lookup("Custom>cube") is cube
        True
    """
    if obj is None:
        return lambda decorated: register(decorated, package=package, name=name)
    _registry[f"{package}>{name or obj.__name__}"] = original(obj)
    return obj


def register_builtin(cls: _C, *names: str) -> _C:
    """Registers one of ExBurn's own classes under its bare name.

    Args:
        *names: What else Keras' configurations call it.
    """
    for name in (cls.__name__, *names):
        _registry[name] = cls
    return cls


@api_boundary
@contextlib.contextmanager
def custom_objects(custom_objects: Mapping[str, Any] | None) -> Iterator[None]:
    """Names that ``deserialize`` resolves besides the registry, within the block.

    Args:
        custom_objects: Classes and functions by name.

    Example:
        >>> def cube(x):
        ...     return x**3
        >>> with custom_objects({"cube": cube}):
        ...     lookup("cube") is cube
        True
    """
    scopes = (*_describing.get().scopes, dict(custom_objects or {}))
    with _describing.change(scopes=scopes):
        yield


def reading_file(
    shapes: Iterable[tuple[int, ...]] = (),
) -> AbstractContextManager[Any]:
    """While the block runs, configurations come from a file that may be hostile."""
    return _describing.change(largest=max(map(math.prod, shapes), default=0))


def from_file() -> bool:
    """Tells whether what is made comes from a file: then nothing else may be read.

    Example:
        >>> from_file()
        False
    """
    return _describing.get().largest is not None


def fits_in_file(shape: tuple[int, ...]) -> bool:
    """Tells whether the file being read has an array as large as one of this shape.

    Example:
        >>> with reading_file([(2, 3)]):
        ...     fits_in_file((6,)), fits_in_file((7,))
        (True, False)
    """
    largest = _describing.get().largest
    return largest is not None and math.prod(shape) <= largest


@contextlib.contextmanager
def keeping_arrays() -> Iterator[dict[str, np.ndarray]]:
    """Within the block, descriptions refer to long arrays, which are kept in a dict."""
    arrays: dict[str, np.ndarray] = {}
    with _describing.change(arrays=arrays):
        yield arrays


def leaving_functions() -> AbstractContextManager[Any]:
    """Within the block, functions that have no name in files stand for themselves.

    Configurations that hold them make copies; a file, or JSON, refuses them.
    """
    return _describing.change(leaves_functions=True)


def copying(shared_parts: Iterable[Any]) -> AbstractContextManager[Any]:
    """Within the block, descriptions make copies in this process, by no names.

    Modules are described with their classes; other objects of users' classes, such as
    an initializer, stand for themselves as deep copies.

    Args:
        shared_parts: What stays as it is in a deep copy: parts of what is copied.
    """
    parts = {id(part): part for part in shared_parts}
    if (
        around := _describing.get().copies
    ) is not None:  # what is shared there is shared here
        around.update(parts)
    return _describing.change(copies=parts if around is None else around)


def is_copying() -> bool:
    """Tells whether descriptions make copies in this process now."""
    return _describing.get().copies is not None


def sharing() -> AbstractContextManager[Any]:
    """Within the block, an object that is described twice is one object again."""
    return _describing.change(shared=_Shared())


def lookup(name: str, kind: str = "object") -> Any:
    """The class or function registered under ``name``."""
    if (obj := custom(name)) is not None:
        return obj
    bare = name.rpartition(">")[2]
    for scope in reversed(_describing.get().scopes):
        if bare in scope:
            return scope[bare]
    if (obj := _find_registered(name)) is not None:
        return obj
    if (function := jax_dispatch.function_named(name)) and _is_one(name):
        return function
    scopes = (key for scope in _describing.get().scopes for key in scope)
    names = [*_registry, *lazy_names.catalogue_names(), *scopes]
    hint = "One of yours: exburn.register it, or pass custom_objects={'name': …}."
    raise unknown_name(kind, name, names, hint=hint)


def find(config: Mapping[str, Any], kind: str = "class") -> Any:
    """The class that a configuration names, ExBurn's or Keras'.

    Args:
        config: With ``class_name``, and ``registered_name`` and ``module`` if they are
            known. What the user has given a name goes first. The module only tells
            namesakes apart, such as a loss and a metric; it is not imported.
        kind: What errors call it.

    Raises:
        UnknownNameError: Nothing has that name.
        FileFormatError: There is no name.

    Example:
        >>> from exburn import losses
        >>> from exburn.core.registry import find
        >>> find({"class_name": "Poisson", "module": "keras.losses"}) is losses.Poisson
        True
    """
    name, full_name = config.get("class_name"), config.get("registered_name")
    if not isinstance(name, str) or not isinstance(full_name, str | None):
        raise FileFormatError("deserialize", f"{name!r} is no name of a class")
    if (cls := custom_class(config)) is not None:
        return cls
    for package in reversed(str(config.get("module")).split(".")):
        if (cls := _find_registered(f"{package}>{name}")) is not None:
            return cls
    if full_name is not None and ">" in full_name:
        name = full_name
    return lookup(name, kind)


def custom_class(config: Mapping[str, Any]) -> Any:
    """A class among what the user has registered or passed, or what is copied.

    ``None`` if it is none of these.

    Example:
        >>> custom_class({"class_name": "Dense"}) is None
        True
    """
    if isinstance(config.get(_CLASS), type):  # no file holds one
        return config[_CLASS]
    names = (config.get("registered_name"), config.get("class_name"))
    objects = (custom(name) for name in names if isinstance(name, str))
    return next((one for one in objects if one is not None), None)


def find_function(name: Any) -> Any:
    """The function that a configuration names, ExBurn's, JAX' or the user's."""
    if not isinstance(name, str):
        raise FileFormatError("deserialize", f"{name!r} is no name of a function")
    if (function := custom(name)) is not None:
        return function
    for package in _PACKAGES:
        if (function := _find_registered(f"{package}>{name}")) is not None:
            return function
    return lookup(name, "function")


def custom(name: str) -> Any:
    """The class or function that a user has given exactly this name, or ``None``."""
    for scope in reversed(_describing.get().scopes):
        if name in scope:
            return scope[name]
    return _find_registered(name) if ">" in name else None


def _is_one(name: str) -> bool:
    """Tells whether a function returns no list that is as long as a file says."""
    return name.rpartition(".")[2] not in jax_dispatch.SPLITTING


def is_registered(name: str) -> bool:
    """Tells whether something is registered under exactly this name, in no scope."""
    return _find_registered(name) is not None


def _find_registered(name: str) -> Any:
    """Finds an object by exactly this name, also ExBurn's own that is not imported."""
    if name not in _registry:
        lazy_names.import_registered(name)
    return _registry.get(name)


def registered_name(obj: Any) -> str | None:
    """The name that ``obj`` is registered under, or ``None``."""
    obj = original(obj)
    name = getattr(obj, "__name__", None)
    for key in (name, f"Custom>{name}"):
        if key and _registry.get(key) is obj:
            return key
    return next((key for key, value in _registry.items() if value is obj), None)


def _name_in_scope(obj: Any) -> str | None:
    """The name that the scopes around give an object, unless it is another's, too."""
    scopes = reversed(_describing.get().scopes)
    names = [key for scope in scopes for key, value in scope.items() if value is obj]
    own = (key for key in names if not is_registered(key) and lookup(key) is obj)
    return next(own, None)


def serialize(value: Any) -> Any:
    """A JSON-able description of a value; ``deserialize`` reads it back.

    Plain data stays as it is; objects with ``get_config`` and registered functions
    become ``{"module": …, "class_name": …, "config": …, "registered_name": …}``, as in
    Keras. A registered name is that of a class of the user's.

    Example:
        >>> serialize({"units": (1, 2), "name": None})
        {'units': [1, 2], 'name': None}
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [serialize(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): serialize(v) for k, v in value.items()}
    copied = _describing.get().copies
    if copied is not None and _is_own_object(value):
        return copy.deepcopy(value, copied)
    if hasattr(value, "get_config") and not inspect.isclass(value):
        return describe(value)
    if value is Ellipsis or isinstance(value, bytes | slice):
        return _describe_constant(value)
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        array = np.asarray(value)
        if not array.ndim:
            return array.item()
        kind = "__tensor__" if isinstance(value, jax.Array) else "__numpy__"
        contents = {"value": _values(array), "dtype": str(array.dtype)}
        return {"class_name": kind, "config": contents}
    name = registered_name(value) or _name_in_scope(value)
    name = name or jax_dispatch.name_of(value)
    if name is not None and _is_one(name):
        package, _, bare = name.rpartition(">")
        short = package in _PACKAGES and find_function(bare) is original(value)
        return describe_function(bare if short else name)
    if isinstance(value, np.dtype | type):
        with contextlib.suppress(TypeError):
            return np.dtype(value).name
    if _describing.get().leaves_functions and (
        hasattr(value, "__name__") or isinstance(value, partial)
    ):
        return value
    if isinstance(value, nnx.Variable):
        raise ArgumentError(
            "get_config",
            "a weight that is an argument of a call cannot be described",
            {"received": getattr(value, "path", type(value).__name__)},
            hint="Write a layer that holds the weight, and call that.",
        )
    raise ArgumentError(
        "get_config",
        f"{value!r} cannot be described in a configuration",
        hint="Register it: exburn.register(fn), and pass the registered function.",
    )


def describe(value: Any) -> dict[str, Any]:
    """The description of an object that has a ``get_config``.

    Example:
        >>> from exburn.regularizers import L2
        >>> describe(L2(0.5))["config"]
        {'l2': 0.5}
    """
    described = _describe_class(type(value), value.get_config())
    if (built := getattr(value, "_own_build_config", None)) is not None:
        described["build_config"] = serialize(built)
    shared = _describing.get().shared
    if shared is not None and not isinstance(value, Configured):  # no plain value
        numbers = shared.numbers
        described["shared_object_id"] = numbers.setdefault(
            id(value), (len(numbers), value)
        )[0]
    return described


def _is_own_object(value: Any) -> bool:
    """Tells whether a value is an object of a user's class that is no module."""
    if isinstance(value, nnx.Module | nnx.Variable):
        return False
    return type(value).__module__.partition(".")[0] not in _LIBRARIES


def describe_function(name: str) -> dict[str, Any]:
    """The reference of a configuration to a function.

    Example:
        >>> describe_function("shop>twice")["config"]
        'shop>twice'
    """
    kind = {"module": "builtins", "class_name": "function"}
    return {**kind, "config": name, "registered_name": "function"}


def _describe_class(cls: type, config: Any) -> dict[str, Any]:
    cls = getattr(cls, "stands_for", cls)  # a transform put another in its place
    module, name = cls.__module__, None
    if module.partition(".")[0] == "exburn":
        module = _public_module(module)
    else:
        name = registered_name(cls) or cls.__name__
        module = None if module == "__main__" else module
    described = {
        "module": module,
        "class_name": cls.__name__,
        "config": config,
        "registered_name": name,
    }
    return described | {_CLASS: cls} if is_copying() else described


def _public_module(module: str) -> str:
    """The namespace in which users find what a module of ours defines."""
    first, second, *rest = module.split(".")
    if rest and (shown := _SHOWN.get((second, rest[0]))) is not None:
        return f"{first}.{shown}"
    return first if second in ("core", "models", "module") else f"{first}.{second}"


# Modules whose names a namespace shows that is not their package.
_SHOWN = {
    ("optimizers", "schedules"): "optimizers.schedules",
    ("module", "seed_generator"): "random",
    ("compression", "masking"): "transforms",  # as files name the schedules
}


def _describe_constant(value: Any) -> dict[str, Any]:
    if value is Ellipsis:
        return {"class_name": "__ellipsis__", "config": {}}
    if isinstance(value, bytes):
        return {"class_name": "__bytes__", "config": {"value": value.decode()}}
    bounds = {key: serialize(getattr(value, key)) for key in ("start", "stop", "step")}
    return {"class_name": "__slice__", "config": bounds}


def _values(array: np.ndarray) -> Any:
    arrays = _describing.get().arrays
    if arrays is None or array.size < _LONG or array.dtype.kind == "c":
        return array.tolist()
    name = f"/arrays/{len(arrays)}"
    arrays[name] = array
    return {"$array": name}


def deserialize(config: Any, factory: Callable[[Any, dict], Any] | None = None) -> Any:
    """The inverse of :func:`serialize`; Keras' configurations are read, too.

    Raises:
        UnknownNameError: It names what is not known.
        FileFormatError: It holds code, or something that only TensorFlow has.
    """
    if isinstance(config, list | tuple):
        objects = (deserialize(c, factory) for c in config)
        return tuple(objects) if isinstance(config, tuple) else list(objects)
    if not isinstance(config, Mapping):
        return config
    if "class_name" not in config or "config" not in config:
        return {k: deserialize(v, factory) for k, v in config.items()}
    name, inner = config["class_name"], config["config"]
    if name == "function":
        return find_function(inner)
    if isinstance(name, str) and name.startswith("__"):
        return _constant(name, inner)
    shared, number = _describing.get().shared, config.get("shared_object_id")
    if shared is not None and number in shared.made:
        return shared.made[number]
    cls = find(config)
    if not isinstance(cls, type) or not hasattr(cls, "from_config"):
        raise FileFormatError("deserialize", f"{name!r} is no class with a from_config")
    inner = {} if inner is None else inner
    obj = factory(cls, inner) if factory else cls.from_config(inner)
    if "build_config" in config and getattr(obj, "_builds_itself", False):
        obj.build_from_config(deserialize(config["build_config"], factory))
    if inner.get("trainable") is True and getattr(obj, "_trainable", False) is True:
        obj._trainable = True  # it is said: it stays so in a layer that is frozen
    if shared is not None and number is not None:
        shared.made[number] = obj
    return obj


def _constant(name: str, inner: Any) -> Any:
    """The value, which JSON does not have, of a description."""
    if name in ("__numpy__", "__tensor__"):
        if inner["dtype"] not in _ARRAY_DTYPES:
            raise FileFormatError("deserialize", f"an array of {inner['dtype']!r}")
        array = np.asarray(inner["value"], dtype=inner["dtype"])
        return array if name == "__numpy__" else jnp.asarray(array)
    if name == "__bytes__":
        return inner["value"].encode()
    if name == "__ellipsis__":
        return Ellipsis
    if name == "__slice__":
        return slice(*(deserialize(inner[key]) for key in ("start", "stop", "step")))
    if name == "__lambda__":
        raise FileFormatError(
            "deserialize",
            "the configuration holds a Python lambda, which is code: it is not run",
            hint="Write it as a function with a name, @exburn.register it, and make "
            "the configuration again.",
        )
    raise FileFormatError("deserialize", f"{name!r} has no counterpart here")


def snake_case(name: str) -> str:
    """``Conv2D`` → ``conv2d``, ``LayerNormalization`` → ``layer_normalization``."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def check_name(op: str, name: Any) -> str:
    if not isinstance(name, str) or not name or "/" in name:
        raise ArgumentError(
            op, f"a name is a non-empty string without '/', received {name!r}"
        )
    return name


class Configured(CatalogueClass):
    """Base of small objects that the arguments of their constructor describe.

    A subclass keeps each argument as an attribute of its name.

    Example:
        >>> class Scale(Configured):
        ...     def __init__(self, by=2):
        ...         self.by = by
        ...     def get_config(self):
        ...         return {"by": self.by}
        >>> Scale.from_config(Scale(3).get_config())
        Scale(by=3)
    """

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able.

        Raises:
            ArgumentError: There are some, and the class does not say which.
        """
        if inspect.signature(type(self)).parameters:
            raise ArgumentError(
                type(self).__name__,
                "a class whose constructor takes arguments must define get_config()",
            )
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes an object from ``get_config``'s result."""
        return cls(**config)

    def __repr__(self) -> str:
        takes = inspect.signature(type(self)).parameters
        shown = [f"{k}={v!r}" for k, v in vars(self).items() if k in takes]
        return f"{type(self).__name__}({', '.join(shown)})"


class Catalogue:
    """The objects of one kind by name: ExBurn's own first, then registered ones.

    Args:
        kind: What errors call one of them, such as ``"constraint"``.
        base: What a registered class must derive from; ``None`` where only functions
            are looked for.

    Example:
        >>> Catalogue("activation", {"double": lambda x: 2 * x}).lookup("double")(3)
        6
    """

    def __init__(self, kind: str, names: Mapping[str, Any], base: type | None = None):
        self.kind, self.names, self.base = kind, names, base

    def lookup(self, name: Any) -> Any:
        """The class or function of a name."""
        if name in self.names:
            return self.names[name]
        try:
            obj = lookup(name, self.kind)
        except UnknownNameError:
            obj = None
        fits = callable(obj) if self.base is None else obj is not None
        if isinstance(obj, type):
            fits = self.base is not None and issubclass(obj, self.base)
        if not fits:
            raise unknown_name(self.kind, name, self.names, op=f"{self.kind}s.get")
        return obj

    def resolve(self, identifier: Any, hint: str) -> Any:
        """What a name, a configuration or a class stands for; a function and ``None``
        for themselves.
        """
        if isinstance(identifier, str):
            identifier = self.lookup(identifier)
        if isinstance(identifier, Mapping):
            return self.from_config(identifier)
        if isinstance(identifier, type):
            identifier = identifier()
        if identifier is None or callable(identifier):
            return identifier
        reason = f"{identifier!r} is no {self.kind}"
        raise ArgumentError(f"{self.kind}s.get", reason, hint=hint)

    def from_config(self, config: Mapping[str, Any]) -> Any:
        """The object of a configuration, ExBurn's or Keras'."""
        if config.get("class_name") is None:
            raise ArgumentError(
                f"{self.kind}s.deserialize",
                "a configuration needs 'class_name' and 'config'",
                {"received": dict(config)},
            )
        inner: Any = config.get("config") or {}
        if config["class_name"] == "function":
            return self.lookup(inner)
        obj = custom_class(config)
        if obj is None or (self.base and not _is_kind(obj, self.base)):
            obj = self.lookup(config["class_name"])
        return obj.from_config(inner) if hasattr(obj, "from_config") else obj


def _is_kind(obj: Any, base: type) -> bool:
    """Tells whether a registered object is a function, or a class of that kind."""
    return not isinstance(obj, type) or issubclass(obj, base)
