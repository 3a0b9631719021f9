"""Objects as Keras 2 described them: a class, its configuration, and names alone."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from exburn.core import registry
from exburn.errors import ArgumentError, unknown_name
from exburn.errors.boundary import api_boundary


@api_boundary
def serialize_keras_object(instance: Any) -> Any:
    """The class and configuration of an object; a function's name.

    Args:
        instance: An object with ``get_config``, a class, a function, or ``None``.

    Raises:
        ArgumentError: It has neither a ``get_config`` nor a name.

    Example:
        >>> from exburn.initializers import Zeros
        >>> serialize_keras_object(Zeros()), serialize_keras_object(len)
        ({'class_name': 'Zeros', 'config': {}}, 'len')

    Source: ``keras.legacy.saving.serialize_keras_object``.
    """
    if instance is None:
        return None
    if hasattr(instance, "get_config") and not isinstance(instance, type):
        cls = type(instance)
        name = registry.registered_name(cls) or cls.__name__
        return {"class_name": name, "config": registry.serialize(instance)["config"]}
    if hasattr(instance, "__name__"):
        return registry.registered_name(instance) or instance.__name__
    raise ArgumentError(
        "serialize_keras_object", f"{instance!r} has no get_config() and no name"
    )


@api_boundary
def deserialize_keras_object(
    identifier: Any,
    module_objects: Mapping[str, Any] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    printable_module_name: str = "object",
) -> Any:
    """The object of a description, or of a name in tables of one's own.

    Args:
        identifier: A description, a name, a function, or ``None``.
        module_objects: Classes and functions by name. A class that is named alone is
            called without arguments.
        custom_objects: The same, looked up first, before those of
            ``custom_object_scope``.
        printable_module_name: What errors call such an object.

    Raises:
        UnknownNameError: No table has the name.
        ArgumentError: It is nothing of this kind.

    Example:
        >>> from exburn.initializers import Ones
        >>> found = deserialize_keras_object("ones", {"ones": Ones})
        >>> found((2,)).tolist()
        [1.0, 1.0]

    Source: ``keras.legacy.saving.deserialize_keras_object``.
    """
    if identifier is None or inspect.isfunction(identifier):
        return identifier
    tables = {**(module_objects or {}), **(custom_objects or {})}
    if isinstance(identifier, Mapping):
        with registry.custom_objects(module_objects):
            with registry.custom_objects(custom_objects):
                return registry.deserialize(identifier)
    if not isinstance(identifier, str):
        raise ArgumentError(
            "deserialize_keras_object",
            f"{identifier!r} describes no {printable_module_name}",
        )
    if custom_objects and identifier in custom_objects:
        value = custom_objects[identifier]
    else:
        value = registry.custom(identifier)
        value = tables.get(identifier) if value is None else value
    if value is None:
        raise unknown_name(
            printable_module_name, identifier, tables, op="deserialize_keras_object"
        )
    return value() if isinstance(value, type) else value
