"""The units of a model: who makes them, where weights lie along them, who needs them.

Each output of a Dense layer, filter of a convolution, head of attention, number in the
state of a recurrent layer and in the vectors of an embedding is a unit with a number. A
tensor knows the numbers along its axis of channels; a weight along each of its axes.
Units that are added to each other go together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from exburn import layers
from exburn.activations import acts_on_rows


@dataclasses.dataclass(frozen=True)
class Channels:
    """The units of a tensor.

    Attributes:
        axis: The axis; the batch is axis 0.
    """

    ids: np.ndarray
    axis: int
    rank: int


@dataclasses.dataclass(frozen=True)
class Producer:
    """A layer that makes units.

    Attributes:
        option: The argument of the layer that is their number.
    """

    path: str
    option: str
    ids: np.ndarray


class Units:
    """All units of a model."""

    def __init__(self) -> None:
        self.producers: dict[str, Producer] = {}
        #: Numbers of the units along an axis of a weight, by its path and the axis.
        self.along: dict[tuple[str, int], np.ndarray] = {}
        #: What else layers are told of the number of units, by path and argument; of a
        #: tuple, its entry with this place.
        self.sizes: dict[tuple[str, str], tuple[np.ndarray, int | None]] = {}
        self._parents = np.zeros(0, np.int64)
        self._gains = np.ones(0)
        self._magnitudes = np.zeros(0)
        self._whole: set[tuple[str, int]] = set()
        self._fixed: list[np.ndarray] = []
        self._blocked: dict[int, str] = {}

    def make(self, path: str, option: str, kernel: Any, axis: int) -> np.ndarray:
        """The numbers of a layer's units, the same ones whenever it is called."""
        if path in self.producers:
            return self.producers[path].ids
        magnitude = np.moveaxis(np.abs(np.asarray(kernel, np.float32)), axis, -1)
        ids = self._new(magnitude.reshape(-1, magnitude.shape[-1]).mean(0))
        self.producers[path] = Producer(path, option, ids)
        return ids

    def make_standing(self, count: int) -> np.ndarray:
        """Numbers for channels that no layer made, an input's; they stay."""
        ids = self._new(np.ones(count))
        self.fix(ids)
        return ids

    def _new(self, size: np.ndarray) -> np.ndarray:
        """Numbers for as many units as there are magnitudes."""
        ids = np.arange(len(self._parents), len(self._parents) + len(size))
        self._parents = np.concatenate([self._parents, ids])
        self._gains = np.concatenate([self._gains, np.ones(len(ids))])
        self._magnitudes = np.concatenate([self._magnitudes, size])
        return ids

    def lie(self, path: str, axis: int, ids: np.ndarray | None) -> None:
        """Notes that an axis of a weight is along units.

        A layer that is called again has one weight for all of its calls.

        Args:
            ids: The units; ``None`` for what no layer made, as an input's channels.
        """
        if ids is None:
            self._whole.add((path, axis))
        else:
            self.tie(self.along.setdefault((path, axis), ids), ids)
        if (path, axis) in self._whole and (path, axis) in self.along:
            self.fix(self.along[path, axis])

    def tie(self, first: np.ndarray, second: np.ndarray) -> None:
        """Makes units go together, one by one."""
        for one, two in zip(first, second, strict=True):
            a, b = self.root(one), self.root(two)
            self._parents[max(a, b)] = min(a, b)

    def scale(self, ids: np.ndarray, factor: Any) -> None:
        """Notes by what each unit is multiplied further on."""
        self._gains[ids] *= np.asarray(factor, np.float64)

    def fix(self, ids: np.ndarray) -> None:
        """Notes units that stay: the model's outputs are made of them, say."""
        self._fixed.append(ids)

    def block(self, ids: np.ndarray, reason: str) -> None:
        """Notes units that cannot be followed further."""
        for one in ids:
            self._blocked.setdefault(int(one), reason)

    def root(self, one: int) -> int:
        """The unit that stands for all that go together with one."""
        while self._parents[one] != one:
            self._parents[one] = self._parents[self._parents[one]]
            one = self._parents[one]
        return int(one)

    def find_blocked(self, chosen: set[str]) -> dict[str, str]:
        """Layers whose units cannot be followed, and why, among those chosen."""
        fixed, reasons = self._fixed_roots(), {}
        for one, reason in self._blocked.items():
            reasons.setdefault(self.root(one), reason)
        reasons_by_path: dict[str, str] = {}
        for path in (p for p in self.producers if p in chosen):
            for one in self.producers[path].ids:
                root = self.root(one)
                if root in reasons and root not in fixed:
                    reasons_by_path.setdefault(path, reasons[root])
        return reasons_by_path

    def groups(self, chosen: set[str]) -> Iterator[tuple[float, list[int]]]:
        """Units that go together and may go, with their importance.

        That is the mean magnitude of what makes a unit, times what it is multiplied by,
        relative to the mean of its layer.
        """
        stays = self._fixed_roots()
        stays |= {self.root(one) for one in self._blocked}
        scores, members = {}, {}
        for path, producer in self.producers.items():
            size = self._magnitudes[producer.ids] * self._gains[producer.ids]
            size = size / (size.mean() or 1)
            for one, score in zip(producer.ids, size, strict=True):
                root = self.root(one)
                if path not in chosen:
                    stays.add(root)
                scores.setdefault(root, []).append(float(score))
                members.setdefault(root, []).append(int(one))
        for root in sorted(scores.keys() - stays):
            yield float(np.mean(scores[root])), members[root]

    def __len__(self) -> int:
        return len(self._parents)

    def _fixed_roots(self) -> set[int]:
        return {self.root(one) for ids in self._fixed for one in ids}


ELSEWHERE = "reads channels along another axis"
_WHOLE_ROWS = frozenset("softmax log_softmax sparsemax sparse_plus glu".split())


@dataclasses.dataclass(frozen=True)
class LayerCall:
    """A call of a layer, and what is known of the tensors that it is given.

    A rule takes the units of the model and a call. It returns the units of the output,
    None where no layer made its channels, a list of these for several outputs, or in
    words why it cannot follow them.

    Attributes:
        inputs: The units of its tensors, in the order of its arguments.
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
        """The axis of the output's channels."""
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
    """Tells if units lie along another axis than this one."""
    return one is not None and one.axis != axis


def make_units(
    units: Units, call: LayerCall, option: str, name: str, end: int, axis: int
) -> Channels:
    """The units that a layer makes, the same ones at each of its calls.

    Args:
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
    """Tells if an activation computes each entry by itself; unknown ones do."""
    if activation is None:
        return True
    name = getattr(activation, "__name__", type(activation).__name__.lower())
    if name in _WHOLE_ROWS:
        return False
    return acts_on_rows(activation) or not isinstance(activation, layers.Layer)
