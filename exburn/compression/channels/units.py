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


@dataclasses.dataclass(frozen=True)
class Channels:
    """The units of a tensor.

    Attributes:
        ids: Their numbers, in the order of the axis.
        axis: The axis; the batch is axis 0.
        rank: Axes of the tensor.
    """

    ids: np.ndarray
    axis: int
    rank: int


@dataclasses.dataclass(frozen=True)
class Producer:
    """A layer that makes units.

    Attributes:
        path: The layer's path.
        option: The argument of the layer that is their number.
        ids: Their numbers.
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
        """The numbers of a layer's units, the same ones whenever it is called.

        Args:
            path, option: As of :class:`Producer`.
            kernel: The weight that makes them.
            axis: Its axis along them.
        """
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
            path, axis: The weight, and its axis.
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

        Args:
            chosen: Paths of the layers whose units may go.
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
