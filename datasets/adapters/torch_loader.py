"""PyTorch: a ``DataLoader`` is a stream of batches, a tensor is an array."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from exburn.data import StreamDataset, register_adapter
from exburn.datasets.adapters.scipy_sparse import check_dense_size
from exburn.errors import DTypeError


def _has_base(value: Any, name: str, module: str) -> bool:
    return any(
        c.__name__ == name and c.__module__.startswith(module)
        for c in type(value).__mro__
    )


def _as_numpy(batch: Any) -> Any:
    """A batch of plain tensors on the host as a tuple of arrays; others as they are.

    It shares their memory, and takes a tenth of what looking at each of them would.
    """
    if type(batch) not in (list, tuple):
        return batch
    try:
        return tuple(tensor.numpy() for tensor in batch)
    except (AttributeError, RuntimeError, TypeError):  # nested, with a gradient, sparse
        return batch


@register_adapter
class TorchTensorAdapter:
    """A tensor on any device; half precision becomes float32."""

    def accepts(self, value: Any) -> bool:
        return _has_base(value, "Tensor", "torch")

    def to_array(self, value: Any, *, name: str, op: str) -> np.ndarray:
        value = value.detach().cpu()
        if "sparse" in str(value.layout):  # of which there are several
            check_dense_size(value.shape, value.element_size(), name, op)
            value = value.to_dense()
        if value.is_floating_point():
            value = value.float()
        return value.numpy()


@register_adapter
class TorchLoaderAdapter:
    """A ``DataLoader``; a sampler with ``set_epoch`` is told the epoch.

    Raises:
        DTypeError: For a bare ``Dataset``, which has samples but no batches.
    """

    def accepts(self, value: Any) -> bool:
        return _has_base(value, "DataLoader", "torch.utils.data") or _has_base(
            value, "Dataset", "torch.utils.data"
        )

    def load(self, value: Any) -> StreamDataset:
        if not _has_base(value, "DataLoader", "torch.utils.data"):
            raise DTypeError(
                "data",
                "a torch Dataset gives single samples, not batches",
                {"received": type(value).__name__},
                hint="Wrap it: torch.utils.data.DataLoader(dataset, batch_size=32).",
            )

        def start(epoch: int) -> Iterator:
            for sampler in (value.sampler, value.batch_sampler):
                if hasattr(sampler, "set_epoch"):
                    sampler.set_epoch(epoch)
            return map(_as_numpy, value)

        try:
            batches = len(value)
        except TypeError:  # an IterableDataset without a length
            batches = None
        return StreamDataset(
            start,
            batches=batches,
            batch_size=value.batch_size,
            shared=bool(getattr(value, "persistent_workers", False)),
            name="DataLoader",
        )
