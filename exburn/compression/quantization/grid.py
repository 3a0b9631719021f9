"""Evenly spaced numbers that the weights of a block are rounded to."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Grid:
    """The numbers ``scale * (q - zero)`` with ``q`` from 0 to ``2**bits - 1``.

    Attributes:
        scale: Step of each block, float32 ``[rows, blocks]``.

    Source: Keras, ``compute_quantization_parameters``.
    """

    scale: np.ndarray
    zero: np.ndarray
    bits: int

    @classmethod
    def of(
        cls,
        blocks: np.ndarray,
        bits: int,
        symmetric: bool = False,
        per_channel: bool = True,
    ) -> Grid:
        """The grid over the range of each block, 0 included.

        Args:
            blocks: The weights, ``[rows, blocks, size]``.
            bits: Bits of an integer.
            symmetric: Whether 0 is in the middle.
            per_channel: Whether each row has a range of its own.
        """
        axes = (-1,) if per_channel else (0, -1)
        low = np.minimum(blocks.min(axes, keepdims=True), 0)
        high = np.maximum(blocks.max(axes, keepdims=True), 0)
        if symmetric:
            high = np.maximum(-low, high)
            low = -high
        flat = low == high
        low, high = np.where(flat, -1, low), np.where(flat, 1, high)
        # By a product, as XLA divides by constants: where a range is symmetric, the
        # zero point is a half that a last digit rounds up or down.
        scale = (high - low) * np.float32(1 / (2**bits - 1))
        zero = np.rint(-low / scale)
        if symmetric:
            zero = np.full_like(zero, 2 ** (bits - 1))
        shape = blocks.shape[:-1]
        return cls(
            np.broadcast_to(scale[..., 0], shape),
            np.broadcast_to(zero[..., 0], shape),
            bits,
        )

    def round(self, blocks: np.ndarray) -> np.ndarray:
        """The nearest integers, ``[rows, blocks, size]``."""
        steps = np.rint(blocks / self.scale[..., None] + self.zero[..., None])
        return np.clip(steps, 0, 2**self.bits - 1)

    def read(self, whole: np.ndarray) -> np.ndarray:
        """The numbers that integers stand for."""
        return self.scale[..., None] * (whole - self.zero[..., None])
