"""Grain's ``MapDataset``, ``IterDataset`` and ``DataLoader``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from exburn.data import StreamDataset, register_adapter
from exburn.data.stream_dataset import ENDLESS

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
        def start(epoch: int) -> Iterator:
            _mark_flags_parsed()
            return iter(value)

        return StreamDataset(start, batches=_batches(value), name=type(value).__name__)


def _batches(value: Any) -> int | None:
    if hasattr(type(value), "__len__"):
        return len(value)
    return sys.maxsize if _is_endless(value) else None


def _is_endless(value: Any) -> bool:
    """Whether rows are repeated for ever; False if nothing tells.

    Grain gives them a length near ``sys.maxsize``. What is made of them has no length,
    but tells where it comes from, and only a limit, or a user's class, ends it.
    """
    if hasattr(type(value), "__len__"):
        return len(value) > ENDLESS
    if hasattr(value, "_sampler"):  # of a DataLoader
        return _is_endless(value._sampler)
    kind, parents = type(value), getattr(value, "parents", ())
    goes_on = kind.__module__.startswith("grain.") and "Limit" not in kind.__name__
    return goes_on and bool(parents) and all(map(_is_endless, parents))


def _mark_flags_parsed() -> None:
    """Grain reads absl flags, which nobody has parsed outside an absl program."""
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
