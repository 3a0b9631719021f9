"""Ranges of activations: observed or learned, and what is rounded within them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn.compression.quantization.marks import round_to_int8
from exburn.core import forward_context
from exburn.core.precision import is_float
from exburn.initializers import Zeros
from exburn.module.variable import Buffer, Parameter

INPUT, SUM, OUTPUT = PLACES = ("input", "sum", "output")

_FLOAT8_MAX = 448.0


class Range(nnx.Pytree):
    """The range of an activation, and its values rounded to 8 bits within it.

    int8 has 256 steps of one size from the lower to the upper end, one of which is 0,
    as LiteRT and ONNX have them; float8 (e4m3) has its largest number at the larger
    end. Both ends are 0 before the first batch, and nothing is rounded until then.

    In training an observed range follows the ends of each batch: the first are its
    own, then ``end ← momentum * end + (1 - momentum) * batch's``. A learned one has
    ends that are trained: finer steps against values that are cut off.

    Source: Jacob et al., *Quantization and Training of Neural Networks for Efficient
    Integer-Arithmetic-Only Inference*, 2018; learned ends: Esser et al., *Learned Step
    Size Quantization*, 2020; Jain et al., *Trained Quantization Thresholds*, 2020.
    """

    low: Any
    high: Any
    #: A function that gets the activations, of a copy that measures: it rounds nothing.
    watcher: Callable[[Any], Any] | None = None

    def __init__(self, dtype: str, learned: bool = False, momentum: float = 0.99):
        self.dtype, self.learned, self.momentum = dtype, learned, momentum
        self.settled = False
        kind = Parameter if learned else Buffer
        for name in ("low", "high"):
            common: Any = {"initializer": Zeros(), "own_dtype": True, "label": name}
            setattr(self, name, kind(jnp.zeros((), jnp.float32), **common))

    @property
    def is_known(self) -> bool:
        """Whether something was seen: the ends differ."""
        low, high = (np.asarray(end.get_raw_value()) for end in (self.low, self.high))
        return bool(low < high)

    def set(self, low: Any, high: Any) -> None:
        """Gives the range its ends."""
        self.low.assign(np.float32(low))
        self.high.assign(np.float32(high))

    def __call__(self, x: Any, follows: bool) -> Any:
        """An activation, rounded.

        Args:
            x: It; what is no float stays as it is.
            follows: Whether an observed range follows it.
        """
        if not is_float(x.dtype) or not x.size:
            return x
        if self.watcher is not None:
            self.watcher(x)
            return x
        if follows and not self.learned and not self.settled:
            self._follow(x)
        return self.round(x)

    def round(self, x: Any) -> Any:
        """An array rounded within the range as it is now."""
        low, high = self.low.get_value(), self.high.get_value()
        rounded: Any = round_within(self.dtype, x.astype(jnp.float32), low, high)
        if not self.settled:
            rounded = jnp.where(low < high, rounded, x)
        return rounded.astype(x.dtype)

    def _follow(self, x: Any) -> None:
        x = real_rows(jax.lax.stop_gradient(x).astype(jnp.float32))
        old = self.low.get_value(), self.high.get_value()
        first, memory = old[0] == old[1], np.float32(self.momentum)
        for end, before, now in zip(
            (self.low, self.high),
            old,
            (jnp.minimum(x.min(), 0), jnp.maximum(x.max(), 0)),
            strict=True,
        ):
            moved = memory * before + (1 - memory) * now
            moved = jnp.where(first, now, moved)
            end.assign(jnp.where(jnp.isfinite(moved), moved, before))


class Ranges(nnx.Pytree):
    """The ranges of one layer: what ``call`` gets, sums, and gives is rounded.

    Args:
        places: Some of ``"input"`` (the first argument), ``"sum"`` (before the layer's
            activation) and ``"output"``.
        dtype, learned, momentum: As of :class:`Range`.
        activation: The activation of a layer whose sums are rounded: the layer itself
            has none while this does.
    """

    def __init__(
        self,
        places: Any,
        dtype: str = "int8",
        learned: bool = False,
        momentum: float = 0.99,
        activation: Any = None,
    ):
        self.activation = activation
        self.input: Any
        self.sum: Any
        self.output: Any
        for name in PLACES:
            there = name in places
            range_ = Range(dtype, learned, momentum) if there else None
            setattr(self, name, nnx.data(range_) if there else None)

    @property
    def places(self) -> tuple[str, ...]:
        """Where there are ranges."""
        return tuple(name for name in PLACES if getattr(self, name) is not None)

    def items(self) -> Iterator[tuple[str, Range]]:
        """The ranges by place."""
        return ((name, getattr(self, name)) for name in self.places)

    def drop(self, place: str) -> None:
        """Removes a range: nothing is rounded there any more."""
        delattr(self, place)
        setattr(self, place, None)

    def __call__(
        self, layer: Any, call: Callable, args: tuple, kwargs: dict[str, Any]
    ) -> Any:
        """Intercepts the layer's call: its input and outputs are rounded."""
        ctx = forward_context.current()
        if self.input is not None and args:
            args = (self._each(self.input, layer, args[0], ctx), *args[1:])
        outputs = call(*args, **kwargs)
        if self.sum is not None:
            outputs = self._each(self.sum, layer, outputs, ctx)
        if self.activation is not None:
            outputs = jax.tree.map(self.activation, outputs)
        if self.output is not None:
            outputs = self._each(self.output, layer, outputs, ctx)
        return outputs

    def _each(self, range_: Range, layer: Any, values: Any, ctx: Any) -> Any:
        follows = ctx.training and layer.trainable

        def one(value: Any) -> Any:
            rounded = range_(value, follows)
            if rounded is not value and (mask := ctx.mask_of(value)) is not None:
                ctx.set_mask(rounded, mask)
            return rounded

        return jax.tree.map(one, values)


def real_rows(x: Any) -> Any:
    """An array with zeros in rows that are only padding."""
    ctx = forward_context.current()
    rows = None if ctx is None else ctx.row_mask
    if rows is None or not x.ndim or rows.shape[0] != x.shape[0]:
        return x
    return jnp.where(rows.astype(bool).reshape((-1,) + (1,) * (x.ndim - 1)), x, 0)


def grid(low: Any, high: Any) -> tuple[Any, Any]:
    """Scale and zero point of int8 between two ends: both float32."""
    low, high = jnp.minimum(low, 0), jnp.maximum(high, 0)
    scale = jnp.maximum(high - low, np.finfo(np.float32).tiny * 1e3) / np.float32(255)
    return scale, jnp.rint(-128 - low / scale)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def round_within(dtype: str, x: Any, low: Any, high: Any) -> Any:
    """A float32 array rounded to 8 bits between two ends."""
    if dtype == "int8":
        return round_to_int8(x, *grid(low, high))
    scale = jnp.maximum(jnp.maximum(-low, high), 1e-30) / _FLOAT8_MAX
    few = jnp.clip(x / scale, -_FLOAT8_MAX, _FLOAT8_MAX).astype(jnp.float8_e4m3fn)
    return few.astype(jnp.float32) * scale


def _forward(dtype, x, low, high):
    y = round_within(dtype, x, low, high)
    return y, (x, y, low, high)


def _backward(dtype, saved, upstream):
    """Straight through within the range; the ends get what the steps' size changes.

    With ``y = s q`` and q fixed: ``dy/ds = y / s`` for what is cut off, and, as q
    follows x, ``(y - x) / s`` for all else (Esser et al., LSQ; Jain et al., TQT).
    """
    x, y, low, high = saved
    if dtype == "float8":
        size = jnp.maximum(-low, high)
        beyond = jnp.abs(x) > size
        moved = (upstream * jnp.where(beyond, y, y - x)).sum() / size
        upper = high >= -low
        d_low, d_high = jnp.where(upper, 0, -moved), jnp.where(upper, moved, 0)
    else:
        low, high = jnp.minimum(low, 0), jnp.maximum(high, 0)
        below, above = x < low, x > high
        beyond = below | above
        inner = (upstream * jnp.where(beyond, 0, y - x)).sum() / (high - low)
        d_low = jnp.where(below, upstream, 0).sum() - inner
        d_high = jnp.where(above, upstream, 0).sum() + inner
    usable = low < high
    d_low, d_high = (jnp.where(usable, end, 0) for end in (d_low, d_high))
    return jnp.where(beyond & usable, 0, upstream), d_low, d_high


round_within.defvjp(_forward, _backward)
