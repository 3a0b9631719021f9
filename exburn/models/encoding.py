"""Data for a model that begins on the host: its lookups are run on them.

Arrays are encoded once, before the run, where every row becomes so many numbers. Else,
as where a batch is padded to its longest text, they are encoded batch by batch, as
loaders are: by the thread that reads ahead of the device, in each epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from exburn.data import (
    ArrayDataset,
    ReadOptions,
    StreamDataset,
    as_batch,
    as_dataset,
    as_validation_dataset,
    column_names,
    has_columns,
)
from exburn.datasets import adapters as adapters  # which this registers
from exburn.models.arguments import part_names
from exburn.models.host_graph import HostGraph
from exburn.training.feed.array_feed import row_order

_PART = 1 << 12  # rows that are encoded at a time: lookups make lists of them
_MOST = 1 << 30  # bytes of encoded arrays that are held; else they are made by batches


def read_dataset(
    model: Any, x: Any, y: Any = None, sample_weight: Any = None, *, op: str
) -> ArrayDataset | StreamDataset:
    """``as_dataset``, as the model takes data.

    The columns of a frame that is one array for ``fit`` are remembered: frames that
    come later have the same, in the same order.
    """
    dataset = as_dataset(x, y, sample_weight, op=op, options=read_options(model, op))
    if op == "fit":
        model._training_session.columns = (
            tuple(column_names(x)) if has_columns(x) else None
        )
    return dataset


def read_validation(model: Any, data: Any, *, op: str) -> ArrayDataset | StreamDataset:
    """``as_validation_dataset``, as the model takes data."""
    return as_validation_dataset(data, op=op, options=read_options(model, op))


def read_batch(
    model: Any, x: Any, y: Any = None, sample_weight: Any = None, *, op: str
) -> ArrayDataset:
    """One batch of arrays, encoded."""
    options = read_options(model, op)
    dataset = as_batch(x, y, sample_weight, op=op, options=options)
    if not options.raw or (host := _host_graph_for(model, dataset.tree[0])) is None:
        return dataset
    return _encode_arrays(model, host, dataset, op)


def encode_dataset(
    model: Any,
    dataset: ArrayDataset | StreamDataset,
    *,
    op: str,
    batch_size: int,
    shuffle: bool | str = False,
) -> ArrayDataset | StreamDataset:
    """The data as the model's program takes them."""
    if not model.reads_strings:
        return dataset
    stream = isinstance(dataset, StreamDataset)
    x = dataset.peek()[0] if stream else dataset.tree[0]
    if (host := _host_graph_for(model, x)) is None:
        return dataset
    if not stream:
        if _fits_memory(host, dataset.size):
            return _encode_arrays(model, host, dataset, op)
        return _stream_batches(model, host, dataset, op, batch_size, shuffle)

    def encode(batch: tuple) -> tuple:
        return host.encode(model.nodes, batch[0]), *batch[1:]

    return dataset.map_batches(encode)


def read_options(model: Any, op: str) -> ReadOptions:
    """How data are read for the model: by the names and dtypes of its inputs.

    A graph that was made for the first data says nothing of others.
    """
    names = part_names(model)
    graph = None if getattr(model, "_learnt", False) else model.graph
    inputs, optional = None, ()
    if graph is not None:
        inputs = dict(zip(graph.input_names, graph.inputs, strict=True))
        free = zip(graph.input_names, graph.optional, strict=True)
        optional = [name for name, is_free in free if is_free]
    return ReadOptions(
        raw=model.reads_strings,
        finite=not op.startswith("predict") and model._training_session.check_numerics,
        inputs=inputs,
        optional=frozenset(optional),
        outputs=names[1],
        columns=model._training_session.columns,
        ragged=True,
        row=_row_of(model),
    )


def _row_of(model: Any) -> tuple[Any, ...] | None:
    """Shape of a row of the model's only input, as far as it is known."""
    if model.graph is None:
        return () if model.takes_one_input else None
    if len(model.graph.inputs) != 1:
        return None
    return tuple(model.graph.inputs[0].shape[1:])


def _host_graph_for(model: Any, x: Any) -> HostGraph | None:
    """What of the model runs on the host for such inputs; it is built for them."""
    if model.graph is None:
        model.begin_with(x)
    host = model.host_graph
    return None if host is None or host.is_encoded(x) else host


def _fits_memory(host: HostGraph, rows: int) -> bool:
    """Whether all rows are encoded at once, and kept."""
    size = 0
    for spec in host.specs.values():
        if any(not isinstance(n, int) for n in spec.shape[1:]):
            return False
        size += math.prod(spec.shape[1:]) * np.dtype(spec.dtype).itemsize
    return rows * size <= _MOST


def _encode_arrays(
    model: Any, host: HostGraph, dataset: ArrayDataset, op: str
) -> ArrayDataset:
    x, y, weight = dataset.tree
    part = _PART if _fits_memory(host, 0) else dataset.size
    parts = [
        host.encode(model.nodes, _rows(x, slice(start, start + part)))
        for start in range(0, dataset.size, part)
    ]
    columns = {name: [part[name] for part in parts] for name in host.names}
    values = host.graph.order_inputs(x)
    whole = {
        name: np.concatenate(columns[name]) if taken.step >= 0 else values[taken.index]
        for name, taken in zip(host.names, host.sources, strict=True)
    }
    return ArrayDataset(whole, y, weight, op=op)


def _stream_batches(
    model: Any,
    host: HostGraph,
    dataset: ArrayDataset,
    op: str,
    batch_size: int,
    shuffle: bool | str,
) -> StreamDataset:
    def batches(epoch: int, seed: int | None) -> Iterator[tuple]:
        mixed = shuffle if seed is not None else False
        order = row_order(dataset.size, batch_size, mixed, seed or 0, epoch)
        for start in range(0, dataset.size, batch_size):
            x, *rest = dataset.take(order[start : start + batch_size])
            yield host.encode(model.nodes, x), *rest

    return StreamDataset(
        batches,
        batches=math.ceil(dataset.size / batch_size),
        batch_size=batch_size,
        shuffles=True,
        name="arrays",
        op=op,
    )


def _rows(x: Any, rows: slice) -> Any:
    return jax.tree.map(lambda v: v[rows], x)
