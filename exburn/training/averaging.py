"""Averaged parameters in the model, and the statistics that belong to them."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.data import ArrayDataset, StreamDataset
from exburn.errors import ArgumentError
from exburn.layers import BatchNormalization
from exburn.module.traversal import iter_modules
from exburn.training.feed.chunking import FeedRequest, make_feed
from exburn.training.module import Arrays, SplitModule
from exburn.training.prepare import Preparer
from exburn.training.program import Programs
from exburn.training.state_holder import StateHolder

_MOMENTA = ("momentum", "renorm_momentum")


def use_average(holder: StateHolder, show: bool) -> None:
    """Shows the optimizer's average in the module's place, or takes it back.

    The state of a run under way keeps its parameters: what is saved or trained from
    it knows nothing of this.
    """
    if show == (holder.shown is not None):
        return
    live, opt_state = holder.state, holder.current_opt_state()
    if not show:
        own, holder.shown, holder.own_params = holder.own_params, None, None
        holder.split.write(live.params if live is not None else own or {})
        return
    if opt_state is None or not holder.optimizer.keeps_average:
        name = getattr(holder.optimizer, "name", "no optimizer")
        raise ArgumentError(
            "averaged weights",
            f"there is no moving average of the weights: {name} keeps none"
            if opt_state is not None
            else "there is no moving average of the weights before training",
            hint="Train with use_ema=True: Adam(use_ema=True).",
        )
    params, _, others = holder.split.read() if live is None else holder.live_arrays()
    holder.own_params = params if live is None else None
    average = _average(holder, opt_state, params, others)
    holder.shown = average
    holder.split.write(average)


def keep_average(holder: StateHolder) -> None:
    """With ``use_ema`` the averaged parameters are kept, as in Keras."""
    holder.shown, state = None, holder.state
    if state is not None and holder.optimizer.keeps_average:
        final = _average(holder, state.opt_state, state.params, state.others)
        holder.state = state.replace(params=final)


def _average(
    holder: StateHolder, opt_state: Any, params: Arrays, others: Arrays
) -> Arrays:
    """Averaged parameters; of pruned ones from before are not zero by themselves."""
    average = holder.optimizer.final_params(opt_state, params)
    return _copy(holder.split.masking.apply(average, others))


def find_statistics(split: SplitModule) -> list[str]:
    """Names of the moving statistics of BatchNormalization that is not frozen."""
    names: list[str] = []
    for path, module in iter_modules(split.module):
        if isinstance(module, BatchNormalization) and module.trainable:
            names += [n for n in split.others if n.startswith(f"{path}/")]
    return names


def update_statistics(
    preparer: Preparer,
    dataset: ArrayDataset | StreamDataset,
    batch_size: int,
    steps: int | None,
) -> None:
    """Sets the moving statistics to the means over all batches of the data."""
    holder = preparer.holder
    names = find_statistics(holder.split)
    if not names:
        return
    feed = make_feed(
        preparer, dataset, batch_size, FeedRequest(training=False, steps=steps)
    )
    programs = preparer.programs
    program = programs.further(
        "statistics", lambda: _statistics_program(programs, tuple(names))
    )
    arrays, done = holder.split.read(), 0
    totals: Any = {name: jnp.zeros_like(arrays[2][name]) for name in names}
    totals = totals, jnp.zeros((), jnp.float32)
    with (
        contextlib.closing(feed),
        contextlib.closing(feed.epoch(holder.seed, 0)) as chunks,
    ):
        for chunk in chunks:
            totals = program(arrays, totals, *chunk.arguments, np.int32(done))
            done += chunk.steps
    sums, weight = totals
    holder.split.write({name: sums[name] / weight for name in names})


def _statistics_program(programs: Programs, names: tuple[str, ...]) -> Any:
    """A program that adds up the statistics of a chunk's batches, by their rows."""

    def forget(copy: Any) -> None:
        for _, module in iter_modules(copy):
            if isinstance(module, BatchNormalization):
                for momentum in _MOMENTA:  # the statistics of this batch alone
                    setattr(module, momentum, 0.0)

    def run(arrays, totals, data, index, count, start):
        def one(totals, batch, row_mask, rows, key, _):
            _, others, _ = programs.split.forward(
                arrays,
                batch[0],
                training=True,
                key=key,
                row_mask=row_mask,
                prepare=forget,
            )
            sums, before = totals
            new = {name: sums[name] + rows * others[name] for name in names}
            return new, before + rows

        return programs.steps.over_batches(one, totals, data, index, count, start)

    return run


@jax.jit
def _copy(arrays: Arrays) -> Arrays:
    """Arrays of their own: state is donated, and must not hold one buffer twice."""
    return jax.tree.map(jnp.copy, arrays)
