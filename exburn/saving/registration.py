"""Objects by registered names: Keras' names of ``exburn.core.registry``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from exburn.core import registry
from exburn.errors import UnknownNameError
from exburn.errors.boundary import api_boundary

__all__ = [
    "CustomObjectScope",
    "custom_object_scope",
    "deserialize_keras_object",
    "get_custom_objects",
    "get_registered_name",
    "get_registered_object",
    "register_keras_serializable",
    "serialize_keras_object",
]

_Object = TypeVar("_Object")  # a class or a function

custom_object_scope = CustomObjectScope = registry.custom_objects


@api_boundary
def get_custom_objects() -> dict[str, Any]:
    """Names that resolve everywhere; put classes and functions into this dict.

    Example:
        >>> get_custom_objects()["half"] = lambda x: x / 2
        >>> get_registered_object("half")(3)
        1.5
        >>> del get_custom_objects()["half"]
    """
    return registry._global_objects


@api_boundary
def register_keras_serializable(
    package: str = "Custom", name: str | None = None
) -> Callable[[_Object], _Object]:
    """Decorator: registers a class or function, so that a saved model may name it.

    Args:
        package: Prefix of the name.
        name: Name; the object's own by default.

    Raises:
        ArgumentError: Something else has that name.

    Example:
        >>> @register_keras_serializable("shop")
        ... def twice(x):
        ...     return 2 * x
        >>> get_registered_name(twice)
        'shop>twice'
    """
    return registry.register(package=package, name=name)


@api_boundary
def get_registered_name(obj: Any) -> str:
    """The name that a class or function is registered under, else its own.

    Args:
        obj: A class or a function.

    Example:
        >>> get_registered_name(len)
        'len'
    """
    return registry.registered_name(obj) or obj.__name__


@api_boundary
def get_registered_object(
    name: str,
    custom_objects: Mapping[str, Any] | None = None,
    module_objects: Mapping[str, Any] | None = None,
) -> Any:
    """The class or function of a name, ``None`` if there is none.

    Args:
        name: A registered name, ``"package>name"`` or a built-in's.
        custom_objects: Names that are looked up first.
        module_objects: Names that are looked up last.

    Example:
        >>> get_registered_object("nothing") is None
        True
    """
    with registry.custom_objects(custom_objects):
        try:
            return registry.lookup(name)
        except UnknownNameError:
            return (module_objects or {}).get(name)


@api_boundary
def serialize_keras_object(obj: Any) -> Any:
    """A JSON-able description of an object.

    Args:
        obj: An object that has a configuration, or a structure of these.

    Raises:
        ArgumentError: It has no ``get_config`` and is not registered.

    Example:
        >>> from exburn.initializers import Zeros
        >>> described = serialize_keras_object(Zeros())
        >>> described["module"], described["class_name"], described["config"]
        ('exburn.initializers', 'Zeros', {})
    """
    return registry.serialize(obj)


@api_boundary
def deserialize_keras_object(
    config: Any,
    custom_objects: Mapping[str, Any] | None = None,
    safe_mode: bool = True,
    module_objects: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    """The inverse of :func:`serialize_keras_object`.

    Args:
        config: The description, or a name in ``custom_objects`` or ``module_objects``.
        custom_objects: Classes and functions by name, besides the registered ones.
        safe_mode: Kept for Keras code; a description never holds code here.
        module_objects: Further ones; a name alone makes an object of its class.
        **kwargs: Kept for Keras code.

    Raises:
        UnknownNameError: A name is not registered.

    Example:
        >>> deserialize_keras_object({"class_name": "Zeros", "config": {}})(2).tolist()
        [0.0, 0.0]
        >>> from exburn.initializers import Ones
        >>> deserialize_keras_object("one", module_objects={"one": Ones})(2).tolist()
        [1.0, 1.0]
    """
    others = module_objects or {}
    if isinstance(config, str):
        with registry.custom_objects(custom_objects):
            custom = registry.custom(config)
        if custom is not None:
            return custom
        entry = others.get(config, config)
        return entry.from_config({}) if isinstance(entry, type) else entry
    with registry.custom_objects(others), registry.custom_objects(custom_objects):
        return registry.deserialize(config)
