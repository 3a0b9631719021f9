"""Grain's ``MapDataset``, ``IterDataset`` and ``DataLoader``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from exburn.dataset import StreamDataset, register_adapter

__all__ = ["GrainAdapter"]

_NAMES = {"MapDataset", "IterDataset", "DataLoader"}


@register_adapter
class GrainAdapter:
    """Batched Grain datasets: elements are ``x``, ``(x, y)`` or a dict that is x."""

    def accepts(self, value: Any) -> bool:
        return any(
            c.__name__ in _NAMES and c.__module__.split(".")[0] == "grain"
            for c in type(value).__mro__
        )

    def load(self, value: Any) -> StreamDataset:
        # An endless one's length is sys.maxsize, as we write it, too.
        batches = len(value) if hasattr(type(value), "__len__") else None

        def start(epoch: int) -> Iterator:
            _mark_flags_parsed()
            return iter(value)

        return StreamDataset(start, batches=batches, name=type(value).__name__)


def _mark_flags_parsed() -> None:
    """Grain reads absl flags, which nobody has parsed outside an absl program."""
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
