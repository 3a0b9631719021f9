"""A layer's call on symbols, which stand for arrays that a model will be given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from exburn.core.batch_independence import is_foreign
from exburn.core.methods import overridable
from exburn.core.symbolic_shapes import (
    checked_sizes,
    describe,
    is_shape,
    is_text,
    meeting,
    public_shape,
    spec_of,
)
from exburn.errors import ArgumentError, DTypeError, ShapeError, UncalledLayerError
from exburn.module.building import infer, intact, waits_inside, with_masks
from exburn.module.symbolic_tensor import (
    Symbol,
    as_places,
    as_strings,
    is_whole,
    record,
    with_given_mask,
)
from exburn.module.traversal import iter_modules


def call_symbols(
    self: Any, args: tuple, kwargs: dict[str, Any], *, traces: bool = False
) -> Any:
    """The symbols of a layer's outputs; it notes the call, and is built for it.

    Args:
        traces: Whether ``call`` is traced although the class tells its shapes.
    """
    leaves, treedef = jax.tree.flatten((args, kwargs), is_leaf=is_whole)
    leaves = [with_given_mask(v) if isinstance(v, Symbol) else v for v in leaves]
    args, kwargs = jax.tree.unflatten(treedef, leaves)
    is_symbol = [isinstance(leaf, Symbol) for leaf in leaves]
    inputs = [v for v in leaves if isinstance(v, Symbol)]

    def rebuild(values):
        values = iter(values)
        full = [
            next(values) if s else v for s, v in zip(is_symbol, leaves, strict=True)
        ]
        return jax.tree.unflatten(treedef, full)

    if text := any(map(is_text, inputs)):
        _require_moves(self, inputs)
    specs, masks = [as_places(v.spec) for v in inputs], [v.mask for v in inputs]
    if not (traces or text) and _tells_its_shapes(self, masks):
        outputs, out_masks = _own_shapes(self, rebuild, specs), []
    else:
        outputs, out_masks = meeting(
            lambda specs: infer(self, *with_masks(rebuild, specs, masks)), specs, []
        )
    symbols = record(self, args, kwargs, as_strings(outputs) if text else outputs)
    if results := jax.tree.leaves(symbols):  # `rebuild` still needs the leaves
        self._meta.value.calls.append(results[0].call)
    for symbol, mask in zip(results, out_masks or [None] * len(results), strict=True):
        symbol.mask = mask
    return symbols


def read_call(layer: Any, what: str) -> Any:
    """The first call of a layer on symbols."""
    calls = layer._meta.value.calls
    if not calls:
        raise UncalledLayerError(
            layer.name,
            f"{what}: the layer was not called in a functional model",
            hint="Call it on a symbol: layer(exburn.Input(shape)).",
        )
    return calls[0]


def read_inputs(layer: Any) -> Any:
    """The symbols that a layer was called on: one, or a list of them."""
    args = read_call(layer, "input").args
    return args[0] if len(args) == 1 else list(args)


def _tells_its_shapes(layer: Any, masks: list[Any]) -> bool:
    """Whether a user's class has a ``compute_output_shape``, and no masks to pass on.

    Then Keras asks that alone, so that ``call`` may do what only real arrays can.
    """
    cls = type(layer)
    if any(mask is not None for mask in masks):
        return False
    own = (getattr(cls, name) for name in ("compute_output_shape", "compute_mask"))
    shape, mask = map(is_foreign, own)
    return shape and not mask


def _own_shapes(layer: Any, rebuild: Callable, specs: list) -> Any:
    """The specs of the outputs by the class's own ``compute_output_shape``.

    Layers inside that its ``build`` leaves to their first call are built by a trace.
    """
    args, kwargs = rebuild(specs)
    shapes = type(layer)._call_info.shapes(layer, args, kwargs)
    with intact(layer):
        if not layer.built:
            layer._build(shapes)
        if waits_inside(layer):
            infer(layer, rebuild, specs)
        layer._meta.value.traced = rebuild, specs
        answer = layer.compute_output_shape(*shapes)
    try:
        specs = jax.tree.map(
            lambda shape: spec_of(
                checked_sizes(layer.name, shape), layer.compute_dtype
            ),
            answer,
            is_leaf=_is_told_shape,
        )
    except ArgumentError as error:
        raise ShapeError(
            f"{layer.name}.compute_output_shape",
            f"it must return shapes, and returned {answer!r}",
        ) from error
    return specs


def _is_told_shape(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        size is None or hasattr(size, "__index__") for size in value
    )


def symbolic_call(self: Any, *args, **kwargs):
    """The call on symbols, which ``__call__`` leads to if an argument is one."""
    return self._call_symbols(args, kwargs)


@overridable
def compute_output_spec(self: Any, *args, **kwargs) -> Any:
    """The outputs as ``KerasTensor``, which have shapes and dtypes, not values.

    Inputs may be ``KerasTensor`` or ``jax.ShapeDtypeStruct``.

    Example:
        >>> import exburn
        >>> layer = exburn.layers.Dense(2)
        >>> layer.compute_output_spec(exburn.KerasTensor((None, 3))).shape
        (None, 2)
    """

    def symbol(v):
        if not isinstance(v, jax.ShapeDtypeStruct):
            return v
        return Symbol(public_shape(v.shape), v.dtype)

    return self._call_symbols(*jax.tree.map(symbol, (args, kwargs)))


@overridable
def compute_output_shape(self: Any, *shapes, **named) -> Any:
    """Output shape for input shapes (tuples with ``None``).

    By name they are Keras': ``input_shape``, or that of an argument of ``call``, as
    ``query_shape``.

    Raises:
        ArgumentError: Another name is given.

    Example:
        >>> from exburn.layers import Dense
        >>> Dense(2).compute_output_shape(input_shape=(None, 3))
        (None, 2)
    """
    order = type(self)._call_info.order or ["input"]
    first = order[0]
    names = dict.fromkeys(("input_shape", "sequences_shape"), first)
    names |= {f"{name}_shape": name for name in order}
    if unknown := named.keys() - names:
        raise ArgumentError(
            f"{self.name}.compute_output_shape",
            f"unknown argument {min(unknown)!r}",
            {"known": ", ".join(names)},
        )
    by_name = {names[key]: shape for key, shape in named.items()}
    if not shapes and first in by_name:
        shapes = (by_name.pop(first),)
    args, kwargs = jax.tree.map(
        lambda s: Symbol(s, self.compute_dtype), (shapes, by_name), is_leaf=is_shape
    )
    out = self._call_symbols(args, kwargs, traces=True)  # `super()` of a class's own
    return jax.tree.map(lambda s: s.shape, out)


def _require_moves(layer: Any, inputs: list[Symbol]) -> None:
    """Refuses strings that would be computed with, not only moved."""
    if layer.moves_text and all(map(is_text, inputs)):
        return
    raise DTypeError(
        layer.name,
        f"{type(layer).__name__} computes with numbers, but is given strings",
        {"received": ", ".join(map(describe, inputs))},
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
