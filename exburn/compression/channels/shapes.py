"""Rules of what joins tensors, or gives them other axes: sums, flattening, slices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from exburn.compression.channels.units import Channels, LayerCall, Units


def flatten(units: Units, call: LayerCall) -> Any:
    """Units once for each position."""
    first = getattr(call.layer, "data_format", "") == "channels_first"
    return _flat(call.one, call.shapes[0], first and len(call.shapes[0]) > 2)


def _flat(one: Channels | None, shape: tuple, moves: bool = False) -> Any:
    """One axis of all: before the units and behind them are positions."""
    if one is None:
        return None
    before, behind = shape[1 : one.axis], shape[one.axis + 1 :]
    if moves and one.axis == 1:
        before, behind = behind, ()
    if any(not isinstance(size, int) for size in (*before, *behind)):
        return "flattens axes of unknown sizes"
    ids = np.tile(np.repeat(one.ids, math.prod(behind)), math.prod(before))
    return Channels(ids, 1, 2)


def reshape(units: Units, call: LayerCall) -> Any:
    """Flattens, or leaves the units in the last axis."""
    one, out = call.one, call.out[0]
    if one is None:
        return None
    target = list(call.layer.target_shape)
    if len(out) == 2:
        flat = _flat(one, call.shapes[0])
        if isinstance(flat, Channels) and target[0] != -1:
            units.sizes[call.path, "target_shape"] = flat.ids, 0
        return flat
    if one.axis == one.rank - 1 and out[-1] == len(one.ids):
        if target[-1] != -1:
            units.sizes[call.path, "target_shape"] = one.ids, len(target) - 1
        elif any(not isinstance(size, int) or size == -1 for size in target[:-1]):
            return "has axes of unknown sizes"
        return Channels(one.ids, len(out) - 1, len(out))
    return "moves units to other axes"


def permute(units: Units, call: LayerCall) -> Any:
    """Moves the axis of the units."""
    one = call.one
    if one is None:
        return None
    return Channels(one.ids, call.layer.dims.index(one.axis) + 1, one.rank)


def repeat_vector(units: Units, call: LayerCall) -> Any:
    """``[batch, units]`` at each of several steps."""
    return None if call.one is None else Channels(call.one.ids, 2, 3)


def get_item(one: Channels, index: Any, rank: int) -> Any:
    """``x[index]``, which must leave the units' axis whole."""
    parts = list(index) if isinstance(index, tuple) else [index]
    plain = (int, np.integer, slice, type(None), type(Ellipsis))
    if any(isinstance(part, bool) or not isinstance(part, plain) for part in parts):
        return "takes entries by an array"
    read = sum(part is not None and part is not Ellipsis for part in parts)
    if not any(part is Ellipsis for part in parts):
        parts.append(Ellipsis)
    at = parts.index(Ellipsis)
    parts[at : at + 1] = [slice(None)] * (one.rank - read)
    axis = place = 0
    for part in parts:
        if part is None:
            place += 1
            continue
        if axis == one.axis:
            if part == slice(None):
                return Channels(one.ids, place, rank)
            return "takes some of the units"
        place += isinstance(part, slice)
        axis += 1
    return "takes some of the units"


def reduction(one: Channels, axis: Any, rank: int) -> Any:
    """A mean, sum or maximum over other axes than that of the units."""
    axes = axis if isinstance(axis, list | tuple) else [axis]
    if any(not isinstance(place, int | np.integer) for place in axes):
        return "reduces all axes to one number"
    gone = {int(place) % one.rank for place in axes}
    if one.axis in gone:
        return "computes with all of the units"
    before = sum(place < one.axis for place in gone) if rank < one.rank else 0
    return Channels(one.ids, one.axis - before, rank)


def merge(units: Units, call: LayerCall) -> Any:
    """Units that lie over each other go together."""
    return tie_all(units, call.inputs, call.shapes, call.rank)


def concatenate(units: Units, call: LayerCall) -> Any:
    """Units behind each other, if they are joined along their axis."""
    return join(units, call.inputs, call.shapes, call.layer.axis % call.rank)


def join(units: Units, tensors: list, shapes: list, axis: int) -> Any:
    """The units of tensors that are joined along an axis."""
    rank, places = len(shapes[0]), {one.axis for one in tensors if one is not None}
    if not places:
        return None
    if len(places) > 1:
        return "joins units that lie along different axes"
    if places != {axis}:
        return tie_all(units, tensors, shapes, rank)
    parts = []
    for one, shape in zip(tensors, shapes, strict=True):
        if one is None and not isinstance(shape[axis], int):
            return "joins an axis of unknown size"
        parts.append(units.make_standing(shape[axis]) if one is None else one.ids)
    return Channels(np.concatenate(parts), axis, rank)


def tie_all(units: Units, tensors: list, shapes: list, rank: int) -> Any:
    """The units of what is computed from tensors entry by entry."""
    units_of = [one for one in tensors if one is not None]
    if not units_of:
        return None
    wide = max(units_of, key=lambda one: len(one.ids))
    # Counted from the end: a tensor of lower rank is broadcast.
    place = wide.axis - wide.rank
    for one, shape in zip(tensors, shapes, strict=True):
        single = -place > len(shape) or shape[place] == 1
        if one is None:
            if not single:
                units.fix(wide.ids)
        elif one.axis - one.rank != place and len(one.ids) > 1:
            return "joins units that lie along different axes"
        elif not single and len(one.ids) == len(wide.ids):
            units.tie(one.ids, wide.ids)
        elif not single:
            return "joins different numbers of units"
        elif len(one.ids) == 1:
            units.fix(one.ids)
    return Channels(wide.ids, rank + place, rank)
