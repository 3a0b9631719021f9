"""``tf.data.Dataset``, read through ``as_numpy_iterator``."""

from __future__ import annotations

import sys
from typing import Any

from exburn.data import StreamDataset, register_adapter


@register_adapter
class TensorFlowDataAdapter:
    """A batched ``tf.data.Dataset``; its cardinality counts the batches."""

    def accepts(self, value: Any) -> bool:
        module = type(value).__module__.split(".")[0]
        return module == "tensorflow" and hasattr(value, "as_numpy_iterator")

    def load(self, value: Any) -> StreamDataset:
        count = int(value.cardinality())  # -1: endless, -2: unknown
        return StreamDataset(
            lambda epoch: value.as_numpy_iterator(),
            batches={-1: sys.maxsize, -2: None}.get(count, count),
            name="tf.data.Dataset",
        )
