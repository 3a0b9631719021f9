"""Batches that are made anew for every loop, with the methods of ``tf.data``."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from numbers import Number
from typing import Any

import jax
import numpy as np

from exburn.core.checks import check_choice, check_count
from exburn.data import StreamDataset
from exburn.errors import ArgumentError, DTypeError, printable
from exburn.errors.boundary import api_boundary, guard_methods
from exburn.utils.regrouping import (
    elements_of,
    interleave,
    pad_rows,
    rebatch,
    stack,
    windows,
)
from exburn.utils.tensors import with_methods

_SHOWN_CLASSES = 5  # names in the text of a stream


@dataclasses.dataclass(frozen=True)
class ElementForm:
    """Shape and dtype of an array in each element of a stream.

    Attributes:
        shape: Its sizes, ``None`` where they differ or are not known.
        dtype: Its dtype; the name of a type where it is no array.
    """

    shape: tuple[int | None, ...]
    dtype: Any

    @classmethod
    def of(cls, value: Any, *, batched: bool = False) -> ElementForm:
        """The form of a value; that of batches has an open first size."""
        if not isinstance(value, Number | str | bytes) and not hasattr(value, "shape"):
            return cls((), type(value).__name__)  # a stream, for instance
        array = np.asarray(value)
        shape = tuple(array.shape)
        return cls((None, *shape[1:]) if batched and shape else shape, array.dtype)

    def batch(self) -> ElementForm:
        """The form of batches of such values."""
        return ElementForm((None, *self.shape), self.dtype)

    def row(self) -> ElementForm:
        """The form of one row of such batches."""
        return ElementForm(self.shape[1:], self.dtype)

    def __repr__(self) -> str:
        if isinstance(self.dtype, str):
            return self.dtype
        dtype = np.dtype(self.dtype)
        name = "string" if dtype.kind in "OSUT" else dtype.name
        return f"{name}[{', '.join(map(str, self.shape))}]"


@guard_methods
class Stream(StreamDataset):
    """Elements (batches or samples) that a function makes anew for every epoch.

    ``fit``, ``evaluate`` and ``predict`` take it, and so does a ``for`` loop. The first
    loop is epoch 0, the next epoch 1 and so on, as in ``fit``. What a loop gives has
    ``numpy()``, as tensors have, and is NumPy's (``BatchArray``); functions given to
    ``map`` and ``filter`` get plain arrays.

    Args:
        make: ``make(epoch)`` gives an iterator of elements: ``x``, ``(x, y)`` …
        length: Number of elements, ``None`` if unknown.
        batch_size: Rows of a full batch; ``None`` if the elements are samples.
        name: What errors call it.
        class_names: Names of the classes that labels stand for.
        file_paths: Where the samples come from.
        format: ``"grain"`` if functions of the user's get an element as it is, a pair
            for instance; else they get the parts of a tuple, as with ``tf.data``.
        form: An ``ElementForm`` for each array of an element, where they are known;
            else the first element that is made tells.

    Raises:
        ArgumentError: There is no such format.

    Example:
        >>> numbers = Stream(lambda epoch: iter(range(4)), 4)
        >>> batches = numbers.map(lambda x: x + 1).batch(3)
        >>> [x.tolist() for x in batches]
        [[1, 2, 3], [4]]
        >>> batches
        <Stream 'dataset': 2 batches of 3 rows · int64[None]>
    """

    def __init__(
        self,
        make: Callable[[int], Iterable],
        length: int | None = None,
        *,
        batch_size: int | None = None,
        name: str = "dataset",
        class_names: list[str] | None = None,
        file_paths: list[str] | None = None,
        format: str = "numpy",
        form: Any = None,
    ):
        self._source_of = make
        self.form = form
        formats = ("numpy", "tf", "grain")
        self._format = check_choice(name, "format", format, formats)
        self._epoch = 0
        self.class_names = class_names
        self.file_paths = file_paths
        super().__init__(
            lambda epoch: iter(self._batches(epoch)),
            batches=length,
            batch_size=batch_size,
            name=name,
        )

    def _batches(self, epoch: int) -> Iterable:
        if self.batch_size is None:
            raise ArgumentError(
                self.op,
                f"the {self.name} holds single samples",
                hint="Make batches of them: dataset.batch(32).",
            )
        return self._make(epoch)

    def _make(self, epoch: int) -> Iterator[Any]:
        """The elements of an epoch, the first of which tells their form."""
        elements = iter(self._source_of(epoch))
        if self.form is not None:
            return elements
        return self._noting_form(elements)

    def _noting_form(self, elements: Iterator[Any]) -> Iterator[Any]:
        for element in elements:
            if self.form is None:
                batched = self.batch_size is not None
                of = functools.partial(ElementForm.of, batched=batched)
                self.form = jax.tree.map(of, element)
            yield element

    def __repr__(self) -> str:
        rows = self.batch_size
        kind = ("batch", "batches") if rows else ("element", "elements")
        count = f"{self.batches} {kind[self.batches != 1]}"
        if self.batches == sys.maxsize:
            count = f"endless {kind[1]}"
        elif self.batches is None:
            count = kind[1]
        facts = [f"{count} of {rows} rows" if rows else count]
        if self.batches is None:
            facts.append("number not known")
        if self.file_paths is not None:
            facts.append(f"{len(self.file_paths)} files")
        if self.class_names is not None:
            shown = ", ".join(self.class_names[:_SHOWN_CLASSES])
            more = len(self.class_names) > _SHOWN_CLASSES
            count = len(self.class_names)
            kinds = "class" if count == 1 else "classes"
            facts.append(f"{count} {kinds} ({shown}{', …' if more else ''})")
        facts.append("shapes not known yet" if self.form is None else repr(self.form))
        return printable(f"<{type(self).__name__} {self.name!r}: {' · '.join(facts)}>")

    def __iter__(self) -> Iterator[Any]:
        return map(with_methods, self.as_numpy_iterator())

    def __len__(self) -> int:
        if self.batches in (None, sys.maxsize):
            what = "not known" if self.batches is None else "infinite"
            raise TypeError(f"the length of the {self.name} is {what}")
        return self.batches

    def cardinality(self) -> int:
        """Number of elements; -1 if they never end, -2 if it is not known."""
        if self.batches is None:
            return with_methods(np.int64(-2))
        return with_methods(
            np.int64(-1 if self.batches == sys.maxsize else self.batches)
        )

    def as_numpy_iterator(self) -> Iterator[Any]:
        """One loop over the elements, whose arrays are plain."""
        epoch, self._epoch = self._epoch, self._epoch + 1
        return iter(self._make(epoch))

    @property
    def element_spec(self) -> Any:
        """Shapes and dtypes of the first element, which is made for it.

        Example:
            >>> Stream(lambda epoch: [np.ones((4, 2), "float32")]).element_spec
            ShapeDtypeStruct(shape=(4, 2), dtype=float32)
        """
        first = next(iter(self._make(self._epoch)))
        return jax.tree.map(
            lambda v: jax.ShapeDtypeStruct(np.shape(v), np.asarray(v).dtype), first
        )

    def _derive(
        self, make, length, batch_size: Any = "same", form: Any = None
    ) -> Stream:
        return Stream(
            make,
            length,
            batch_size=self.batch_size if batch_size == "same" else batch_size,
            name=self.name,
            class_names=self.class_names,
            file_paths=self.file_paths,
            format=self._format,
            form=form,
        )

    def _applying(self, function: Callable) -> Callable[[Any], Any]:
        """The function of an element, from one of its parts."""
        if self._format == "grain":
            return function
        return lambda e: function(*e) if isinstance(e, tuple) else function(e)

    def map(
        self,
        function: Callable,
        num_parallel_calls: Any = None,
        deterministic: Any = None,
    ) -> Stream:
        """The elements that ``function`` makes of these.

        Args:
            function: Takes the parts of an element, ``f(x, y)``, or the element if it
                is no tuple; with ``format="grain"`` always the element, ``f((x, y))``.
            num_parallel_calls: Kept for code written for ``tf.data``.
            deterministic: The same.
        """
        apply = self._applying(function)
        return self._derive(lambda epoch: map(apply, self._make(epoch)), self.batches)

    def filter(self, predicate: Callable) -> Stream:
        """The elements for which ``predicate``, called as in ``map``, is true."""
        apply = self._applying(predicate)
        return self._derive(
            lambda epoch: filter(apply, self._make(epoch)), None, form=self.form
        )

    def enumerate(self, start: int = 0) -> Stream:
        """Pairs of a number, counted from ``start``, and an element."""
        return self._derive(
            lambda epoch: (
                (np.int64(i), element)
                for i, element in enumerate(self._make(epoch), start)
            ),
            self.batches,
        )

    def shard(self, num_shards: int, index: int) -> Stream:
        """Every ``num_shards``-th element, from the one with number ``index``.

        Raises:
            ArgumentError: ``index`` is not from 0 to ``num_shards - 1``.
        """
        if not 0 <= index < num_shards:
            raise ArgumentError(
                "shard", f"index is from 0 to {num_shards - 1}, received {index}"
            )
        length = self.batches
        if length not in (None, sys.maxsize):
            length = len(range(index, length, num_shards))
        return self._derive(
            lambda epoch: itertools.islice(self._make(epoch), index, None, num_shards),
            length,
            form=self.form,
        )

    def repeat(self, count: int | None = None) -> Stream:
        """The elements ``count`` times over, each time in the order of another epoch.

        Args:
            count: How often; ``None`` or -1 for ever, with ``steps_per_epoch``.
        """
        endless = count is None or count < 0

        def make(epoch):
            times = (
                itertools.count()
                if endless
                else range(epoch * count, (epoch + 1) * count)
            )
            return itertools.chain.from_iterable(map(self._make, times))

        length = None if self.batches is None else self.batches * (count or 0)
        return self._derive(make, sys.maxsize if endless else length, form=self.form)

    def concatenate(self, dataset: Stream) -> Stream:
        """These elements, and then those of another stream."""
        first, second = self.batches, dataset.batches
        return self._derive(
            lambda epoch: itertools.chain(self._make(epoch), dataset._make(epoch)),
            None if first is None or second is None else first + second,
        )

    def take(self, count: int) -> Stream:
        """The first ``count`` elements; -1 for all."""
        if count < 0:
            return self
        length = None if self.batches is None else min(count, self.batches)
        return self._derive(
            lambda epoch: itertools.islice(self._make(epoch), count),
            length,
            form=self.form,
        )

    def skip(self, count: int) -> Stream:
        """All but the first ``count`` elements."""
        length = None if self.batches is None else max(self.batches - count, 0)
        return self._derive(
            lambda epoch: itertools.islice(self._make(epoch), count, None),
            length,
            form=self.form,
        )

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: Any = None,
        deterministic: Any = None,
    ) -> Stream:
        """Batches of ``batch_size`` consecutive elements, stacked.

        Args:
            batch_size: Rows of a batch.
            drop_remainder: Whether a last batch that is not full is left out.
            num_parallel_calls: Kept for code written for ``tf.data``.
            deterministic: The same.

        Raises:
            ArgumentError: ``batch_size`` is below 1.
        """
        if batch_size < 1:
            raise ArgumentError("batch", f"batch_size is 1 or more, not {batch_size}")

        def make(epoch):
            elements = iter(self._make(epoch))
            while rows := list(itertools.islice(elements, batch_size)):
                if len(rows) == batch_size or not drop_remainder:
                    yield stack(rows)

        length = self.batches
        if length is not None:
            length = (
                length // batch_size if drop_remainder else -(-length // batch_size)
            )
        form = jax.tree.map(ElementForm.batch, self.form)
        return self._derive(make, length, batch_size, form)

    def unbatch(self) -> Stream:
        """The rows of the batches, one by one."""

        def make(epoch):
            for batch in self._make(epoch):
                leaves, treedef = jax.tree.flatten(batch)
                for row in zip(*leaves, strict=True):
                    yield treedef.unflatten(row)

        return self._derive(make, None, None, jax.tree.map(ElementForm.row, self.form))

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool = True,
    ) -> Stream:
        """The elements in random order, drawn from a buffer that slides over them.

        Args:
            buffer_size: Elements in the buffer.
            seed: Of the order; a random one by default.
            reshuffle_each_iteration: Whether every epoch has its own order.

        Raises:
            ArgumentError: ``buffer_size`` is below 1.
        """
        if buffer_size < 1:
            raise ArgumentError(
                "shuffle", f"buffer_size is 1 or more, not {buffer_size}"
            )
        start = fresh_seed() if seed is None else seed

        def make(epoch):
            rng = np.random.default_rng((start, epoch * reshuffle_each_iteration))
            buffer = []
            for element in self._make(epoch):
                buffer.append(element)
                if len(buffer) > buffer_size:
                    at = int(rng.integers(len(buffer)))
                    buffer[at], buffer[-1] = buffer[-1], buffer[at]
                    yield buffer.pop()
            for at in rng.permutation(len(buffer)):
                yield buffer[at]

        return self._derive(make, self.batches, form=self.form)

    def rebatch(
        self, batch_size: int | list[int], drop_remainder: bool = False
    ) -> Stream:
        """The rows of these batches in batches of another size.

        Args:
            batch_size: Rows of a batch, or a list of numbers that are taken in turns.
            drop_remainder: Whether a last batch that is not full is left out.

        Raises:
            ArgumentError: A number is below 1.

        Example:
            >>> batches = Stream(lambda epoch: [np.arange(3), np.arange(3, 5)])
            >>> [batch.tolist() for batch in batches.rebatch(4)]
            [[0, 1, 2, 3], [4]]
        """
        several = isinstance(batch_size, list | tuple)
        sizes = batch_size if several and batch_size else [batch_size]
        sizes = [check_count("rebatch", "batch_size", size) for size in sizes]
        return self._derive(
            lambda epoch: rebatch(self._make(epoch), sizes, drop_remainder),
            None,
            max(sizes),
        )

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
    ) -> Stream:
        """Batches of samples of several lengths, the shorter ones filled up.

        Args:
            batch_size: Rows of a batch.
            padded_shapes: The shape that samples are filled up to, or a shape for each
                of their parts; ``None`` or -1 is the largest size in the batch.
            padding_values: What is filled in, or one for each part; 0 and ``""`` by
                default.
            drop_remainder: Whether a last batch that is not full is left out.

        Raises:
            ArgumentError: ``batch_size`` is below 1; while iterating, shapes or values
                have not the parts of the samples.
            ShapeError: While iterating: a sample is larger than its shape.

        Example:
            >>> words = Stream(lambda epoch: [np.array([1]), np.array([2, 3])])
            >>> [batch.tolist() for batch in words.padded_batch(2)]
            [[[1, 0], [2, 3]]]
        """
        size = check_count("padded_batch", "batch_size", batch_size)

        def make(epoch):
            elements = iter(self._make(epoch))
            while rows := list(itertools.islice(elements, size)):
                if len(rows) == size or not drop_remainder:
                    yield pad_rows(rows, padded_shapes, padding_values)

        length = self.batches
        if length not in (None, sys.maxsize):
            length = length // size if drop_remainder else -(-length // size)
        return self._derive(make, length, size)

    def window(
        self,
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
    ) -> Stream:
        """Streams of ``size`` consecutive elements each; of tuples, one for each part.

        Args:
            size: Elements of a window.
            shift: How far apart windows begin; ``size`` by default.
            stride: How far apart the elements of a window are.
            drop_remainder: Whether the last windows, which are not full, are left out.

        Raises:
            ArgumentError: A number is below 1.

        Example:
            >>> numbers = Stream(lambda epoch: range(5))
            >>> [[int(x) for x in part] for part in numbers.window(3, shift=2)]
            [[0, 1, 2], [2, 3, 4], [4]]
        """
        size = check_count("window", "size", size)
        shift = size if shift is None else check_count("window", "shift", shift)
        stride = check_count("window", "stride", stride)

        def as_streams(rows):
            if isinstance(rows[0], tuple | list):
                return type(rows[0])(map(as_streams, zip(*rows, strict=True)))
            if isinstance(rows[0], dict):
                return {key: as_streams([row[key] for row in rows]) for key in rows[0]}
            return self._derive(lambda epoch: iter(rows), len(rows))

        return self._derive(
            lambda epoch: map(
                as_streams,
                windows(self._make(epoch), size, shift, stride, drop_remainder),
            ),
            None,
        )

    def flat_map(self, map_func: Callable) -> Stream:
        """The elements of the streams that a function makes of these, in order.

        Args:
            map_func: Called as that of ``map``; gives a stream, a dataset of another
                library or an iterable.

        Raises:
            DTypeError: While iterating: it gives anything else.

        Example:
            >>> numbers = Stream(lambda epoch: range(3))
            >>> [int(x) for x in numbers.flat_map(lambda n: [n] * int(n))]
            [1, 2, 2]
        """
        return self._flat("flat_map", map_func, 1, 1)

    def interleave(
        self,
        map_func: Callable,
        cycle_length: int | None = None,
        block_length: int = 1,
        num_parallel_calls: Any = None,
        deterministic: Any = None,
    ) -> Stream:
        """The elements of the streams that a function makes of these, in turns.

        Args:
            map_func: As of :meth:`flat_map`.
            cycle_length: How many streams are read in turns; 16 by default.
            block_length: How many elements of one follow each other.
            num_parallel_calls: Kept for code written for ``tf.data``.
            deterministic: Kept for code written for ``tf.data``: it always is.

        Raises:
            ArgumentError: A number is below 1.
            DTypeError: While iterating: the function gives no stream.

        Example:
            >>> numbers = Stream(lambda epoch: range(2))
            >>> [int(x) for x in numbers.interleave(lambda n: [n, n + 10])]
            [0, 1, 10, 11]
        """
        cycle = 16 if cycle_length in (None, -1) else cycle_length
        return self._flat("interleave", map_func, cycle, block_length)

    def _flat(self, op: str, function: Callable, cycle: int, block: int) -> Stream:
        apply = self._applying(function)
        cycle = check_count(op, "cycle_length", cycle)
        block = check_count(op, "block_length", block)

        def make(epoch):
            return interleave(
                self._make(epoch),
                lambda element: elements_of(op, apply(element), epoch),
                cycle,
                block,
            )

        # Whether they are batches, the first of the streams tells.
        first = next(iter(self._make(self._epoch)), _NOTHING)
        inner = None if first is _NOTHING else apply(first)
        return self._derive(make, None, getattr(inner, "batch_size", None))

    @staticmethod
    def zip(*datasets: Any) -> Stream:
        """Tuples of an element of each stream, as long as all have one.

        Args:
            datasets: Streams, datasets of other libraries and iterables, or a tuple or
                dict of them, nested as the elements are to be.

        Raises:
            ArgumentError: There is no stream among them.
            DTypeError: While iterating: one has no elements.

        Example:
            >>> numbers = Stream(lambda epoch: range(3), 3)
            >>> [(int(a), int(b)) for a, b in Stream.zip(numbers, numbers.skip(1))]
            [(0, 1), (1, 2)]
        """
        nested = datasets[0] if len(datasets) == 1 else datasets
        parts, treedef = jax.tree.flatten(nested, is_leaf=_is_dataset)
        streams = [part for part in parts if isinstance(part, Stream)]
        if not streams:
            raise ArgumentError(
                "zip", "there must be a stream among the datasets", {"received": parts}
            )

        def make(epoch):
            opened = [elements_of("zip", part, epoch) for part in parts]
            return map(treedef.unflatten, zip(*opened, strict=False))

        lengths = [part.batches if isinstance(part, Stream) else None for part in parts]
        sizes = {part.batch_size for part in streams}
        return streams[0]._derive(
            make,
            None if None in lengths else min(n for n in lengths if n is not None),
            sizes.pop() if len(sizes) == 1 else None,
        )

    def reduce(self, initial_state: Any, reduce_func: Callable) -> Any:
        """The last state of ``state = reduce_func(state, element)``, over one loop.

        Args:
            initial_state: The first state.
            reduce_func: Called with the state and an element.

        Example:
            >>> numbers = Stream(lambda epoch: range(4))
            >>> int(numbers.reduce(0, lambda state, n: state + n))
            6
        """
        return functools.reduce(reduce_func, self.as_numpy_iterator(), initial_state)

    def scan(self, initial_state: Any, scan_func: Callable) -> Stream:
        """What a function gives beside a state that it hands on.

        Args:
            initial_state: The first state, of each loop.
            scan_func: ``state, output = scan_func(state, element)``.

        Example:
            >>> numbers = Stream(lambda epoch: range(4))
            >>> [int(x) for x in numbers.scan(0, lambda s, n: (s + n, s + n))]
            [0, 1, 3, 6]
        """

        def make(epoch):
            state = initial_state
            for element in self._make(epoch):
                state, output = scan_func(state, element)
                yield output

        return self._derive(make, self.batches)

    def take_while(self, predicate: Callable) -> Stream:
        """The elements before the first for which ``predicate`` is false.

        Args:
            predicate: Called as the function of ``map``.

        Example:
            >>> numbers = Stream(lambda epoch: range(9))
            >>> [int(x) for x in numbers.take_while(lambda n: n < 3)]
            [0, 1, 2]
        """
        apply = self._applying(predicate)
        return self._derive(
            lambda epoch: itertools.takewhile(apply, self._make(epoch)),
            None,
            form=self.form,
        )

    def unique(self) -> Stream:
        """Each element where it comes first.

        Raises:
            DTypeError: While iterating: an element is no single array.

        Example:
            >>> [int(x) for x in Stream(lambda epoch: [3, 1, 3]).unique()]
            [3, 1]
        """

        def make(epoch):
            seen = set()
            for element in self._make(epoch):
                if isinstance(element, tuple | list | dict):
                    raise DTypeError(
                        "unique",
                        "elements are single arrays, received a "
                        f"{type(element).__name__}",
                    )
                array = np.asarray(element)
                text = array.dtype.kind in "OUS"
                value = repr(array.tolist()) if text else array.tobytes()
                key = (array.dtype.str, array.shape, value)
                if key not in seen:
                    seen.add(key)
                    yield element

        return self._derive(make, None, form=self.form)

    def apply(self, transformation_func: Callable) -> Any:
        """What a function makes of the stream.

        Args:
            transformation_func: Takes the stream, and gives another one.

        Example:
            >>> numbers = Stream(lambda epoch: range(4), 4)
            >>> len(numbers.apply(lambda stream: stream.take(2)))
            2
        """
        return transformation_func(self)

    def with_options(self, options: Any) -> Stream:
        """Itself: options of ``tf.data`` are about threads and graphs of its own.

        Args:
            options: Any.
        """
        return self

    def cache(self) -> Stream:
        """Keeps the elements of the first whole loop, and repeats them."""
        batches: list[Any] = []
        full = False

        def make(epoch):
            nonlocal full
            if full:
                yield from batches
                return
            seen = []
            for element in self._make(epoch):
                seen.append(element)
                yield element
            batches[:], full = seen, True

        return self._derive(make, self.batches, form=self.form)

    def prefetch(self, buffer_size: Any = None) -> Stream:
        """Itself: ``fit`` makes batches ahead of time anyway."""
        return self


_NOTHING = object()


def _is_dataset(value: Any) -> bool:
    return not isinstance(value, tuple | dict)


@api_boundary
def fresh_seed() -> int:
    """A seed from NumPy's global generator, which ``set_random_seed`` seeds."""
    return int(np.random.randint(2**31))
