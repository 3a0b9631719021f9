"""A pure call of a layer: its weights come in as arrays, and go out again."""

from __future__ import annotations

from typing import Any

import numpy as np
from flax import nnx

from exburn import context
from exburn.errors import ShapeError
from exburn.traversal import iter_weights, module_paths

__all__ = ["stateless_call"]


def stateless_call(
    layer: Any, trained: Any, rest: Any, args: tuple, kwargs: dict[str, Any]
) -> tuple[Any, list, list]:
    """Outputs, the other variables afterwards, and the losses that were added.

    Args:
        layer: A built layer; it stays as it is.
        trained: Values in the order of its ``trainable_variables``.
        rest: The same for ``non_trainable_variables``.
        args, kwargs: What it is called with.

    Raises:
        ShapeError: The number of values or a shape differs.
    """
    weights = list(iter_weights(layer))
    values: dict[str, Any] = {}
    for kind, given, learned in (
        ("trainable_variables", trained, True),
        ("non_trainable_variables", rest, False),
    ):
        own = [(path, weight) for path, weight, learns in weights if learns is learned]
        values |= _checked(f"{layer.name}.stateless_call", kind, own, list(given))
    outer = context.current()
    copy: Any = nnx.merge(*nnx.split(layer), copy=True)
    held = {path: weight for path, weight, _ in iter_weights(copy)}
    for path, value in values.items():
        held[path].set_raw_value(value)
    pass_ = context.Context(
        training=bool(kwargs.get("training")), key=outer and outer.key
    )
    if outer is not None:
        pass_._draws = outer._draws  # a second call in one step draws anew
    pass_.paths, pass_.root = module_paths(copy), copy
    with context.forward(pass_):
        outputs = copy._call_arrays(args, kwargs)
        after = [held[path].get_value() for path, _, learns in weights if not learns]
        return outputs, after, copy.losses


def _checked(op: str, kind: str, own: list, given: list) -> dict[str, Any]:
    if len(own) != len(given):
        raise ShapeError(
            op,
            f"{kind} must hold {len(own)} arrays, received {len(given)}",
            {"variables": ", ".join(path for path, _ in own)},
            hint=f"Pass those of the layer: layer.{kind}.",
        )
    values = [v.get_value() if hasattr(v, "get_value") else v for v in given]
    for (path, weight), value in zip(own, values, strict=True):
        if np.shape(value) != tuple(weight.shape):
            raise ShapeError(
                op,
                f"{path} has shape {tuple(weight.shape)}, received {np.shape(value)}",
                hint=f"Pass {kind} in the order of the layer's.",
            )
    return {path: value for (path, _), value in zip(own, values, strict=True)}
