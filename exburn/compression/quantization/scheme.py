"""How one weight is stored in few bits, and read again."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from exburn.compression.quantization import normal_float
from exburn.compression.quantization.grid import Grid
from exburn.core.random_keys import tracing
from exburn.errors import ArgumentError
from exburn.quantizers.packing import TERNARY_PLACES, pack_ternary, split_ternary
from exburn.quantizers.rounding import ternarize

_LARGEST = {"int8": 127.0, "int4": 7.0, "float8": 448.0}
_STORED = {
    "int8": np.int8,
    "int4": np.uint8,
    "nf4": np.uint8,
    "ternary": np.uint8,
    "float8": ml_dtypes.float8_e4m3fn,
}
_ENTRIES = 1 << 18  # that a thread encodes at a time, so that copies stay in caches


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

    Numbers that are -1, 0 and 1 have one float32 factor for the whole weight, and five
    neighbours of a row share a byte.

    The codes of nf4 lie as int4's integers do; a block's scale is its largest
    magnitude, in float32, or in 8 bits beside a range for each 256 scales and a mean.

    Args:
        dtype: ``"int8"``, ``"int4"``, ``"nf4"``, ``"float8"`` (e4m3) or ``"ternary"``.
        shape: Shape of the exact weight.
        summed: Axes that the product sums over.
        block_size: Entries of a row that share a scale, at most, or -1 for the whole
            row; for int4 and nf4, and where there is a method.
        dynamic: Whether the product rounds its input to int8 as well.
        exact: Dtype of the exact weight.
        scales: Dtype of the scales: float32 for a quantizer of the user's, uint8 for
            those of nf4 that are rounded, too.
        method: ``"gptq"`` or ``"awq"`` if the weight was rounded on data: then each
            block has integers of ``bits`` bits less its zero point, and for awq each
            column a factor.
        bits: Bits that the method uses.
        static: Whether activations are rounded to 8 bits within fixed ranges, too: then
            scales are positive float32, as the integer arithmetic of other runtimes
            takes them.
        threshold: Of ternary: up to which magnitude numbers count as 0; half of their
            mean magnitude if None.
    """

    dtype: str
    shape: tuple[int, ...]
    summed: tuple[int, ...]
    block_size: int | None = None
    dynamic: bool = False
    exact: str = "float32"
    scales: str = "bfloat16"
    method: str | None = None
    bits: int = 4
    static: bool = False
    threshold: float | None = None

    @property
    def mode(self) -> str:
        """The mode of ``quantize``, as Keras names it."""
        return self.method or self.dtype

    @property
    def name(self) -> str:
        """For tables: ``int8``, ``int8 dynamic``, ``int4/64``, ``gptq/4/128``."""
        if self.method is not None:
            return f"{self.method}/{self.bits}/{self.block_size}"
        kind = " dynamic" if self.dynamic else " static" if self.static else ""
        if self.block_size not in (None, -1):
            return f"{self.dtype}/{self.block}{kind}"
        return f"{self.dtype}{kind}"

    @functools.cached_property
    def kept_axes(self) -> tuple[int, ...]:
        """Axes that are not summed over."""
        return tuple(i for i in range(len(self.shape)) if i not in self.summed)

    @property
    def rows(self) -> int:
        return math.prod(self.shape[i] for i in self.kept_axes)

    @property
    def columns(self) -> int:
        return math.prod(self.shape[i] for i in self.summed)

    @property
    def blocks(self) -> int:
        """Number of scales of a row."""
        size = self.block_size
        return 1 if size is None or size == -1 else -(-self.columns // size)

    @property
    def fits_kernel(self) -> bool:
        """Whether `kernels.vector_product` reads the matrix, as ``"int4"``."""
        whole = self.block == self.size and self.blocks * self.size == self.columns
        whole &= self.block & (self.block - 1) == 0
        return self.dtype == "int4" and self.method is None and whole

    @property
    def in_blocks(self) -> bool:
        """Whether a row is stored in blocks, each with a scale."""
        return self.in_halves or self.method is not None

    @property
    def in_halves(self) -> bool:
        """Whether two entries share a byte."""
        return self.dtype in ("int4", "nf4")

    @property
    def size(self) -> int:
        """Entries of a block. Those of a method are as long as it was told."""
        if self.method is not None and self.blocks > 1:
            return self.block_size  # type: ignore[return-value]
        size = -(-self.columns // self.blocks)
        return size if self.method is not None else size + size % 2

    @property
    def block(self) -> int:
        """Places of a block: its entries, and one more where halves must be equal."""
        return self.size + self.size % 2

    @property
    def values_spec(self) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype of the stored values."""
        if self.in_halves:
            return (self.rows, self.blocks, self.block // 2), np.dtype(np.uint8)
        if self.in_blocks:
            return (self.rows, self.blocks, self.block), np.dtype(np.int8)
        width = self.columns
        if self.dtype == "ternary":
            width = -(-width // len(TERNARY_PLACES))
        return (self.rows, width), np.dtype(_STORED[self.dtype])

    @property
    def scale_spec(self) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype of the scales."""
        if self.dtype == "ternary":
            return (), jnp.dtype(self.scales)
        shape = (self.rows, self.blocks) if self.in_blocks else (self.rows,)
        return shape, jnp.dtype(self.scales)

    @property
    def parts(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Shapes and dtypes of all that is stored, by name."""
        specs = {"values": self.values_spec, "scale": self.scale_spec}
        if self.method is not None:
            specs["zero"] = (self.rows, self.blocks), np.dtype(np.int8)
        if self.method == "awq":
            specs["factor"] = (self.columns,), np.dtype(np.float32)
        if self.scales == "uint8":
            count = -(-self.rows * self.blocks // normal_float.SCALES)
            specs["range"] = (count,), np.dtype(np.float32)
            specs["offset"] = (), np.dtype(np.float32)
        return specs

    @property
    def nbytes(self) -> int:
        """Bytes of all that is stored."""
        specs = self.parts.values()
        return sum(math.prod(shape) * dtype.itemsize for shape, dtype in specs)

    # ------------------------------------------------------------------ encoding
    def matrix(self, weight: Any) -> np.ndarray:
        """An exact weight as the matrix that is stored: ``[rows, columns]``."""
        xp = jnp if isinstance(weight, jax.Array) else np  # a device turns it at once
        matrix = xp.transpose(weight, self.kept_axes + self.summed)
        return np.asarray(matrix.reshape(self.rows, self.columns))

    def encode(self, weight: Any) -> tuple[np.ndarray, ...]:
        """The parts of an exact weight: values and scales, and what a method has."""
        if self._is_encoded_in_place(weight):
            values, scale = _encode_at_once(self, weight)
            return self._with_encoded_scales(values, scale)
        matrix = self.matrix(weight)
        if self.method is not None:
            blocks = self.group_rows(matrix.astype(np.float32))
            with np.errstate(invalid="ignore"):  # of NaN; the scale tells
                grid = Grid.of(blocks, self.bits)
                return self.pack(grid.round(blocks), grid)
        if self.dtype == "ternary":
            codes, factor = ternarize(jnp.asarray(matrix), self.threshold)
            packed, _, _ = pack_ternary(codes, axis=-1)
            return np.asarray(packed), np.asarray(factor)
        values, (shape, dtype) = np.empty(*self.values_spec), self.scale_spec
        scale = np.empty(shape, np.float32 if self.scales == "uint8" else dtype)
        step = max(1, _ENTRIES // max(1, self.columns))

        def encode_part(start: int) -> None:
            part = slice(start, start + step)
            rows = matrix[part].astype(np.float32)
            with np.errstate(invalid="ignore"):  # of NaN; the scale tells
                values[part], scale[part] = self._encode_rows(rows, np)

        with ThreadPoolExecutor(os.cpu_count(), "exburn-quantize") as threads:
            list(threads.map(encode_part, range(0, self.rows, step)))
        return self._with_encoded_scales(values, scale)

    def _is_encoded_in_place(self, weight: Any) -> bool:
        """Whether an accelerator that holds the weight encodes it.

        The host takes minutes for the numbers of 4 bits of a model of 8B; for small
        weights of its own it takes less than a compilation. Both choose the same
        numbers but where a weight is in the middle of two: XLA's quotients are not
        the nearest ones.
        """
        held = self.in_halves and isinstance(weight, jax.Array)
        if not held or self.method is not None:
            return False
        places = weight.devices()
        return len(places) == 1 and all(place.platform != "cpu" for place in places)

    def _with_encoded_scales(self, values: Any, scale: Any) -> tuple[Any, ...]:
        if self.scales == "uint8":
            return values, *normal_float.encode_scales(np.asarray(scale))
        return values, scale

    def group_rows(self, matrix: Any, xp: Any = np) -> Any:
        """Rows in blocks, with zeros behind them: ``[rows, blocks, size]``."""
        missing = self.blocks * self.size - self.columns
        rows = xp.pad(matrix, ((0, 0), (0, missing)))
        return rows.reshape(len(rows), self.blocks, self.size)

    def pack(
        self, whole: np.ndarray, grid: Grid, factor: np.ndarray | None = None
    ) -> tuple[np.ndarray, ...]:
        """The parts of integers that a method chose: ``[rows, blocks, size]``."""
        middle = 2 ** (self.bits - 1)
        values = (whole - middle).astype(np.int8)
        values = np.pad(values, ((0, 0), (0, 0), (0, self.block - self.size)))
        parts = {
            "values": pack_halves(values) if self.in_halves else values,
            "scale": grid.scale.astype(np.float32),
            "zero": (grid.zero - middle).astype(np.int8),
            "factor": np.ones(self.columns, np.float32) if factor is None else factor,
        }
        return tuple(parts[name] for name in self.parts)

    def _encode_rows(self, rows: Any, xp: Any) -> tuple[Any, Any]:
        """Values and scales of rows in float32, by NumPy or by JAX."""
        if self.in_halves:
            rows = self.group_rows(rows, xp)
        if self.dtype == "nf4":
            scale = xp.abs(rows).max(-1)
            shares = rows / xp.where(scale == 0, 1, scale)[..., None]
            codes = normal_float.nearest_codes(shares, xp)
            missing = self.block - self.size
            codes = xp.pad(codes, ((0, 0), (0, 0), (0, missing)))
            return pack_halves(codes, xp), scale
        scale = self._scales(rows, xp)
        exact = rows / scale[..., None]
        if self.dtype == "float8":
            return exact.astype(ml_dtypes.float8_e4m3fn), scale
        if self.dtype == "int8":
            return xp.rint(exact).astype(np.int8), scale
        return pack_halves(xp.clip(xp.rint(exact), -8, 7), xp), scale

    def _scales(self, rows: Any, xp: Any) -> Any:
        """The scales of rows, or of blocks of them, in float32; 1 of nothing but 0."""
        if self.dtype == "int4" and not self.static:
            at = xp.abs(rows).argmax(-1)[..., None]
            scale = xp.take_along_axis(rows, at, -1)[..., 0] / np.float32(-8)
        elif self.static:  # by a product, as XLA divides by constants
            scale = xp.abs(rows).max(-1) * np.float32(1 / _LARGEST[self.dtype])
        else:
            scale = xp.abs(rows).max(-1) / np.float32(_LARGEST[self.dtype])
        scale = scale if self.static else _round_up(scale)
        return xp.where(scale == 0, np.float32(1), scale)

    def encode_by(self, quantizer: Any, weight: Any) -> tuple[np.ndarray, np.ndarray]:
        """Values and scales as a quantizer of the user's gives them."""
        exact = np.asarray(weight)
        takes = inspect.signature(quantizer.__call__).parameters
        options = {"to_numpy": True} if "to_numpy" in takes else {}
        values, scale = map(np.asarray, quantizer(exact, **options))
        values, scale = (
            self.matrix(np.broadcast_to(part, exact.shape)) for part in (values, scale)
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
            return pack_halves(values[:, None]), scale
        return values.astype(np.int8), scale[:, 0]

    # ------------------------------------------------------------------ on the device
    def round(self, weight: Any) -> Any:
        """What ``encode`` and ``decode`` would give for a weight, in float32."""
        matrix = jnp.transpose(weight, self.kept_axes + self.summed)
        matrix = matrix.reshape(self.rows, self.columns).astype(jnp.float32)
        rows = matrix
        if self.dtype == "int4":
            rows = self.group_rows(matrix, jnp)
        scale = self._scales(rows, jnp)[..., None]
        exact = rows / scale
        if self.dtype == "float8":
            few = exact.astype(jnp.float8_e4m3fn).astype(jnp.float32)
        elif self.dtype == "int8":
            few = jnp.rint(exact)
        else:
            few = jnp.clip(jnp.rint(exact), -8, 7)
        rounded = (few * scale).reshape(self.rows, -1)[:, : self.columns]
        return self._in_shape(rounded)

    def _in_shape(self, matrix: Any) -> Any:
        """The stored matrix as the weight that it stands for."""
        sizes = [self.shape[i] for i in self.kept_axes + self.summed]
        order = np.argsort(self.kept_axes + self.summed)
        return matrix.reshape(sizes).transpose(order)

    def integers(self, values: Any) -> Any:
        """The stored integers of whole rows as int8, in the weight's own shape."""
        if self.dtype == "int4":
            values = jnp.concatenate(self.halves(values), axis=-1)
            values = values[..., : self.size].reshape(self.rows, -1)
        return self._in_shape(values[:, : self.columns])

    def halves(self, values: Any) -> tuple[Any, Any]:
        """Both halves of every block: ``[rows, blocks, block / 2]``.

        Those of int4 are int8; the numbers of nf4 are float32.
        """
        if self.dtype == "nf4":
            read = normal_float.read_levels
            return read(values & np.uint8(15)), read(values >> np.uint8(4))
        signed = values.astype(jnp.int8)
        return (signed << 4) >> 4, signed >> 4  # arithmetic shifts keep the sign

    def trits(self, values: Any) -> Any:
        """The stored -1, 0 and 1 as int8: ``[…, columns]``."""
        whole = jnp.stack(split_ternary(values), -1)
        return whole.reshape(*whole.shape[:-2], -1)[..., : self.columns]

    def decode(self, *parts: Any, dtype: Any = None) -> Any:
        """The weight, in its own shape."""
        dtype = np.dtype(dtype or self.exact)
        # By hand as one program: a dozen operations would be compiled each by itself.
        run = _decode if tracing() else _decode_at_once
        return run(self, dtype, *parts)

    def with_scales(self, *parts: Any) -> dict[str, Any]:
        """The parts by name, with scales that were stored in 8 bits as numbers."""
        stored = dict(zip(self.parts, parts, strict=True))
        if self.scales == "uint8":
            names = ("scale", "range", "offset")
            rounded = (stored.pop(name) for name in names)
            stored["scale"] = normal_float.decode_scales(*rounded)
        return stored

    def decode_rows(self, stored: dict[str, Any], dtype: Any) -> Any:
        """Rows ``[…, columns]`` of ``with_scales``, of any axes instead of rows."""
        values, scale = stored["values"], stored["scale"]
        if self.in_halves:
            values = jnp.concatenate(self.halves(values), axis=-1)
        elif self.dtype == "ternary":
            values = self.trits(values)
        exact = values.astype(jnp.float32)
        if (zero := stored.get("zero")) is not None:
            exact = exact - zero.astype(jnp.float32)[..., None]
        exact = exact * scale.astype(jnp.float32)[..., None]
        if self.in_blocks:
            exact = exact[..., : self.size]
            exact = exact.reshape(*exact.shape[:-2], -1)[..., : self.columns]
        if (factor := stored.get("factor")) is not None:
            exact = exact * factor
        return exact.astype(dtype)


def _decode(scheme: Scheme, dtype: Any, *parts: Any) -> Any:
    return scheme._in_shape(scheme.decode_rows(scheme.with_scales(*parts), dtype))


_decode_at_once = jax.jit(_decode, static_argnums=(0, 1))


@functools.partial(jax.jit, static_argnums=0)  # one program for all of a scheme
def _encode_at_once(scheme: Scheme, weight: Any) -> tuple[Any, Any]:
    matrix = jnp.transpose(weight, scheme.kept_axes + scheme.summed)
    matrix = matrix.reshape(scheme.rows, scheme.columns).astype(jnp.float32)
    values, scale = scheme._encode_rows(matrix, jnp)
    return values, scale if scheme.scales == "uint8" else scale.astype(scheme.scales)


def pack_halves(whole: Any, xp: Any = np) -> Any:
    """Integers from -8 to 7, two in a byte: entry i and entry i + half."""
    low, high = xp.split(whole.astype(np.int8).view(np.uint8), 2, axis=-1)
    return (low & 0xF) | (high << 4)


def _round_up(scale: Any) -> Any:
    """Scales in float32 that bfloat16 holds, of no smaller magnitude."""
    bits = scale.view(np.uint32)
    return ((bits + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)).view(np.float32)
