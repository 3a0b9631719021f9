"""Batches that are made anew for every loop, with the methods of ``tf.data``."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from exburn.core.checks import check_choice
from exburn.data import StreamDataset
from exburn.errors import ArgumentError
from exburn.utils.tensors import with_methods


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

    Example:
        >>> numbers = Stream(lambda epoch: iter(range(4)), 4)
        >>> [x.tolist() for x in numbers.map(lambda x: x + 1).batch(3)]
        [[1, 2, 3], [4]]
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
    ):
        self._make = make
        known = ("numpy", "tf", "grain")
        self._format = check_choice(name, "format", format, known)
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

    def _derive(self, make, length, batch_size: Any = "same") -> Stream:
        return Stream(
            make,
            length,
            batch_size=self.batch_size if batch_size == "same" else batch_size,
            name=self.name,
            class_names=self.class_names,
            file_paths=self.file_paths,
            format=self._format,
        )

    def _applying(self, function: Callable) -> Callable[[Any], Any]:
        """The function of an element, from one of its parts."""
        if self._format == "grain":
            return function
        return lambda e: function(*e) if isinstance(e, tuple) else function(e)

    def map(self, function: Callable, num_parallel_calls: Any = None) -> Stream:
        """The elements that ``function`` makes of these.

        Args:
            function: Takes the parts of an element, ``f(x, y)``, or the element if it
                is no tuple; with ``format="grain"`` always the element, ``f((x, y))``.
            num_parallel_calls: Kept for code written for ``tf.data``.
        """
        apply = self._applying(function)
        return self._derive(lambda epoch: map(apply, self._make(epoch)), self.batches)

    def filter(self, predicate: Callable) -> Stream:
        """The elements for which ``predicate``, called as in ``map``, is true."""
        apply = self._applying(predicate)
        return self._derive(lambda epoch: filter(apply, self._make(epoch)), None)

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
        return self._derive(make, sys.maxsize if endless else length)

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
            lambda epoch: itertools.islice(self._make(epoch), count), length
        )

    def skip(self, count: int) -> Stream:
        """All but the first ``count`` elements."""
        length = None if self.batches is None else max(self.batches - count, 0)
        return self._derive(
            lambda epoch: itertools.islice(self._make(epoch), count, None), length
        )

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: Any = None,
    ) -> Stream:
        """Batches of ``batch_size`` consecutive elements, stacked.

        Args:
            batch_size: Rows of a batch.
            drop_remainder: Whether a last batch that is not full is left out.
            num_parallel_calls: Kept for code written for ``tf.data``.

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
        return self._derive(make, length, batch_size)

    def unbatch(self) -> Stream:
        """The rows of the batches, one by one."""

        def make(epoch):
            for batch in self._make(epoch):
                leaves, treedef = jax.tree.flatten(batch)
                for row in zip(*leaves, strict=True):
                    yield treedef.unflatten(row)

        return self._derive(make, None, None)

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

        return self._derive(make, self.batches)

    def cache(self) -> Stream:
        """Keeps the elements of the first whole loop, and repeats them."""
        kept: list[Any] = []
        full = False

        def make(epoch):
            nonlocal full
            if full:
                yield from kept
                return
            seen = []
            for element in self._make(epoch):
                seen.append(element)
                yield element
            kept[:], full = seen, True

        return self._derive(make, self.batches)

    def prefetch(self, buffer_size: Any = None) -> Stream:
        """Itself: ``fit`` makes batches ahead of time anyway."""
        return self


def fresh_seed() -> int:
    """A seed from NumPy's global generator, which ``set_random_seed`` seeds."""
    return int(np.random.randint(2**31))


def stack(rows: list[Any]) -> Any:
    """Samples of equal structure as one batch."""
    return jax.tree.map(
        lambda *leaves: np.stack([np.asarray(v) for v in leaves]), *rows
    )
