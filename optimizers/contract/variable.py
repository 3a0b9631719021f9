"""An optimizer's state as Keras code sees it: variables, and numbers that are set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from exburn.core.variable_proxy import Handle
from exburn.optimizers.contract.trees import path_of


class OptimizerVariable(Handle):
    """One array of the state that an optimizer trains with.

    Args:
        optimizer: The optimizer.
        index: Which of the state's arrays.
        path: The array's path in the state, such as ``"inner/velocity/kernel"``.
    """

    def __init__(self, optimizer: Any, index: int, path: str):
        self._optimizer, self._index = optimizer, index
        self.path, self.name = path, path.rpartition("/")[2]

    @property
    def value(self) -> Any:
        return jax.tree.leaves(self._optimizer._live.state)[self._index]

    @property
    def identity(self) -> tuple[int, int]:
        return id(self._optimizer), self._index

    def _replace(self, value: Any) -> None:
        leaves, treedef = jax.tree.flatten(self._optimizer._live.state)
        is_array = isinstance(value, jax.Array)
        leaves[self._index] = value if is_array else jax.device_put(value)
        self._optimizer._live.state = treedef.unflatten(leaves)


def variables_of(optimizer: Any, state: Any) -> list[OptimizerVariable]:
    """One variable for each array of the state, in the order of its leaves."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return [
        OptimizerVariable(optimizer, i, path_of(path))
        for i, (path, _) in enumerate(leaves)
    ]


class _Settable:
    """A number as it was read, which also sets what it was read from."""

    _assign: Callable[[Any], None]

    def assign(self, value: Any) -> None:
        """Sets the optimizer's number; this object stays what it was."""
        self._assign(value)

    @property
    def value(self):
        """The number."""
        return _number(self)

    def numpy(self) -> np.generic:
        """The number as a NumPy scalar."""
        return (np.int32 if isinstance(self, int) else np.float32)(_number(self))

    def __reduce__(self):
        return type(_number(self)), (_number(self),)


class _Float(_Settable, float):
    pass


class _Int(_Settable, int):
    pass


def _number(value: Any) -> int | float:
    return int(value) if isinstance(value, int) else float(value)


def live_number(value: Any, assign: Callable[[Any], None]) -> Any:
    """A float or int with Keras' ``assign``, ``value`` and ``numpy``.

    Arrays, one value for each of several models, are returned as they are.
    """
    if not isinstance(value, int | float):
        return value
    number = (_Int if isinstance(value, int) else _Float)(value)
    number._assign = assign
    return number
