"""``tf.data.Dataset``, read through ``as_numpy_iterator``."""

from __future__ import annotations

from typing import Any

from exburn.dataset import StreamDataset, register_adapter

__all__ = ["TensorFlowDataAdapter"]


@register_adapter
class TensorFlowDataAdapter:
    """A batched ``tf.data.Dataset``; its cardinality counts the batches."""

    def accepts(self, value: Any) -> bool:
        module = type(value).__module__.split(".")[0]
        return module == "tensorflow" and hasattr(value, "as_numpy_iterator")

    def load(self, value: Any) -> StreamDataset:
        count = int(value.cardinality())  # negative: endless or unknown
        return StreamDataset(
            lambda epoch: value.as_numpy_iterator(),
            batches=count if count >= 0 else None,
            name="tf.data.Dataset",
        )
