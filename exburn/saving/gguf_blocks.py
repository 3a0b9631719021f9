"""Forms in which GGUF files store numbers: blocks of some bits with their scales.

The arithmetic is that of ggml's reference, in float32.

Source: https://github.com/ggml-org/ggml/blob/master/src/ggml-quants.c
"""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np


class Block(NamedTuple):
    """A form of numbers.

    Attributes:
        name: As llama.cpp calls it.
        size: Numbers of a block.
        nbytes: Bytes of a block.
        dtype: Dtype of what is read.
    """

    name: str
    size: int
    nbytes: int
    dtype: str = "float32"


F32, F16, Q4_0, Q8_0, Q4_K, Q5_K, Q6_K, BF16 = 0, 1, 2, 8, 12, 13, 14, 30
BLOCKS = {
    F32: Block("F32", 1, 4),
    F16: Block("F16", 1, 2, "float16"),
    Q4_0: Block("Q4_0", 32, 2 + 16),
    Q8_0: Block("Q8_0", 32, 2 + 32),
    Q4_K: Block("Q4_K", 256, 2 + 2 + 12 + 128),
    Q5_K: Block("Q5_K", 256, 2 + 2 + 12 + 32 + 128),
    Q6_K: Block("Q6_K", 256, 128 + 64 + 16 + 2),
    BF16: Block("BF16", 1, 2, "bfloat16"),
}
# Other forms that there are, for errors.
NAMES = {3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K"}
NAMES |= {15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S"}
NAMES |= {20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16"}
NAMES |= {26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0"}
NAMES |= {39: "MXFP4"}


def decode(data: np.ndarray, kind: int) -> np.ndarray:
    """The numbers of whole blocks, ``[numbers]``.

    Args:
        data: Bytes.
        kind: The number of their form.

    Example:
        >>> decode(np.array([1.5], "<f4").view(np.uint8), F32).tolist()
        [1.5]
    """
    if kind in (F32, F16, BF16):
        dtype = {F32: "<f4", F16: "<f2", BF16: ml_dtypes.bfloat16}[kind]
        return data.view(dtype)
    blocks = data.reshape(-1, BLOCKS[kind].nbytes)
    return _DECODERS[kind](blocks).reshape(-1)


def _half(values: np.ndarray) -> np.ndarray:
    """Numbers of two bytes, ``[blocks, 1]``."""
    return np.ascontiguousarray(values).view("<f2").astype(np.float32)


def _nibbles(values: np.ndarray) -> np.ndarray:
    """The low and the high halves of bytes, on a new axis before the last one."""
    return np.stack([values & 15, values >> 4], -2)


def _q4_0(blocks: np.ndarray) -> np.ndarray:
    scale, values = np.split(blocks, [2], 1)
    numbers = _nibbles(values).reshape(len(blocks), -1).astype(np.int8) - 8
    return _half(scale) * numbers.astype(np.float32)


def _q8_0(blocks: np.ndarray) -> np.ndarray:
    scale, values = np.split(blocks, [2], 1)
    return values.view(np.int8).astype(np.float32) * _half(scale)


def _scales_of_6_bits(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and offsets of a block's eight parts, ``[blocks, 8, 1]``."""
    low, offset, rest = np.split(packed.reshape(-1, 3, 4), 3, 1)
    scales = np.concatenate([low & 63, (rest & 15) | ((low >> 2) & 48)], -1)
    offsets = np.concatenate([offset & 63, (rest >> 4) | ((offset >> 2) & 48)], -1)
    first, second = (v.reshape(-1, 8, 1).astype(np.float32) for v in (scales, offsets))
    return first, second


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    scale, least, packed, values = np.split(blocks, [2, 4, 16], 1)
    scales, offsets = _scales_of_6_bits(packed)
    numbers = _nibbles(values.reshape(-1, 4, 32)).reshape(-1, 8, 32)
    scales, offsets = (
        _half(scale)[..., None] * scales,
        _half(least)[..., None] * offsets,
    )
    return scales * numbers.astype(np.float32) - offsets


def _q5_k(blocks: np.ndarray) -> np.ndarray:
    scale, least, packed, high, values = np.split(blocks, [2, 4, 16, 48], 1)
    scales, offsets = _scales_of_6_bits(packed)
    low = _nibbles(values.reshape(-1, 4, 32)).reshape(-1, 8, 32)
    bits = np.arange(8, dtype=np.uint8)[:, None]
    numbers = low | (((high[:, None] >> bits) & 1) << 4)
    scales, offsets = (
        _half(scale)[..., None] * scales,
        _half(least)[..., None] * offsets,
    )
    return scales * numbers.astype(np.float32) - offsets


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    low, high, scales, scale = np.split(blocks, [128, 192, 208], 1)
    low = _nibbles(low.reshape(-1, 2, 64)).reshape(-1, 8, 32)
    places = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    high = ((high.reshape(-1, 2, 1, 32) >> places) & 3).reshape(-1, 8, 32)
    numbers = (low | (high << 4)).astype(np.int8) - np.int8(32)
    scales = _half(scale) * scales.view(np.int8).astype(np.float32)
    return scales[..., None] * numbers.reshape(-1, 16, 16).astype(np.float32)


_DECODERS = {
    Q4_0: _q4_0,
    Q8_0: _q8_0,
    Q4_K: _q4_k,
    Q5_K: _q5_k,
    Q6_K: _q6_k,
}
