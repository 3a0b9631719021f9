"""NF4: the 16 numbers that halve the mass of a normal distribution, and their scales.

Source: Dettmers et al., *QLoRA: Efficient Finetuning of Quantized LLMs*, 2023; the
numbers are those of ``bitsandbytes``.
"""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np

#: Numbers that a code stands for, times the largest magnitude of its block.
LEVELS = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634),
        *(0.33791524171829224, 0.44070982933044434, 0.5626170039176941),
        *(0.7229568362236023, 1.0),
    ],
    np.float32,
)
SCALES = 256  # that share a range, where scales are stored in 8 bits, too
_MIDDLES = (LEVELS[1:] + LEVELS[:-1]) / 2


def nearest_codes(shares: Any, xp: Any = np) -> Any:
    """Codes of the levels nearest to numbers from -1 to 1, by NumPy or by JAX."""
    codes = xp.zeros(shares.shape, np.uint8)
    for middle in _MIDDLES:  # in a tenth of the time of np.searchsorted
        codes += shares > middle
    return codes


def read_levels(codes: Any) -> Any:
    """Numbers that codes stand for, in float32."""
    return jnp.asarray(LEVELS).at[codes].get(mode="promise_in_bounds")


@functools.cache
def dynamic_levels() -> np.ndarray:
    """256 numbers from -1 to 1, whose distances grow with their magnitude.

    Source: Dettmers et al., *8-bit Optimizers via Block-wise Quantization*, 2022.
    """
    levels = [0.0, 1.0]
    for power in range(7):
        edges = np.linspace(0.1, 1, 2**power + 1, dtype=np.float32)
        middles = np.float32(10.0 ** (power - 6)) * ((edges[:-1] + edges[1:]) / 2)
        levels += [*middles.tolist(), *(-middles).tolist()]
    return np.sort(np.array(levels, np.float32))


def encode_scales(scale: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes of scales, the range of each ``SCALES`` of them, and their mean."""
    flat, levels = scale.astype(np.float32).ravel(), dynamic_levels()
    offset = flat.mean(dtype=np.float32)
    rest = np.pad(flat - offset, (0, -flat.size % SCALES)).reshape(-1, SCALES)
    ranges = np.abs(rest).max(-1)
    shares = rest / np.where(ranges == 0, 1, ranges)[:, None]
    codes = np.searchsorted((levels[1:] + levels[:-1]) / 2, shares)
    codes = codes.astype(np.uint8).ravel()[: flat.size].reshape(scale.shape)
    return codes, ranges, offset


def decode_scales(codes: Any, ranges: Any, offset: Any) -> Any:
    """Scales in float32, from what ``encode_scales`` makes of them."""
    levels = jnp.asarray(dynamic_levels())
    share = levels.at[codes.ravel()].get(mode="promise_in_bounds")
    rows = jnp.pad(share, (0, -share.size % SCALES)).reshape(-1, SCALES)
    scale = (rows * ranges[:, None]).ravel()[: share.size] + offset
    return scale.reshape(codes.shape)
