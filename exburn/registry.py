"""Class names in configurations: a closed registry, never an import by name."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from exburn.errors import ArgumentError, unknown_name

__all__ = ["custom_objects", "deserialize", "lookup", "register", "serialize"]

_registry: dict[str, Any] = {}
_scopes: list[Mapping[str, Any]] = []


def register(obj: Any = None, *, package: str = "Custom", name: str | None = None):
    """Registers a class or function, so that a saved model may name it.

    Args:
        obj: The class or function; with ``None`` this is a decorator with options.
        package: Prefix of the registered name, as in Keras.
        name: Name to register under; the object's own name by default.

    Raises:
        ArgumentError: Another object is already registered under that name.

    Example:
        >>> @register
        ... def cube(x):
        ...     return x**3
        >>> lookup("Custom>cube") is cube
        True
    """
    if obj is None:
        return lambda decorated: register(decorated, package=package, name=name)
    key = f"{package}>{name or obj.__name__}"
    _put(key, obj)
    return obj


def register_builtin(cls: type) -> type:
    """Registers one of ExBurn's own classes under its bare name."""
    _put(cls.__name__, cls)
    return cls


def _put(key: str, obj: Any) -> None:
    other = _registry.get(key)
    same = other is None or (
        getattr(other, "__qualname__", None) == getattr(obj, "__qualname__", "")
        and getattr(other, "__module__", None) == getattr(obj, "__module__", "")
    )
    if not same:  # a notebook cell that runs again replaces its own class
        raise ArgumentError("register", f"{key!r} is taken", {"by": other})
    _registry[key] = obj


@contextlib.contextmanager
def custom_objects(objects: Mapping[str, Any] | None) -> Iterator[None]:
    """Names that ``deserialize`` resolves besides the registry, within the block."""
    _scopes.append(dict(objects or {}))
    try:
        yield
    finally:
        _scopes.pop()


def lookup(name: str, kind: str = "object") -> Any:
    """The class or function registered under ``name``."""
    bare = name.rpartition(">")[2]
    for scope in reversed(_scopes):
        for key in (name, bare):
            if key in scope:
                return scope[key]
    if name in _registry:
        return _registry[name]
    raise unknown_name(kind, name, [*_registry, *(k for s in _scopes for k in s)])


def registered_name(obj: Any) -> str | None:
    """The name that ``obj`` is registered under, or ``None``."""
    name = getattr(obj, "__name__", None)
    for key in (name, f"Custom>{name}"):
        if key and _registry.get(key) is obj:
            return key
    return next((key for key, value in _registry.items() if value is obj), None)


def serialize(value: Any) -> Any:
    """A JSON-able description of a value; ``deserialize`` reads it back.

    Plain data stays as it is; objects with ``get_config`` and registered functions
    become ``{"class_name": …, "config": …}``.

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
    if hasattr(value, "get_config") and not inspect.isclass(value):
        cls = type(value)
        return {
            "class_name": registered_name(cls) or cls.__name__,
            "config": value.get_config(),
        }
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        value = np.asarray(value)
        if not value.ndim:
            return value.item()
        return {
            "class_name": "__array__",
            "config": {"dtype": str(value.dtype), "value": value.tolist()},
        }
    name = registered_name(value)
    if name is not None:
        return {"class_name": "__function__", "config": name}
    if isinstance(value, np.dtype | type):
        with contextlib.suppress(TypeError):
            return np.dtype(value).name
    raise ArgumentError(
        "get_config",
        f"{value!r} cannot be described in a configuration",
        hint="Register it: exburn.register(fn), and pass the registered function.",
    )


def deserialize(config: Any, factory: Callable[[Any, dict], Any] | None = None) -> Any:
    """The inverse of :func:`serialize`."""
    if isinstance(config, list):
        return [deserialize(c, factory) for c in config]
    if not isinstance(config, Mapping):
        return config
    if "class_name" not in config or "config" not in config:
        return {k: deserialize(v, factory) for k, v in config.items()}
    name, inner = config["class_name"], config["config"]
    if name == "__array__":
        return np.asarray(inner["value"], dtype=inner["dtype"])
    if name == "__function__":
        return lookup(inner, "function")
    registered = config.get("registered_name") or name
    cls = lookup(registered, "class")
    return factory(cls, inner) if factory else cls.from_config(inner)
