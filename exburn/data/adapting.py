"""Data of users' own: a class of batches, and adapters for other libraries' data."""

from __future__ import annotations

from typing import Any, TypeVar

from exburn.errors import ArgumentError
from exburn.errors.boundary import guard_methods

_C = TypeVar("_C", bound=type)

ADAPTERS: list[Any] = []


def has_adapter(value: Any) -> bool:
    """Tells whether an adapter takes a value as one array.

    Example:
        >>> has_adapter([1, 2])
        False
    """
    return any(hasattr(a, "to_array") and a.accepts(value) for a in ADAPTERS)


def register_adapter(cls: _C) -> _C:
    """Makes ``fit``, ``evaluate`` and ``predict`` understand one more kind of data.

    The class has ``accepts(value) -> bool``, which must be quick and import nothing
    (look at ``type(value).__module__``), and one of ``load(value) -> ArrayDataset |
    StreamDataset`` (a loader of batches) or ``to_array(value, *, name, op) -> array``
    (something that stands for one array, anywhere in x, y or sample_weight). The
    last adapter registered is asked first. Usable as a decorator.

    Raises:
        ArgumentError: If a method is missing.
    """
    loads = hasattr(cls, "load") or hasattr(cls, "to_array")
    if not (hasattr(cls, "accepts") and loads):
        raise ArgumentError(
            "register_adapter",
            "an adapter needs accepts(value), and load(value) or to_array(value, …)",
            {"received": cls},
        )
    same = (cls.__module__, cls.__qualname__)
    ADAPTERS[:] = [
        a for a in ADAPTERS if (type(a).__module__, type(a).__qualname__) != same
    ]
    ADAPTERS.insert(0, cls())
    return cls


@guard_methods
class PyDataset:
    """Base class of a user's random-access data set of batches (Keras' Sequence).

    Override ``__getitem__(index)`` to return batch ``index`` and ``__len__`` to return
    the number of batches; leave ``__len__`` out for an endless set.

    Args:
        workers: Threads or processes that make batches ahead of time.
        use_multiprocessing: Processes instead of threads. They are always spawned
            (forking a process that runs JAX can deadlock), so the class has to be
            importable and picklable.
        max_queue_size: Batches that may wait, made but not yet used.

    Raises:
        ArgumentError: ``workers`` negative or ``max_queue_size`` below 1.

    Example:
        >>> import numpy as np
        >>> class Squares(PyDataset):
        ...     def __len__(self):
        ...         return 2
        ...     def __getitem__(self, index):
        ...         x = np.arange(4.0).reshape(4, 1) + index
        ...         return x, x**2
        >>> Squares(workers=2).num_batches
        2
    """

    # Class attributes, so that a subclass may forget super().__init__().
    workers: int = 1
    use_multiprocessing: bool = False
    max_queue_size: int = 10

    def __init__(
        self,
        workers: int = 1,
        use_multiprocessing: bool = False,
        max_queue_size: int = 10,
    ):
        if workers < 0 or max_queue_size < 1:
            raise ArgumentError(
                type(self).__name__,
                "workers must be at least 0 and max_queue_size at least 1",
                {"workers": workers, "max_queue_size": max_queue_size},
            )
        self.workers = workers
        self.use_multiprocessing = bool(use_multiprocessing)
        self.max_queue_size = max_queue_size

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__}.__getitem__(index)")

    @property
    def num_batches(self) -> int | None:
        """Batches in an epoch; None if the class has no ``__len__``."""
        return len(self) if hasattr(type(self), "__len__") else None  # type: ignore[arg-type]

    def on_epoch_begin(self) -> None:
        """Called before the first batch of every epoch."""

    def on_epoch_end(self) -> None:
        """Called after the last batch of every epoch (to reshuffle, for example)."""
