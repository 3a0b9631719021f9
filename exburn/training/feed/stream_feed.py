"""Chunks of batches from an iterable of batches."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

import jax
import numpy as np
from jax import default_backend

from exburn.data import Exhausted, StreamDataset
from exburn.errors import DataError
from exburn.runtime.threads import Prefetch, short_turns
from exburn.training.feed.chunk import Chunk
from exburn.training.feed.chunk_builder import ChunkBuilder, leaves_of
from exburn.training.feed.gather import HostGather
from exburn.training.feed.plan import balance_length, bucket, choose_length
from exburn.training.placement import OneDevice

T = TypeVar("T")
# Bytes of a part of a chunk, which a thread copies and sends. Each takes half a
# millisecond of the interpreter: with parts of 4 MiB an H200 lost 13 %, with larger
# ones nothing. Two at least, so that the first chunk of an epoch is there soon.
_PART = 4 << 20, 16 << 20
_SHORT = (64, 8)  # steps of chunks that a batch of another form cuts short, or one
_EARLY = 32  # batches; sizes that only grow later in an epoch are to begin small


class StreamFeed:
    """Chunks from an iterable of batches, made and sent by threads ahead of the device.

    Args:
        steps: Steps of an epoch; by default until the source ends. The next epoch goes
            on where it stopped.
        anew: Each epoch begins with the source's first batch, and ends with its last,
            unless that is a generator, which cannot: as with arrays, other epochs
            measure the same rows.
        exact_rows: Short batches run at their own size instead of padded.
        seed: Seed of the source's own shuffling, if it has any; ``None`` for none.
    """

    on_trial = is_proven = False  # see ArrayFeed

    def __init__(
        self,
        dataset: StreamDataset,
        most_steps: int,
        *,
        steps: int | None = None,
        anew: bool = False,
        exact_rows: bool = False,
        seed: int | None = None,
        group: int = 1,
        fixed: bool = False,
        placement: OneDevice | None = None,
    ):
        self.dataset, self.exact_rows, self.seed = dataset, exact_rows, seed
        self._placement = placement or OneDevice()
        self._goes_on = steps is not None and not (anew and dataset.reiterable)
        self._once = dataset.op in ("evaluate", "predict")  # no epoch follows
        batches = None if self._goes_on else dataset.batches
        self.steps = steps if batches is None else min(batches, steps or batches)
        most = max(most_steps // group, 1)
        few = anew and not exact_rows  # data of many sizes share programs
        if self.steps is not None:
            groups = max(self.steps // group, 1)
            cut = choose_length if few else balance_length
            most = min(groups, most) if fixed else cut(groups, most)
        self.length, self.group, self._fixed = most * group, group, fixed
        # Whether a chunk may have empty steps: a step then has to choose a state.
        self._padded = few or self.steps is None or self.steps % self.length > 0
        self.batch_size, self.samples = dataset.batch_size, None
        self.resident, self.reason = False, "they come as a stream of batches"
        self._limit = steps
        self._fits = not anew
        self.ended: str | None = None  # how the source ended, and so the run
        self.longest = 0  # steps of a chunk, so far
        self.waiting: Callable[[], None] = lambda: None
        self._gatherer = HostGather()
        self._last_count: tuple[Any, tuple] = None, ()
        # Rows of a step, and their form, that an epoch soon had to grow to: the next
        # one begins with them, and not with programs of other sizes.
        self._grown: tuple[int, Any] = 0, None
        self._iterator: Iterator | None = None
        # Where a source that goes on through the epochs is: opened for which epoch, and
        # how many batches were taken since; now, and when the last epoch began.
        self._position = self._begun = (0, 0)

    @property
    def own_data(self) -> bool:
        """Whether the batches are this process' own, of several that train together."""
        return self._placement.own_data

    @property
    def facts(self) -> dict[str, Any]:
        """What the batches of an epoch depend on, as far as it is known."""
        return {"batch_size": self.batch_size, "steps": self.steps}

    def position(self, *, begin: bool) -> list[int] | None:
        """Where the source is, or was when the epoch began; for ``go_to``."""
        if not self._goes_on:
            return None
        return list(self._begun if begin else self._position)

    def go_to(self, position: list[int] | None) -> None:
        """Takes batches from the source until it is where another one was."""
        if position is None or not self._goes_on:
            return
        opened, taken = position
        self._position = (opened, 0)
        for _ in range(taken):
            self._next(opened)

    def epoch(
        self,
        seed: int,
        epoch: int,
        phase: int = 0,
        start: int = 0,
        *,
        last: bool = True,
    ) -> Generator[Chunk, None, None]:
        """The epoch's chunks, but for the first ``start`` steps.

        Nothing is read for the next epoch before that begins: a callback may change the
        source, or end the run.
        """
        self._begun = self._position
        over = threading.Event()  # the reader looks at it after every batch
        done = 0
        reading = Prefetch(
            lambda: self._fillings(epoch, phase, over), waiting=lambda: self.waiting()
        )
        turns, reusing = short_turns(default_backend() != "cpu"), self._gatherer.reusing
        with turns, reusing(2) as reuse, reading as fillings:
            try:
                for builder, steps in fillings:
                    skipped = min(max(start - done, 0), steps)
                    done += steps
                    if not skipped:
                        chunk = self._chunk(builder, steps)
                        yield chunk
                        reuse(builder.memory, chunk.data)
                        del chunk  # not held while the next one is awaited
                        continue
                    # Another chunk than before: its other batches one by one.
                    for at in range(skipped, steps):
                        yield self._chunk(self._part(builder, at, 1), 1)
            finally:
                over.set()

    def pop_wait(self) -> float:
        """Seconds spent before the first epoch, waiting for its first batch."""
        return self.dataset.pop_wait()

    def close(self) -> None:
        """Ends what was kept for a later epoch: threads, memory, an open loader."""
        self._gatherer.close()
        self._iterator = None
        self.dataset.close()

    def _batches(self, epoch: int) -> Iterator[tuple]:
        if not self._goes_on:
            source = self.dataset.iterate(epoch, self.seed, lent=True)
            with contextlib.closing(source):
                try:
                    yield from itertools.islice(source, self._limit)
                except Exhausted:  # it gave batches before
                    if not self._fits:
                        raise
                    self.ended = f"the {self.dataset.name} is exhausted"
            return
        assert self._limit is not None
        for done in range(self._limit):
            batch = self._next(epoch)
            if batch is not None:
                yield batch
                continue
            name, text = self.dataset.name, f"ended after {done} of {self._limit} steps"
            if self._fits and self._position[1]:  # it gave batches before
                self.ended = f"the {name} {text} of epoch {epoch + 1}"
                return
            if done and self._once:
                self.ended = f"the {name} {text}"
                return
            raise DataError(
                self.dataset.op,
                f"the data {text} of an epoch",
                hint=f"Lower {self.dataset.steps_option}, or let the source repeat.",
            )

    def _next(self, epoch: int) -> tuple | None:
        for _ in range(2):
            if self._iterator is None:
                self._iterator = iter(self.dataset.iterate(epoch, self.seed, lent=True))
                if self.dataset.reiterable:
                    self._position = (epoch, 0)
            try:
                batch = next(self._iterator, None)
            except Exhausted:  # it was asked to begin anew, and does not
                break
            if batch is not None:
                self._position = (self._position[0], self._position[1] + 1)
                return batch
            self._iterator = None
        return None

    def _fillings(
        self, epoch: int, phase: int, over: threading.Event
    ) -> Iterator[tuple[ChunkBuilder, int]]:
        """Each chunk on its way, and how many steps of it are real."""
        builder: ChunkBuilder | None = None
        (size, shape), done = self._grown, 0
        grown = varied = False
        run = before = 0  # batches of one form in a row: now, and the last time
        lead = -phase % self.group  # steps that end the group begun before
        failures: list[Exception] = []
        batches = self._batches(epoch)
        if jax.process_count() == 1:  # others would have to train on as many
            batches = _until_failure(batches, failures)
        if self.dataset.shuffles and self.seed is not None and not self.exact_rows:
            batches, size, shape = _looked_at(batches)
        for batch in batches:
            if over.is_set():
                return
            leaves = leaves_of(batch)
            rows, now = leaves[0].shape[0], _row(leaves)
            if size and (
                now != shape or rows > size or (rows < size and self.exact_rows)
            ):
                # The first shorter batch may be the last one of the epoch.
                varied = varied or now != shape or rows > size
                if builder is not None:
                    few = varied or self.exact_rows
                    yield from (
                        self._cut(builder) if few else self._finish_groups(builder)
                    )
                    lead = lead or -len(builder.counts) % self.group
                # Of sizes that grow, not each is to be another program.
                often = grown and now == shape and not self.exact_rows
                if now == shape and done < _EARLY and not self.exact_rows:
                    self._grown = bucket(rows), now
                builder, size, shape = None, bucket(rows) if often else rows, now
                grown, varied, run, before = True, True, 0, run
            if not size:
                size, shape = rows, now
            run += 1
            steps = 1 if lead else self._length_for(max(run, before), varied)
            builder = builder or self._filling(batch, size, steps, done)
            builder.add(leaves, rows)
            done += 1
            if len(builder.counts) == builder.length:
                yield from self._finish_groups(builder, builder.length)
                builder = None
                if lead:
                    lead -= 1
                elif self.exact_rows:
                    size = 0
        if builder is not None and (varied or (grown and self.exact_rows)):
            yield from self._cut(builder)
        elif builder is not None:
            # No program is there yet of a source that ends within its first chunk.
            few = done == len(builder.counts) and self.steps is None and self.group == 1
            few = few and not self._fixed
            length = min(bucket(done), self.length) if few else None
            yield from self._finish_groups(builder, length)
        if failures:
            raise failures[0]

    def _length_for(self, run: int, varied: bool) -> int:
        """Steps to make room for, where a form has lasted for so many batches.

        Where each batch has another one, none is to wait for the next, in memory for
        many, and then be copied once more.
        """
        if not varied or self.group > 1 or run >= _SHORT[0]:
            return self.length
        return min(_SHORT[1] if run >= _SHORT[1] else 1, self.length)

    def _filling(self, like: tuple, rows: int, steps: int, first: int) -> ChunkBuilder:
        nbytes = steps * sum(v.nbytes for v in leaves_of(like))
        least, most = _PART
        parts = min(-(-nbytes // min(max(nbytes // 2, least), most)), steps)
        look, split = self.dataset.check_rows, default_backend() != "cpu"
        options: dict[str, Any] = {"look": look, "first": first, "split": split}
        options["send"] = self._placement.send
        part = -(-steps // parts)
        rows = rows if self.exact_rows else self._placement.width(rows)
        return ChunkBuilder(self._gatherer, like, rows, steps, part, **options)

    def _finish_groups(
        self, builder: ChunkBuilder, length: int | None = None
    ) -> Iterator[tuple[ChunkBuilder, int]]:
        """Whole groups as one chunk, and what is left one by one."""
        steps, length = len(builder.counts), length or self.length
        whole = steps // self.group * self.group if length > 1 else steps
        # Before the chunk is given away: its memory is used again once it was sent.
        left = [self._part(builder, at, 1) for at in range(whole, steps)]
        if whole:
            builder.finish(whole if self.exact_rows else length)
            yield builder, whole
        for part in left:
            yield part, 1

    def _cut(self, builder: ChunkBuilder) -> Iterator[tuple[ChunkBuilder, int]]:
        """The batches before one of another form, in chunks of a few lengths.

        Where the form often changes, most steps of chunks of the full length would be
        empty, and they take as long as real ones. Where steps cannot be empty, each
        length is another program.
        """
        at, steps = 0, len(builder.counts)
        lengths = _SHORT if self.group == 1 else (self.group,)
        while at < steps:
            length = next((n for n in lengths if n <= steps - at), 1)
            yield self._part(builder, at, length), length
            at += length

    def _part(self, chunk: ChunkBuilder, at: int, steps: int) -> ChunkBuilder:
        part = self._filling(chunk.batch(at), chunk.rows, steps, chunk.first + at)
        for step in range(at, at + steps):
            part.add(chunk.leaves(step), chunk.counts[step])
        part.finish(steps)
        return part

    def _chunk(self, builder: ChunkBuilder, steps: int) -> Chunk:
        counts, length = builder.counts[:steps], builder.length
        self.longest = max(self.longest, length)
        count = None if self.exact_rows else self._count(counts, length, builder.rows)
        grouped, samples = self.group > 1 and length > 1, sum(counts)
        return Chunk(builder.result(), None, count, steps, samples, grouped, counts)

    def _count(self, counts: list[int], length: int, width: int) -> tuple:
        """On the device; most chunks have the one of the chunk before."""
        if self._last_count[0] != (counts, length, width):
            rows = np.zeros(length, np.int32)
            rows[: len(counts)] = counts
            padded = self._padded or length > len(counts)
            counts_of = (rows, rows > 0) if padded else (rows,)
            count = self._placement.send_counts(counts_of, width)
            self._last_count = (counts, length, width), count
        return self._last_count[1]


def _until_failure(batches: Iterator[T], failures: list[Exception]) -> Iterator[T]:
    """The batches that come before an error, which is listed for who reads them.

    They are trained on first, as if each was taken when it is needed.
    """
    try:
        yield from batches
    except Exception as error:
        failures.append(error)


def _row(leaves: list[np.ndarray]) -> list[tuple]:
    """Shapes and dtypes of a batch's rows."""
    return [(leaf.shape[1:], leaf.dtype) for leaf in leaves]


def _looked_at(batches: Iterator[tuple]) -> tuple[Iterator[tuple], int, Any]:
    """The same batches, and the rows of a step, and their form, of the first two.

    Of batches in a shuffled order the short one may come first. A program for steps of
    its size would be needed that often.
    """
    first = list(itertools.islice(batches, 1))
    first = jax.tree.map(np.copy, first)  # it may be filled anew for the second one
    looked = first + list(itertools.islice(batches, 1))
    by_batch = [leaves_of(batch) for batch in looked]
    forms = [_row(leaves) for leaves in by_batch]
    alike = len(by_batch) == 2 and forms[0] == forms[1]
    size = max(leaves[0].shape[0] for leaves in by_batch) if alike else 0
    return itertools.chain(looked, batches), size, forms[0] if alike else None
