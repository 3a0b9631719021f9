"""Which layers cannot compute sequences whose positions devices divide."""

from __future__ import annotations

from typing import Any

from exburn import layers
from exburn.errors import LayoutError
from exburn.module.traversal import iter_modules


def check_divided_positions(module: Any) -> None:
    """Raises if a layer goes from position to position, one after the other.

    All others are right, for XLA divides them as it divides any array: those of single
    positions have nothing to send, windows read their neighbours' edges, and what reads
    all positions gathers them.

    Raises:
        LayoutError: A recurrent layer does.
    """
    for path, layer in iter_modules(module):
        if isinstance(layer, layers.RNN | layers.Bidirectional):
            kind = type(layer).__name__
            raise LayoutError(
                path or layer.name,
                f"devices cannot divide the positions of a sequence: {kind} goes from "
                "one to the next",
                hint="Leave out the mesh's axis 'context': mesh='data' divides rows.",
            )
