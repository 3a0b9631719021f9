"""Weights in the place of exact ones: packed in few bits, or rounded when read."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from exburn.compression.quantization import marks
from exburn.compression.quantization.scheme import Scheme
from exburn.initializers import Zeros
from exburn.module.variable import Buffer, Weight
from exburn.runtime.kernels import vector_product
from exburn.runtime.kernels.int8_matmul import pad_to_tiles
from exburn.runtime.kernels.padded_matmul import writes_row


class ReadWeight(nnx.Pytree):
    """Base of what stands in the place of an exact weight, and reads like one."""

    scheme: Scheme

    @property
    def shape(self) -> tuple[int, ...]:
        return self.scheme.shape

    @property
    def ndim(self) -> int:
        return len(self.scheme.shape)

    @property
    def dtype(self) -> np.dtype:
        """Dtype that the weight is read in."""
        return jnp.dtype(self.scheme.exact)

    def get_value(self, dtype: Any = None) -> jax.Array:
        """The weight as it is read."""
        raise NotImplementedError

    def numpy(self) -> np.ndarray:
        return np.asarray(self.get_value())

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.array(self.get_value(), dtype=dtype)


class Packed(Buffer):
    """Values, scales, zero points or factors of a :class:`QuantizedWeight`."""


class QuantizedWeight(ReadWeight):
    """Values and scales that read as the weight they were made from.

    ``layer.cast(weight)`` and ``weight.get_value()`` compute the weight; inside a
    compiled program that takes no memory where XLA fuses it into what reads it.

    Args:
        weight: The exact weight: a variable that holds an array or, in a model that is
            about to be loaded, only a shape.
        parts: What is stored, if it was rounded already.
    """

    values: Packed
    scale: Packed

    def __init__(self, weight: Weight, scheme: Scheme, parts: Any = None):
        self.scheme = scheme
        raw: Any = weight.get_raw_value()
        if isinstance(raw, jax.ShapeDtypeStruct) and parts is None:
            parts = [jax.ShapeDtypeStruct(*spec) for spec in scheme.parts.values()]
        else:
            parts = map(jax.device_put, scheme.encode(raw) if parts is None else parts)
        label = weight.get_metadata().get("label", "weight")
        # "own_dtype": another precision of the layer leaves them as they are
        common = {"initializer": Zeros(), "own_dtype": True, "stored": scheme.name}
        for name, part in zip(scheme.parts, parts, strict=True):
            count = math.prod(scheme.shape) if name == "values" else 0
            packed = Packed(part, label=f"{label}_{name}", scalars=count, **common)
            setattr(self, name, packed)

    @property
    def nbytes(self) -> int:
        """Bytes that values, scales and the like take."""
        return self.scheme.nbytes

    @property
    def finite(self) -> bool:
        """Whether the weight was, as far as it is known: then its scales are."""
        scale = self.scale.get_raw_value()
        if isinstance(scale, jax.ShapeDtypeStruct):
            return True
        return bool(np.isfinite(np.asarray(scale).astype(np.float32)).all())

    def get_value(self, dtype: Any = None) -> jax.Array:
        """The weight that the stored values stand for."""
        if self._is_visible():
            return self._read().astype(dtype or self.scheme.exact)
        return self.scheme.decode(*self._parts(), dtype=dtype)

    def _is_visible(self) -> bool:
        """Whether a runtime that is traced for reads integers and scales by itself."""
        scheme = self.scheme
        whole = scheme.static and scheme.blocks == 1 and scheme.dtype != "float8"
        return whole and marks.visible()

    def _read(self) -> jax.Array:
        """The weight as one operation of its integers and its scales."""
        scheme, axes = self.scheme, self.scheme.kept_axes
        values, scale = self._parts()
        whole = scheme.integers(values)
        if axes and axes == tuple(range(axes[0], axes[-1] + 1)):
            # As one axis: runtimes have a scale for each entry of a single one.
            sizes, place = list(scheme.shape), axes[0]
            sizes[place : axes[-1] + 1] = [scheme.rows]
            row = [scheme.rows if i == place else 1 for i in range(len(sizes))]
            whole, scale = whole.reshape(sizes), scale.reshape(row)
        else:
            sizes = [n if i in axes else 1 for i, n in enumerate(scheme.shape)]
            scale = scale.reshape(sizes)
        bits = 4 if scheme.dtype == "int4" else 8
        return marks.read(whole, scale, bits).reshape(scheme.shape)

    def _parts(self) -> list[jax.Array]:
        return [getattr(self, name).get_value() for name in self.scheme.parts]

    def get_raw_value(self) -> jax.Array:
        return self.get_value()

    # ------------------------------------------------------------------ computation
    def take(self, indices: Any, dtype: Any) -> jax.Array:
        """Rows of a table, of which only these are computed: ``[…, columns]``."""
        parts = {
            name: part
            if name == "factor"  # of columns
            else jnp.take(part, indices, 0, mode="clip")
            for name, part in self.scheme.with_scales(*self._parts()).items()
        }
        return self.scheme.decode_rows(parts, dtype)

    def square_norms(self) -> jax.Array:
        """Squared norms of the stored matrix' rows, in float32: ``[rows]``."""
        stored = self.scheme.with_scales(*self._parts())
        rows = self.scheme.decode_rows(stored, jnp.float32)
        return jnp.square(rows).sum(-1)

    def multiply(self, x: Any) -> jax.Array:
        """``[…, columns]`` times the stored matrix: ``[…, rows]``, in x's dtype.

        Nothing of the matrix is kept for the gradient but its stored parts, which are
        read again there.
        """
        if self._is_visible():
            matrix = self._read().transpose(self.scheme.summed + self.scheme.kept_axes)
            return jnp.matmul(x, matrix.reshape(-1, self.scheme.rows))
        if self.scheme.dynamic:
            return _dynamic(x, *self._parts())
        vector, parts = _is_vector(x), self._parts()
        scheme = self.scheme
        wins = vector_product.wins("int4", scheme.columns, x.dtype)
        if wins and scheme.fits_kernel and writes_row(x):
            row = x.reshape(1, -1)
            y = _row_product(scheme)(row, *parts)
            return y.reshape(*x.shape[:-1], -1)
        return _product_of(self.scheme, vector)(x, *parts)


@functools.cache
def _product_of(scheme: Scheme, vector: bool) -> Callable[..., jax.Array]:
    """The product of rows, or of a single one, with a matrix that is stored so.

    Its gradient reads the stored parts anew: without `jax.checkpoint` the matrix in x's
    dtype would be kept from the pass forward for every layer.
    """
    product = _vector_product if vector else _matrix_product
    return jax.checkpoint(functools.partial(product, scheme))


@functools.cache
def _row_product(scheme: Scheme) -> Callable[..., jax.Array]:
    """The product of one row, by the name that the loop of generation finds it by."""
    return vector_product.name_product("int4", _product_of(scheme, True))


def _read_trits(scheme: Scheme, *parts: jax.Array) -> dict[str, jax.Array]:
    """The parts of a matrix by name, those of three numbers without their packing."""
    stored = scheme.with_scales(*parts)
    if scheme.dtype == "ternary":
        stored["values"] = scheme.trits(stored["values"])
    return stored


def _matrix_product(scheme: Scheme, x: jax.Array, *parts: jax.Array) -> jax.Array:
    stored = _read_trits(scheme, *parts)
    if scheme.in_blocks:
        # In x's dtype, so that the gradient's product reads matrices of that, too.
        return _dot(x, scheme.decode_rows(stored, x.dtype), None)
    y = _dot(x, stored["values"].astype(x.dtype), jnp.float32)
    return (y * stored["scale"].astype(jnp.float32)).astype(x.dtype)


def _vector_product(scheme: Scheme, x: jax.Array, *parts: jax.Array) -> jax.Array:
    """One row: a product and a sum, which XLA fuses with reading few bits.

    As a matrix product it would be bound by reading the weight in x's dtype.
    """
    stored = _read_trits(scheme, *parts)
    values, scale = stored["values"], stored["scale"]
    zero, factor = stored.get("zero"), stored.get("factor")
    wide = x.astype(jnp.float32).reshape(-1)
    if factor is not None:
        wide = wide * factor
    if scheme.in_blocks:
        y = _block_terms(scheme, wide, values, scale, zero).sum((-2, -1))
    else:
        y = (values.astype(jnp.float32) * wide).sum(-1) * scale.astype(jnp.float32)
    return y.astype(x.dtype).reshape(*x.shape[:-1], scheme.rows)


def _block_terms(scheme: Scheme, x: Any, values: Any, scale: Any, zero: Any) -> Any:
    """Terms of the products, of which those of both halves are added already."""
    x = jnp.pad(x, (0, scheme.blocks * scheme.size - scheme.columns))
    x = x.reshape(scheme.blocks, scheme.size)
    x = jnp.pad(x, ((0, 0), (0, scheme.block - scheme.size)))

    def read(whole: Any) -> Any:
        exact = whole.astype(jnp.float32)
        return exact if zero is None else exact - zero.astype(jnp.float32)[..., None]

    if scheme.in_halves:
        low, high = scheme.halves(values)
        halves = x.reshape(scheme.blocks, 2, scheme.block // 2)
        terms = read(low) * halves[:, 0]
        terms += read(high) * halves[:, 1]
    else:
        terms = read(values) * x
    return terms * scale.astype(jnp.float32)[..., None]


def _is_vector(x: Any) -> bool:
    """Whether x is one row. On a CPU, XLA's matrix product is the faster one."""
    sizes = x.shape[:-1]
    fixed = all(isinstance(size, int) for size in sizes)
    return fixed and math.prod(sizes) == 1 and jax.default_backend() != "cpu"


def _dot(x: Any, matrix: Any, dtype: Any) -> jax.Array:
    """Products of rows with rows: ``[…, k], [n, k] → […, n]``."""
    axes = (((x.ndim - 1,), (1,)), ((), ()))
    return lax.dot_general(x, matrix, axes, preferred_element_type=dtype)


@jax.custom_vjp
def _dynamic(x: Any, values: Any, scale: Any) -> jax.Array:
    """The product with x rounded to int8, row by row; summed in int32."""
    wide = x.astype(jnp.float32)
    step = jnp.max(jnp.abs(wide), axis=-1, keepdims=True) / 127
    step = jnp.where(step > 0, step, 1)
    whole = jnp.rint(wide / step).astype(jnp.int8)
    if _is_vector(x):
        row = whole.reshape(-1).astype(jnp.int32)
        y = (values.astype(jnp.int32) * row).sum(-1)
        y = y.reshape(*x.shape[:-1], -1)
    else:
        y = _dot(pad_to_tiles(whole, -1), pad_to_tiles(values, -1), jnp.int32)
    return (y * step * scale.astype(jnp.float32)).astype(x.dtype)


def _dynamic_forward(x, values, scale):
    return _dynamic(x, values, scale), (values, scale)


def _dynamic_backward(saved, gradient):
    """As if x had not been rounded: rounding has no useful derivative."""
    values, scale = saved
    scaled = gradient * scale.astype(gradient.dtype)
    axes = (((gradient.ndim - 1,), (0,)), ((), ()))
    d_x = lax.dot_general(scaled, values.astype(gradient.dtype), axes)
    return d_x, None, None


_dynamic.defvjp(_dynamic_forward, _dynamic_backward)


class SimulatedWeight(ReadWeight):
    """An exact weight that reads as its scheme would give it back.

    The gradient passes the rounding as if it were not there (straight through), so the
    exact weight learns what becomes of it.

    Example:
        >>> import numpy as np
        >>> from exburn.module.variable import Parameter
        >>> weight = Parameter(np.float32([[100.0], [0.4], [127.0]]))
        >>> read = SimulatedWeight(weight, Scheme("int8", (3, 1), summed=(0,)))
        >>> read.numpy().ravel().tolist(), read.exact.numpy().ravel().tolist()
        ([100.0, 0.0, 127.0], [100.0, 0.4000000059604645, 127.0])

    Source: Bengio et al., *Estimating or Propagating Gradients Through Stochastic
    Neurons*, 2013 (the straight-through estimator).
    """

    exact: Any

    _in_place_of = "exact"

    def __init__(self, weight: Weight, scheme: Scheme):
        self.scheme, self.exact = scheme, weight

    def get_value(self, dtype: Any = None) -> jax.Array:
        """The weight as it will be read once it is stored."""
        value = _straight(self.scheme, self.exact.get_value())
        return value.astype(dtype or self.scheme.exact)

    def get_raw_value(self) -> Any:
        return self.exact.get_raw_value()

    def assign(self, value: Any) -> Any:
        """Replaces the exact weight."""
        return self.exact.assign(value)


def simulated_schemes(layer: Any) -> list[Scheme]:
    """How the layer's own weights will be stored, those that are simulated."""
    values = vars(layer).values()
    return [value.scheme for value in values if isinstance(value, SimulatedWeight)]


@jax.custom_vjp
def _identity(exact: Any, rounded: Any) -> Any:
    return rounded


_identity.defvjp(lambda exact, rounded: (rounded, None), lambda _, g: (g, None))


def _straight(scheme: Scheme, exact: Any) -> Any:
    rounded = jax.lax.stop_gradient(scheme.round(exact))
    return _identity(exact, rounded.astype(exact.dtype))
