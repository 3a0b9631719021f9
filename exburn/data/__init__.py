"""What a model trains on: arrays held whole, or a stream of batches.

``as_dataset`` turns whatever the user passed into an `ArrayDataset` or a
`StreamDataset` and refuses, before anything is compiled, data that cannot work.
Loaders of other libraries come in through small adapters (`register_adapter`); the
built-in ones live in ``exburn.datasets.adapters``.

dtypes: floats become float32, 64-bit and unsigned 32-bit integers become int32 (after
a range check); bool and the smaller integers stay as they are.
"""

from __future__ import annotations

from exburn.data.adapting import PyDataset, register_adapter
from exburn.data.array_dataset import ArrayDataset
from exburn.data.arrays import on_host
from exburn.data.checks import check_finite
from exburn.data.conversion import (
    as_batch,
    as_dataset,
    as_validation_dataset,
    split,
    with_targets_like,
)
from exburn.data.documents import Document, DocumentPair
from exburn.data.frames import (
    ReadOptions,
    column_names,
    frame_array,
    has_columns,
    is_frame,
    read_columns,
)
from exburn.data.packed import PackedTokens, has_packed, is_packed
from exburn.data.padded import Padded, has_padded, is_padded, plain_values
from exburn.data.ragged import RaggedArray, is_ragged
from exburn.data.ragged_dataset import RaggedDataset
from exburn.data.stream_dataset import Exhausted, StreamDataset
from exburn.data.trees import as_values, leaves, map_leaves

__all__ = [
    "ArrayDataset",
    "Document",
    "DocumentPair",
    "Exhausted",
    "PackedTokens",
    "Padded",
    "PyDataset",
    "RaggedArray",
    "RaggedDataset",
    "ReadOptions",
    "StreamDataset",
    "as_batch",
    "as_dataset",
    "as_values",
    "as_validation_dataset",
    "check_finite",
    "column_names",
    "frame_array",
    "has_columns",
    "has_packed",
    "has_padded",
    "is_frame",
    "is_packed",
    "is_padded",
    "is_ragged",
    "leaves",
    "map_leaves",
    "on_host",
    "plain_values",
    "read_columns",
    "register_adapter",
    "split",
    "with_targets_like",
]
