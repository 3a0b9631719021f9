"""How many lanes run at once: what memory allows, and on CPUs what is quickest."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import TypeVar

import jax

from exburn.core.printing import size_text
from exburn.errors import OutOfMemoryError
from exburn.module.building import spec_like
from exburn.runtime.transfer import release_spare
from exburn.training.memory import Footprint, free_bytes, state_specs
from exburn.tuning.groups import Group, Rows
from exburn.tuning.records import Trial
from exburn.tuning.room import too_large
from exburn.tuning.variants import Variant

T = TypeVar("T")

_SHARE = 0.9  # of the free memory that lanes may take
_SURE = 0.25  # of it that a rough estimate may come to, without a closer look
_STEP = 4  # times as many lanes are tried next
_FIRST = 8  # lanes that are tried first
_BETTER = 0.95  # of the time of fewer lanes is worth a program of its own
_GAIN = 0.5  # of the time: what a wider program may spare, at most


@dataclasses.dataclass
class LaneMemory:
    """What lanes need of a device, in bytes.

    Attributes:
        state: Weights, optimizer state and totals of a lane.
        lane: All that a lane takes while it trains, its state among it.
        measured: Whether ``lane`` is XLA's figure, and no estimate.
    """

    state: int
    lane: int
    data: int
    available: int
    measured: bool

    @property
    def most(self) -> int:
        """How many lanes fit at once."""
        left = int(self.available * _SHARE) - self.data
        return max(0, left // max(1, self.lane))


def look_at_memory(variant: Variant, lanes: int, exactly: bool = False) -> LaneMemory:
    """What the lanes of a variant need; compiles a step only if that is close."""
    preparer, data = variant.preparer, variant.data
    state = state_specs(preparer, "train")
    of_state = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    nbytes = getattr(data.dataset, "nbytes", 0)
    nbytes += getattr(data.validation, "nbytes", 0)
    devices = variant.placement.devices
    release_spare()
    free = free_bytes(variant.placement.local_devices)
    cost = preparer.passes.first_cost(data.batch_size)
    activations = 0 if cost is None else int(4 * cost.elements)
    rough = 2 * of_state + 3 * activations  # with gradients, and what is passed back
    each = math.ceil(lanes / devices)
    if of_state + nbytes > free:  # no program makes that fit
        return LaneMemory(of_state, rough, nbytes, free, False)
    if not exactly and rough * each + nbytes < _SURE * free:
        return LaneMemory(of_state, rough, nbytes, free, False)
    batch = jax.tree.map(spec_like, preparer.batch_specs["train"])
    exact = preparer.exact_rows(True)
    footprint = Footprint.of(preparer.programs, "train", state, batch, exact)
    return LaneMemory(of_state, footprint.peak_bytes, nbytes, free, True)


def check_memory(memory: LaneMemory, lanes: int, values: Trial | None = None) -> None:
    """Raises if so many lanes do not fit."""
    if lanes <= memory.most:
        return
    if not memory.most:
        raise too_large(values or {}, memory.lane + memory.data, memory.available)
    raise OutOfMemoryError(
        "sweep",
        f"{lanes:,} lanes at once do not fit into the device's memory",
        {
            "a lane": size_text(memory.lane),
            "data": size_text(memory.data),
            "available": size_text(memory.available),
            "lanes that fit": memory.most,
        },
        hint="Leave lanes= out, or lower it: others wait for their turn.",
    )


class WidthChoice:
    """Says how many lanes of a variant run at once.

    On a GPU all that fit. On a CPU a wider program may be slower than the lanes one
    after the other, and takes seconds to compile: an epoch's chunk is timed with one
    lane, and with more of them as long as that pays, counting what there is to do. The
    widths tried are the same for any number of lanes, so that those which are left
    after a rung run in programs that are there; the last group is filled up.
    """

    def __init__(self, asked: int | None, own_order: bool):
        self._asked, self._own_order = asked, own_order
        self._memory: dict[Variant, LaneMemory] = {}
        self._times: dict[Variant, dict[int, _Time]] = {}
        self.notes: dict[str, None] = {}

    def __call__(
        self,
        variant: Variant,
        trials: Sequence[Trial],
        rows: Sequence[Rows] | None,
        epochs: int,
    ) -> int:
        """How many of some lanes run at once."""
        count, devices = len(trials), variant.placement.devices
        if variant not in self._memory:
            width = min(self._asked or 1, count)
            memory = self._memory_of(variant, count)
            check_memory(memory, math.ceil(width / devices), variant.largest)
        most = min(count, self._memory[variant].most * devices)
        if variant.data.is_read_once:  # there is nothing to time them on
            return most if self._asked is None else min(self._asked, most)
        if 1 in (count, self._asked) or self._in_turn(variant):
            return 1
        if self._asked is not None:
            return min(self._asked, most)
        if not _is_slow_to_widen(variant):
            return most
        return self._quickest(variant, trials, rows, epochs)

    def _memory_of(self, variant: Variant, count: int) -> LaneMemory:
        if variant not in self._memory:
            self._memory[variant] = look_at_memory(variant, count)
        return self._memory[variant]

    def must_park(self, groups: Sequence[tuple[Variant, int]]) -> bool:
        """Whether the device cannot hold the states of all groups beside one's run.

        A CPU's memory is the host's, so that there is nothing to be gained.
        """
        if len(groups) < 2 or jax.default_backend() == "cpu":
            return False
        return not self._all_fit(groups)

    def _all_fit(self, groups: Sequence[tuple[Variant, int]]) -> bool:
        states, working, left = 0, 0, math.inf
        for variant, count in groups:
            memory = self._memory_of(variant, count)
            each = math.ceil(count / variant.placement.devices)
            states += each * memory.state
            working = max(working, each * (memory.lane - memory.state))
            left = min(left, memory.available * _SHARE - memory.data)
        return states + working <= left

    def _in_turn(self, variant: Variant) -> bool:
        """Whether its lanes can only run one after the other."""
        if why := variant.why_in_turn():
            self.notes[f"lanes run in turn: {why}"] = None
        return bool(why)

    def fills_up(self, variant: Variant) -> bool:
        """Whether groups have the chosen width whatever the number of lanes."""
        return self._asked is None and _is_slow_to_widen(variant)

    def _quickest(
        self,
        variant: Variant,
        trials: Sequence[Trial],
        rows: Sequence[Rows] | None,
        epochs: int,
    ) -> int:
        times = self._times.setdefault(variant, {})
        count, most = len(trials), self._memory[variant].most

        def measure(width: int) -> None:
            if width not in times:
                part = None if rows is None else fill(rows, width)
                times[width] = self._time(variant, fill(trials, width), part)

        def cost(width: int) -> float:
            return math.ceil(count / width) * times[width].seconds * epochs

        best, width = 1, _FIRST
        measure(1)
        while width <= most and width < _STEP * count:
            if width not in times and cost(best) * _GAIN < times[1].compiling:
                break
            measure(width)
            if cost(width) > _BETTER * cost(best):
                break
            best, width = width, width * _STEP
        return min((w for w in times if w <= most), key=cost)

    def _time(
        self, variant: Variant, trials: Sequence[Trial], rows: Sequence[Rows] | None
    ) -> _Time:
        """What an epoch of some lanes takes, and to compile it; by its first chunk."""
        own = self._own_order
        group = Group(variant, range(len(trials)), trials, rows=rows, own_order=own)
        start = time.perf_counter()
        steps = group.try_chunk()
        compiling, seconds = time.perf_counter() - start, math.inf
        for _ in range(2):
            start = time.perf_counter()
            steps = group.try_chunk()
            seconds = min(seconds, time.perf_counter() - start)
        whole = variant.data.known_steps or steps
        return _Time(seconds * whole / max(steps, 1), compiling)


@dataclasses.dataclass
class _Time:
    """Seconds of an epoch, and of compiling its program."""

    seconds: float
    compiling: float


def _is_slow_to_widen(variant: Variant) -> bool:
    return jax.default_backend() == "cpu" and variant.placement.devices == 1


def fill(values: Sequence[T], count: int) -> list[T]:
    """The first of some values; the last of them once more where they are too few.

    Example:
        >>> fill([1, 2, 3], 2), fill([1, 2], 4)
        ([1, 2], [1, 2, 2, 2])
    """
    return [*values[:count], *[values[-1]] * (count - len(values))]
