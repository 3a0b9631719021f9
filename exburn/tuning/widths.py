"""Lanes of different widths in one program: each uses the first units of a layer.

All lanes have the arrays of the widest one. A lane's weights beyond its own width are
zero: they are neither drawn nor trained, so nothing that its units compute depends on
them. What is computed of all units of a position, as by a layer normalization, is told
the width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn import layers, optimizers
from exburn.models import Model
from exburn.module.traversal import iter_modules
from exburn.optimizers import LossScaleOptimizer
from exburn.training.fingerprint import SettingSlot
from exburn.training.placement import OneDevice

KEY = "_lane_width"  # of layers that are told the width
_MAKERS = {
    layers.Dense: "units",
    layers.Conv1D: "filters",
    layers.Conv2D: "filters",
    layers.Conv3D: "filters",
}
_TOLD = (layers.Dropout, layers.LayerNormalization)
_BY_UNIT = (  # what computes each unit by itself
    layers.Activation,
    layers.ReLU,
    layers.LeakyReLU,
    layers.ELU,
    layers.BatchNormalization,
    layers.MaxPooling1D,
    layers.MaxPooling2D,
    layers.MaxPooling3D,
    layers.AveragePooling1D,
    layers.AveragePooling2D,
    layers.AveragePooling3D,
    layers.GlobalAveragePooling1D,
    layers.GlobalAveragePooling2D,
    layers.GlobalAveragePooling3D,
    layers.GlobalMaxPooling1D,
    layers.GlobalMaxPooling2D,
    layers.GlobalMaxPooling3D,
    layers.Flatten,
    *_TOLD,
)

_BY_ELEMENT = (  # optimizers that update each entry by itself
    optimizers.SGD,
    optimizers.Adam,
    optimizers.AdamW,
    optimizers.Nadam,
    optimizers.Adamax,
    optimizers.RMSprop,
    optimizers.Adagrad,
    optimizers.Adadelta,
    optimizers.Lion,
)


@dataclasses.dataclass(frozen=True)
class Axis:
    """An axis of a weight along a layer's units."""

    weight: str
    axis: int


@dataclasses.dataclass(frozen=True)
class Width:
    """A width that differs by lane.

    Attributes:
        axes: Where weights lie along its units, each of which may be there several
            times, one after another, as behind a ``Flatten``.
        followers: Paths of the layers that follow the width; the first is its layer.
    """

    path: str
    layer: str
    most: int
    axes: tuple[Axis, ...]
    followers: tuple[str, ...]

    def slots(self, model: Model) -> list[SettingSlot]:
        """The places in a model that hold the width; they do so from now on."""
        parts, slots = dict(iter_modules(model)), []
        for path in self.followers:
            vars(parts[path])[KEY] = float(self.most)
            slots.append(SettingSlot(parts[path], KEY, f"{path}.width"))
        return slots


class Unsupported(Exception):
    """Why a layer's width needs a program of its own for each value."""


def follow(model: Model, path: str, layer: Any, most: int) -> Width:
    """What a layer's width means for a model, up to the layer that takes its units."""
    names = {id(module): where for where, module in iter_modules(model)}
    optimizer = model.optimizer
    while isinstance(optimizer, LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    if type(optimizer) not in _BY_ELEMENT:
        kind = type(optimizer).__name__
        raise Unsupported(f"a width, which {kind} computes with")
    chain = _chain(model)
    if type(layer) not in _MAKERS or layer not in chain:
        raise Unsupported("a width of a layer whose units are not followed")
    where = names[id(layer)]
    own = [Axis(f"{where}/kernel", layer.kernel.ndim - 1)]
    if layer.bias is not None:
        own.append(Axis(f"{where}/bias", 0))
    axes, followers, flat = list(own), [where], False
    _check_own(layer)
    for after in chain[chain.index(layer) + 1 :]:
        name = names[id(after)]
        if type(after) in _MAKERS:
            if getattr(after, "groups", 1) != 1:
                raise Unsupported("a width that reaches groups of channels")
            _check_channels(after)
            axes.append(Axis(f"{name}/kernel", after.kernel.ndim - 2))
            return Width(path, where, most, tuple(axes), tuple(followers))
        if type(after) not in _BY_UNIT:
            raise Unsupported(f"a width that reaches {type(after).__name__}")
        _check_by_unit(after)
        flat |= type(after) is layers.Flatten
        if isinstance(after, _TOLD):
            if flat:  # its units come again for each position
                kind = type(after).__name__
                raise Unsupported(f"a width that reaches {kind} behind a Flatten")
            followers.append(name)
        for attribute in ("gamma", "beta", "moving_mean", "moving_variance"):
            if getattr(after, attribute, None) is not None:
                axes.append(Axis(f"{name}/{attribute}", 0))
    raise Unsupported("the width of the model's outputs")


def _chain(model: Model) -> list[Any]:
    """The layers of a model in which each is followed by one; else none."""
    graph = getattr(model, "graph", None)
    if graph is None or len(graph.inputs) != 1:
        return []
    chain = [one for one in model.layers if not isinstance(one, layers.InputLayer)]
    return chain if len(graph.nodes) == len(chain) else []


def _check_own(layer: Any) -> None:
    if _computes_all(getattr(layer, "activation", None)):
        raise Unsupported("a width, of which a softmax computes with all units")
    _check_channels(layer)
    if layer.activity_regularizer is not None:
        raise Unsupported("a width whose activities are regularized")


def _check_channels(layer: Any) -> None:
    if getattr(layer, "data_format", "channels_last") != "channels_last":
        raise Unsupported("a width of channels that come first")


def _check_by_unit(layer: Any) -> None:
    _check_channels(layer)
    if _computes_all(getattr(layer, "activation", None)):
        raise Unsupported("a width that reaches a softmax")
    axis = getattr(layer, "axis", -1)
    axes = list(axis) if isinstance(axis, list | tuple) else [axis]
    if axes != [-1] or getattr(layer, "rms_scaling", False):
        raise Unsupported(f"a width that {type(layer).__name__} computes with")
    if getattr(layer, "noise_shape", None) is not None:
        raise Unsupported("a width that reaches a Dropout with a noise_shape")


def _computes_all(activation: Any) -> bool:
    name = getattr(activation, "__name__", "")
    return "softmax" in name or name in ("glu", "sparsemax", "log_softmax")


# ---------------------------------------------------------------------- arrays
def narrow_shapes(
    widths: Mapping[str, Width], units: Mapping[str, int], shapes: Mapping[str, tuple]
) -> dict[str, tuple[int, ...]]:
    """Shapes of the weights of a lane with so many units, of those that differ."""
    own_shapes: dict[str, tuple[int, ...]] = {}
    for path, width in widths.items():
        for axis in width.axes:
            shape = list(own_shapes.get(axis.weight, shapes[axis.weight]))
            shape[axis.axis] = shape[axis.axis] // width.most * units[path]
            own_shapes[axis.weight] = tuple(shape)
    return own_shapes


def widen(
    widths: Mapping[str, Width], name: str, value: np.ndarray, shape: Sequence[int]
) -> np.ndarray:
    """A lane's weight among those of the widest lane: zeros beyond its own units."""
    for width, axis in _axes_of(widths, name):
        times = shape[axis] // width.most
        apart = _apart(value, axis, times)
        missing = width.most - apart.shape[axis + 1]
        value = np.pad(
            apart, [(0, missing * (i == axis + 1)) for i in range(apart.ndim)]
        )
        value = _merge_axes(value, axis)
    return value


def narrow(
    widths: Mapping[str, Width], units: Mapping[str, int], name: str, value: Any
) -> Any:
    """What a lane's own model has of a weight of the widest lane's size."""
    for width, axis in _axes_of(widths, name):
        apart = _apart(np.asarray(value), axis, value.shape[axis] // width.most)
        value = _merge_axes(apart.take(range(units[width.path]), axis + 1), axis)
    return value


def _axes_of(widths: Mapping[str, Width], name: str) -> Iterator[tuple[Width, int]]:
    """The widths that a weight lies along, with the numbers of its axes."""
    for width in widths.values():
        for axis in width.axes:
            if axis.weight == name:
                yield width, axis.axis


def _apart(value: np.ndarray, axis: int, times: int) -> np.ndarray:
    """An axis as two: how often the units are there, and the units."""
    shape = value.shape
    return value.reshape(*shape[:axis], times, shape[axis] // times, *shape[axis + 1 :])


def _merge_axes(value: np.ndarray, axis: int) -> np.ndarray:
    shape = value.shape
    return value.reshape(*shape[:axis], -1, *shape[axis + 2 :])


class MaskedWidths(OneDevice):
    """A placement whose programs do not train weights beyond a lane's own units."""

    def __init__(self, inner: OneDevice, widths: Mapping[str, Width], model: Model):
        self._inner, self._widths = inner, widths
        parts = dict(iter_modules(model))
        self._holders = {path: parts[w.layer] for path, w in widths.items()}
        for name in ("devices", "local_devices", "send_own", "divide"):
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))
        for name in ("scope", "state", "send", "send_whole", "bind", "totals"):
            setattr(self, name, getattr(inner, name))
        self.next_state = inner.next_state

    def gradients(self, grads: Any) -> Any:
        masked = dict(self._inner.gradients(grads))
        for path, width in self._widths.items():
            units = vars(self._holders[path])[KEY]
            for axis in width.axes:
                if (grad := masked.get(axis.weight)) is not None:
                    mask = _mask(width, axis.axis, grad.shape, units)
                    masked[axis.weight] = jnp.where(mask, grad, 0)
        return masked


def _mask(width: Width, axis: int, shape: Sequence[int], units: Any) -> jax.Array:
    """Which entries of a weight belong to the units of a lane, to be broadcast."""
    mask = jnp.arange(shape[axis]) % width.most < units
    return mask.reshape(-1, *[1] * (len(shape) - axis - 1))
