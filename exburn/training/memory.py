"""How much memory there is, and how much a program takes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from exburn.distribution.step_time import Collective, read_collectives
from exburn.module.building import spec_like
from exburn.runtime.cost_model import count
from exburn.runtime.device import waking
from exburn.runtime.host_memory import free_host_bytes
from exburn.runtime.sharding.arrays import held_bytes
from exburn.training.feed.kept_arrays import kept_bytes
from exburn.training.program import Programs
from exburn.training.state import TrainState

_LITTLE = 64 << 20  # bytes: no quarter of a GPU's memory is less
_LARGEST = 1 << 24  # rows of a batch: beyond this nothing is looked for
_COMPILES = 5  # of the search for the largest batch
# Tuning runs kernels on the device, which may not have the memory that is asked after.
_UNTUNED: Any = {"xla_gpu_autotune_level": 0}


def free_bytes(devices: Sequence[Any] = ()) -> int:
    """Free memory of the device; of several, what each of them has at least.

    The process', of which several have a part each, where a backend does not say (CPU).
    What is only kept for later runs counts as free: see ``release_spare``.
    """
    devices = devices or jax.local_devices()[:1]
    stats = [device.memory_stats() or {} for device in devices]
    if all("bytes_limit" in each for each in stats):
        free = [s["bytes_limit"] - s.get("bytes_in_use", 0) for s in stats]
        return min(free) + kept_bytes()
    return (free_host_bytes() + kept_bytes()) // len(devices)


def fits_device(nbytes: int, devices: Sequence[Any] = ()) -> bool:
    """Whether data of this size may stay on the device for a whole run, or on each.

    A quarter of the free memory at most: gathering, activations and the optimizer need
    the rest. A GPU that is being started says how much it has when that is over.
    """
    return (waking() and nbytes <= _LITTLE) or nbytes <= free_bytes(devices) // 4


@dataclasses.dataclass(frozen=True)
class Footprint:
    """What one step of a program takes, by XLA's own analysis of the compiled program.

    On a mesh all bytes are those of one device.

    Attributes:
        batch_size: Rows of the step.
        flops: Of matrix products and convolutions of all devices, backward pass
            included.
        state_bytes: Weights, optimizer state and totals.
        batch_bytes: The batch.
        output_bytes: Results that take memory of their own.
        temporary_bytes: Activations, gradients and other intermediate results.
        peak_bytes: All of these at once.
        collectives: What devices send each other.
        float8_flops: Of ``flops`` those of products in 8 bits.
    """

    batch_size: int
    flops: float
    state_bytes: int
    batch_bytes: int
    output_bytes: int
    temporary_bytes: int
    peak_bytes: int
    collectives: tuple[Collective, ...] = ()
    float8_flops: float = 0.0

    @classmethod
    def of(
        cls,
        programs: Programs,
        kind: str,
        state: Any,
        batch: tuple,
        exact_rows: bool = False,
    ) -> Footprint:
        """Compiles one step, and runs nothing.

        Args:
            exact_rows: Whether a batch that devices cannot divide evenly runs whole on
                each of them, in place of being filled up.
        """
        placement = programs.steps.placement
        rows = jax.tree.leaves(batch)[0].shape[0]
        width = rows if exact_rows else placement.width(rows)
        chunk = placement.row_specs(
            jax.tree.map(
                lambda s: jax.ShapeDtypeStruct((1, width, *s.shape[1:]), s.dtype), batch
            )
        )
        state = placement.state_specs(state)
        with placement.scope():
            traced = programs.trace(kind, state, chunk, filled=width > rows)
            gpu = jax.default_backend() == "gpu"
            compiled = traced.lower().compile(_UNTUNED if gpu else None)
        spread = placement.distribution is not None
        analysis = compiled.memory_analysis()
        cost = count(traced.jaxpr)
        own_output = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
        temporary = analysis.temp_size_in_bytes
        return cls(
            batch_size=rows,
            flops=cost.flops,
            float8_flops=cost.float8,
            state_bytes=held_bytes(state),
            batch_bytes=held_bytes(chunk),
            output_bytes=own_output,
            temporary_bytes=temporary,
            peak_bytes=analysis.argument_size_in_bytes + own_output + temporary,
            collectives=tuple(read_collectives(compiled.as_text())) if spread else (),
        )


def largest_batch(
    measure: Callable[[int], Footprint],
    first: Footprint,
    limit: int,
    most: int | None = None,
) -> int:
    """The largest number of rows whose peak stays within a limit; 0 if one does not.

    Memory grows nearly linearly with the rows: a line through two measured sizes says
    where it meets the limit, and what it says is measured in turn.

    Args:
        limit: Bytes.
        most: Rows that there can be at most.
    """
    peaks = {first.batch_size: first.peak_bytes}
    rows, failing = first.batch_size * 2, (most or _LARGEST) + 1
    rows = min(rows, failing - 1)
    for _ in range(_COMPILES):
        try:
            peaks[rows] = measure(rows).peak_bytes
        except jax.errors.JaxRuntimeError:  # a size that XLA has no program for
            failing = min(failing, rows)
        fitting = max((b for b, peak in peaks.items() if peak <= limit), default=0)
        above = [b for b, peak in peaks.items() if peak > limit]
        too_large = min([*above, failing])
        rows = fitting * 4
        if len(peaks) > 1:
            a, b = sorted(peaks, key=lambda b: abs(peaks[b] - limit))[:2]
            slope = (peaks[b] - peaks[a]) / (b - a)
            if slope > 0:
                rows = a + math.floor((limit - peaks[a]) / slope)
        if too_large - fitting <= 1 or 0 < rows <= fitting * 1.01:
            break
        if rows >= too_large:
            rows = (fitting + too_large) // 2
        rows = min(max(rows, fitting + 1), too_large - 1)
    return max((b for b, peak in peaks.items() if peak <= limit), default=0)


def state_specs(preparer: Any, kind: str) -> Any:
    """Specs of what a program of a prepared model works on; allocates nothing."""
    arrays = jax.tree.map(spec_like, preparer.holder.arrays)
    if kind != "train":
        return arrays
    state = preparer.holder.state
    opt_state = preparer.holder.opt_state if state is None else state.opt_state
    if opt_state is None:
        opt_state = jax.eval_shape(preparer.holder.optimizer.init, arrays[0])
    totals = preparer.totals("train")
    specs: Any = jax.tree.map(spec_like, {"opt_state": opt_state, "metrics": totals})
    specs |= dict(zip(("params", "frozen", "others"), arrays, strict=True))
    specs["step"] = jax.ShapeDtypeStruct((), np.int32)
    specs["seed"] = jax.ShapeDtypeStruct((2,), np.uint32)
    return TrainState(**specs)
