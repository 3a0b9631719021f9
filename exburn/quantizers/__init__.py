"""Rounding as functions of arrays, and configurations of ``model.quantize``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from exburn.core import registry
from exburn.core.missing_names import refuser
from exburn.core.registry import snake_case
from exburn.errors import DTypeError
from exburn.errors.boundary import api_boundary
from exburn.quantizers.configs import *
from exburn.quantizers.fake_quant import *
from exburn.quantizers.packing import *
from exburn.quantizers.report import QuantizationReport
from exburn.quantizers.rounding import *

__all__ = [
    "AWQConfig",
    "AbsMaxQuantizer",
    "Float8QuantizationConfig",
    "GPTQConfig",
    "Int4QuantizationConfig",
    "Int8QuantizationConfig",
    "NF4QuantizationConfig",
    "QuantizationConfig",
    "QuantizationReport",
    "Quantizer",
    "TernaryQuantizationConfig",
    "abs_max_quantize",
    "abs_max_quantize_grouped_with_zero_point",
    "compute_float8_amax_history",
    "compute_float8_scale",
    "deserialize",
    "fake_quant_with_min_max_vars",
    "get",
    "pack_int2",
    "pack_int4",
    "pack_ternary",
    "quantize_and_dequantize",
    "serialize",
    "unpack_int2",
    "unpack_int4",
    "unpack_ternary",
]

registry.register_builtin(AbsMaxQuantizer)

_CLASSES = (
    AbsMaxQuantizer,
    QuantizationConfig,
    Int8QuantizationConfig,
    Int4QuantizationConfig,
    NF4QuantizationConfig,
    Float8QuantizationConfig,
    TernaryQuantizationConfig,
    GPTQConfig,
    AWQConfig,
)
_names = registry.Catalogue(
    "quantizer",
    {name: c for c in _CLASSES for name in (c.__name__, snake_case(c.__name__))},
    Quantizer,
)


@api_boundary
def get(identifier: Any, **kwargs: Any) -> Any:
    """A quantizer from its name, configuration, class, or itself.

    Args:
        identifier: One of these; ``None`` gives ``None``.
        kwargs: Arguments for a name or class.

    Raises:
        UnknownNameError: There is none of this name.
        DTypeError: It is none of these.

    Example:
        >>> get("abs_max_quantizer", axis=0).axis
        (0,)
    """
    if identifier is None:
        return None
    if isinstance(identifier, str):
        identifier = _names.lookup(identifier)
    if isinstance(identifier, Mapping):
        return deserialize(identifier)
    if isinstance(identifier, type):
        return identifier(**kwargs)
    if not callable(identifier):
        raise DTypeError("quantizers.get", f"{identifier!r} is no quantizer")
    return identifier


@api_boundary
def serialize(initializer: Quantizer | QuantizationConfig) -> dict[str, Any]:
    """The quantizer's class name and configuration; see :func:`deserialize`.

    Args:
        initializer: The quantizer, or a configuration; the name is Keras'.

    Example:
        >>> serialize(AbsMaxQuantizer())["class_name"]
        'AbsMaxQuantizer'
    """
    return registry.serialize(initializer)


@api_boundary
def deserialize(
    config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
) -> Any:
    """Makes a quantizer from what :func:`serialize` returned.

    Args:
        config: The description.
        custom_objects: Classes by name, besides those registered.

    Example:
        >>> deserialize(serialize(AbsMaxQuantizer(axis=1))).axis
        (1,)
    """
    with registry.custom_objects(custom_objects):
        return _names.from_config(config)


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
