"""Groups of lanes: what runs as one program, an epoch at a time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.runtime.signals import defer_signals
from exburn.runtime.transfer import batch_number
from exburn.training.feed.chunking import phase_of
from exburn.training.inference import IN_FLIGHT
from exburn.training.objective.readings import Readings
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
        variant: The model that their programs are made of.
        members: Numbers of the lanes among all of the sweep. The last one may come
            several times, so that all groups have one width: only its first counts.
        trials: What each of them varies.
        state: Their states; ``None`` for those that they begin with.
        rows: The rows of each lane, if they differ.
        own_order: Whether each lane has its rows in the order of its own seed.
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
        self._own_order = own_order
        self.state = variant.initial_state(trials) if state is None else state
        data, preparer, holder = variant.data, variant.preparer, variant.holder
        seeds = [variant.seed(trial) for trial in trials]
        if not own_order:
            seeds = [variant.source_seed] * len(seeds)
        self.feed = LaneFeed(
            preparer,
            data.dataset,
            data.batch_size,
            seeds=seeds,
            rows=None if rows is None else [train for train, _ in rows],
            training=True,
            shuffle=data.shuffle,
            steps=data.steps,
            earlier=holder.epochs_before(0),
        )
        self.validation: LaneFeed | None = None
        if data.validation is not None or rows is not None:
            self.validation = LaneFeed(
                preparer,
                data.dataset if rows is not None else data.validation,
                data.validation_batch_size or data.batch_size,
                seeds=seeds,
                rows=None if rows is None else [held_out for _, held_out in rows],
                training=False,
                steps=data.validation_steps,
            )
        group = self.feed.feed.group
        self._phase = phase_of(preparer, group, 0)
        self._fresh: Any = None
        self._fresh_for: Any = None

    @property
    def width(self) -> int:
        """How many lanes its program has."""
        return len(self.members)

    def train(self, epoch: int, frozen: Sequence[bool], *, last: bool) -> Readings:
        """Trains all lanes for an epoch; returns what there is of logs.

        Args:
            epoch: Its number.
            frozen: Which of the lanes stay as they are.
            last: Whether none follows.
        """
        programs = self.variant.programs(self._lanes(self.feed))
        totals = self._totals("train", frozen)
        self.state = self.state.replace(metrics=totals)
        feed = self.feed.feed
        phase = self._phase
        if feed.group > 1 and feed.steps is not None:
            phase = (self._phase + epoch * feed.steps) % feed.group
        running: deque[Readings] = deque()
        readings: Any = None
        for chunk in self.feed.epoch(epoch, phase, last=last):
            program = getattr(programs, chunk.program)
            with defer_signals():  # an interrupted call would lose the state
                self.state, readings = program(self.state, *chunk.arguments)
            running.append(readings)
            if len(running) > IN_FLIGHT:
                jax.block_until_ready(running.popleft())
        return readings

    def validate(self) -> Readings | None:
        """Evaluates all lanes on the rows held out, if there are any."""
        if self.validation is None:
            return None
        programs = self.variant.programs(self._lanes(self.validation))
        state, done, readings = self.state, 0, None
        arrays = state.params, state.frozen, state.others
        totals: Any = self._totals("test", [False] * self.width)
        for chunk in self.validation.epoch(0):
            start = batch_number(done)
            totals, readings = programs.evaluate(
                arrays, totals, *chunk.arguments, start
            )
            done += chunk.steps
        return readings

    def _totals(self, kind: str, frozen: Sequence[bool]) -> Any:
        return lanes.fresh_totals(self.variant.preparer.totals(kind), frozen)

    def _lanes(self, feed: LaneFeed) -> Lanes:
        return Lanes(own_rows=feed.own_rows, in_turn=self.width == 1)

    def close(self) -> None:
        """Drops what lies on the device for its feeds."""
        self.feed.close()
        if self.validation is not None:
            self.validation.close()


def read_lanes(readings: Readings, order: Sequence[str]) -> list[dict[str, Any]]:
    """What each lane logs, by name, in some order of the names."""
    numbers = np.asarray(readings.numbers)  # [lanes, names]
    others = {name: np.asarray(v) for name, v in readings.others.items()}
    found = []
    for lane, row in enumerate(numbers):
        values = dict(zip(readings.names, row.tolist(), strict=True))
        values |= {name: v[lane].item() for name, v in others.items() if v.ndim == 1}
        names = [n for n in order if n in values]
        found.append({n: values[n] for n in dict.fromkeys([*names, *values])})
    return found


def cut(count: int, width: int) -> list[list[int]]:
    """Positions of ``count`` lanes in groups of one width, at most the given one.

    The last position is repeated where it does not come out even.

    Example:
        >>> cut(5, 4), cut(4, 4)
        ([[0, 1, 2], [3, 4, 4]], [[0, 1, 2, 3]])
    """
    groups = math.ceil(count / width)
    each = math.ceil(count / groups)
    return [
        [min(first + i, count - 1) for i in range(each)]
        for first in range(0, count, each)
    ]


def join_states(parts: Sequence[tuple[TrainState, Sequence[int]]]) -> TrainState:
    """The lanes at some positions of several states, one state after another."""
    taken = [lanes.gather(state.replace(metrics=None), at) for state, at in parts]
    if len(taken) == 1:
        return taken[0]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *taken)
