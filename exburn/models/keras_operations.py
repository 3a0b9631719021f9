"""Operations on symbols as Keras' configurations name them: by a class each.

Keras' class of an operation holds the arguments that are no tensors, and is called on
the others: ``Reshape(newshape)(x)`` is ``ops.reshape(x, newshape=newshape)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from exburn import ops
from exburn.core import registry
from exburn.core.jax_dispatch import SPLITTING
from exburn.core.registry import snake_case
from exburn.errors import FileFormatError

_NAMES = {
    "AllClose": "allclose",
    "BatchNorm": "batch_normalization",
    "CDist": "cdist",
    "IsIn": "isin",
    "LayerNorm": "layer_normalization",
    "RMSNorm": "rms_normalization",
    "SearchSorted": "searchsorted",
}
# Operations whose class is called on arguments in another order than the function's.
_CALLED_ON = {
    "Average": ("x", "weights"),
    "BatchNorm": ("x", "mean", "variance", "offset", "scale"),
    "Full": ("fill_value",),
    "Pad": ("x", "constant_values"),
}
_FURTHER = ("array", "cast", "einsum", "get_item", "matmul", "meshgrid", *SPLITTING)


def is_operation(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of Keras' configuration of a model is no layer.

    Example:
        >>> is_operation({"module": "keras.src.ops.numpy", "class_name": "Add"})
        True
    """
    module = str(entry.get("module")).split(".")
    return module[0] == "keras" and "ops" in module[1:]


def keras_operation(entry: Mapping[str, Any]) -> tuple[str, Callable[..., Any]]:
    """The name of an operation, and a function of what its class is called on."""
    kind = entry["class_name"]
    name = _NAMES.get(kind) or snake_case(kind)
    image = str(entry.get("module")).endswith("ops.image") or not hasattr(ops, name)
    space = ops.image if image else ops
    if name not in _FURTHER and not registry.is_registered(f"ops>{name}"):
        raise FileFormatError(
            "from_config",
            f"there is no operation {kind!r} of Keras' here",
            {"module": entry.get("module")},
        )
    function = getattr(space, name)
    options = {
        key: registry.deserialize(value)
        for key, value in entry["config"].items()
        if key != "name"
    }

    first = [options.pop("subscripts")] if kind == "Einsum" else []

    def call(*args: Any, **kwargs: Any) -> Any:
        if name == "get_item" and len(args) == 2 and isinstance(args[1], list):
            args = args[0], tuple(args[1])  # JSON has no tuples
        if kind in _CALLED_ON:
            kwargs |= dict(zip(_CALLED_ON[kind], args, strict=False))
            args = ()
        return function(*first, *args, **kwargs, **options)

    return name, call
