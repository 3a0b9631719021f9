"""What a model trains on: arrays held whole, or a stream of batches.

``as_dataset`` turns whatever the user passed into an `ArrayDataset` or a
`StreamDataset` and refuses, before anything is compiled, data that cannot work.
Loaders of other libraries come in through small adapters (`register_adapter`); the
built-in ones live in ``exburn.datasets.adapters``.

dtypes: floats become float32, 64-bit and unsigned 32-bit integers become int32 (after
a range check); bool and the smaller integers stay as they are.
"""

from __future__ import annotations

import math
import reprlib
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.errors import ArgumentError, DataError, DTypeError, ExBurnError, ShapeError

__all__ = [
    "ArrayDataset",
    "PyDataset",
    "StreamDataset",
    "as_dataset",
    "as_validation_dataset",
    "check_finite",
    "leaves",
    "map_leaves",
    "register_adapter",
    "split",
]

Tree = Any
NAMES = ("x", "y", "sample_weight")
_ADAPTERS: list[Any] = []
_KEPT = frozenset(map(np.dtype, ("f4", "i4", "?", "u1", "i1", "i2", "u2")))
_END = object()


# --- trees ------------------------------------------------------------------------


def leaves(tree: Tree, name: str, *, nones: bool = False) -> Iterator[tuple[str, Any]]:
    """Yields (name, leaf) of a nested dict, list or tuple; ``None`` is left out.

    Example:
        >>> list(leaves({"a": 1, "b": [2, None]}, "x"))
        [("x['a']", 1), ("x['b'][0]", 2)]
    """
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from leaves(value, f"{name}[{key!r}]", nones=nones)
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from leaves(value, f"{name}[{index}]", nones=nones)
    elif nones or tree is not None:
        yield name, tree


def map_leaves(function: Callable[[str, Any], Any], tree: Tree, name: str) -> Tree:
    """Applies ``function(name, leaf)`` to every leaf and keeps the containers.

    Example:
        >>> map_leaves(lambda name, leaf: leaf + 1, {"a": 1, "b": (2, None)}, "x")
        {'a': 2, 'b': (3, None)}
    """
    if isinstance(tree, Mapping):
        items = tree.items()
        return {k: map_leaves(function, v, f"{name}[{k!r}]") for k, v in items}
    if isinstance(tree, list | tuple):
        items = [map_leaves(function, v, f"{name}[{i}]") for i, v in enumerate(tree)]
        if hasattr(tree, "_fields"):  # a namedtuple takes its fields one by one
            return type(tree)(*items)
        return items if isinstance(tree, list) else tuple(items)
    return None if tree is None else function(name, tree)


# --- arrays -----------------------------------------------------------------------


def _describe(array: Any) -> str:
    return f"{array.dtype}[{', '.join(map(str, array.shape))}]"


def _on_host(array: Any) -> np.ndarray | None:
    """The array's memory without a copy, or None if it lives on an accelerator."""
    if isinstance(array, np.ndarray):
        return array
    if len(array.devices()) == 1 and next(iter(array.devices())).platform == "cpu":
        return np.asarray(array)
    return None


def _as_array(value: Any, name: str, op: str) -> np.ndarray | jax.Array:
    """One leaf as an array that ExBurn can compute with, else a typed error."""
    if type(value) is np.ndarray and value.dtype in _KEPT and value.ndim:
        return value
    for adapter in _ADAPTERS:
        if hasattr(adapter, "to_array") and adapter.accepts(value):
            value = adapter.to_array(value, name=name, op=op)
            break
    if isinstance(value, np.ma.MaskedArray):
        raise DTypeError(
            op,
            f"{name} must not be a masked array: its mask would be ignored",
            hint="Fill it: array.filled(0), and pass the mask as sample_weight.",
        )
    if not isinstance(value, jax.Array):
        if not hasattr(value, "__array__"):
            raise DTypeError(
                op,
                f"{name} must be an array, not {type(value).__name__}",
                {"received": reprlib.repr(value)},
                hint="Nested lists are several inputs; for one array: np.array(...).",
            )
        try:
            value = np.asarray(value)
        except Exception as error:
            raise DTypeError(
                op,
                f"{name} cannot become an array",
                {"received": reprlib.repr(value), "cause": error},
                hint="Pass NumPy or JAX arrays; a symbol of Input() holds no values.",
            ) from error
    if value.ndim == 0:
        raise ShapeError(
            op,
            f"{name} must have a leading axis of samples, but is a scalar",
            {"received": reprlib.repr(value)},
            hint="For one sample: np.array([value]).",
        )
    return value if value.dtype in _KEPT else _convert(value, name, op)


def _convert(array: Any, name: str, op: str) -> np.ndarray | jax.Array:
    dtype = array.dtype
    if jnp.issubdtype(dtype, jnp.floating):
        with np.errstate(over="ignore"):  # check_finite names what overflowed
            return array.astype(np.float32)
    if jnp.issubdtype(dtype, jnp.integer):
        if array.size:
            low, high = int(array.min()), int(array.max())
            if low < -(2**31) or high >= 2**31:
                raise DTypeError(
                    op,
                    f"{name} holds integers that int32 cannot: JAX computes in int32",
                    {"received": _describe(array), "range": f"{low} … {high}"},
                    hint="Re-number the values (ids: np.unique(..., "
                    "return_inverse=True)), or use floats.",
                )
        return array.astype(np.int32)
    if dtype == np.bool_:
        return array.astype(np.bool_)
    hint = "Use a numeric array: np.asarray(values, dtype=np.float32)."
    details = {"received": _describe(array)}
    what = f"{dtype} values"
    if jnp.issubdtype(dtype, jnp.complexfloating):
        what = "complex numbers"
        hint = "Stack the parts: np.stack([a.real, a.imag], axis=-1)."
    elif not isinstance(dtype, np.dtype):  # jax.random.key
        what, hint = "random keys", "Draw numbers from them: jax.random.normal(key)."
    elif dtype.kind in "UST":
        what = "strings"
        hint = "Encode them first: StringLookup, TextVectorization or CategoryEncoding."
    elif dtype.kind in "mM":
        what = "dates or durations"
        hint = "Convert to numbers, e.g. (t - t0) / np.timedelta64(1, 's')."
    elif dtype.kind == "O":
        what, hint, seen = _explain_objects(array)
        details["first values"] = seen
    raise DTypeError(
        op, f"{name} must be numeric, but holds {what}", details, hint=hint
    )


def _explain_objects(array: np.ndarray) -> tuple[str, str, str]:
    first = array.reshape(-1)[:100].tolist()
    seen = ", ".join(repr(v)[:40] for v in first[:3])
    shapes = {np.shape(v) for v in first if isinstance(v, np.ndarray)}
    shapes |= {(len(v),) for v in first if isinstance(v, list | tuple)}
    if shapes:
        lengths = ", ".join(str(s) for s in sorted(shapes)[:4])
        return (
            f"ragged rows (shapes {lengths})",
            "Make the rows equally long: exburn.utils.pad_sequences(...), np.stack.",
            seen,
        )
    if any(isinstance(v, str | bytes) for v in first):
        return "strings", "Encode them first: StringLookup, CategoryEncoding.", seen
    return "Python objects", "Convert: array.astype(np.float32).", seen


# --- checks -----------------------------------------------------------------------


def _check_lengths(tree: tuple, op: str, what: str = "data") -> int:
    """All arrays share one leading length > 0; returns it."""
    first = None
    for part, name in zip(tree, NAMES, strict=True):
        for path, array in leaves(part, name):
            if first is None:
                first = (path, array)
            elif array.shape[0] != first[1].shape[0]:
                raise DataError(
                    op,
                    f"{first[0]} and {path} must have the same number of rows",
                    {
                        first[0]: f"{first[1].shape[0]} rows, {_describe(first[1])}",
                        path: f"{array.shape[0]} rows, {_describe(array)}",
                    },
                    hint="The first axis counts the samples in every array.",
                )
    if first is None:
        raise DataError(
            op, f"the {what} holds no arrays", hint="Pass x, or a loader of batches."
        )
    if not first[1].shape[0]:
        raise DataError(
            op,
            f"the {what} is empty",
            {first[0]: _describe(first[1])},
            hint="Look at what selected the rows: nothing is left of them.",
        )
    return first[1].shape[0]


def _check_weights(weight: Tree, y: Tree, op: str) -> None:
    one = None if isinstance(y, Mapping | list | tuple) else y
    for path, w in leaves(weight, NAMES[2]):
        if one is not None:
            shape = w.shape  # trailing ones broadcast, as in Keras
            while len(shape) > one.ndim and shape[-1] == 1:
                shape = shape[:-1]
            fits = all(a in (1, b) for a, b in zip(shape, one.shape, strict=False))
            if len(shape) > one.ndim or not fits:
                raise ShapeError(
                    op,
                    f"{path} must be one weight a row, or have the shape of y",
                    {path: _describe(w), "y": _describe(one)},
                    hint="Weigh each row by one number: sample_weight of shape (n,).",
                )
        host = w if (seen := _on_host(w)) is None else seen
        if not host.min() >= 0 or not np.isfinite(float(host.max())):
            bad = ~(host >= 0) | (host == np.inf)
            at = np.unravel_index(int(bad.argmax()), w.shape)
            raise DataError(
                op,
                f"{path} must be finite and not negative",
                {path: _describe(w), "first bad value": f"{host[at]} at row {at[0]}"},
                hint="A weight of 0 leaves a row out.",
            )


def check_finite(
    tree: tuple, names: tuple[str, ...] = NAMES, *, op: str = "fit"
) -> None:
    """Raises if a float array of the tree holds NaN or infinity.

    A sum is cheap and is not finite if any value is not; only then the exact place is
    looked for. Arrays on an accelerator are summed there.

    Args:
        tree: ``(x, y, sample_weight)`` or any tuple of trees.
        names: One name per entry of the tuple, for the message.
        op: The operation named in the error.

    Raises:
        DataError: Naming the argument, the value, its row and its position.

    Example:
        >>> check_finite((np.ones(3, np.float32),), ("x",))
    """
    for part, name in zip(tree, names, strict=False):
        for path, array in leaves(part, name):
            if not array.size or not jnp.issubdtype(array.dtype, jnp.floating):
                continue
            host = _on_host(array)
            with np.errstate(all="ignore"):
                total = jnp.sum(array) if host is None else host.sum()
                if np.isfinite(float(total)):
                    continue
            bad = ~(jnp.isfinite(array) if host is None else np.isfinite(host))
            if not bad.any():  # the sum overflowed, the values are fine
                continue
            at = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), array.shape))
            value = (array if host is None else host)[at]
            rows = bad.reshape(len(array), -1).any(1).sum()
            raise DataError(
                op,
                f"{path} must be finite, but holds NaN or infinity",
                {
                    "received": _describe(array),
                    "first bad value": f"{value} at row {at[0]}, position {at}",
                    "rows affected": f"{int(rows)} of {len(array)}",
                },
                hint="Drop or fill these rows (np.nan_to_num); values beyond 3.4e38 "
                "do not fit float32.",
            )


def _prepare(x: Tree, y: Tree, weight: Tree, op: str, what: str = "data") -> tuple:
    if absent := [path for path, leaf in leaves(x, "x", nones=True) if leaf is None]:
        raise DataError(
            op,
            f"the {what} lacks inputs: {absent[0]} is None",
            hint="Pass arrays as x, or a loader of batches.",
        )

    def convert(name: str, leaf: Any) -> Any:
        return _as_array(leaf, name, op)

    parts = zip((x, y, weight), NAMES, strict=True)
    tree = tuple(map_leaves(convert, part, name) for part, name in parts)
    _check_lengths(tree, op, what)
    _check_weights(tree[2], tree[1], op)
    return tree


# --- datasets ---------------------------------------------------------------------


class ArrayDataset:
    """Arrays that are held whole and share their leading length.

    NumPy arrays are not copied unless their dtype must change; JAX arrays stay on
    their device.

    Args:
        x: An array, or a nested dict, list or tuple of arrays.
        y: Targets of the same leading length, or None.
        sample_weight: One weight a row (or a value), or None.
        op: The operation named in errors.

    Shape: every array: ``[size, …]``.

    Raises:
        DataError: Empty data, unequal lengths, negative or NaN weights.
        DTypeError: Object, string, complex or ragged arrays; integers beyond int32.
        ShapeError: A scalar instead of an array; weights that do not fit y.

    Example:
        >>> data = ArrayDataset(np.eye(3), np.array([0, 1, 2]))
        >>> data.size, data.tree[0].dtype.name, data.take([2, 0])[1].tolist()
        (3, 'float32', [2, 0])
    """

    def __init__(
        self, x: Tree, y: Tree = None, sample_weight: Tree = None, *, op: str = "fit"
    ):
        self.tree = _prepare(x, y, sample_weight, op)
        arrays = [leaf for _, leaf in leaves(self.tree, "")]
        self.size: int = len(arrays[0])
        self.nbytes: int = sum(leaf.nbytes for leaf in arrays)

    def __len__(self) -> int:
        return self.size

    def take(self, indices: Any) -> tuple:
        """Rows as NumPy arrays on the host; a slice of NumPy data is a view."""
        if not isinstance(indices, slice):
            indices = np.asarray(indices, dtype=np.intp)
            if indices.size and not 0 <= indices.min() <= indices.max() < self.size:
                raise ArgumentError(
                    "take",
                    f"indices must lie in 0 … {self.size - 1}",
                    {"received": f"{indices.min()} … {indices.max()}"},
                )

        def rows(_: str, leaf: Any) -> np.ndarray:
            host = _on_host(leaf)
            if host is None:
                return np.asarray(leaf[indices])
            return (
                host[indices] if isinstance(indices, slice) else host.take(indices, 0)
            )

        return map_leaves(rows, self.tree, "")

    def rows(self, start: int, stop: int) -> ArrayDataset:
        """The rows from ``start`` to ``stop``, on the device where they are."""
        part = object.__new__(ArrayDataset)
        part.tree = map_leaves(lambda _, leaf: leaf[start:stop], self.tree, "")
        part.size = len(range(self.size)[start:stop])
        part.nbytes = sum(leaf.nbytes for _, leaf in leaves(part.tree, ""))
        return part


class StreamDataset:
    """Batches that come one after another and are not held.

    Args:
        factory: ``factory(epoch)`` gives an iterator of raw batches: ``x``, ``(x, y)``
            or ``(x, y, sample_weight)``. With ``shuffles=True`` it is called as
            ``factory(epoch, seed)`` and orders its batches by the seed, if any.
        batches: Batches in an epoch, or None if unknown or endless.
        reiterable: Whether each epoch starts anew. If not, there is one iterator and
            every call to ``iterate`` continues it (as Keras does with generators).
        batch_size: Rows of a full batch, or None if unknown.
        shuffles: Whether the factory takes a seed.
        name: What errors call it.
        op: The operation named in errors.

    Attributes:
        check: Called with every batch before it is handed out, to raise if its values
            cannot be used.

    Raises:
        DataError: While iterating: no batch, an exhausted generator, unequal lengths
            in a batch, a batch of another structure or rank than the first.

    Example:
        >>> stream = StreamDataset(lambda epoch: iter([np.ones((2, 3))]), batches=1)
        >>> [x.shape for x, y, w in stream.iterate(epoch=0)]
        [(2, 3)]
    """

    def __init__(
        self,
        factory: Callable[..., Iterator],
        *,
        batches: int | None = None,
        reiterable: bool = True,
        batch_size: int | None = None,
        shuffles: bool = False,
        name: str = "loader",
        op: str = "fit",
    ):
        self.batches, self.batch_size = batches, batch_size
        self.reiterable, self.shuffles = reiterable, shuffles
        self.name, self.op = name, op
        self._factory = factory
        self.check: Callable[[tuple], None] | None = None
        self._source: Iterator | None = None  # the only iterator, if not reiterable
        self._started = False
        self._ahead: tuple | None = None  # (key, source, batch) read by peek
        self._form: Any = None

    def peek(self, epoch: int = 0, seed: int | None = None) -> tuple:
        """The first batch; ``iterate`` with the same arguments still yields it."""
        if self._ahead is None or (self.reiterable and self._ahead[0] != (epoch, seed)):
            source = self._open(epoch, seed)
            batch = self._read(source, epoch, 0)
            if batch is None:
                raise self._nothing()
            self._drop_ahead()
            self._ahead = ((epoch, seed), source, batch)
        return self._ahead[2]

    def iterate(self, epoch: int = 0, seed: int | None = None) -> Iterator[tuple]:
        """Yields NumPy batches ``(x, y, sample_weight)``; the last two may be None."""
        key, count = (epoch, seed), 0
        if self._ahead and (not self.reiterable or self._ahead[0] == key):
            (_, source, batch), self._ahead = self._ahead, None
        else:
            self._drop_ahead()
            source = self._open(epoch, seed)
            batch = self._read(source, epoch, 0)
        try:
            while batch is not None:
                count += 1
                self._started = True
                yield batch
                batch = self._read(source, epoch, count)
            if not count:
                raise self._nothing()
        finally:
            if self.reiterable and hasattr(source, "close"):
                source.close()  # type: ignore[attr-defined]

    def _open(self, epoch: int, seed: int | None) -> Iterator:
        if self._source is None or self.reiterable:
            arguments = (epoch, seed) if self.shuffles else (epoch,)
            self._source = iter(self._factory(*arguments))
        return self._source

    def _drop_ahead(self) -> None:
        if self._ahead and self.reiterable and hasattr(self._ahead[1], "close"):
            self._ahead[1].close()
        self._ahead = None

    def _read(self, source: Iterator, epoch: int, index: int) -> tuple | None:
        try:
            raw = next(source, _END)
        except Exception as error:
            error.add_note(
                f"while reading batch {index} of epoch {epoch} ({self.name})"
            )
            raise
        if raw is _END:
            return None
        batch = self._batch(raw, f"batch {index} of the {self.name}")
        self._checked(batch, index)
        return batch

    def check_first(self, batch: tuple) -> None:
        """Checks a batch that was peeked at before ``check`` was known."""
        self._checked(batch, 0)

    def _checked(self, batch: tuple, index: int) -> None:
        if self.check is None:
            return
        try:
            self.check(batch)
        except ExBurnError as error:
            error.add_note(f"in batch {index} of the {self.name}")
            raise

    def _batch(self, raw: Any, what: str) -> tuple:
        parts = list(raw) if isinstance(raw, list | tuple) else [raw]
        if not 1 <= len(parts) <= 3:
            raise DataError(
                self.op,
                f"{what} must be x, (x, y) or (x, y, sample_weight)",
                {"received": f"{type(raw).__name__} of {len(parts)} parts"},
                hint="Several inputs go into one nested x: ((x1, x2), y).",
            )
        try:
            x, y, weight = parts + [None] * (3 - len(parts))
            tree = _prepare(x, y, weight, self.op, what)
        except ExBurnError as error:
            error.add_note(f"in {what}")
            raise
        batch = map_leaves(lambda _, leaf: np.asarray(leaf), tree, "")
        form = [(path, leaf.ndim) for path, leaf in leaves(batch, "")]
        if self._form is None:
            self._form = form
        elif form != self._form:
            raise DataError(
                self.op,
                f"{what} has another structure or rank than the first batch",
                {"first (path, rank)": self._form, "this (path, rank)": form},
                hint="Let the loader yield batches of one structure.",
            )
        return batch

    def _nothing(self) -> DataError:
        if self._started and not self.reiterable:
            return DataError(
                self.op,
                f"the {self.name} is exhausted: it gives its batches only once",
                hint="Set steps_per_epoch with an endless generator, or pass an object "
                "whose __iter__ starts anew (a PyDataset, a DataLoader).",
            )
        return DataError(
            self.op,
            f"the {self.name} yielded no batches",
            hint="A generator that was used up must be made anew.",
        )


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


# --- entry points -----------------------------------------------------------------


def register_adapter(cls: type) -> type:
    """Makes ``fit``, ``evaluate`` and ``predict`` understand one more kind of data.

    The class has ``accepts(value) -> bool``, which must be quick and import nothing
    (look at ``type(value).__module__``), and one of ``load(value) -> ArrayDataset |
    StreamDataset`` (a loader of batches) or ``to_array(value, *, name, op) -> array``
    (something that stands for one array, anywhere in x, y or sample_weight). The
    last adapter registered is asked first. Usable as a decorator.

    Raises:
        ArgumentError: If a method is missing.

    Example:
        >>> class Range:
        ...     def accepts(self, value):
        ...         return isinstance(value, range)
        ...     def to_array(self, value, *, name, op):
        ...         return np.array(value)
        >>> _ = register_adapter(Range)
        >>> as_dataset(range(5)).size
        5
    """
    loads = hasattr(cls, "load") or hasattr(cls, "to_array")
    if not (hasattr(cls, "accepts") and loads):
        raise ArgumentError(
            "register_adapter",
            "an adapter needs accepts(value), and load(value) or to_array(value, …)",
            {"received": cls},
        )
    same = (cls.__module__, cls.__qualname__)
    _ADAPTERS[:] = [
        a for a in _ADAPTERS if (type(a).__module__, type(a).__qualname__) != same
    ]
    _ADAPTERS.insert(0, cls())
    return cls


def as_dataset(
    x: Any, y: Any = None, sample_weight: Any = None, *, op: str = "fit"
) -> ArrayDataset | StreamDataset:
    """Turns what the user passed to ``fit`` into a dataset, or explains why not.

    Args:
        x: Arrays (nested), a data frame, a loader of batches, or a dataset.
        y: Targets; only beside arrays.
        sample_weight: Weights; only beside arrays.
        op: The operation named in errors.

    Raises:
        ArgumentError: ``y`` or ``sample_weight`` beside a loader.
        DataError: Empty data, unequal lengths …
        DTypeError: Something that is neither data nor a known loader.

    Example:
        >>> as_dataset(np.zeros((4, 2)), np.zeros(4)).size
        4
    """
    plain = isinstance(x, np.ndarray | jax.Array | Mapping | list | tuple)
    dataset, arrays = None, plain or x is None
    if isinstance(x, ArrayDataset | StreamDataset):
        dataset = x
    elif not arrays:
        adapter = next((a for a in _ADAPTERS if a.accepts(x)), None)
        arrays = hasattr(adapter, "to_array") or hasattr(x, "__array__")
        if adapter is not None and not hasattr(adapter, "to_array"):
            dataset = adapter.load(x)
    if dataset is not None:
        extra = [n for n, v in zip(NAMES[1:], (y, sample_weight), strict=True)
                 if v is not None]  # fmt: skip
        if extra:
            raise ArgumentError(
                op,
                f"{' and '.join(extra)} must not be given beside a loader: "
                "its batches hold the targets",
                {"x": type(x).__name__},
                hint="Let the loader yield (x, y) or (x, y, sample_weight).",
            )
        if isinstance(dataset, StreamDataset):
            dataset.op = op
        return dataset
    if not arrays:
        raise DTypeError(
            op,
            f"x must be arrays, a data frame or a loader, not {type(x).__name__}",
            {"received": reprlib.repr(x)},
            hint="Pass np.array(...), or teach ExBurn your type: register_adapter.",
        )
    if isinstance(y, types.GeneratorType):
        raise ArgumentError(
            op, "y is a generator, x is not", hint="Yield (x, y) from one generator."
        )
    return ArrayDataset(x, y, sample_weight, op=op)


def as_validation_dataset(
    data: Any, *, op: str = "fit"
) -> ArrayDataset | StreamDataset:
    """``validation_data`` as a dataset: ``(x, y)``, ``(x, y, weight)`` or a loader.

    Raises:
        ArgumentError: A tuple that is not of two or three parts.

    Example:
        >>> as_validation_dataset((np.zeros((3, 2)), np.zeros(3))).size
        3
    """
    if not isinstance(data, list | tuple):
        return as_dataset(data, op=op)
    if len(data) not in (2, 3):
        raise ArgumentError(
            op,
            "validation_data must be (x, y), (x, y, sample_weight) or a loader",
            {"received": f"{type(data).__name__} of {len(data)} parts"},
        )
    return as_dataset(*data, op=op)


def split(
    dataset: ArrayDataset | StreamDataset, validation_split: float, *, op: str = "fit"
) -> tuple[ArrayDataset, ArrayDataset]:
    """Splits off the last fraction of the rows, before any shuffling, as Keras does.

    Args:
        dataset: An `ArrayDataset`; a stream cannot be split.
        validation_split: Fraction between 0 and 1, both excluded.
        op: The operation named in errors.

    Raises:
        ArgumentError: A fraction outside (0, 1), or a stream.
        DataError: If one of the parts would be empty.

    Example:
        >>> train, validation = split(ArrayDataset(np.arange(10.0)), 0.2)
        >>> train.size, validation.tree[0].tolist()
        (8, [8.0, 9.0])
    """
    number = isinstance(validation_split, int | float | np.number)
    if not number or not 0 < validation_split < 1:
        raise ArgumentError(
            op,
            "validation_split must be a fraction between 0 and 1, both excluded",
            {"received": repr(validation_split)},
        )
    if not isinstance(dataset, ArrayDataset):
        raise ArgumentError(
            op,
            "validation_split needs arrays: a loader cannot be split",
            {"x": dataset.name},
            hint="Pass validation_data=another_loader.",
        )
    at = math.floor(dataset.size * (1 - validation_split))
    if not 0 < at < dataset.size:
        raise DataError(
            op,
            f"validation_split={validation_split} of {dataset.size} rows leaves "
            f"{at} for training and {dataset.size - at} for validation",
            hint="Each part needs at least one row: pass validation_data instead.",
        )
    return dataset.rows(0, at), dataset.rows(at, dataset.size)
