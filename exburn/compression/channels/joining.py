"""Rules of what joins tensors: sums, products, concatenations."""

from __future__ import annotations

from typing import Any

import numpy as np

from exburn.compression.channels.calls import LayerCall
from exburn.compression.channels.units import Channels, Units


def merge(units: Units, call: LayerCall) -> Any:
    """Units that lie over each other go together."""
    return tie_all(units, call.inputs, call.shapes, call.rank)


def concatenate(units: Units, call: LayerCall) -> Any:
    """Units behind each other, if they are joined along their axis."""
    return join(units, call.inputs, call.shapes, call.layer.axis % call.rank)


def join(units: Units, tensors: list, shapes: list, axis: int) -> Any:
    """The units of tensors that are joined along an axis.

    Args:
        units: The units of the model.
        tensors: Those of the tensors.
        shapes: Their shapes.
        axis: The axis, from 0 on.
    """
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
    """The units of what is computed from tensors entry by entry.

    Args:
        units: The units of the model.
        tensors: Those of the tensors.
        shapes: Their shapes.
        rank: Axes of the result.
    """
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
