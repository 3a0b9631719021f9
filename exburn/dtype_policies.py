"""The names that Keras code asks ``keras.dtype_policies`` for."""

from __future__ import annotations

from typing import Any

from exburn.dtypes import Precision

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


FloatDTypePolicy = get = deserialize = DTypePolicy


def serialize(policy: Precision) -> str | dict[str, str]:
    """What ``deserialize`` makes the policy of again; JSON-able.

    Example:
        >>> serialize(DTypePolicy("mixed_float16"))
        'mixed_float16'
    """
    return Precision.of(policy).identifier
