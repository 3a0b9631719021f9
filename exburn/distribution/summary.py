"""Where each weight of a model lies on a mesh, and what each device holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import jax
from rich.table import Table
from rich.text import Text

from exburn.core.printing import Plain, page_text, size_text
from exburn.runtime.sharding.arrays import held_bytes
from exburn.runtime.sharding.layouts import axis_names
from exburn.runtime.sharding.strategies import Distribution


@dataclasses.dataclass(frozen=True)
class WeightLayout:
    """Where one weight lies.

    Attributes:
        path: The weight's path.
        shape: Its shape.
        layout: For each axis of the weight the axis of the mesh that divides it, or
            ``None``.
        bytes: What each device holds of it.
        rule: The rule of the layout that matches it, or why it lies so.
    """

    path: str
    shape: tuple[int, ...]
    layout: tuple
    bytes: int
    rule: str

    @property
    def is_whole(self) -> bool:
        """Whether every device holds all of it."""
        return not any(axis_names(self.layout))


class ShardingSummary(list):
    """A ``WeightLayout`` for each weight; prints as a table.

    Args:
        where: The distribution, in words.
        slots: Bytes of the optimizer's state that each device holds, if it is known.

    Attributes:
        bytes_per_device: What each device holds of the weights.
        replicated_bytes: Of these, weights that every device holds whole.
        optimizer_bytes: What each device holds of the optimizer's state; ``None`` if
            the model is not compiled.
    """

    def __init__(
        self, rows: Iterable[WeightLayout], where: str, slots: int | None = None
    ):
        super().__init__(rows)
        self._where, self.optimizer_bytes = where, slots

    @property
    def bytes_per_device(self) -> int:
        return sum(row.bytes for row in self)

    @property
    def replicated_bytes(self) -> int:
        return sum(row.bytes for row in self if row.is_whole)

    def __rich__(self) -> Plain:
        if not self:
            return Plain(Text(f"{self._where}\nNo weights before the model is built."))
        table = Table(title=self._where, title_justify="left", caption=self._totals())
        table.caption_justify = "left"
        for name in ("path", "shape", "layout", "a device", "rule"):
            right = "right" if name == "a device" else "left"
            table.add_column(name, overflow="fold", justify=right)
        for row in self:
            shape = "×".join(map(str, row.shape)) or "scalar"
            layout = "whole" if row.is_whole else ", ".join(map(_axis, row.layout))
            cells = row.path, shape, layout, size_text(row.bytes), row.rule
            table.add_row(*map(Text, cells))
        return Plain(table)

    def _totals(self) -> str:
        own, whole = self.bytes_per_device, self.replicated_bytes
        text = f"Weights: {size_text(own)} a device, {size_text(whole)} of them whole"
        if self.optimizer_bytes is not None:
            text += f". Optimizer: {size_text(self.optimizer_bytes)} a device"
        return f"{text}."

    def __str__(self) -> str:
        return page_text(self, 120)

    __repr__ = __str__


def weight_layouts(
    weights: Iterable[tuple[str, Any]], distribution: Distribution | None
) -> Iterator[WeightLayout]:
    """Where weights lie.

    Args:
        weights: Paths, and arrays or specs.
        distribution: The distribution; ``None`` for one device.

    Raises:
        LayoutError: A weight cannot be laid out so.

    Example:
        >>> from exburn.distribution import FSDP
        >>> one = jax.ShapeDtypeStruct((4, 8), "float32")
        >>> fsdp = FSDP(devices=["cpu:0"], min_size=1)
        >>> next(weight_layouts([("dense/kernel", one)], fsdp)).layout
        (None, 'fsdp')
    """
    for path, value in weights:
        shape = tuple(value.shape)
        if distribution is None:
            whole = (None,) * len(shape)
            yield WeightLayout(path, shape, whole, held_bytes(value), "one device")
            continue
        sharding = distribution.weight_sharding(path, shape)
        rest = (None,) * (len(shape) - len(sharding.spec))
        laid_out = jax.ShapeDtypeStruct(shape, value.dtype, sharding=sharding)
        yield WeightLayout(
            path,
            shape,
            (*sharding.spec, *rest),
            held_bytes(laid_out),
            distribution.rule_of(path, shape),
        )


def _axis(axis: Any) -> str:
    if axis is None:
        return "·"
    return axis if isinstance(axis, str) else "+".join(axis)
