"""A layer's ``build``: run by a call, or by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax

from exburn.core.precision import get_precision
from exburn.core.symbolic_shapes import public_shape, specs_of
from exburn.errors import ArgumentError
from exburn.module.building import infer, intact, spread_precision
from exburn.module.layer.given_policy import follow_map
from exburn.module.layer.signature import build_names
from exburn.module.layer.weighted import Weighted
from exburn.module.traversal import children, iter_modules

__all__ = ["Buildable"]


class Buildable(Weighted):
    """How a ``Layer`` gets its weights."""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        build = cls.__dict__.get("build")
        if build is not None and not cls.is_model:
            cls.build = _completed(build)

    def build(self, *shapes) -> None:
        """Creates the weights. Shapes are tuples with ``None`` for unknown sizes.

        A class that does not override it has its weights in the layers inside, which
        are found by following ``call`` for such inputs; nothing is computed.

        Raises:
            ArgumentError: No shape is given for an argument that ``call`` needs.

        Example:
            >>> from exburn.layers import Dense, TimeDistributed
            >>> layer = TimeDistributed(Dense(3))
            >>> layer.build((None, 10, 4))
            >>> [weight.shape for weight in layer.weights]
            [(4, 3), (3,)]
        """
        if type(self).build is not Buildable.build:  # super().build(…) of such a class
            self._build_parts(*shapes)
            return
        if not self.built and any(children(self)):
            self._follow_call(shapes)
        self._note_shapes(*shapes)
        self.built = True

    def _note_shapes(self, *shapes, **named) -> None:
        self._meta.value.shapes = shapes, named

    def get_build_config(self) -> dict[str, Any] | None:
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

    def build_from_config(self, config: Mapping[str, Any] | None) -> None:
        """Makes the weights for the shapes that ``get_build_config`` told."""
        if config and "shapes_dict" in config:
            self.build(**{k: _tuples(v) for k, v in config["shapes_dict"].items()})
        elif config and config.get("input_shape") is not None:
            self.build(_tuples(config["input_shape"]))

    @property
    def _own_build_config(self) -> dict[str, Any] | None:
        """What files have of a class that says itself how it is built."""
        if not (self.built and self._builds_itself):
            return None
        return self.get_build_config()

    @property
    def _builds_itself(self) -> bool:
        own = type(self).build_from_config is not Buildable.build_from_config
        return own and type(self).get_build_config is not Buildable.get_build_config

    def _follow_call(self, shapes: tuple) -> None:
        """Builds what ``call`` reaches for inputs of these shapes."""
        specs, treedef = jax.tree.flatten(
            [specs_of(shape, self.compute_dtype) for shape in shapes]
        )
        if not specs:
            raise ArgumentError(
                self.name,
                "the shape of the input is needed to build the layers inside",
                hint=f"{self.name}.build((None, 4)), with None for the batch.",
            )
        infer(self, lambda values: (treedef.unflatten(values), {}), specs)

    def _build_parts(self, *shapes) -> None:
        """What ``super().build(…)`` does in a class that overrides ``build``."""

    def _build(self, shapes: tuple) -> None:
        """Runs ``build`` once, on public shapes."""
        follow_map(self)
        if type(self).build is not Buildable.build:
            with self._meta.value.under_way():
                self.build(*shapes)
        self._note_shapes(*shapes)
        self._spread_policy()
        self._spread_freezing()
        self.built = True
        follow_map(self)

    def _spread_policy(self) -> None:
        """Layers that were made in ``build`` follow this one, not the process."""
        if self._own_policy or self.precision != get_precision().plain:
            spread_precision(self, self.precision)


def _completed(build: Callable) -> Callable:
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
            self._spread_policy()
            self._spread_freezing()
            self.built = True
            follow_map(self)
            given = (*shapes, *named.values())
            if self._call_info.is_enough(len(given)) and _waits_inside(self):
                self._follow_call(given)

    return run


def _tuples(shapes: Any) -> Any:
    """(Lists and dicts of) shapes, as lists in JSON, as tuples."""
    return jax.tree.map(lambda spec: public_shape(spec.shape), specs_of(shapes, "bool"))


def _waits_inside(layer: Buildable) -> bool:
    """Whether a layer inside has weights to make, or may have."""
    return any(
        isinstance(part, Buildable)
        and not part.built
        and (type(part).build is not Buildable.build or any(children(part)))
        for _, part in iter_modules(layer)
    )
