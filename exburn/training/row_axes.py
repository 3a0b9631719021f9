"""Follows the axis of time of filled-up rows through a forward pass.

A survey, an abstract pass in which every axis of time has a width that no other axis
has, tells which arrays have such an axis wherever a layer is called. In the passes that
count, whose widths may be those of other axes, too, the calls come in the same order:
each array is given the mask of its axis, if an operation between two layers has lost
it, and each layer is called by its rule (`padding_rules`).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Set
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core import forward_context
from exburn.core.forward_context import Context, Interceptor
from exburn.data import Padded, is_padded
from exburn.errors import ShapeError
from exburn.training.padding_rules import Window, check_reshaped, rule_of

_MOST = 64  # outputs of a layer


@dataclasses.dataclass(frozen=True)
class RowAxis:
    """An axis of time: that of some inputs, or what windows have made of it.

    Attributes:
        number: Of the axis of the inputs: ``Padded.axis``.
        windows: What it went through, one after the other.
    """

    number: int
    windows: tuple[Window, ...] = ()

    def length(self, length: Any) -> Any:
        """How long rows of some length are on it."""
        for window in self.windows:
            length = window.length(length)
        return length


@dataclasses.dataclass
class Survey:
    """What a survey has found.

    Attributes:
        axes: The axis of each array that has one: by the call's number, whether it goes
            in or comes out, and its place there.
        outputs: The axis of each output of the pass, or ``None``.
        others: Outputs that have an axis of time elsewhere.
        layers: The classes of the layers, in the order of the calls.
    """

    axes: dict[tuple[int, str, int], RowAxis] = dataclasses.field(default_factory=dict)
    outputs: list[RowAxis | None] = dataclasses.field(default_factory=list)
    others: list[int] = dataclasses.field(default_factory=list)
    layers: list[str] = dataclasses.field(default_factory=list)

    @property
    def every_axis(self) -> set[RowAxis]:
        return {*self.axes.values(), *(axis for axis in self.outputs if axis)}


class RowTracker(Interceptor):
    """Gives arrays of a pass the masks of their axes, and layers what they can take.

    Args:
        x: The inputs.
        survey: What a survey has found; ``None`` in the survey itself.
        sizes: Of other axes, in the survey; ``None`` if those of time may have any.
    """

    def __init__(
        self, x: Any, survey: Survey | None, sizes: Set[int] | None = frozenset()
    ):
        self._sizes = sizes
        self.survey = Survey() if survey is None else survey
        self._surveys = survey is None
        self._calls, self._inside = 0, []
        self._masks: dict[RowAxis, Any] = {}
        self._owners: dict[int, tuple[Any, RowAxis]] = {}
        self._widths: dict[int, RowAxis | None] = {}
        for leaf in jax.tree.leaves(x, is_leaf=is_padded):
            if is_padded(leaf):
                axis = RowAxis(leaf.axis)
                self._rows = leaf.values.shape[0]
                if axis not in self._masks:
                    self._hold(axis, leaf.mask())
                self._note(axis, leaf.values.shape[1])

    def run(
        self, call: Callable, ctx: Context, args: tuple, kwargs: dict[str, Any]
    ) -> Any:
        """The outputs of a pass on filled-up rows."""
        ctx.interceptors = (*ctx.interceptors, self)
        outputs = call((self._begin(args[0], ctx), *args[1:]), kwargs)
        self._end(outputs, ctx)
        return outputs

    def _begin(self, x: Any, ctx: Context) -> Any:
        """The inputs as the model is called with, with their masks attached."""

        def values(leaf: Any) -> Any:
            if not is_padded(leaf):
                return leaf
            ctx.set_mask(leaf.values, self._masks[RowAxis(leaf.axis)])
            return leaf.values

        return jax.tree.map(values, x, is_leaf=is_padded)

    def _end(self, outputs: Any, ctx: Context) -> None:
        """Gives the outputs of the pass the masks of their axes."""
        for place, leaf in enumerate(jax.tree.leaves(outputs)):
            if self._surveys:
                axis = self._find_axis(leaf, ctx)
                self.survey.outputs.append(axis)
                further = leaf.shape[2 if axis else 1 :]
                if any(self._widths.get(size) for size in further):
                    self.survey.others.append(place)
            if (axis := self.survey.outputs[place]) is not None:
                self._attach(leaf, axis, ctx)

    def __call__(
        self, layer: Any, call: Callable, args: tuple, kwargs: dict[str, Any]
    ) -> Any:
        ctx, number = forward_context.current(), self._calls
        assert ctx is not None
        self._count(layer)
        options = "mask", "training"
        further = {k: v for k, v in kwargs.items() if k not in options}
        arrays = jax.tree.leaves((args, further))
        axes = [self._axis((number, "in", i), v, ctx) for i, v in enumerate(arrays)]
        rows = [i for i, axis in enumerate(axes) if axis is not None]
        if not rows:
            return call(*args, **kwargs)
        inside = self._inside[-1] if self._inside else None
        path, first = ctx.path_of(layer), rows[0]
        rule = rule_of(layer, path, inside, arrays[first].ndim)
        axis = axes[first]
        assert axis is not None
        args, kwargs = self._with_masks(layer, args, kwargs, arrays, axes, ctx)
        if rule.fill is not None:
            args = (self._fill(args[0], axis, rule.fill), *args[1:])
        with self._calling(layer):
            outputs = call(*args, **kwargs)
        self._follow(number, outputs, arrays[first], axis, rule.window, ctx)
        stays = any((number, "out", i) in self.survey.axes for i in range(_MOST))
        check_reshaped(layer, path, stays)
        return outputs

    def _count(self, layer: Any) -> None:
        """Counts a call: those of a pass are those of the survey."""
        name, names = type(layer).__name__, self.survey.layers
        if self._surveys:
            names.append(name)
        elif names[self._calls : self._calls + 1] != [name]:
            raise ShapeError(
                layer.name,
                "the model calls other layers for rows of other lengths",
                hint="Give rows of one length: exburn.utils.pad_sequences(rows).",
            )
        self._calls += 1

    @contextlib.contextmanager
    def _calling(self, layer: Any) -> Iterator[None]:
        self._inside.append(layer)
        try:
            yield
        finally:
            self._inside.pop()

    def _with_masks(
        self, layer: Any, args: Any, kwargs: Any, arrays: Any, axes: Any, ctx: Context
    ) -> tuple[tuple, dict[str, Any]]:
        """The arguments, with the masks of their axes attached, and passed on."""
        before = _mask_argument(args, ctx)
        for leaf, axis in zip(arrays, axes, strict=True):
            if axis is not None:
                self._attach(leaf, axis, ctx)
        if layer._call_info.takes_mask and args:
            mask = kwargs.get("mask")
            if mask is None or _same(mask, before):
                kwargs = {**kwargs, "mask": _mask_argument(args, ctx)}
        return args, kwargs

    def _attach(self, array: Any, axis: RowAxis, ctx: Context) -> None:
        """Attaches the mask of an axis; a layer may have left out further positions."""
        mask, own = self._mask(axis), ctx.mask_of(array)
        if own is mask:
            return
        if own is not None and own.shape == mask.shape:
            mask = own & mask
            self._owners[id(mask)] = mask, axis
        ctx.set_mask(array, mask)

    def _hold(self, axis: RowAxis, mask: Any) -> None:
        self._masks[axis] = mask
        self._owners[id(mask)] = mask, axis

    def _mask(self, axis: RowAxis) -> Any:
        if axis not in self._masks:
            before = RowAxis(axis.number, axis.windows[:-1])
            self._hold(axis, axis.windows[-1].mask(self._mask(before)))
        return self._masks[axis]

    def _fill(self, x: Any, axis: RowAxis, fill: Callable) -> Any:
        mask = self._mask(axis)
        mask = mask.reshape(mask.shape + (1,) * (x.ndim - 2))
        return jnp.where(mask, x, fill(x))

    def _follow(
        self,
        number: int,
        outputs: Any,
        source: Any,
        axis: RowAxis,
        window: Window | None,
        ctx: Context,
    ) -> None:
        """Gives a layer's outputs the masks of their axes."""
        if window is not None:
            axis = RowAxis(axis.number, (*axis.windows, window))
            if self._surveys:
                self._note(axis, outputs.shape[1])
                self.survey.axes[number, "out", 0] = axis
        for place, leaf in enumerate(jax.tree.leaves(outputs)):
            key = number, "out", place
            own = self._axis(key, leaf, ctx)
            if self._surveys and own is None and leaf.shape[:2] == source.shape[:2]:
                if leaf.ndim > 2:  # features may be as many as positions
                    own = self.survey.axes[key] = axis
            if own is not None:
                self._attach(leaf, own, ctx)

    def _axis(self, key: tuple, leaf: Any, ctx: Context) -> RowAxis | None:
        if self._surveys and key not in self.survey.axes:
            if (axis := self._find_axis(leaf, ctx)) is not None:
                self.survey.axes[key] = axis
        return self.survey.axes.get(key)

    def _find_axis(self, leaf: Any, ctx: Context) -> RowAxis | None:
        """The axis of an array, by its mask or its width."""
        shape = getattr(leaf, "shape", ())
        if len(shape) < 2 or shape[0] != self._rows:
            return None
        mask = ctx.mask_of(leaf)
        owner = self._owners.get(id(mask))
        if owner is not None and owner[0] is mask:
            return owner[1]
        return None if self._sizes is None else self._widths.get(shape[1])

    def _note(self, axis: RowAxis, width: int) -> None:
        """Notes the width of an axis, unless others have the same."""
        first = self._widths.setdefault(width, axis)
        if first != axis or width in (self._sizes or ()):
            self._widths[width] = None


def _mask_argument(args: tuple, ctx: Context) -> Any:
    """The mask of the first argument, as layers are passed it."""
    if not args:
        return None
    masks = [ctx.mask_of(leaf) for leaf in jax.tree.leaves(args[0])]
    if isinstance(args[0], list | tuple | dict):
        return masks if any(m is not None for m in masks) else None
    return masks[0] if masks else None


def _same(mask: Any, other: Any) -> bool:
    if isinstance(mask, list) and isinstance(other, list):
        return len(mask) == len(other) and all(map(_same, mask, other))
    return mask is other


def survey_specs(x: Any, sizes: set[int]) -> Any:
    """Specs of inputs whose axes of time have widths that no other axis has.

    Args:
        x: Inputs, or specs of them.
        sizes: Of other axes. Widths are not larger than those of ``x``, which a layer
            may have a limit for.
    """
    others, widths = set(sizes), {}

    def respec(leaf: Any) -> Any:
        if not is_padded(leaf):
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        shape = leaf.values.shape
        if leaf.axis not in widths:
            free = (n for n in range(shape[1], 1, -1) if n not in others)
            widths[leaf.axis] = next(free, shape[1])
            others.add(widths[leaf.axis])
        shape = (shape[0], widths[leaf.axis], *shape[2:])
        values = jax.ShapeDtypeStruct(shape, leaf.values.dtype)
        lengths = jax.ShapeDtypeStruct(leaf.lengths.shape, leaf.lengths.dtype)
        return Padded(values, lengths, leaf.axis)

    return jax.tree.map(respec, x, is_leaf=is_padded)


def check_shortest(survey: Survey, lengths: dict[int, Any], op: str) -> None:
    """Raises if a row is shorter than a window of a layer.

    Args:
        lengths: Of the rows, by axis.
    """
    for axis in survey.every_axis:
        after = axis.length(lengths[axis.number])
        if (after < 1).any():
            row = int((after < 1).argmax())
            raise ShapeError(
                op,
                f"row {row} of {lengths[axis.number][row]} positions is shorter than "
                "the windows of the convolutions and poolings",
                {"rows that are": int((after < 1).sum())},
                hint="Leave such rows out, or use padding='same' or 'causal'.",
            )
