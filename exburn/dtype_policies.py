"""The names that Keras code asks ``keras.dtype_policies`` for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from exburn.core import registry
from exburn.core.missing_names import refuser
from exburn.core.precision import (
    CLASSES,
    AWQDTypePolicy,
    DTypePolicy,
    DTypePolicyMap,
    FloatDTypePolicy,
    GPTQDTypePolicy,
    Int4DTypePolicy,
    NF4DTypePolicy,
    QuantizedDTypePolicy,
    QuantizedFloat8DTypePolicy,
)
from exburn.errors.boundary import api_boundary

__all__ = [
    "AWQDTypePolicy",
    "DTypePolicy",
    "DTypePolicyMap",
    "FloatDTypePolicy",
    "GPTQDTypePolicy",
    "Int4DTypePolicy",
    "NF4DTypePolicy",
    "QuantizedDTypePolicy",
    "QuantizedFloat8DTypePolicy",
    "deserialize",
    "get",
    "serialize",
]

for _cls in CLASSES.values():
    registry.register_builtin(_cls)


@api_boundary
def get(identifier: Any) -> DTypePolicy:
    """The policy of a name, a dtype, a configuration, or itself.

    Args:
        identifier: One of these; ``None`` gives the policy of the process.

    Raises:
        UnknownNameError: Nothing has that name.

    Example:
        >>> get("mixed_float16").compute_dtype, get("int8_from_float32")
        ('float16', <QuantizedDTypePolicy "int8_from_float32">)
    """
    return DTypePolicy.of(identifier)


@api_boundary
def deserialize(
    config: Any, custom_objects: Mapping[str, Any] | None = None
) -> DTypePolicy:
    """Makes a policy of what :func:`serialize` returned.

    Args:
        config: The description; a name will do.
        custom_objects: Classes by name, besides those here.

    Raises:
        UnknownNameError: It names what is not known.

    Example:
        >>> deserialize(serialize(DTypePolicy("mixed_float16"))).compute_dtype
        'float16'
    """
    name = config.get("class_name") if isinstance(config, Mapping) else None
    if custom_objects and name in custom_objects:
        with registry.custom_objects(custom_objects):
            return registry.deserialize(config)
    return DTypePolicy.of(config)


@api_boundary
def serialize(dtype_policy: DTypePolicy) -> dict[str, Any]:
    """The policy's class and configuration, JSON-able; see :func:`deserialize`.

    Args:
        dtype_policy: A policy.

    Example:
        >>> serialize(DTypePolicy("mixed_float16"))["config"]
        {'name': 'mixed_float16'}
    """
    policy = DTypePolicy.of(dtype_policy)
    plain = isinstance(policy.identifier, str)
    return {
        "module": "exburn.dtype_policies",
        "class_name": "DTypePolicy" if plain else type(policy).__name__,
        "config": policy.get_config(),
        "registered_name": None,
    }


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
