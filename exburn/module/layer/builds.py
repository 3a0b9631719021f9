"""A layer's ``build``: run by a call, or by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax

from exburn.core import registry
from exburn.core.substitution import making_clone
from exburn.core.symbolic_shapes import public_shape, specs_of
from exburn.errors import ArgumentError
from exburn.module.building import infer, intact, own_classes, waits_inside
from exburn.module.layer.given_policy import follow_map
from exburn.module.layer.signature import build_names, init_names
from exburn.module.traversal import iter_weights

if TYPE_CHECKING:
    from exburn.module.layer.layer import Layer


def build_once(self: Layer, shapes: tuple) -> None:
    """Runs ``build`` on public shapes, for a call that finds the layer unbuilt."""
    follow_map(self)
    if self._has_build:
        with self._meta.value.under_way():
            self.build(*shapes)
    self._note_shapes(*shapes)
    _finish(self)


def complete_build(build: Callable) -> Callable:
    """``build`` of a class: called by hand, it leads to a built layer.

    Layers inside that it leaves to their first call are built as that would, where the
    shapes say what ``call`` takes.
    """

    @functools.wraps(build)
    def run(self, *shapes, **named):
        meta = self._meta.value
        if meta.building:  # as super().build(…), or by a call
            build(self, *shapes, **named)
            return
        with intact(self):
            follow_map(self)
            with meta.under_way():
                build(self, *shapes, **named)
            self._note_shapes(*shapes, **named)
            _finish(self)
            given = (*shapes, *named.values())
            if self._call_info.is_enough(len(given)) and waits_inside(self):
                follow_call(self, given)

    return run


def _finish(layer: Any) -> None:
    """Has the layers that ``build`` made follow this one, which is built now."""
    layer._spread_policy()
    layer._spread_freezing()
    layer.built = True
    follow_map(layer)


def follow_call(layer: Any, shapes: tuple) -> None:
    """Builds what ``call`` reaches for inputs of these shapes.

    Raises:
        ArgumentError: There is none.
    """
    specs, treedef = jax.tree.flatten(
        [specs_of(shape, layer.compute_dtype) for shape in shapes]
    )
    if not specs:
        raise ArgumentError(
            layer.name,
            "the shape of the input is needed to build the layers inside",
            hint=f"{layer.name}.build((None, 4)), with None for the batch.",
        )
    infer(layer, lambda values: (treedef.unflatten(values), {}), specs)


def refuse_other_weights(layer: Any, name: str, value: Any) -> None:
    """Refuses an option of a built layer for which it would have had other weights.

    The weights stay those that were made, so that the option would be a lie: in calls,
    which do not read it, and in files, which could not be read again.

    Raises:
        ArgumentError: Naming the option.
    """
    meta, shapes = layer._meta.value, layer._meta.value.shapes
    if not layer.built or layer.is_model or not any(shapes) or name in meta.harmless:
        return
    before = vars(layer).get(name)
    kinds = bool | int | float | str | tuple | list | None
    if not isinstance(before, kinds) or not isinstance(value, kinds) or before == value:
        return
    if name not in init_names(type(layer)) or not (old := _weights_of(layer, {})):
        return
    new = _weights_of(layer, {name: value})
    if old == new:
        if isinstance(value, float):  # a hook may set a rate for each step
            meta.harmless |= {name}
        return
    differing = next(p for p in old | new if old.get(p) != new.get(p))
    raise ArgumentError(
        layer.name,
        f"{name} cannot change once the layer is built",
        {
            "set": f"{before!r} → {value!r}",
            f"weight {differing!r}": f"{old.get(differing)} → {new.get(differing)}",
        },
        hint=f"Make a new layer: {type(layer).__name__}.from_config(layer.get_config() "
        f"| {{{name!r}: {value!r}}}).",
    )


def _weights_of(layer: Any, options: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shapes of the weights that a layer like this one would have, drawing none."""
    config = layer.get_config() | options
    build_config = layer.get_build_config()

    def make() -> dict[str, Any]:
        with registry.custom_objects(own_classes(layer)), making_clone():
            fresh = type(layer).from_config(config)
            fresh.build_from_config(build_config)
        return {path: weight.get_value() for path, weight, _ in iter_weights(fresh)}

    specs = jax.eval_shape(make)
    return {path: spec.shape for path, spec in specs.items()}


def get_build_config(self: Layer) -> dict[str, Any] | None:
    """The shapes that the layer was built for; ``None`` before.

    A class may override it, and ``build_from_config``, to keep more: files of
    models have what such a class returns.

    Example:
        >>> from exburn.layers import Dense
        >>> layer = Dense(2)
        >>> layer.build((None, 3))
        >>> layer.get_build_config()
        {'input_shape': (None, 3)}

    Source: Keras, ``Layer.get_build_config``.
    """
    given, named = self._meta.value.shapes
    names = build_names(self) or ["input_shape"]  # of ``build(self, *shapes)``
    shapes = dict(zip(names, given, strict=False)) | named
    if len(shapes) > 1:
        return {"shapes_dict": shapes}
    return {"input_shape": shapes.popitem()[1]} if shapes else None


def build_from_config(self: Layer, config: Mapping[str, Any] | None) -> None:
    """Makes the weights for the shapes that ``get_build_config`` told.

    Args:
        config: What it returned; nothing is made of ``None``.
    """
    if config and "shapes_dict" in config:
        self.build(**{k: _as_tuples(v) for k, v in config["shapes_dict"].items()})
    elif config and config.get("input_shape") is not None:
        self.build(_as_tuples(config["input_shape"]))


def _as_tuples(shapes: Any) -> Any:
    """(Lists and dicts of) shapes, as lists in JSON, as tuples."""
    return jax.tree.map(lambda spec: public_shape(spec.shape), specs_of(shapes, "bool"))
