"""Rows of data through a program of one's own, as ``predict`` takes them."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from exburn.data import ArrayDataset, RaggedDataset, has_packed
from exburn.errors import ArgumentError, DataError
from exburn.models.arguments import first_batch
from exburn.models.encoding import encode_dataset, read_dataset
from exburn.models.inferring import require_predictor
from exburn.models.network import Network
from exburn.models.preparing import choose_batch_size, guard_run, prepare
from exburn.training.feed.chunking import FeedRequest, make_feed
from exburn.training.module import SplitModule
from exburn.training.output_collector import OutputCollector
from exburn.training.overrides import overrides
from exburn.training.program import Programs
from exburn.training.trainer import Trainer

#: ``(split, arrays, extra, x) → [rows, …]`` of a batch, whose ``repr`` tells it apart.
RowProgram = Callable[[SplitModule, Any, Any, Any], Any]


def run_rows(
    model: Network, x: Any, batch_size: int, program: RowProgram, extra: Any, op: str
) -> Iterator[Any]:
    """What a program gives of the rows of ``x``, chunk by chunk, on the host.

    Args:
        extra: Arrays of any structure for it, beside those of the model.

    Raises:
        ArgumentError: The model has a ``predict_step`` of its own.
        DataError, ShapeError: The data do not fit the model.
    """
    trainer, dataset, rows = _prepare(model, x, batch_size, op)
    programs, holder = trainer.preparer.programs, trainer.holder
    digest = hashlib.sha256(repr(program).encode()).hexdigest()[:16]  # files have it
    name = f"{type(program).__name__} {digest}"
    run = programs.further(name, lambda: _over_chunk(programs, program))
    request = FeedRequest(training=False, use="predict")
    feed = make_feed(trainer.preparer, dataset, rows, request)
    collector, done = OutputCollector(None), 0
    with contextlib.closing(feed), guard_run(model, op, dataset, rows):
        for chunk in feed.epoch(holder.seed, 0):
            with holder.placement.scope():
                arrays = holder.split.read(), extra
                args = *arrays, chunk.data, chunk.index, np.int32(done)
                args, _ = holder.placement.bind(args, 2)
                outputs = holder.placement.local(run(*args))
            yield collector.rows(chunk, outputs)
            done += chunk.steps


def prepare_rows(
    model: Network, x: Any, batch_size: int, op: str
) -> tuple[SplitModule, Any]:
    """The model as arrays, and the form of a batch, of rows that will be run."""
    trainer = _prepare(model, x, batch_size, op)[0]
    return trainer.holder.split, trainer.preparer.batch_specs["predict"][0]


def _prepare(
    model: Network, x: Any, batch_size: int, op: str
) -> tuple[Trainer, Any, int]:
    if overrides(model, "predict_step"):
        raise ArgumentError(
            op,
            f"{type(model).__name__} predicts in its own predict_step, which this pass "
            "does not run",
        )
    dataset = read_dataset(model, x, op=op)
    if isinstance(dataset, ArrayDataset) and dataset.tree[1] is not None:
        dataset = dataset.like((dataset.tree[0], None, None))
    trainer = require_predictor(model)
    rows = choose_batch_size(model, op, batch_size, dataset, None)
    dataset = encode_dataset(model, dataset, op=op, batch_size=rows)
    if isinstance(dataset, RaggedDataset) or has_packed(first_batch(dataset, None)[0]):
        raise DataError(
            op,
            "rows of unlike lengths, and packed ones, are not supported",
            hint="Fill them up to one length.",
        )
    prepare(model, "predict", dataset, batch_size=rows)
    return trainer, dataset, rows


def _over_chunk(programs: Programs, program: RowProgram) -> Callable:
    """The program of a chunk's batches."""

    def run(arrays: Any, extra: Any, data: Any, index: Any, start: Any) -> Any:
        def of_batch(x: Any, key: Any) -> Any:
            return program(programs.split, arrays, extra, x)

        return programs.steps.outputs_of_batches(of_batch, arrays, data, index, start)

    return run
