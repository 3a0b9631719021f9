"""Groups of lanes: what runs as one program, an epoch at a time."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from exburn.runtime.signals import defer_signals
from exburn.runtime.transfer import batch_number
from exburn.training.agreement import Agreement
from exburn.training.chunk_loop import Call, ChunkHandler, run_chunks
from exburn.training.feed.chunk import Chunk
from exburn.training.feed.chunking import phase_of
from exburn.training.objective.readings import Readings
from exburn.training.program import Programs
from exburn.training.state import TrainState
from exburn.tuning import lanes
from exburn.tuning.lane_feed import LaneFeed
from exburn.tuning.lanes import Lanes
from exburn.tuning.records import Trial
from exburn.tuning.variants import Variant

Rows = tuple[np.ndarray, np.ndarray]  # that a lane is trained on, and validated on


class Group:
    """Lanes that run as one program.

    Args:
        members: Numbers of the lanes among all of the sweep. The last one may come
            several times, so that all groups have one width: only its first counts.
        state: Their states; ``None`` for those that they begin with.
        own_order: Whether each lane has its rows in the order of its own seed.

    Attributes:
        done: Steps of the epoch under way that its lanes have behind them.
        readings: The logs of these steps; ``None`` before the first one.
    """

    def __init__(
        self,
        variant: Variant,
        members: Sequence[int],
        trials: Sequence[Trial],
        *,
        state: TrainState | None = None,
        rows: Sequence[Rows] | None = None,
        own_order: bool = True,
    ):
        self.variant, self.members, self.trials = variant, list(members), list(trials)
        self.rows = None if rows is None else list(rows)
        with variant.making_states():
            state = variant.states.initial(trials) if state is None else state
            self.state = variant.placement.state(state)
        seeds = [variant.seed(trial) for trial in trials]
        if not own_order:
            seeds = [variant.source_seed] * len(seeds)
        train, held_out = zip(*rows, strict=True) if rows is not None else (None, None)
        self.feed = variant.feed("train", seeds, train)
        self.validation: LaneFeed | None = None
        if variant.data.validation is not None or rows is not None:
            self.validation = variant.feed("test", seeds, held_out)
        self._phase = phase_of(variant.preparer, self.feed.feed.group, 0)
        self._seeds = seeds
        self.agreement = Agreement(variant.holder, None, "sweep")
        self.done = 0
        self.readings: Readings | None = None
        self._weak: Any = None  # which arrays of the state are weakly typed
        # Programs that its first epoch calls, with specs of what these are given.
        self._calls: dict[tuple, tuple[str, LaneFeed, tuple]] | None = {}

    @property
    def width(self) -> int:
        """How many lanes its program has."""
        return len(self.members)

    def begin_epoch(self, frozen: Sequence[bool]) -> None:
        """Gives the states fresh totals."""
        totals = self.totals("train", frozen)
        self.state = self.state.replace(metrics=totals)

    def end_epoch(self) -> None:
        """Notes that the logs of the epoch were taken: the next one begins anew."""
        self.done, self.readings = 0, None

    def train(
        self,
        epoch: int,
        frozen: Sequence[bool],
        *,
        last: bool,
        after_chunk: Callable[[], None] = lambda: None,
    ) -> Readings | None:
        """Trains all lanes to the end of an epoch; returns its logs on the device.

        There are none where a source has ended before. An epoch that was interrupted
        goes on after the steps that are ``done``.

        Args:
            frozen: Which of the lanes stay as they are.
            after_chunk: Called after each chunk; it may end the sweep by an exception.
        """
        if not self.done:
            self.begin_epoch(frozen)
        feed = self.feed.feed
        phase = self._phase
        if feed.group > 1 and feed.steps is not None:
            phase = (self._phase + epoch * feed.steps) % feed.group
        chunks = self.feed.epoch(epoch, phase, self.done, last=last)
        for _ in run_chunks(chunks, _LaneTraining(self, after_chunk)):
            pass
        return self.readings

    def note_call(self, name: str, feed: LaneFeed, *args: Any) -> None:
        if self._calls is None:
            return
        specs = jax.tree.map(_spec_of, args)
        form = tuple(leaf.shape for leaf in jax.tree.leaves(specs))
        self._calls.setdefault((name, form), (name, feed, specs))

    def compile_ahead(self, widths: Iterable[int]) -> None:
        """Begins to compile what parts of its lanes will be trained with.

        To be called after its first epoch, which has shown the calls.
        """
        calls, self._calls = self._calls or {}, None
        seeds = set(self._seeds)
        if self.rows is None and len(seeds) not in (1, len(self._seeds)):
            return  # whether their rows differ depends on who is left
        for width in widths:
            for name, feed, specs in calls.values():
                program = getattr(self.programs(feed), name)
                narrower = _narrower(specs, width, feed.own_rows)
                program.begin_compiling(*narrower, further=True)

    def park(self) -> None:
        """Moves its states into host memory, until it is trained again."""
        if self._weak is not None:
            return
        state = self.state.replace(metrics=None)
        self._weak = jax.tree.map(lambda v: getattr(v, "weak_type", False), state)
        self.state = jax.tree.map(lanes.to_host, state)

    def unpark(self) -> None:
        """Moves its states to where they are trained, if they were parked."""
        if self._weak is None:
            return
        with self.variant.making_states():
            state = jax.tree.map(lanes.on_device, self.state, self._weak)
            self.state = self.variant.placement.state(state)
        self._weak = None

    def set_values(self) -> None:
        """Gives the states the numbers and seeds of the trials."""
        self.state = self.variant.states.with_values(self.state, self.trials)

    def try_chunk(self) -> int:
        """Trains on the first chunk of an epoch, for its time; returns its steps."""
        programs = self.programs(self.feed)
        self.begin_epoch([False] * self.width)
        chunk = next(iter(self.feed.epoch(0, self._phase)))
        program = getattr(programs, chunk.program)
        self.state, _ = program(self.state, *chunk.arguments)
        jax.block_until_ready(self.state)
        return chunk.steps

    def validate(self) -> Readings | None:
        """Evaluates all lanes on the rows held out, if there are any."""
        if self.validation is None:
            return None
        handler = _LaneValidation(self, self.validation)
        for _ in run_chunks(self.validation.epoch(0), handler):
            pass
        return handler.readings

    def totals(self, kind: str, frozen: Sequence[bool]) -> Any:
        return lanes.fresh_totals(self.variant.preparer.totals(kind), frozen)

    def programs(self, feed: LaneFeed) -> Programs:
        """The programs of its lanes for the chunks of a feed."""
        divide = getattr(self.variant.placement, "divide", None)
        return self.variant.programs(Lanes(feed.own_rows, self.width == 1, divide))


class _LaneTraining(ChunkHandler):
    """An epoch of all lanes of a group."""

    def __init__(self, group: Group, after_chunk: Callable[[], None]):
        super().__init__(group.agreement)
        self._group, self._after_chunk = group, after_chunk
        self._programs = group.programs(group.feed)

    def begin(self, chunk: Chunk) -> Call:
        args = self._group.state, *chunk.arguments
        self._group.note_call(chunk.program, self._group.feed, *args)
        return getattr(self._programs, chunk.program), args, {}

    def shield(self) -> contextlib.AbstractContextManager[Any]:
        return defer_signals()  # an interrupted call would lose the state

    def take(self, chunk: Chunk, results: Any) -> Readings:
        self._group.state, self._group.readings = results
        self._group.done += chunk.steps
        return results[1]

    def after(self) -> bool:
        self._after_chunk()
        return False


class _LaneValidation(ChunkHandler):
    """An evaluation of all lanes of a group on the rows held out."""

    def __init__(self, group: Group, feed: LaneFeed):
        super().__init__(group.agreement)
        state = group.state
        self._group, self._feed = group, feed
        self._arrays = state.params, state.frozen, state.others
        self._totals = group.totals("test", [False] * group.width)
        self._program = group.programs(feed).evaluate
        self.readings: Readings | None = None

    def begin(self, chunk: Chunk) -> Call:
        start = batch_number(self.done)
        args = self._arrays, self._totals, *chunk.arguments, start
        self._group.note_call("evaluate", self._feed, *args)
        return self._program, args, {}

    def take(self, chunk: Chunk, results: Any) -> Readings:
        self._totals, self.readings = results
        return results[1]


def read_lanes(readings: Readings, order: Sequence[str]) -> list[dict[str, Any]]:
    """What each lane logs, by name, in some order of the names."""
    numbers = np.asarray(readings.numbers)  # [lanes, names]
    others = {name: np.asarray(v) for name, v in readings.others.items()}
    logs = []
    for lane, row in enumerate(numbers):
        values = dict(zip(readings.names, row.tolist(), strict=True))
        values |= {name: v[lane].item() for name, v in others.items() if v.ndim == 1}
        names = [n for n in order if n in values]
        logs.append({n: values[n] for n in dict.fromkeys([*names, *values])})
    return logs


def _spec_of(value: Any) -> jax.ShapeDtypeStruct:
    weak = bool(getattr(value, "weak_type", False))
    return jax.ShapeDtypeStruct(value.shape, value.dtype, weak_type=weak)


def _narrower(specs: tuple, width: int, own_rows: bool) -> tuple:
    """Specs of a call's arguments with fewer lanes."""
    states = 1 if isinstance(specs[0], TrainState) else 2  # arrays, and totals
    data, index, count, *start = specs[states:]
    if own_rows:
        index, count = (_with_lanes(v, 1, width) for v in (index, count))
    arrays = (_with_lanes(v, 0, width) for v in specs[:states])
    return *arrays, data, index, count, *start


def _with_lanes(specs: Any, axis: int, count: int) -> Any:
    """Specs with so many lanes on an axis."""

    def one(spec: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        shape = (*spec.shape[:axis], count, *spec.shape[axis + 1 :])
        return spec.update(shape=shape)

    return jax.tree.map(one, specs)


def cut(
    count: int, width: int, devices: int = 1, exactly: bool = False
) -> list[list[int]]:
    """Positions of ``count`` lanes in groups of one width, at most the given one.

    The last position is repeated where it does not come out even, among the devices
    either.

    Args:
        devices: Among how many its lanes are divided.
    """
    groups = math.ceil(count / width)
    each = width if exactly else math.ceil(count / groups)
    each = math.ceil(each / devices) * devices
    return [
        [min(first + i, count - 1) for i in range(each)]
        for first in range(0, count, each)
    ]
