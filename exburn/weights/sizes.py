"""Sizes that a configuration file names, beside the tensors that have them.

A count of 2 ** 31 layers is compared with the file before anything is made of it.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from exburn.errors import FileFormatError


@dataclasses.dataclass(frozen=True)
class Size:
    """A size, and where in a file it can be seen.

    Attributes:
        entry: What the configuration calls it.
        value: The size.
        pattern: A regular expression that is looked for in the names of tensors.
        axis: The axis that is as long; ``None`` if the size is the number of texts that
            the pattern's groups have.
        unit: How long the axis is for each one of the size.
        each: How many numbers each one of the size makes at least, for files that lack
            such tensors.

    Example:
        >>> size = Size("num_hidden_layers", 2, r"layers\\.(\\d+)\\.")
        >>> size.in_file({"layers.0.weight": (3,)})
        1
    """

    entry: str
    value: int
    pattern: str
    axis: int | None = None
    unit: int = 1
    each: int = 1

    def in_file(self, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
        """The size in the file, or ``None`` where no tensor shows it.

        Args:
            shapes: Of the tensors, by name.
        """
        matches = ((re.search(self.pattern, name), name) for name in shapes)
        hits = [(match, shapes[name]) for match, name in matches if match is not None]
        if self.axis is None:
            return len({match.groups() for match, _ in hits}) or None
        lengths = {shape[self.axis] for _, shape in hits if len(shape) > self.axis}
        if not lengths:
            return None
        if self.value * self.unit in lengths:
            return self.value
        return max(lengths) // self.unit


def check_sizes(
    sizes: Iterable[Size],
    shapes: Mapping[str, tuple[int, ...]],
    op: str,
    **details: Any,
) -> None:
    """Raises unless the tensors have the sizes, or may have them.

    Args:
        sizes: Those of the configuration.
        shapes: Of the tensors, by name.
        **details: Facts for the error.

    Raises:
        FileFormatError: A size is another one in the file; or no tensor shows it, and
            it takes more numbers than the whole file has.
    """
    numbers = sum(math.prod(shape) for shape in shapes.values())
    wrong = {}
    for size in sizes:
        actual = size.in_file(shapes)
        if actual is None and size.value * size.each > numbers:
            wrong[size.entry] = f"{size.value}, more than the file has numbers"
        elif actual not in (None, size.value):
            wrong[size.entry] = f"{size.value}, in the file {actual}"
    if wrong:
        raise FileFormatError(
            op,
            "config.json does not describe the tensors of the file",
            {**details, **wrong},
            hint="Take both from one model.",
        )
