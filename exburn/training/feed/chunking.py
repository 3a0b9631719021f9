"""Cuts a data set into chunks for a prepared module's programs."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from exburn.data import ArrayDataset, RaggedDataset, StreamDataset
from exburn.errors import DataError, warn
from exburn.module.building import spec_like
from exburn.runtime.cost_model import Cost
from exburn.runtime.device import chosen_platform
from exburn.runtime.sharding import processes
from exburn.runtime.transfer import device_constant
from exburn.training import memory
from exburn.training.checkpoint.resume import Resume
from exburn.training.feed.base import (
    ArrayFeed,
    Feed,
    RaggedFeed,
    StreamFeed,
    count_steps,
)
from exburn.training.feed.chunk import Chunk
from exburn.training.feed.gather import HostGather
from exburn.training.feed.keeping import may_keep
from exburn.training.feed.kept_arrays import KeptArrays
from exburn.training.feed.merged_batches import merged_batches
from exburn.training.feed.plan import chunk_steps, fit_groups, loader_steps
from exburn.training.feed.poisson_feed import PoissonFeed, capacity_of
from exburn.training.feed.sampled_feed import SampledDataset, SampledFeed
from exburn.training.placement import OneDevice
from exburn.training.prepare import Preparer

_LITTLE = 1 << 20  # bytes of data that are sent as quickly as they are compared


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeedRequest:
    """How a run goes through a data set.

    Attributes:
        training: Whether programs of training take the chunks.
        shuffle: As for ``ArrayFeed``; of a loader that can be shuffled, the batches.
        steps: Steps of an epoch, if not all.
        most: Longest chunk that callbacks allow.
        reused: Whether the data are gone through more than once.
        resume: The run that is taken up, if one is: it keeps its plan.
        resident: Whether arrays stay on the device; chosen if ``None``.
        earlier: Epochs of earlier runs, whose orders are left out.
        first: Number of the run's first epoch.
        use: ``"test"`` or ``"predict"`` for programs of evaluation or prediction.
        store, owners: What the run before has left on the device, and what has to live
            for that: see ``ResidentRows``.
        tries: Whether a chunk may be run before it is known that these are current.
    """

    training: bool
    shuffle: bool | str = False
    steps: int | None = None
    most: int | None = None
    reused: bool = False
    resume: Resume | None = None
    resident: bool | None = None
    earlier: int = 0
    first: int = 0
    use: str | None = None
    store: KeptArrays | None = None
    owners: Sequence[weakref.ref] = ()
    tries: bool = False

    @property
    def plan(self) -> dict[str, int] | None:
        """The plan of the run that is taken up, where callbacks allow it."""
        taken_up = self.resume is not None and self.most is None
        return self.resume.plan if taken_up and self.resume is not None else None

    def fixes_steps(self, prepared: Preparer) -> bool:
        """Whether something has fixed how many steps a chunk has."""
        return bool(self.most or self.plan) or prepared.steps_per_execution != "auto"


def make_feed(
    prepared: Preparer,
    dataset: ArrayDataset | StreamDataset,
    batch_size: int,
    request: FeedRequest,
) -> Feed:
    """Plans the chunks of a run."""
    if isinstance(dataset, SampledDataset):
        holder, steps = prepared.holder, request.steps
        dataset.earlier = request.earlier
        return SampledFeed(dataset, holder, steps=steps, placement=holder.placement)
    if isinstance(dataset, StreamDataset):
        return _make_stream_feed(prepared, dataset, request)
    if isinstance(dataset, RaggedDataset):
        return _make_ragged_feed(prepared, dataset, batch_size, request)
    if request.training and prepared.program_cache.mechanism is not None:
        return _make_poisson_feed(prepared, dataset, batch_size, request)
    return _make_array_feed(prepared, dataset, batch_size, request)


def _make_stream_feed(
    prepared: Preparer, dataset: StreamDataset, request: FeedRequest
) -> StreamFeed:
    exact, placement = prepared.exact_rows(request.training), prepared.holder.placement
    fixed, steps = request.fixes_steps(prepared), request.steps
    seed = prepared.holder.seed if request.shuffle else None  # else it keeps its order
    dataset.earlier = request.earlier
    batch = dataset.peek(seed)
    x = jax.tree.map(spec_like, batch[0])
    size = sum(v.nbytes for v in jax.tree.leaves(batch))
    longest = request.most or _steps(prepared, x, size, False, request)
    batches = steps if steps is not None else dataset.batches
    if not fixed:
        longest = min(longest, loader_steps(batches))
    if placement.own_data:
        steps = agree_steps(batches, request.training, exact, "batches")
        if steps is None:  # whoever is the first to have none ends the epoch
            longest, fixed = 1, True
    longest, group = _group_steps(prepared, longest, request)
    return StreamFeed(
        dataset,
        longest,
        steps=steps,
        anew=not request.training,
        exact_rows=exact,
        seed=seed,
        group=group,
        fixed=fixed,
        placement=placement,
    )


def _make_array_feed(
    prepared: Preparer, dataset: ArrayDataset, batch_size: int, request: FeedRequest
) -> ArrayFeed:
    exact, placement = prepared.exact_rows(request.training), prepared.holder.placement
    resident, steps = request.resident, request.steps
    rows = min(batch_size, dataset.size)
    joined = 1
    if placement.own_data:
        rows, resident = batch_size, False
        batches = dataset.size // rows if exact else -(-dataset.size // rows)
        batches = batches if steps is None else min(batches, steps)
        steps = agree_steps(batches, request.training, exact, "rows")
    elif request.use is not None and request.most is None and steps is None:
        joined = merged_batches(prepared, dataset, rows, request.use)
    rows = rows if placement.own_data else min(joined * batch_size, dataset.size)
    store = None if placement.spans_processes else request.store
    resident, reason = _place(dataset, resident, request.reused, placement, store)
    x = jax.tree.map(
        lambda v: jax.ShapeDtypeStruct((rows, *v.shape[1:]), v.dtype), dataset.tree[0]
    )
    size = max(1, dataset.nbytes // dataset.size * rows)
    longest = request.most or _steps(prepared, x, size, resident, request)
    longest, group = _group_steps(prepared, longest, request)
    done = 0 if request.resume is None else request.resume.batch
    return ArrayFeed(
        dataset,
        joined * batch_size,
        longest,
        shuffle=request.shuffle,
        exact_rows=exact,
        resident=resident,
        few_shapes=not request.training and not resident,
        fixed=request.fixes_steps(prepared),
        steps=steps,
        group=group,
        phase=phase_of(prepared, group, done),
        joined=joined,
        reason=reason,
        earlier=request.earlier,
        first=request.first,
        placement=placement,
        store=store,
        owners=request.owners,
        tries=request.tries and (request.training or not resident),
        keeps_chunks=store is not None
        and not resident
        and not request.training
        and _keeps_chunks(dataset, store, placement),
    )


def _make_poisson_feed(
    prepared: Preparer, dataset: ArrayDataset, batch_size: int, request: FeedRequest
) -> PoissonFeed:
    placement, store = prepared.holder.placement, request.store
    asked = request.resident
    resident, reason = _place(dataset, asked, request.reused, placement, store)
    rows = capacity_of(dataset.size, batch_size)
    x = jax.tree.map(
        lambda v: jax.ShapeDtypeStruct((rows, *v.shape[1:]), v.dtype), dataset.tree[0]
    )
    size = max(1, dataset.nbytes // dataset.size * rows)
    longest = request.most or _steps(prepared, x, size, resident, request)
    longest, _ = _group_steps(prepared, longest, request)
    steps = count_steps(dataset, batch_size, request.steps)
    assert steps is not None
    return PoissonFeed(
        dataset,
        batch_size,
        longest,
        steps=steps,
        resident=resident,
        fixed=request.fixes_steps(prepared),
        reason=reason,
        earlier=request.earlier,
        placement=placement,
        store=store,
        owners=request.owners,
    )


def _keeps_chunks(
    dataset: ArrayDataset, store: KeptArrays, placement: OneDevice
) -> bool:
    """Whether chunks of an evaluation stay on the device for the next one.

    They do from the second one of the same arrays on: most are evaluated once.
    """
    if not store.note_given(dataset.tree):
        store.release()
        return False
    arrays = jax.tree.leaves(dataset.tree)
    return (
        chosen_platform() != "cpu"  # which takes them from the host as they are
        and dataset.nbytes >= _LITTLE
        and all(isinstance(array, np.ndarray) for array in arrays)
        and (bool(store.keys()) or may_keep(dataset.nbytes, placement))
    )


def _make_ragged_feed(
    prepared: Preparer, dataset: RaggedDataset, batch_size: int, request: FeedRequest
) -> RaggedFeed:
    placement = prepared.holder.placement
    if placement.own_data:
        raise DataError(
            "fit" if request.training else "evaluate",
            "rows of unlike lengths cannot be those of one process of several",
            hint="Give each process all rows, or fill them up.",
        )
    steps = request.steps
    if not request.training and steps is not None:  # as many of the first rows
        dataset = dataset.rows(0, min(steps * batch_size, dataset.size))
        steps = None
    resident, reason = _place(dataset, request.resident, request.reused, placement)
    specs = dataset.batch_specs(min(batch_size, dataset.size))
    size = sum(v.size * v.dtype.itemsize for v in jax.tree.leaves(specs))
    longest = request.most or _steps(prepared, specs[0], size, resident, request)
    longest = longest if request.plan is None else request.plan["length"]
    return RaggedFeed(
        dataset,
        batch_size,
        longest,
        shuffle=request.shuffle,
        steps=steps,
        earlier=request.earlier,
        first=request.first,
        in_order=not request.training,
        reason=reason,
        placement=placement,
        exact_rows=prepared.exact_rows(request.training),
        resident=resident,
        few_shapes=not request.training and not resident,
    )


def _place(
    dataset: ArrayDataset,
    asked: bool | None,
    reused: bool,
    placement: OneDevice,
    store: KeptArrays | None = None,
) -> tuple[bool, str]:
    """Whether the arrays are to stay on the device, and why."""
    if placement.own_data:
        return False, "each process has rows of its own"
    if asked is not None:
        return asked, f"resident={asked} was given"
    if not reused:
        return False, "they are gone through once"
    if dataset.on_device:
        return True, "they are there already"
    fits = store is not None and store.are_of(dataset.tree)  # they do already
    fits = fits or memory.fits_device(dataset.nbytes, placement.local_devices)
    if (
        placement.spans_processes
    ):  # all do the same, though the memory of one may be fuller
        fits = not processes.agree_any(not fits)
    verb = "fit" if fits else "do not fit"
    size = f"{dataset.nbytes / 2**20:,.1f} MiB"
    return fits, f"{size} {verb} into a quarter of its free memory"


def _steps(
    prepared: Preparer, x: Any, batch_bytes: int, resident: bool, request: FeedRequest
) -> int:
    """Steps of a chunk, by what a step costs."""
    asked = prepared.steps_per_execution
    if asked != "auto":
        return int(asked)
    if prepared.eager:
        return 1
    kind = "train" if request.training else request.use or "test"
    cost = _step_cost(prepared, kind, x)
    platform = jax.default_backend()
    fetched = request.use == "predict"
    size = batch_bytes // prepared.holder.placement.parts
    return chunk_steps(cost, platform, size, resident, request.training, fetched)


def _step_cost(prepared: Preparer, kind: str, x: Any) -> Cost:
    """What chunks of steps are planned by: the cost of a forward pass.

    Of the model's own step that trains it is a third of the step's.
    """
    if (cost := prepared.own_cost(kind)) is None:
        return prepared.cost(x)
    share = 3 if kind == "train" else 1
    equations = cost.equations // share
    cost = cost.times(1 / share / prepared.holder.placement.parts)
    return dataclasses.replace(cost, equations=equations)


def _group_steps(
    prepared: Preparer, steps: int, request: FeedRequest
) -> tuple[int, int]:
    """Steps of a chunk, and of them those that make one update.

    A resumed run keeps its plan, and so its last bits.
    """
    plan = request.plan
    if plan is not None and plan["group"] in (1, prepared.holder.optimizer.accumulate):
        return plan["length"], plan["group"]
    groups = request.training and request.most is None
    group = prepared.holder.optimizer.accumulate if groups else 1
    state = prepared.holder.opt_state
    missing = state is not None and "accumulated" not in state
    if group == 1 or missing or prepared.owns("train"):
        return steps, 1
    whole = fit_groups(steps, group)
    return (whole, group) if whole else (steps, 1)


def phase_of(prepared: Preparer, group: int, done: int) -> int:
    """Steps of a group of accumulated gradients that waited for its others when
    the epoch began, of which ``done`` steps are done."""
    state = prepared.holder.current_opt_state() if group > 1 else None
    sums = None if state is None else state.get("accumulated")
    return 0 if sums is None else (int(sums["batches"]) - done) % group


def agree_steps(
    own_steps: int | None, training: bool, exact: bool, what: str
) -> int | None:
    """Steps of an epoch of data that each process has for itself.

    Those of training are the fewest of a process, and the others go on where they
    stopped. An evaluation goes through all rows: where a process has none left, its
    part of a step is empty.

    Args:
        own_steps: Steps of this process; ``None`` if that is not known.
        exact: Whether a step may have no empty rows.
    """
    counts = processes.gather(own_steps, "own data")
    if None in counts:
        return None
    fewest, most = min(counts), max(counts)
    if not fewest:
        raise DataError(
            "fit" if training else "evaluate",
            f"process {counts.index(0)} has no whole batch of {what}",
            {"steps of each process": counts},
        )
    steps = fewest if training or exact else most
    if most > steps and processes.is_main():
        warn(
            f"an epoch has {steps} steps, for which process {counts.index(fewest)} has "
            f"{what}; others have up to {most}, and "
            + ("go on with them in the next one." if training else "leave them out.")
        )
    return steps


def single_chunk(
    batch: tuple, rows: int, *, exact: bool, placement: OneDevice | None = None
) -> Chunk:
    """A batch as a chunk of one step, filled up to some number of rows.

    Args:
        rows: As many as it has, or more.
    """
    size = jax.tree.leaves(batch)[0].shape[0]
    if rows != size:
        with HostGather(threads=1) as gatherer:
            batch = gatherer.take(batch, np.minimum(np.arange(rows), size - 1))
    # The program's call sends them: that costs less than ``jax.device_put``.
    data = jax.tree.map(lambda v: v.reshape(1, *v.shape), batch)
    count: Any = None if exact else (device_constant((size,)),)
    if placement is not None and placement.own_data:
        count = placement.send_counts(count, rows)
    return Chunk(data, None, count, 1, size)
