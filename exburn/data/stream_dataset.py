"""Batches that come one after another."""

from __future__ import annotations

import reprlib
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from numbers import Number
from typing import Any

import numpy as np

from exburn.data.arrays import KEPT, as_array
from exburn.data.checks import prepare
from exburn.data.frames import ReadOptions
from exburn.data.ragged import is_ragged
from exburn.data.trees import as_values, leaves, map_leaves
from exburn.errors import DataError, ExBurnError, ShapeError, locate

_END = object()
ENDLESS = 1 << 48  # batches: grain counts those of an endless set from the rows
_BATCHING = "DataLoader(data, batch_size=32), dataset.batch(32), np.stack(rows)"
_STEPS = {"fit": "steps_per_epoch", "fit (validation data)": "validation_steps"}


class Exhausted(DataError):
    """A source that gives its batches once has given all of them."""


class StreamDataset:
    """Batches that come one after another and are not held.

    Args:
        factory: ``factory(epoch)`` gives an iterator of raw batches: ``x``, ``(x, y)``
            or ``(x, y, sample_weight)``. With ``shuffles=True`` it is called as
            ``factory(epoch, seed)`` and orders its batches by the seed, if any.
        batches: Batches in an epoch; None if unknown, ``sys.maxsize``, or nearly as
            many, if endless.
        reiterable: Whether each epoch starts anew. If not, there is one iterator and
            every call to ``iterate`` continues it (as Keras does with generators).
        batch_size: Rows of a full batch, or None if unknown.
        shuffles: Whether the factory takes a seed.
        shared: Whether to open an iterator begins anew those that were opened before.
            Then ``iterate`` does not go on with the one that ``peek`` began.
        release: Called by ``close``, to end what the source keeps between epochs.
        name: What errors call it.

    Attributes:
        first_epoch: The epoch that is read first; ``peek`` looks at its first batch.
        earlier: Epochs of earlier runs: the source is opened for the one after them.
        options: What the model takes, as far as it is known.
        digest: Of all that the batches are made of, where the source knows it: what a
            run that is taken up compares.
        settings: What the batches depend on beside that, by name.
        tokens: Tokens of an epoch, where rows are of those and somebody counted them.
        check: Called with rows, those of one batch or of several that follow each
            other, to raise if their values cannot be used. ``iterate`` does not call
            it: whoever reads the batches looks at many at once, by ``check_rows``.

    Raises:
        DataError: While iterating: no batch, an exhausted generator, unequal lengths
            in a batch, a batch of another structure or rank than the first.
    """

    def __init__(
        self,
        factory: Callable[..., Iterator],
        *,
        batches: int | None = None,
        reiterable: bool = True,
        batch_size: int | None = None,
        shuffles: bool = False,
        shared: bool = False,
        release: Callable[[], None] | None = None,
        name: str = "loader",
        op: str = "fit",
    ):
        endless = batches is not None and batches > ENDLESS
        self.batches, self.batch_size = sys.maxsize if endless else batches, batch_size
        self.first_epoch, self.earlier, self.options = 0, 0, ReadOptions()
        self.reiterable, self.shuffles, self.shared = reiterable, shuffles, shared
        self.name, self.op = name, op
        self.digest: str | None = None
        self.settings: Mapping[str, Any] = {}
        self.tokens: int | None = None
        self._factory, self._release = factory, release
        self.check: Callable[[tuple], None] | None = None
        self._source: Iterator | None = None  # the only iterator, if not reiterable
        self._started = False
        self._ahead: tuple | None = None  # (key, source, batch) read by peek
        self._waited = 0.0  # seconds that peek took, not yet told
        self._form: Any = None
        self._ranks: list[int] | None = None  # where the parts are single arrays

    @property
    def steps_option(self) -> str:
        """What the operation calls the number of batches to take."""
        return _STEPS.get(self.op, "steps")

    def peek(self, seed: int | None = None) -> tuple:
        """The first batch; ``iterate`` of the first epoch still yields it."""
        epoch = self.first_epoch
        key = self._key(epoch, seed)
        if self._ahead is None or (self.reiterable and self._ahead[0] != key):
            start = time.perf_counter()
            source = self._open(epoch, seed)
            batch = self._read(source, epoch, 0)
            if batch is None:
                raise self._nothing()
            self._drop_ahead()
            self._ahead = (key, source, _copy(batch))
            self._waited += time.perf_counter() - start
        return self._ahead[2]

    def pop_wait(self) -> float:
        """Seconds that ``peek`` has waited for batches since this was asked last."""
        waited, self._waited = self._waited, 0.0
        return waited

    def iterate(
        self, epoch: int = 0, seed: int | None = None, *, lent: bool = False
    ) -> Generator[tuple, None, None]:
        """Yields NumPy batches ``(x, y, sample_weight)``; the last two may be None.

        Args:
            epoch: Number of the epoch.
            seed: Of the order of the batches; ``None`` for the source's own.
            lent: Whether a batch is used up before the next one is asked for. Else each
                is copied, since the loader may then write to the same arrays: fill them
                anew, or shuffle what they are slices of.
        """
        key, count = self._key(epoch, seed), 0
        ahead = None if self.shared else self._ahead
        if ahead and (not self.reiterable or ahead[0] == key):
            (_, source, batch), self._ahead = ahead, None
        else:
            self._drop_ahead()
            source = self._open(epoch, seed)
            batch = self._read(source, epoch, 0)
            if batch is None and not self.reiterable:  # some begin anew when asked to
                self._source = source = iter(source)
                batch = self._read(source, epoch, 0)
        try:
            while batch is not None:
                count += 1
                self._started = True
                yield batch if lent else _copy(batch)
                batch = self._read(source, epoch, count)
            if not count:
                raise self._nothing()
        finally:
            if self.reiterable and hasattr(source, "close"):
                source.close()  # type: ignore[attr-defined]

    def map_batches(self, function: Callable[[tuple], tuple]) -> StreamDataset:
        """The same stream, with a function of each of its batches.

        Args:
            function: Of ``(x, y, sample_weight)``. This stream is not to be used
                otherwise from then on.
        """
        dataset = StreamDataset(
            lambda *when: _Mapped(function, lambda: self.iterate(*when, lent=True)),
            batches=self.batches,
            reiterable=self.reiterable,
            batch_size=self.batch_size,
            shuffles=self.shuffles,
            shared=self.shared,
            release=self.close,
            name=self.name,
            op=self.op,
        )
        dataset.first_epoch, dataset.digest = self.first_epoch, self.digest
        dataset.tokens = self.tokens
        dataset.earlier, self.earlier = self.earlier, 0
        return dataset

    def close(self) -> None:
        """Closes what ``peek`` opened, and what is kept between epochs.

        A generator stays open, and keeps the batch that was looked at.
        """
        if self.reiterable:
            self._drop_ahead()
        if self._release is not None:
            self._release()

    def _key(self, epoch: int, seed: int | None) -> tuple[int, int | None]:
        return epoch + self.earlier, seed if self.shuffles else None

    def _open(self, epoch: int, seed: int | None) -> Iterator:
        if self._source is not None:
            return self._source
        when = self._key(epoch, seed)
        source = iter(self._factory(*(when if self.shuffles else when[:1])))
        if not self.reiterable:
            self._source = source
        return source

    def _drop_ahead(self) -> None:
        if self._ahead and self.reiterable and hasattr(self._ahead[1], "close"):
            self._ahead[1].close()
        self._ahead = None

    def _read(self, source: Iterator, epoch: int, index: int) -> tuple | None:
        try:
            raw = next(source, _END)
        except Exception as error:
            of = f" of epoch {epoch} ({self.name})"
            if self.op != "fit":
                of = f" ({self.name}, {self.op})"
            locate(error, f"while reading batch {index}{of}")
            raise
        if raw is _END:
            return None
        return self._plain(raw) or self._batch(raw, index)

    def check_rows(self, rows: tuple, batches: Iterable[tuple], first: int) -> None:
        """Checks the values of some batches.

        Args:
            rows: ``(x, y, sample_weight)`` of all of them together.
            batches: The same one by one, to tell in which an error is.
            first: Number of the first one.
        """
        if self.check is None:
            return
        try:
            self.check(rows)
        except ExBurnError:
            for index, batch in enumerate(batches, first):
                self.check_batch(batch, index)
            raise

    def check_batch(self, batch: tuple, index: int) -> None:
        """Checks the values of one batch."""
        if self.check is None:
            return
        try:
            self.check(batch)
        except ExBurnError as error:
            locate(error, f"in batch {index} of the {self.name}")
            raise

    def _plain(self, raw: Any) -> tuple | None:
        """The batch, if it is of NumPy arrays and like the first one.

        A loader of small batches gives tens of thousands in a second.
        """
        if type(raw) is not tuple or self._ranks is None or len(raw) > 2:
            return None
        for value in raw:
            if type(value) is not np.ndarray:
                return None
        if [value.ndim for value in raw] != self._ranks:
            return None
        try:
            raw = [v if v.dtype in KEPT else as_array(v, "", self.op) for v in raw]
        except ExBurnError:  # the long way says where
            return None
        rows = raw[0].shape[0]
        if not rows or rows != raw[-1].shape[0]:
            return None
        return (*raw, None) if len(raw) == 2 else (*raw, None, None)

    def _batch(self, raw: Any, index: int) -> tuple:
        what = f"batch {index} of the {self.name}"
        if isinstance(raw, list | tuple) and raw:
            if all(isinstance(value, str | bytes) for value in raw):
                raw = as_values(raw)
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
            tree = prepare(x, y, weight, self.op, what, self.options)
        except ExBurnError as error:
            if any(map(_is_of_one_row, parts)):
                raise ShapeError(
                    self.op,
                    f"{what} is a single row: it holds a number, not an array",
                    {"received": reprlib.repr(raw)},
                    hint=f"Batch the rows: {_BATCHING}.",
                ) from None
            locate(error, f"in {what}")
            raise
        for path, leaf in leaves(tree[:2], ""):
            if is_ragged(leaf):
                raise DataError(
                    self.op,
                    f"{what} has rows of unlike lengths (in {path})",
                    hint="Pass all rows, not batches of them, or fill each batch up: "
                    "exburn.utils.pad_sequences(rows, padding='post').",
                )
        batch = map_leaves(lambda _, leaf: np.asarray(leaf), tree, "")
        form = [(path, leaf.ndim) for path, leaf in leaves(batch, "")]
        if self._form is None:
            self._form = form
            plain = [path for path, _ in form] == [f"[{i}]" for i in range(len(form))]
            self._ranks = [rank for _, rank in form] if plain else None
        elif sorted(form) != sorted(self._form):  # dicts have no order
            raise DataError(
                self.op,
                f"{what} has another structure or rank than the first batch",
                {"first (path, rank)": self._form, "this (path, rank)": form},
                hint="Let the loader yield batches of one structure.",
            )
        return batch

    def _nothing(self) -> DataError:
        if self._started and not self.reiterable:
            return Exhausted(
                self.op,
                f"the {self.name} is exhausted: it gives its batches only once",
                hint=f"Set {self.steps_option} with an endless generator, or pass an "
                "object whose __iter__ starts anew (a PyDataset, a DataLoader).",
            )
        return DataError(
            self.op,
            f"the {self.name} yielded no batches",
            hint="A generator that was used up must be made anew.",
        )


def _is_of_one_row(part: Any) -> bool:
    values = part.values() if isinstance(part, Mapping) else [part]
    return any(isinstance(v, Number) or getattr(v, "shape", 1) == () for v in values)


class _Mapped(Iterator):
    """A function of each item; what begins anew when asked to still does."""

    def __init__(self, function: Callable[[tuple], tuple], begin: Callable[[], Any]):
        self._function, self._begin = function, begin
        self._items: Any = None

    def __iter__(self) -> Iterator:
        self._items = self._begin()
        return self

    def __next__(self) -> tuple:
        return self._function(next(self._items))

    def close(self) -> None:
        self._items.close()


def _copy(batch: tuple) -> tuple:
    return map_leaves(lambda _, leaf: leaf.copy(), batch, "")
