"""Rules of layers that make units, are cut along them, or leave them as they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from exburn.compression.channels.units import (
    ELSEWHERE,
    Channels,
    LayerCall,
    Units,
    check_activation,
    ids_of,
    lies_elsewhere,
    make_units,
)


def dense(units: Units, call: LayerCall) -> Any:
    """Makes units of sums over those it is given."""
    last = call.rank - 1
    if lies_elsewhere(call.one, last):
        return "sums over an axis that is not that of the units"
    units.lie(f"{call.path}/kernel", 0, ids_of(call.one))
    return make_units(units, call, "units", "kernel", 1, last)


def conv(units: Units, call: LayerCall) -> Any:
    """A filter is a unit; a kernel is ``[*window, in, filters]``."""
    layer, axis = call.layer, call.channel_axis
    if lies_elsewhere(call.one, axis):
        return ELSEWHERE
    if layer.groups > 1:
        return "computes groups of channels"
    end = layer.kernel.ndim - 1
    units.lie(f"{call.path}/kernel", end - 1, ids_of(call.one))
    return make_units(units, call, "filters", "kernel", end, axis)


def transposed_conv(units: Units, call: LayerCall) -> Any:
    """A kernel is ``[*window, filters, in]``."""
    if lies_elsewhere(call.one, call.channel_axis):
        return ELSEWHERE
    end = call.layer.kernel.ndim - 1
    units.lie(f"{call.path}/kernel", end, ids_of(call.one))
    return make_units(units, call, "filters", "kernel", end - 1, call.channel_axis)


def depthwise_conv(units: Units, call: LayerCall) -> Any:
    """Each unit has a window of its own, or ``depth_multiplier`` of them."""
    layer, one = call.layer, call.one
    units.lie(f"{call.path}/kernel", layer.kernel.ndim - 2, ids_of(one))
    if one is None:
        return None
    if one.axis != call.channel_axis:
        return ELSEWHERE
    ids = np.repeat(one.ids, layer.depth_multiplier)  # side by side
    check_activation(units, call, ids)
    if layer.bias is not None:
        units.lie(f"{call.path}/bias", 0, ids)
    if layer.depth_multiplier == 1:
        kernel = np.abs(np.asarray(layer.kernel))
        units.scale(one.ids, kernel.reshape(-1, len(one.ids)).mean(0))
    return Channels(ids, one.axis, call.rank)


def separable_conv(units: Units, call: LayerCall) -> Any:
    """A depthwise convolution, whose channels a pointwise one sums over."""
    layer, one = call.layer, call.one
    if lies_elsewhere(one, call.channel_axis):
        return ELSEWHERE
    ids = None if one is None else np.repeat(one.ids, layer.depth_multiplier)
    units.lie(f"{call.path}/depthwise_kernel", layer.rank, ids_of(one))
    units.lie(f"{call.path}/pointwise_kernel", layer.rank, ids)
    end = layer.rank + 1
    name = "pointwise_kernel"
    return make_units(units, call, "filters", name, end, call.channel_axis)


def batch_norm(units: Units, call: LayerCall) -> Any:
    """Is cut along; what it multiplies a unit by is part of the unit's importance."""
    layer, one = call.layer, call.one
    if one is not None and layer.axis % call.rank != one.axis:
        return "normalizes another axis"
    _lie_all(units, call, one)
    if one is not None and layer.gamma is not None:
        variance = np.asarray(layer.moving_variance)
        gain = np.abs(np.asarray(layer.gamma)) / np.sqrt(variance + layer.epsilon)
        units.scale(one.ids, gain)
    return one


def layer_norm(units: Units, call: LayerCall) -> Any:
    """Is cut along; the mean is then one of fewer units."""
    one, axes = call.one, call.layer.axis
    axes = axes if isinstance(axes, list | tuple) else [axes]
    if one is not None and [axis % call.rank for axis in axes] != [one.axis]:
        return "normalizes other axes than that of the units alone"
    _lie_all(units, call, one)
    return one


def _lie_all(units: Units, call: LayerCall, one: Channels | None) -> None:
    for name in ("gamma", "beta", "scale", "moving_mean", "moving_variance"):
        weight = vars(call.layer).get(name)
        if getattr(weight, "ndim", None) == 1:
            units.lie(f"{call.path}/{name}", 0, ids_of(one))


def prelu(units: Units, call: LayerCall) -> Any:
    """Its slopes are cut along, where it has one for each unit."""
    one = call.one
    for axis, size in enumerate(call.layer.alpha.shape):
        if size > 1 and (one is None or one.axis == axis + 1):
            units.lie(f"{call.path}/alpha", axis, ids_of(one))
    return one


def by_entry(units: Units, call: LayerCall) -> Any:
    """Computes each entry by itself, or over positions only."""
    layer, one = call.layer, call.one
    if one is None:
        return None
    check_activation(units, call, one.ids)
    noise = getattr(layer, "noise_shape", None)
    if noise is not None and noise[one.axis] not in (None, 1):
        return "has a noise_shape of as many units"
    if getattr(layer, "data_format", None) and one.axis != call.channel_axis:
        return ELSEWHERE
    return one


def global_pooling(units: Units, call: LayerCall) -> Any:
    """Leaves one position of each unit."""
    one, layer = call.one, call.layer
    if one is None:
        return None
    first = layer.data_format == "channels_first"
    if one.axis != (1 if first else one.rank - 1):
        return ELSEWHERE
    return Channels(one.ids, one.axis if layer.keepdims else 1, call.rank)
