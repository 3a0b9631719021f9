"""How one weight is stored in few bits, and read again."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from exburn.errors import ArgumentError

__all__ = ["Scheme"]

_LARGEST = {"int8": 127.0, "float8": 448.0}
_STORED = {"int8": np.int8, "int4": np.uint8, "float8": ml_dtypes.float8_e4m3fn}
_ROWS = 1 << 22  # entries that are encoded at a time, to bound the copies


@dataclasses.dataclass(frozen=True)
class Scheme:
    """How a weight is stored: as a matrix of one row for each output.

    The axes that the layer's product sums over become the columns, the others the
    rows, and each row (for int4: each block of a row) has a scale of its own. The
    products then need the scale only once an output, and read memory in order.

    Scales are bfloat16, rounded up so that no entry is clipped. That of an int4 block
    has the sign that makes its largest entry -8, the one number without a counterpart;
    this takes an eighth off the error. The two halves of a block share bytes: entry i
    has the low, entry i + block / 2 the high bits.

    Args:
        dtype: ``"int8"``, ``"int4"`` or ``"float8"`` (e4m3).
        shape: Shape of the exact weight.
        summed: Axes that the product sums over.
        block_size: Entries of a row that share a scale, at most, or -1 for the whole
            row; for int4 only.
        dynamic: Whether the product rounds its input to int8 as well.
        exact: Dtype of the exact weight.
        scales: Dtype of the scales: float32 for a quantizer of the user's.

    Example:
        >>> scheme = Scheme("int8", (4, 2), summed=(0,))
        >>> values, scale = scheme.encode(127 * np.eye(4, 2, dtype=np.float32))
        >>> values.tolist(), scale.tolist()
        ([[127, 0, 0, 0], [0, 127, 0, 0]], [1.0, 1.0])
    """

    dtype: str
    shape: tuple[int, ...]
    summed: tuple[int, ...]
    block_size: int | None = None
    dynamic: bool = False
    exact: str = "float32"
    scales: str = "bfloat16"

    @property
    def name(self) -> str:
        """For tables: ``int8``, ``int8 dynamic``, ``int4/64``."""
        if self.block_size not in (None, -1):
            return f"{self.dtype}/{self.block}"
        return f"{self.dtype} dynamic" if self.dynamic else self.dtype

    @functools.cached_property
    def kept(self) -> tuple[int, ...]:
        """Axes that are not summed over."""
        return tuple(i for i in range(len(self.shape)) if i not in self.summed)

    @property
    def rows(self) -> int:
        return math.prod(self.shape[i] for i in self.kept)

    @property
    def columns(self) -> int:
        return math.prod(self.shape[i] for i in self.summed)

    @property
    def blocks(self) -> int:
        """Number of scales of a row."""
        size = self.block_size
        return 1 if size is None or size == -1 else -(-self.columns // size)

    @property
    def block(self) -> int:
        """Entries of a block: all blocks of a row are equally long, and even."""
        size = -(-self.columns // self.blocks)
        return size + size % 2

    @property
    def values_spec(self) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype of the stored values."""
        if self.dtype == "int4":
            return (self.rows, self.blocks, self.block // 2), np.dtype(np.uint8)
        return (self.rows, self.columns), np.dtype(_STORED[self.dtype])

    @property
    def scale_spec(self) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype of the scales."""
        shape = (self.rows, self.blocks) if self.dtype == "int4" else (self.rows,)
        return shape, jnp.dtype(self.scales)

    @property
    def nbytes(self) -> int:
        """Bytes of values and scales."""
        specs = (self.values_spec, self.scale_spec)
        return sum(math.prod(shape) * dtype.itemsize for shape, dtype in specs)

    # ------------------------------------------------------------------ on the host
    def encode(self, weight: Any) -> tuple[np.ndarray, np.ndarray]:
        """Values and scales of an exact weight."""
        matrix = np.asarray(weight).transpose(self.kept + self.summed)
        matrix = matrix.reshape(self.rows, self.columns)
        values = np.empty(*self.values_spec)
        scale = np.empty(*self.scale_spec)
        step = max(1, _ROWS // max(1, self.columns))
        for start in range(0, self.rows, step):
            part = slice(start, start + step)
            rows = matrix[part].astype(np.float32)
            with np.errstate(invalid="ignore"):  # of NaN; the scale tells
                values[part], scale[part] = self._encode_rows(rows)
        return values, scale

    def _encode_rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.dtype == "int4":
            missing = self.blocks * self.block - self.columns
            rows = np.pad(rows, ((0, 0), (0, missing)))
            rows = rows.reshape(len(rows), self.blocks, self.block)
            at = np.abs(rows).argmax(-1)[..., None]
            scale = _round_up(np.take_along_axis(rows, at, -1)[..., 0] / -8)
        else:
            scale = _round_up(np.abs(rows).max(-1) / np.float32(_LARGEST[self.dtype]))
        exact = rows / scale.astype(np.float32)[..., None]
        if self.dtype == "float8":
            return exact.astype(ml_dtypes.float8_e4m3fn), scale
        if self.dtype == "int8":
            return np.rint(exact).astype(np.int8), scale
        return _in_halves(np.clip(np.rint(exact), -8, 7)), scale

    def encode_by(self, quantizer: Any, weight: Any) -> tuple[np.ndarray, np.ndarray]:
        """Values and scales as a quantizer of the user's gives them.

        Raises:
            ArgumentError: Its scales differ within what one output sums.
        """
        exact = np.asarray(weight)
        takes = inspect.signature(quantizer.__call__).parameters
        options = {"to_numpy": True} if "to_numpy" in takes else {}
        values, scale = map(np.asarray, quantizer(exact, **options))
        values, scale = (
            np.broadcast_to(part, exact.shape)
            .transpose(self.kept + self.summed)
            .reshape(self.rows, self.columns)
            for part in (values, scale)
        )
        if self.columns and (scale != scale[:, :1]).any():
            raise ArgumentError(
                "quantize",
                "the quantizer of weights must give one scale for each output",
                {"weight": exact.shape, "summed axes": self.summed},
                hint=f"AbsMaxQuantizer(axis={self.summed}), for this weight.",
            )
        scale = 1 / scale[:, :1].astype(np.float32)
        if self.dtype == "int4":
            values = np.pad(values, ((0, 0), (0, self.block - self.columns)))
            return _in_halves(values[:, None]), scale
        return values.astype(np.int8), scale[:, 0]

    # ------------------------------------------------------------------ on the device
    def halves(self, values: Any) -> tuple[Any, Any]:
        """Both halves of every int4 block as int8: ``[rows, blocks, block / 2]``."""
        signed = values.astype(jnp.int8)
        return (signed << 4) >> 4, signed >> 4  # arithmetic shifts keep the sign

    def decode(self, values: Any, scale: Any, dtype: Any = None) -> Any:
        """The weight, in its own shape."""
        dtype = dtype or self.exact
        sizes = [self.shape[i] for i in self.kept + self.summed]
        matrix = self.decode_rows(values, scale, dtype).reshape(sizes)
        return matrix.transpose(np.argsort(self.kept + self.summed))

    def decode_rows(self, values: Any, scale: Any, dtype: Any) -> Any:
        """Rows ``[…, columns]`` of values ``[…, columns]``, or of blocks of int4."""
        if self.dtype == "int4":
            values = jnp.concatenate(self.halves(values), axis=-1)
        exact = values.astype(jnp.float32) * scale.astype(jnp.float32)[..., None]
        if self.dtype == "int4":
            exact = exact.reshape(*exact.shape[:-2], -1)[..., : self.columns]
        return exact.astype(dtype)


def _in_halves(whole: np.ndarray) -> np.ndarray:
    """Integers from -8 to 7, two in a byte: entry i and entry i + half."""
    low, high = np.split(whole.astype(np.int8).view(np.uint8), 2, axis=-1)
    return (low & 0xF) | (high << 4)


def _round_up(scale: np.ndarray) -> np.ndarray:
    """The scale in bfloat16, of no smaller magnitude; 1 where it is zero."""
    rounded = scale.astype(ml_dtypes.bfloat16)
    below = np.abs(rounded.astype(np.float32)) < np.abs(scale)
    away = np.copysign(ml_dtypes.bfloat16(np.inf), rounded)
    rounded = np.where(below, np.nextafter(rounded, away), rounded)
    return np.where(rounded == 0, ml_dtypes.bfloat16(1), rounded)
