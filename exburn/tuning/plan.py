"""What a sweep comes to, before it begins: lanes, programs, memory, work."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax

from exburn.core.printing import size_text
from exburn.errors.boundary import api_boundary, guard_methods
from exburn.models import Model
from exburn.models.preparing import on_device
from exburn.models.report import Figures
from exburn.module.building import keeping_specs
from exburn.runtime.device import device_name
from exburn.tuning.run import rungs_of
from exburn.tuning.schedulers import lane_epochs
from exburn.tuning.set_up import SweepRequest, notes_of, set_up
from exburn.tuning.width_choice import check_memory, look_at_memory


@guard_methods
@dataclasses.dataclass(frozen=True, repr=False)
class SweepPlan(Figures):
    """What a sweep comes to; a mapping of these names, too.

    Bytes are those of the largest of its programs, on one device.

    Attributes:
        lanes: Variants, in each of the folds if there are any.
        programs: Structures, whose lanes run one after the other.
        state_bytes: Weights, optimizer state and totals of a lane.
        lane_bytes: All that a lane takes while it trains.
        data_bytes: The data, which lie there once.
        available_bytes: Memory for all of that.
        lanes_that_fit: Lanes that memory has room for at once.
        groups: Groups that the lanes of one program are trained in, at least.
        lane_epochs: Epochs that all lanes train together.
        rungs: ``(epochs, lanes)``: how many lanes train until which epoch.
        notes: What runs in turn, and why.
        device: The device.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((8,)), exburn.layers.Dense(2)])
        >>> model.compile("adam", "cross_entropy")
        >>> x, y = np.eye(8, dtype="float32"), np.arange(8) % 2
        >>> plan(model, x, y, over={"seed": range(3)}).lanes
        3
    """

    lanes: int
    programs: int
    state_bytes: int
    lane_bytes: int
    data_bytes: int
    available_bytes: int
    lanes_that_fit: int
    groups: int
    lane_epochs: int
    rungs: tuple[tuple[int, int], ...]
    notes: tuple[str, ...]
    device: str

    @property
    def fits(self) -> bool:
        """Whether all lanes of a program fit at once."""
        return self.groups <= self.programs

    def _lines(self) -> tuple[str, dict[str, str]]:
        steps = " → ".join(f"{lanes} to {epochs}" for epochs, lanes in self.rungs)
        lines = {
            "Lanes, to epoch": steps,
            "Work": f"{self.lane_epochs:,} epochs of a lane",
            "Programs": f"{self.programs:,}",
            "Weights, optimizer of a lane": size_text(self.state_bytes),
            "A lane in training": size_text(self.lane_bytes),
            "Data": size_text(self.data_bytes),
            "Available": f"{size_text(self.available_bytes)} on {self.device}",
            "Lanes that fit": f"{self.lanes_that_fit:,}",
            "Groups": f"{self.groups:,}",
        }
        lines |= {f"Note {i}": note for i, note in enumerate(self.notes, 1)}
        return f"A sweep of {self.lanes:,} lanes", lines


@api_boundary
def plan(model: Model, x: Any = None, y: Any = None, **options: Any) -> SweepPlan:
    """What ``sweep`` with the same arguments comes to; nothing is trained.

    One step of each structure is compiled, for its memory; no weights are drawn.

    Args:
        model, x, y: As of ``sweep``.
        **options: As of ``sweep``.

    Raises:
        ExBurnError: What ``sweep`` would raise before it compiles anything, an
            OutOfMemoryError among them if a lane does not fit.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((8,)), exburn.layers.Dense(2)])
        >>> model.compile("adam", "cross_entropy")
        >>> x, y = np.eye(8, dtype="float32"), np.arange(8) % 2
        >>> options = {"epochs": 4, "halving": exburn.Halving(eta=2)}
        >>> found = plan(model, x, y, over={"seed": range(8)}, **options)
        >>> found.lanes, found.lane_epochs, found.rungs
        (8, 16, ((1, 8), (2, 4), (4, 2)))
        >>> found.fits
        True
    """
    request = SweepRequest(x=x, y=y, **options)
    ready = set_up(model, request)
    with on_device(model):
        with keeping_specs():  # shapes are enough
            lanes = ready.make_lanes(next(ready.rounds()))
        counts: dict[Any, int] = {}
        for lane in lanes:
            counts[lane.variant] = counts.get(lane.variant, 0) + 1
        with keeping_specs():
            memories = {
                v: look_at_memory(v, n, exactly=True) for v, n in counts.items()
            }
    for variant, memory in memories.items():
        check_memory(memory, 1, variant.largest)
    rungs = rungs_of(ready, len(lanes))
    groups = 0
    for variant, count in counts.items():
        at_once = max(1, memories[variant].most * variant.placement.devices)
        if request.lanes is not None:
            at_once = min(at_once, request.lanes)
        groups += math.ceil(count / at_once)
    largest = max(memories.values(), key=lambda memory: memory.lane)
    first = next(iter(counts))
    return SweepPlan(
        lanes=len(lanes),
        programs=len(counts),
        state_bytes=largest.state,
        lane_bytes=largest.lane,
        data_bytes=largest.data,
        available_bytes=largest.available,
        lanes_that_fit=largest.most * first.placement.devices,
        groups=groups,
        lane_epochs=lane_epochs(rungs),
        rungs=tuple((rung.epochs, rung.lanes) for rung in rungs),
        notes=tuple(notes_of([lane.variant for lane in lanes])),
        device=f"{len(jax.local_devices())} × {device_name()}"
        if first.placement.devices > 1
        else device_name(),
    )
