"""AWQ: the weights of large inputs get a finer grid than the others of their block."""

from __future__ import annotations

import numpy as np

from exburn.compression.quantization.grid import Grid
from exburn.compression.quantization.scheme import Scheme

SAMPLE_ROWS = 512  # of inputs, at most, on which the ends of grids are chosen

_SHRINKS = np.array(
    [1 - 0.025 * step for step in range(20)], np.float32
)  # from 1 to 0.525
_OUTPUTS = 64  # outputs that are looked at together, to bound the memory


def round_by_awq(
    weight: np.ndarray,
    scheme: Scheme,
    mean: np.ndarray,
    sample: np.ndarray | None = None,
    *,
    points: int = 20,
) -> tuple[np.ndarray, ...]:
    """The parts of a weight whose columns were multiplied before they were rounded.

    Columns are multiplied by ``s = mean ** r / w ** (1 - r)``, ``w`` the mean magnitude
    of the column's weights as shares of the largest in their block, and divided by the
    geometric mean of its ends; their products are multiplied by ``1 / s``. Of the ``r``
    from 0 to 1 that one is taken with the least sum of ``(error of the weight *
    mean)²``.

    Args:
        mean: The mean magnitude of each input, ``[columns]``.
        sample: Some inputs, ``[n, columns]``: each block's largest weights are cut off
            where the outputs on them come nearer to the exact ones. None cuts nothing.

    Source: Lin et al., *AWQ: Activation-aware Weight Quantization for On-Device LLM
    Compression and Acceleration*, 2024, as in Keras 3.16.
    """
    exact = scheme.matrix(weight).astype(np.float32)
    mean = _without_zeros(mean.astype(np.float32))
    share = _without_zeros(_mean_shares(exact, scheme))
    best, least = None, np.inf
    for point in range(points + 1):
        ratio = np.float32(point / points)
        scales = np.maximum(mean**ratio / share ** (1 - ratio), np.float32(1e-4))
        middle = np.sqrt(scales.max() * scales.min())
        scales = scales / np.maximum(middle, np.float32(1e-8))
        blocks = scheme.group_rows(exact * scales)
        read = _read_back(blocks, scheme.bits).reshape(scheme.rows, -1)
        error = exact - read[:, : scheme.columns] / scales
        loss = np.square(error * mean).mean()
        if best is None or loss < least:
            best, least = scales, loss
    assert best is not None
    scaled = exact * best
    if sample is not None and len(sample):
        bound = _best_bounds(scaled, sample.astype(np.float32) / best, scheme)
        groups = scaled.reshape(*bound.shape[:2], -1)
        scaled = np.clip(groups, -bound, bound).reshape(exact.shape)
    blocks = scheme.group_rows(scaled)
    grid = Grid.of(blocks, scheme.bits)
    return scheme.pack(grid.round(blocks), grid, 1 / best)


def _without_zeros(values: np.ndarray) -> np.ndarray:
    return np.where(values < 1e-8, np.float32(1), values)


def _read_back(blocks: np.ndarray, bits: int) -> np.ndarray:
    grid = Grid.of(blocks, bits)
    return grid.read(grid.round(blocks))


def _groups(scheme: Scheme) -> int:
    """Blocks of a row, if they divide it evenly, else 1."""
    return scheme.blocks if scheme.columns % scheme.size == 0 else 1


def _mean_shares(exact: np.ndarray, scheme: Scheme) -> np.ndarray:
    """The mean magnitude of each column, as shares of the largest in the block."""
    size = np.abs(exact).reshape(scheme.rows, _groups(scheme), -1)
    shares = size / (size.max(-1, keepdims=True) + np.float32(1e-6))
    return shares.reshape(exact.shape).mean(0)


def _best_bounds(scaled: np.ndarray, x: np.ndarray, scheme: Scheme) -> np.ndarray:
    """The limits at which each block's weights are cut: ``[rows, blocks, 1]``."""
    count = _groups(scheme)
    groups = scaled.reshape(scheme.rows, count, -1)
    x = x.reshape(len(x), count, -1).transpose(1, 0, 2)  # [blocks, n, size]

    def outputs(weights: np.ndarray) -> np.ndarray:
        return x @ weights.transpose(1, 2, 0)  # [blocks, n, rows]

    bounds = np.abs(groups).max(-1, keepdims=True)
    for start in range(0, scheme.rows, _OUTPUTS):
        part = slice(start, start + _OUTPUTS)
        weights, top = groups[part], bounds[part].copy()
        expected, least = outputs(weights), None
        for shrink in _SHRINKS:
            bound = top * shrink
            read = _read_back(np.clip(weights, -bound, bound), scheme.bits)
            error = np.square(outputs(read) - expected).mean(1).T[..., None]
            better = error < (np.inf if least is None else least)
            bounds[part] = np.where(better, bound, bounds[part])
            least = error if least is None else np.where(better, error, least)
    return bounds
