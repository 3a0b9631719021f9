"""The share of zeros among a model's weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from exburn.compression.masking import join, mask_of
from exburn.compression.masking.summed_axes import summed_axes
from exburn.compression.pruning import require_model
from exburn.compression.quantization.weight import QuantizedWeight
from exburn.core.printing import Plain, page_text
from exburn.errors.boundary import api_boundary
from exburn.models import Model
from exburn.module.selection import layer_paths
from exburn.runtime.sharding.arrays import to_host


@dataclasses.dataclass(frozen=True)
class WeightSparsity:
    """One weight's entry.

    Attributes:
        path: Where it is in the model.
        shape: Its shape.
        zeros: How many of its numbers are zero.
        masked: Whether a mask keeps them so.

    Example:
        >>> WeightSparsity("fc/kernel", (8, 8), zeros=32, masked=True).share
        0.5
    """

    path: str
    shape: tuple[int, ...]
    zeros: int
    masked: bool

    @property
    def size(self) -> int:
        """Its numbers."""
        return int(np.prod(self.shape))

    @property
    def share(self) -> float:
        """Zeros for each number."""
        return self.zeros / self.size


@dataclasses.dataclass(frozen=True)
class SparsityReport:
    """The zeros among the weights that products are computed with; prints as a table.

    Attributes:
        weights: The entries, in the model's order.
        parameters: Numbers of all weights of the model, biases among them.

    Example:
        >>> from exburn import Input, Sequential, compression, layers
        >>> model = Sequential([Input((8,)), layers.Dense(8, name="fc")])
        >>> pruned = compression.prune(model, sparsity=0.5)
        >>> compression.sparsity(pruned).total
        0.5
    """

    weights: tuple[WeightSparsity, ...]
    parameters: int

    @property
    def total(self) -> float:
        """Zeros for each number of these weights."""
        size = sum(one.size for one in self.weights)
        return sum(one.zeros for one in self.weights) / size if size else 0.0

    def __getitem__(self, path: str) -> WeightSparsity:
        """The entry of a weight by its path."""
        return {one.path: one for one in self.weights}[path]

    def __rich__(self) -> Plain:
        return Plain(Group(*self._page()))

    def _page(self) -> Iterator[Table | Text]:
        table = Table(title="Sparsity", title_justify="left")
        for name in ("Weight", "Shape"):
            table.add_column(name, overflow="fold")
        for name in ("Numbers", "not zero", "Zeros", "Mask"):
            table.add_column(name, justify="right")
        for one in self.weights:
            table.add_row(
                one.path,
                str(one.shape),
                f"{one.size:,}",
                f"{one.size - one.zeros:,}",
                f"{100 * one.share:.1f} %",
                "yes" if one.masked else "",
            )
        yield table
        size = sum(one.size for one in self.weights)
        yield Text(
            f" {100 * self.total:.1f} % of {size:,} numbers are zero; the model has "
            f"{self.parameters:,} in all."
        )

    def __str__(self) -> str:
        return page_text(self, 100)

    __repr__ = __str__


@api_boundary
def sparsity(model: Model) -> SparsityReport:
    """The zeros of a model, weight by weight.

    Of Dense and EinsumDense layers, convolutions, tables, attention and recurrent
    layers; of weights of few bits, what they stand for is counted.

    Args:
        model: A built model.

    Raises:
        ArgumentError: It is no model.
        NotBuiltError: It has no weights yet.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((8,)), exburn.layers.Dense(4)])
        >>> report = sparsity(exburn.prune(model, sparsity=0.75))
        >>> report.total, report["dense/kernel"].zeros
        (0.75, 24)
    """
    require_model(model, "sparsity")
    return SparsityReport(tuple(_entries(model)), model.count_params())


def _entries(model: Any) -> Iterator[WeightSparsity]:
    seen: set[int] = set()
    for path, layer in layer_paths(model).items():
        for name in summed_axes(layer) or ():
            weight = getattr(layer, name, None)
            if weight is None or id(weight) in seen:
                continue
            seen.add(id(weight))
            if isinstance(weight, QuantizedWeight):
                value = weight.numpy()
            else:
                value = to_host(weight.get_value())
            zeros = int(np.count_nonzero(value == 0))
            has_mask = mask_of(layer, name) is not None
            yield WeightSparsity(join(path, name), tuple(value.shape), zeros, has_mask)
