"""What a layer's class takes, looked up once: its call's and its maker's arguments."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import jax
from flax import nnx

from exburn.core.symbolic_shapes import public_shape
from exburn.errors import ArgumentError


class CallInfo:
    """The arguments that a ``call`` method takes, looked up once a class.

    ``training`` is the default of its argument of that name, or ``None``; without a
    default it needs one.
    """

    def __init__(self, call):
        parameters = list(inspect.signature(call).parameters.values())[1:]
        names = {p.name for p in parameters}
        self.takes_training = "training" in names
        defaults = {p.name: p.default for p in parameters}
        default = defaults.get("training")
        self.needs_training = default is inspect.Parameter.empty
        self.training = None if self.needs_training else default
        self.takes_mask = "mask" in names
        self.takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self.order = [
            p.name
            for p in parameters
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        self._needed = [
            p.name
            for p in parameters
            if p.default is p.empty
            and p.kind not in variable
            and p.name not in ("training", "mask")
        ]

    def by_place(self, kwargs: dict) -> tuple[tuple, dict]:
        """Arguments that are all named: the first, whose mask counts, by its place."""
        first = next(iter(self.order), "training")
        if first in ("training", "mask") or first not in kwargs:
            return (), kwargs
        return (kwargs[first],), {k: v for k, v in kwargs.items() if k != first}

    def is_enough(self, count: int) -> bool:
        """Whether so many arguments can be all of a call."""
        return 0 < len(self._needed) <= count

    def shapes(self, layer: Any, args: tuple, kwargs: dict) -> tuple:
        """The shapes that ``layer.build`` takes, as Keras passes them.

        Raises:
            ArgumentError: An argument of ``call`` without a default is missing.
        """
        named = dict(zip(self.order, args, strict=False))
        named.update(kwargs)
        missing = [name for name in self._needed if name not in named]
        if missing:
            raise ArgumentError(
                layer.name,
                f"the layer must be called with {missing[0]!r}",
                {"its arguments": ", ".join(self.order)},
            )
        names = build_names(layer)
        if len(names) > 1:
            arguments = [named.get(name.removesuffix("_shape")) for name in names]
            if arguments[0] is None and args:  # a subclass gave its input another name
                arguments[0] = args[0]
            return tuple(map(_shapes, arguments))
        first = args[0] if args else next(iter(kwargs.values()), None)
        return (_shapes(first),)


def build_names(layer: Any) -> list[str]:
    """Names of the shapes that ``layer.build`` takes."""
    return [
        p.name
        for p in inspect.signature(layer.build).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]


def _shapes(tree: Any) -> Any:
    return jax.tree.map(
        lambda v: public_shape(v.shape) if hasattr(v, "shape") else None, tree
    )


@functools.cache
def init_names(cls: Any) -> tuple[str, ...]:
    """Keyword arguments of a class, following ``**kwargs`` up the inheritance."""
    names: list[str] = []
    for base in cls.__mro__:
        if base is nnx.Module or "__init__" not in base.__dict__:
            continue
        parameters = inspect.signature(base.__init__).parameters.values()
        names += [
            p.name
            for p in parameters
            if p.name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        ]
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return tuple(dict.fromkeys(names))
