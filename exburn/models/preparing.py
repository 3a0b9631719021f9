"""Builds and checks a model for data, and surrounds a run on them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from jax import default_device

from exburn.callbacks import ProgressBar
from exburn.callbacks.contract import CallbackList
from exburn.data import RaggedDataset, StreamDataset, has_packed
from exburn.data.trees import NAMES
from exburn.errors import ArgumentError, DataError, LayoutError
from exburn.models.arguments import (
    BATCH,
    check_form,
    check_rows,
    first_batch,
    part_names,
    positive,
)
from exburn.models.network import Network
from exburn.models.out_of_memory import memory_errors
from exburn.models.quantizing import require_trainable
from exburn.models.session import require_trainer
from exburn.module.traversal import iter_weights
from exburn.module.variable import alive
from exburn.runtime.failures import misses_arrays
from exburn.runtime.placement import refuse_apart
from exburn.runtime.sharding.current import in_force
from exburn.training.agreement import telling_failures
from exburn.training.check import ValueCheck
from exburn.training.feed.base import count_steps
from exburn.training.overrides import overrides
from exburn.training.packed_rows import check_packed_model
from exburn.training.padding_probe import check_model_rows

# Bytes of arrays whose values are looked at beforehand, though they are used but once.
_LOOKED_AT = 16 << 20


def prepare(
    model: Any,
    op: str,
    dataset: Any,
    like: tuple | None = None,
    train: bool = False,
    shuffle: Any = False,
    batch_size: int = BATCH,
) -> Any:
    """Builds and checks the model for the data, before anything is compiled."""
    run = model._training_session
    kind = "predict" if op == "predict" else "train" if train else "test"
    if kind != "predict":
        require_trainer(model, op)
    preparer, holder = run.preparer, run.holder
    holder.check_free(op)
    holder.follow_distribution(run.distribution_in_force)
    check_batch_size(model, op)
    if preparer.eager and holder.placement.spans_processes:
        raise ArgumentError(
            op,
            "run_eagerly is for one process: several meet in compiled programs only",
            hint="compile(run_eagerly=False), or leave the mesh out to look for a bug.",
        )
    seed = holder.seed if shuffle else None  # as ``make_feed`` will read it
    batch = first_batch(dataset, seed, fixed_batch_size(model), batch_size)
    if like is not None:
        check_form(op, batch, like, part_names(model))

    def check_first() -> None:
        if train:
            require_trainable(model, op)
        own = overrides(model, f"{kind}_step") or model.own_compute_loss is not None
        if not own and kind != "predict":
            require_targets(model, op, batch[1])

    names = partial(output_names, model)
    with holder.placement.scope():
        spec = preparer.prepare(
            batch, names=names, kind=kind, op=op, check_first=check_first
        )
        holder.place_weights()
    if kind == "predict" and spec is not None:
        check_rows(op, batch[0], spec)
    targets = kind != "predict"
    if has_packed(batch[0]) and spec is not None:
        stream = isinstance(dataset, StreamDataset)
        rows = batch[0] if stream else dataset.take(slice(0, 1))[0]
        check_packed_model(preparer, rows, op)
    finite = targets and run.check_numerics
    check = ValueCheck(preparer, spec, op, finite, targets)

    if isinstance(dataset, StreamDataset):
        dataset.check = check
        dataset.check_batch(batch, 0)
    elif isinstance(dataset, RaggedDataset):
        dataset.check_rows(check)
        if spec is not None:
            check_model_rows(preparer, dataset, batch[0], kind, op)
    elif (
        dataset.is_memory_mapped
        or (op == "evaluate" and dataset.nbytes > _LOOKED_AT)
        or (op in ("fit", "evaluate") and _were_sent(model, dataset, train))
    ):
        dataset.check = check
    else:
        dataset.check = None
        check(dataset.tree)
    return spec


def _were_sent(model: Network, dataset: Any, train: bool) -> bool:
    """Whether such data are on the device, and were looked at when they were sent.

    If they have changed since, they will be looked at once more.
    """
    trainer = require_trainer(model, "fit" if train else "evaluate")
    if train:
        return trainer.stores["train"].are_of(dataset.tree)
    chunks = trainer.stores["test"]
    return bool(chunks.keys()) and chunks.were_given(dataset.tree)


def require_targets(model: Network, op: str, y: Any) -> None:
    """Raises if the loss of ``compile`` needs targets, and there are none."""
    if y is None and model._training_session.objective.wants_targets:
        raise DataError(
            op,
            "the loss needs targets, but there is no y",
            hint="Pass y beside x, or a loader that yields (x, y).",
        )


def choose_batch_size(
    model: Network, op: str, batch_size: Any, dataset: Any, steps: int | None
) -> int:
    """Rows of a step, where the user gave ``batch_size`` or did not."""
    fixed = fixed_batch_size(model)
    if batch_size is None and fixed is None and steps and hasattr(dataset, "size"):
        return math.ceil(dataset.size / steps)  # all rows in so many steps
    rows = int(positive(op, "batch_size", batch_size, fixed or BATCH))
    if fixed not in (None, rows):
        raise ArgumentError(
            op,
            f"batch_size must be {fixed}, the batch of the model's Input, received "
            f"{rows}",
            hint="Leave batch_size out, or make the model for another batch.",
        )
    return rows


def fixed_batch_size(model: Network) -> int | None:
    """The batch that ``Input(batch_size=…)`` fixed, if it did."""
    graph = getattr(model, "graph", None)
    sizes = [] if graph is None else [spec.shape[:1] for spec in graph.inputs]
    return next((n for shape in sizes for n in shape if isinstance(n, int)), None)


def check_batch_size(model: Network, op: str) -> None:
    """Raises if devices cannot divide a batch whose size the model's Input fixed."""
    distribution = model._training_session.distribution_in_force
    if distribution is None:
        return
    if (rows := fixed_batch_size(model)) is None:
        return
    if rows % (parts := distribution.num_model_replicas):
        raise LayoutError(
            op,
            f"{parts} devices cannot divide the {rows} rows of a batch evenly",
            {"batch of the model's Input": rows, "distribution": distribution},
            hint="Leave batch_size out of Input: other batches are filled up.",
        )


def output_names(model: Network, spec: Any) -> list[str] | None:
    names = part_names(model)[1]
    return None if names is None else list(names)


def on_device(model: Network) -> contextlib.AbstractContextManager[None]:
    """Where new arrays go in the block: to the model's device, or to its mesh."""
    run = model._training_session
    if run.device is not None:
        return _on_one_device(run.device)
    distribution = run.distribution_in_force
    return contextlib.nullcontext() if distribution is None else in_force(distribution)


@contextlib.contextmanager
def _on_one_device(device: Any) -> Iterator[None]:
    """New arrays go to a device, whatever distribution is set for other models."""
    with default_device(device), in_force(None):
        yield


@contextlib.contextmanager
def guard_run(
    model: Network, op: str, dataset: Any, batch_size: int, held_out: Any = None
) -> Iterator[None]:
    """The model's device, and what is said of its memory and of other devices."""
    try:
        with (
            telling_failures(lambda: spans_processes(model)),
            on_device(model),
            memory_errors(model, op, dataset, batch_size),
        ):
            yield
    except (ValueError, RuntimeError) as error:
        weights = [w.get_raw_value() for _, w, _ in iter_weights(model)]
        if misses_arrays(error):
            for array in weights:  # another model may train a layer of this one
                alive(array)
        tree = getattr(dataset, "tree", ())
        arrays: dict[str, Any] = dict(zip(NAMES, tree, strict=False))
        arrays["validation_data"] = getattr(held_out, "tree", None)
        arrays["weights"] = weights
        arrays["optimizer"] = model._training_session.holder.opt_state
        refuse_apart(op, error, arrays)
        raise


def make_callback_list(
    model: Network,
    user: CallbackList,
    verbose: Any,
    dataset: Any,
    batch_size: int,
    steps,
) -> CallbackList:
    """The callbacks of an evaluation or a prediction."""
    params = {
        "epochs": 1,
        "steps": count_steps(dataset, batch_size, steps),
        "batch_size": batch_size,
        "samples": getattr(dataset, "size", None),
        "verbose": verbose,
        "validation": False,
        "metrics": model._training_session.objective.names,
        **tokens_of_step(dataset),
    }
    bars = [ProgressBar(verbose)] if verbose else []
    for bar in bars:
        bar.quick = not isinstance(dataset, StreamDataset)
    listed = CallbackList([*user.callbacks, *bars], model=model, params=params)
    listed.set_together(spans_processes(model))
    return listed


def tokens_of_step(dataset: Any) -> dict[str, float]:
    """What callbacks are told of rows of tokens: how many a step has, on average."""
    tokens, batches = getattr(dataset, "tokens", None), getattr(dataset, "batches", 0)
    return {"tokens_of_step": tokens / batches} if tokens and batches else {}


def spans_processes(model: Network) -> bool:
    """Whether the model's arrays lie on devices of several processes."""
    return model._training_session.holder.placement.spans_processes


@contextlib.contextmanager
def closed_if_it_fails(*datasets: Any) -> Iterator[None]:
    """Loaders that were opened to look at a batch are closed if the block raises."""
    try:
        yield
    except BaseException:
        for dataset in datasets:
            if isinstance(dataset, StreamDataset):
                dataset.close()
        raise


@contextlib.contextmanager
def exits(callbacks: CallbackList) -> Iterator[None]:
    """Tells callbacks that the block is over, whatever ended it."""
    try:
        yield
    except BaseException as error:
        # A loop of the user's that is left by break ends the run as well.
        callbacks.on_exit(None if isinstance(error, GeneratorExit) else error)
        raise
    callbacks.on_exit(None)
