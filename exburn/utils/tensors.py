"""NumPy values with the methods of a tensor that tutorials call on batches."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np


class BatchArray(np.ndarray):
    """A NumPy array that also has ``numpy()``, as have its parts and what it becomes.

    Loops over data sets give these: code written for tensors runs on them, and so does
    code for NumPy.

    Example:
        >>> labels = np.array([2, 0], np.int32).view(BatchArray)
        >>> labels.numpy().tolist(), labels[0].numpy(), (labels + 1).numpy().tolist()
        ([2, 0], np.int32(2), [3, 1])
    """

    def numpy(self) -> np.ndarray:
        """The same values as a plain array."""
        return np.asarray(self)

    def get_shape(self) -> tuple[int, ...]:
        """The shape."""
        return self.shape

    def __getitem__(self, index: Any) -> Any:
        return _of_entry(super().__getitem__(index))

    def __array_wrap__(self, array: Any, context: Any = None, scalar: bool = False):
        wrapped = super().__array_wrap__(array, context, False)
        return wrapped[()] if scalar else wrapped

    def __reduce__(self) -> Any:
        return self.numpy().__reduce__()  # of copies and pickles nobody asks numpy()


class _Text(str):
    """A string of a batch."""

    __slots__ = ()

    def numpy(self) -> str:
        return str(self)


def with_methods(element: Any) -> Any:
    """An element of a data set with ``numpy()`` on its arrays, numbers and strings.

    Arrays of JAX stay what they are.

    Example:
        >>> x, y = with_methods((np.ones(3), np.int32(1)))
        >>> x.numpy().tolist(), y.numpy()
        ([1.0, 1.0, 1.0], np.int32(1))
    """
    return jax.tree.map(_of_leaf, element)


def _of_leaf(value: Any) -> Any:
    return value.view(BatchArray) if type(value) is np.ndarray else _of_entry(value)


def _of_entry(value: Any) -> Any:
    if type(value) is str:
        return _Text(value)
    if isinstance(value, np.generic) and (kind := _number(type(value))) is not None:
        return kind(value)
    return value


@functools.cache
def _number(kind: type) -> type | None:
    """The scalar type with ``numpy()``; ``None`` where NumPy lets none derive from it.

    It is no array without axes, which no dict would take as a key.
    """
    if hasattr(kind, "numpy"):
        return None
    try:
        return type(kind.__name__, (kind,), {"numpy": lambda self: kind(self)})
    except TypeError:  # booleans
        return None
