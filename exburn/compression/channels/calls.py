"""One call of a layer in a model, as a rule of units sees it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from exburn import layers
from exburn.activations import acts_on_rows
from exburn.compression.channels.units import Channels, Units

ELSEWHERE = "reads channels along another axis"
_WHOLE_ROWS = frozenset("softmax log_softmax sparsemax sparse_plus glu".split())


@dataclasses.dataclass(frozen=True)
class LayerCall:
    """A call of a layer, and what is known of the tensors that it is given.

    A rule takes the units of the model and a call. It returns the units of the output,
    None where no layer made its channels, a list of these for several outputs, or in
    words why it cannot follow them.

    Attributes:
        layer: The layer.
        path: Its path in the model.
        inputs: The units of its tensors, in the order of its arguments.
        shapes: Their shapes.
        out: The shapes of the outputs.
        names: For each of the tensors the name of the argument that holds it.
    """

    layer: Any
    path: str
    inputs: list[Channels | None]
    shapes: list[tuple]
    out: list[tuple]
    names: list[str]

    @property
    def one(self) -> Channels | None:
        """The units of the first tensor."""
        return self.inputs[0]

    @property
    def tensors(self) -> dict[str, Channels | None]:
        """The units of the tensors, by argument; of lists, of the last one."""
        return dict(zip(self.names, self.inputs, strict=True))

    def shape_of(self, name: str) -> tuple | None:
        """The shape of the tensor that is given as an argument, if one is."""
        return dict(zip(self.names, self.shapes, strict=True)).get(name)

    @property
    def rank(self) -> int:
        """Axes of the first output."""
        return len(self.out[0])

    @property
    def channel_axis(self) -> int:
        """Where the layer has the channels of its output."""
        return 1 if self.layer.data_format == "channels_first" else self.rank - 1

    def of(self, part: str, **changes: Any) -> LayerCall:
        """The call of a layer within the layer."""
        inner = getattr(self.layer, part)
        path = f"{self.path}/{part}"
        return dataclasses.replace(self, layer=inner, path=path, **changes)


def ids_of(one: Channels | None) -> np.ndarray | None:
    """The numbers of units, if there are any."""
    return None if one is None else one.ids


def lies_elsewhere(one: Channels | None, axis: int) -> bool:
    """Whether units lie along another axis than this one."""
    return one is not None and one.axis != axis


def make_units(
    units: Units, call: LayerCall, option: str, name: str, end: int, axis: int
) -> Channels:
    """The units that a layer makes, the same ones at each of its calls.

    Args:
        units: The units of the model.
        call: A call of the layer.
        option: The argument of the layer that is their number.
        name: The weight that makes them.
        end: Its axis along them.
        axis: The axis of the output along them.
    """
    ids = units.make(call.path, option, getattr(call.layer, name), end)
    units.lie(f"{call.path}/{name}", end, ids)
    if getattr(call.layer, "bias", None) is not None:
        units.lie(f"{call.path}/bias", 0, ids)
    check_activation(units, call, ids)
    return Channels(ids, axis, call.rank)


def check_activation(
    units: Units, call: LayerCall, ids: np.ndarray, name: str = "activation"
) -> None:
    """Notes units that an activation sees together; those of outputs stay."""
    if not _by_entry(getattr(call.layer, name, None)):
        kind = type(call.layer).__name__
        units.block(ids, f"{call.path!r} ({kind}) computes with all of them")


def _by_entry(activation: Any) -> bool:
    """Whether an activation computes each entry by itself; of unknown ones: yes."""
    if activation is None:
        return True
    name = getattr(activation, "__name__", type(activation).__name__.lower())
    if name in _WHOLE_ROWS:
        return False
    return acts_on_rows(activation) or not isinstance(activation, layers.Layer)
