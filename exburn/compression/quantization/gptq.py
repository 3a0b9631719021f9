"""GPTQ: weights are rounded input by input, and the others make up for the errors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from exburn.compression.quantization.grid import Grid
from exburn.compression.quantization.scheme import Scheme
from exburn.errors import ArgumentError

_SPAN = 128  # inputs whose errors are kept until the others are corrected at once


def round_by_gptq(
    weight: np.ndarray,
    scheme: Scheme,
    gram: np.ndarray,
    *,
    damping: float = 0.01,
    by_size: bool = False,
    symmetric: bool = False,
    per_channel: bool = True,
    mask: np.ndarray | None = None,
) -> tuple[np.ndarray, ...]:
    """The parts of a weight that multiplies known inputs almost as the exact one.

    With ``H = G + damping * mean(diag(G)) * I`` and ``H⁻¹ = UᵀU``, ``U`` upper
    triangular, the weights ``w_j`` of one input after another are rounded, and those
    of the inputs behind it are corrected: ``w_k -= (w_j - q_j) * U_jk / U_jj``.

    Args:
        gram: ``G = 2 XᵀX / rows`` of the inputs, ``[columns, columns]``. The weights
            of an input that was always 0 are rounded as they are.
        damping: Share of the diagonal's mean that is added to the diagonal.
        by_size: Whether the largest inputs come first. Then the range of a block is
            that of its exact weights, else that of its corrected ones.
        mask: Where the weight may be other than zero; anywhere if None.

    Source: Frantar et al., *GPTQ: Accurate Post-Training Quantization for Generative
    Pre-trained Transformers*, 2023. Keras 3.15 corrects by ``H⁻¹`` itself, whose rows
    forget that inputs before are fixed.
    """
    exact = scheme.matrix(weight).astype(np.float32)
    mask = None if mask is None else scheme.matrix(mask)
    order = np.arange(scheme.columns)
    if by_size:
        order = np.argsort(-np.diagonal(gram), kind="stable")
    factor = _factor(gram[np.ix_(order, order)], damping)

    def grid_of(rows: np.ndarray) -> Grid:
        return Grid.of(rows, scheme.bits, symmetric, per_channel)

    grid = grid_of(scheme.group_rows(exact))
    scale, zero = np.array(grid.scale), np.array(grid.zero)
    whole = np.zeros((scheme.rows, scheme.blocks * scheme.size), np.float32)
    left = np.ascontiguousarray(exact.T[order])  # an input's weights lie together
    for start, stop in _spans(scheme.columns, scheme.size):
        block = start // scheme.size
        if not by_size and start % scheme.size == 0:
            fresh = grid_of(left[start : start + scheme.size].T[:, None])
            scale[:, block], zero[:, block] = fresh.scale[:, 0], fresh.zero[:, 0]
        errors = np.empty((stop - start, scheme.rows), np.float32)
        for j in range(start, stop):
            column = order[j]
            block = column // scheme.size
            one = Grid(scale[:, block], zero[:, block], scheme.bits)
            chosen = one.round(left[j][:, None])
            if mask is not None:
                chosen[:, 0] = np.where(mask[:, column], chosen[:, 0], one.zero)
            whole[:, column] = chosen[:, 0]
            error = (left[j] - one.read(chosen)[:, 0]) / factor[j, j]
            left[j + 1 : stop] -= np.outer(factor[j, j + 1 : stop], error)
            errors[j - start] = error
        left[stop:] -= factor[start:stop, stop:].T @ errors
    whole = whole.reshape(scheme.rows, scheme.blocks, scheme.size)
    return scheme.pack(whole, Grid(scale, zero, scheme.bits))


def _spans(columns: int, size: int) -> Iterator[tuple[int, int]]:
    """Parts of the columns that lie within one block each."""
    for block in range(0, columns, size):
        end = min(block + size, columns)
        for start in range(block, end, _SPAN):
            yield start, min(start + _SPAN, end)


def _factor(gram: np.ndarray, damping: float) -> np.ndarray:
    """``U`` of the damped matrix, float32: the inverse of its factor from below."""
    full = gram.astype(np.float64)
    diagonal = np.einsum("ii->i", full)
    diagonal[diagonal == 0] = 1
    diagonal += damping * diagonal.mean()
    try:
        turned = np.linalg.cholesky(full[::-1, ::-1])
    except np.linalg.LinAlgError as error:
        raise ArgumentError(
            "quantize",
            "the inputs of a layer depend on each other, so that no weight can make up "
            "for another one",
            {"hessian_damping": damping},
            hint="Give more data, or GPTQConfig(hessian_damping=0.01).",
        ) from error
    return np.linalg.inv(turned[::-1, ::-1]).astype(np.float32)
