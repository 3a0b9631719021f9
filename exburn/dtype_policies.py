"""The names that Keras code asks ``keras.dtype_policies`` for."""

from __future__ import annotations

from typing import Any, NoReturn

from exburn.absent import missing
from exburn.dtypes import Precision
from exburn.registry import register_builtin

__all__ = ["DTypePolicy", "FloatDTypePolicy", "deserialize", "get", "serialize"]


def DTypePolicy(name: Any = None) -> Precision:
    """The policy of that name; the global one by default.

    Args:
        name: ``"float32"``, ``"mixed_bfloat16"``, ``"mixed_float16"`` …

    Raises:
        UnknownNameError: Nothing has that name.

    Example:
        >>> DTypePolicy("mixed_bfloat16").compute_dtype
        'bfloat16'
    """
    return Precision.of(name)


FloatDTypePolicy = DTypePolicy
register_builtin(Precision, "DTypePolicy", "FloatDTypePolicy")  # in configurations


def get(identifier: Any) -> Precision:
    """The policy of a name, a configuration, or itself; the global one for ``None``.

    Example:
        >>> get("mixed_float16").compute_dtype
        'float16'
    """
    return Precision.of(identifier)


def deserialize(config: Any, custom_objects: Any = None) -> Precision:
    """Makes a policy of what :func:`serialize` returned.

    Args:
        config: The name or the dtypes.
        custom_objects: For Keras code; policies are no classes.

    Example:
        >>> deserialize(serialize(DTypePolicy("mixed_float16"))).compute_dtype
        'float16'
    """
    return Precision.of(config)


def serialize(dtype_policy: Precision) -> str | dict[str, str]:
    """What ``deserialize`` makes the policy of again; JSON-able.

    Example:
        >>> serialize(DTypePolicy("mixed_float16"))
        'mixed_float16'
    """
    return Precision.of(dtype_policy).identifier


def __getattr__(name: str) -> NoReturn:
    raise missing(__name__, name)
