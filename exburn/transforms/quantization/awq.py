"""AWQ: the weights of large inputs get a finer grid than the others of their block."""

from __future__ import annotations

import numpy as np

from exburn.transforms.quantization.grid import Grid
from exburn.transforms.quantization.scheme import Scheme


def round_by_awq(
    weight: np.ndarray, scheme: Scheme, largest: np.ndarray, *, points: int = 20
) -> tuple[np.ndarray, ...]:
    """The parts of a weight whose columns were multiplied before they were rounded.

    Columns are multiplied by ``s = largest ** ratio``, less its geometric mean of the
    ends, and their products by ``1 / s``. Of the ratios from 0 to 1 the one is taken
    with the least sum of ``(error of the weight * largest)²``.

    Args:
        weight: The exact weight.
        scheme: How it is stored.
        largest: The largest magnitude of each input, ``[columns]``.
        points: Ratios that are tried, besides 0.

    Source: Lin et al., *AWQ: Activation-aware Weight Quantization for On-Device LLM
    Compression and Acceleration*, 2024, as in Keras.
    """
    exact = scheme.matrix(weight).astype(np.float32)
    largest = np.where(largest < 1e-8, 1, largest).astype(np.float32)
    best, least = None, np.inf
    for point in range(points + 1):
        scales = np.maximum(largest ** np.float32(point / points), np.float32(1e-4))
        middle = np.sqrt(scales.max() * scales.min())
        scales = scales / np.maximum(middle, np.float32(1e-8))
        blocks = scheme.group_rows(exact * scales)
        grid = Grid.of(blocks, scheme.bits)
        whole = grid.round(blocks)
        read = grid.read(whole).reshape(scheme.rows, -1)[:, : scheme.columns]
        loss = np.square((exact - read / scales) * largest).mean()
        if best is None or loss < least:
            best, least = scheme.pack(whole, grid, 1 / scales), loss
    assert best is not None
    return best
