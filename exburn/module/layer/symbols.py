"""A layer's call on symbols, which stand for arrays that a model will be given."""

from __future__ import annotations

from typing import Any

import jax

from exburn.core.symbolic_shapes import describe, is_shape, is_text, meeting
from exburn.errors import ArgumentError, DTypeError
from exburn.module.building import infer, with_masks
from exburn.module.symbolic_tensor import (
    Symbol,
    as_places,
    as_strings,
    is_whole,
    record,
    with_given_mask,
)
from exburn.module.traversal import iter_modules

__all__ = ["call_symbols", "hint_for_strings", "symbols_for_shapes"]


def call_symbols(layer: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The symbols of a layer's outputs; it notes the call, and is built for it."""
    leaves, treedef = jax.tree.flatten((args, kwargs), is_leaf=is_whole)
    leaves = [with_given_mask(v) if isinstance(v, Symbol) else v for v in leaves]
    args, kwargs = jax.tree.unflatten(treedef, leaves)
    is_symbol = [isinstance(leaf, Symbol) for leaf in leaves]
    given = [v for v in leaves if isinstance(v, Symbol)]

    def rebuild(values):
        values = iter(values)
        full = [
            next(values) if s else v for s, v in zip(is_symbol, leaves, strict=True)
        ]
        return jax.tree.unflatten(treedef, full)

    if text := any(map(is_text, given)):
        _require_moves(layer, given)
    specs, masks = [as_places(v.spec) for v in given], [v.mask for v in given]
    outputs, found = meeting(
        lambda specs: infer(layer, *with_masks(rebuild, specs, masks)), specs, []
    )
    symbols = record(layer, args, kwargs, as_strings(outputs) if text else outputs)
    if made := jax.tree.leaves(symbols):  # `rebuild` still needs the leaves
        layer._meta.value.calls.append(made[0].call)
    for symbol, mask in zip(made, found, strict=True):
        symbol.mask = mask
    return symbols


def symbols_for_shapes(
    layer: Any, shapes: tuple, named: dict[str, Any]
) -> tuple[tuple, dict[str, Any]]:
    """Symbols as arguments of a layer's call; see ``Layer.compute_output_shape``."""
    order = type(layer)._call_info.order or ["input"]
    first = order[0]
    names = dict.fromkeys(("input_shape", "sequences_shape"), first)
    names |= {f"{name}_shape": name for name in order}
    if unknown := named.keys() - names:
        raise ArgumentError(
            f"{layer.name}.compute_output_shape",
            f"unknown argument {min(unknown)!r}",
            {"known": ", ".join(names)},
        )
    given = {names[key]: shape for key, shape in named.items()}
    if not shapes and first in given:
        shapes = (given.pop(first),)
    return jax.tree.map(
        lambda s: Symbol(s, layer.compute_dtype), (shapes, given), is_leaf=is_shape
    )


def _require_moves(layer: Any, given: list[Symbol]) -> None:
    """Refuses strings that would be computed with, not only moved."""
    if layer.moves_text and all(map(is_text, given)):
        return
    raise DTypeError(
        layer.name,
        f"{type(layer).__name__} computes with numbers, but is given strings",
        {"received": ", ".join(map(describe, given))},
        hint=hint_for_strings(layer),
    )


def hint_for_strings(layer: Any) -> str:
    """Advice about strings that a layer is given, for errors."""
    layers = (m for _, m in iter_modules(layer) if getattr(m, "on_host", False))
    if (lookup := next(layers, None)) is None:
        return (
            "Make numbers of them first: StringLookup, Hashing or "
            "TextVectorization, called on the input."
        )
    return (
        f"Its call becomes a program, which has no strings: call {lookup.name!r} "
        "in front, word = Input((1,), dtype='string'); Model(word, "
        f"{layer.name}(lookup(word))), or map the data: lookup(x)."
    )
