"""The state of Keras' optimizers, as that of ours.

Keras lists an optimizer's variables: the updates so far, the learning rate unless a
schedule computes it, moving averages, sums of gradients, and then the slots, one kind
after the other, where those made together are in turn for each parameter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from exburn.optimizers import Optimizer

Place = tuple[str, ...]  # of a leaf in our state
# By class: the kinds of slots in Keras' order, by the names that ours have, of which
# an optimizer may have either. Those that it has not, Keras' has not either.
_SLOTS: dict[str, list[tuple[str, ...]]] = {
    "SGD": [("1/trace",)],
    "Adam": [("m", "v"), ("v_max",)],
    "AdamW": [("m", "v"), ("v_max",)],
    "RMSprop": [("0/nu|v",), ("2/trace|step",), ("mean",)],
    "Adagrad": [("sum",)],
    "Adadelta": [("0/e_g", "0/e_x")],
    "Adamax": [("m", "u")],
    "Nadam": [("m", "v")],
    "Ftrl": [("n", "z")],
    "Lion": [("0/mu",)],
    "Lamb": [("0/mu", "0/nu")],
}
_NEGATIVE = ("2/trace",)  # what Keras takes away, and optax adds


class KerasState:
    """How arrays in Keras' order make a state of ours.

    Args:
        optimizer: The optimizer of ours.
        params: The trained parameters by path, in Keras' order: specs or arrays.
        shapes: Shapes of Keras' arrays.
        rate: Whether the learning rate is among them: it is in Keras 3.
        in_turn: Whether slots that are made together are in turn: they are since
            Keras 2.11.

    Attributes:
        fits: Whether the arrays make a state of this optimizer.

    Example:
        >>> from exburn.optimizers import Adam
        >>> params = {"w": np.ones(2, np.float32)}
        >>> state = KerasState(Adam(), params, [(), (), (2,), (2,)])
        >>> arrays = [np.array(7), np.float32(0.5), np.zeros(2), np.ones(2)]
        >>> made = state.fill(params, arrays)
        >>> int(made["rate"]["count"]), made["inner"]["w"]["v"].tolist()
        (7, [1.0, 1.0])
    """

    def __init__(
        self,
        optimizer: Optimizer,
        params: Mapping[str, Any],
        shapes: Sequence[tuple[int, ...]],
        *,
        rate: bool = True,
        in_turn: bool = True,
    ):
        self._optimizer, self._in_turn = optimizer, in_turn
        specs = {
            path: jax.ShapeDtypeStruct(p.shape, p.dtype) for path, p in params.items()
        }
        leaves = _leaves(optimizer.init(specs))
        self._places: list[Place] = []
        self._negative: set[Place] = set()
        if type(optimizer).__name__ in _SLOTS:
            self._places = self._shared_places(specs, rate) + self._slots(specs, leaves)
        expected = [tuple(leaves[place].shape) for place in self._places]
        self.fits = bool(expected) and expected == [tuple(shape) for shape in shapes]

    def _shared_places(self, params: Mapping[str, Any], rate: bool) -> list[Place]:
        """The places of what every optimizer of Keras' has."""
        places: list[Place] = [("rate", "count")]
        if rate and self._optimizer.schedule is None:
            places.append(("rate", "learning_rate"))
        if self._optimizer.use_ema:
            places += [("average", path) for path in params]
        if self._optimizer.accumulate > 1:
            places += [("accumulated", "gradients", path) for path in params]
        return places

    def _slots(self, params: Mapping[str, Any], leaves: Mapping[Place, Any]) -> list:
        found: dict[tuple[str, str], Place] = {}
        for place in leaves:
            path = next((part for part in place if part in params), None)
            if place[0] == "inner" and path is not None:
                rest = (part for part in place[1:] if part not in (path, "moments"))
                slot = "/".join(rest)
                found[slot, path] = place
                if slot in _NEGATIVE:
                    self._negative.add(place)
        has = {slot for slot, _ in found}
        places = []
        for kinds in _SLOTS[type(self._optimizer).__name__]:
            names = [n for kind in kinds for n in kind.split("|") if n in has]
            if self._in_turn:
                places += [found[name, path] for path in params for name in names]
            else:
                places += [found[name, path] for name in names for path in params]
        if ("inner", "product") in leaves:  # Nadam's, of momentums so far
            places.append(("inner", "product"))
        return places

    def fill(self, params: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> Any:
        """The state with these values.

        Args:
            params: The parameters' arrays by path.
            arrays: Those in Keras' order.
        """
        values: dict[Place, Any] = {
            place: -array if place in self._negative else array
            for place, array in zip(self._places, arrays, strict=True)
        }
        batches, k = int(values["rate", "count"]), self._optimizer.accumulate
        updates = batches // k
        values["rate", "count"] = values["inner", "0", "count"] = np.asarray(updates)
        if k > 1:
            values["accumulated", "batches"] = np.asarray(batches % k)
        return jax.tree_util.tree_map_with_path(
            lambda path, old: _cast(values.get(_place(path)), old),
            self._optimizer.init(dict(params)),
        )


def _leaves(state: Any) -> dict[Place, Any]:
    found = jax.tree_util.tree_leaves_with_path(state)
    return {_place(path): leaf for path, leaf in found}


def _place(path: Any) -> Place:
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)


def _cast(value: Any, old: Any) -> Any:
    if value is None:
        return old
    return jax.device_put(np.asarray(value).astype(old.dtype))
