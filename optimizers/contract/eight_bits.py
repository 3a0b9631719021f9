"""An optimizer's slots in 8 bits: blocks of 256 entries that share a scale.

A block is divided by its largest entry; what is left, from -1 to 1, is one of 256
numbers, of which the upper powers of ten have more (the *dynamic* data type): entries
above a tenth of the largest are known to 2 % on average, those of a thousandth to 10 %,
those of a hundred-thousandth to 30 %. A slot takes 1 + 4/256 bytes an entry, not 4.

Codes and values are those of bitsandbytes, but for two things. The scale has the sign
of the largest entry, which is therefore exact; and no second moment becomes 0 beside a
larger one, since updates are divided by it.

Source: Dettmers et al., *8-bit Optimizers via Block-wise Quantization*, 2022.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from exburn.errors import ArgumentError

BLOCK = 256  # entries that share a scale
LEAST = 4096  # entries of a parameter; the slots of smaller ones stay in float32
_DECADES = 7  # powers of ten from 1e-7 to 1


class EightBitSlot(NamedTuple):
    """One slot of a parameter.

    Attributes:
        codes: uint8, of the parameter's shape.
        scales: float32, one for each block.
    """

    codes: Any
    scales: Any


def dynamic_map(signed: bool) -> np.ndarray:
    """The 256 numbers that codes stand for, in their order.

    Example:
        >>> [round(float(v), 3) for v in dynamic_map(True)[[0, 127, 255]]]
        [-0.993, 0.0, 1.0]
        >>> [f"{v:.3g}" for v in dynamic_map(False)[:3]]
        ['0', '3.25e-07', '7.75e-07']
    """
    means: list[float] = []
    for decade in range(_DECADES):
        edges = np.linspace(0.1, 1, 2 ** (decade + (not signed)) + 1)
        scale = 10.0 ** (decade + 1 - _DECADES)
        means += ((edges[:-1] + edges[1:]) / 2 * scale).tolist()
    below = [-mean for mean in reversed(means)] if signed else []
    return np.array([*below, 0.0, *means, 1.0], np.float32)


def pack_slot(values: jax.Array, signed: bool) -> EightBitSlot:
    """The slot that holds these values, as nearly as 8 bits can.

    Example:
        >>> slot = pack_slot(jnp.array([0.5, -1.0, 0.0]), signed=True)
        >>> slot.scales.tolist()
        [-1.0]
        >>> [round(float(v), 1) for v in unpack_slot(slot, signed=True)[:2]]
        [0.5, -1.0]
    """
    rows = _blocks(values)
    largest, least = jnp.max(rows, -1), jnp.min(rows, -1)
    scales = jnp.where(largest >= -least, largest, least)
    parts = rows / jnp.where(scales == 0, 1, scales)[..., None]
    places = _places(jnp.abs(parts), signed)
    if signed:
        negative = 127 - jnp.minimum(places, 127)
        codes = jnp.where(parts < 0, negative, 127 + places)
    else:
        codes = jnp.where(parts > 0, jnp.maximum(places, 1), 0)
    return EightBitSlot(_whole(codes.astype(jnp.uint8), values.shape), scales)


def unpack_slot(slot: EightBitSlot, signed: bool) -> jax.Array:
    """The values of a slot."""
    parts = _look_up(dynamic_map(signed), _blocks(slot.codes))
    return _whole(parts * slot.scales[..., None], slot.codes.shape)


def _look_up(table: np.ndarray, places: jax.Array) -> jax.Array:
    """Entries of a table, all of whose places are there."""
    return jnp.asarray(table).at[places].get(mode="promise_in_bounds")


def _places(sizes: jax.Array, signed: bool) -> jax.Array:
    """Where numbers from 0 to 1 are among those above 0, from 1; 0 below them all."""
    decades = np.arange(_DECADES)
    bins = 2 ** (decades + (not signed))
    scales = (10.0 ** (_DECADES - 1 - decades)).astype(np.float32)
    widths = (bins / 0.9).astype(np.float32)
    least = 10.0 ** (decades - _DECADES)
    # The decade of each; to look its numbers up makes less of a program than to compute
    # the place in all decades.
    decade = jnp.zeros(sizes.shape, jnp.int32)
    for begin in least[1:].tolist():
        decade += sizes >= begin
    steps = (sizes * _look_up(scales, decade) - 0.1) * _look_up(widths, decade)
    many = lax.shift_left(jnp.int32(bins[0]), decade)
    place = jnp.clip(jnp.floor(steps), 0, many - 1).astype(jnp.int32)
    first = many if signed else many - 1
    places = jnp.where(sizes >= least[0], first + place, 0)
    last = 128 if signed else 255  # a division by itself may give a little less than 1
    return jnp.where(sizes >= 1 - 0.45 / last, last, places)


def _blocks(values: jax.Array) -> jax.Array:
    """Entries in their order, as blocks along a last axis; zeros fill up the last one.

    Where the last axis is of whole blocks the others stay, and with them the layout of
    an array that is divided over devices.
    """
    if values.ndim and values.shape[-1] % BLOCK == 0:
        return values.reshape(*values.shape[:-1], -1, BLOCK)
    flat = values.reshape(-1)
    return jnp.pad(flat, (0, -flat.size % BLOCK)).reshape(-1, BLOCK)


def _whole(rows: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return rows.reshape(-1)[: math.prod(shape)].reshape(shape)


# ---------------------------------------------------------------------- states
def check_bits(optimizer: Any, bits: Any) -> int:
    """The bits of an optimizer's slots.

    Raises:
        ArgumentError: They are neither 32 nor 8, or the optimizer has no such slots.
    """
    op = type(optimizer).__name__
    if isinstance(bits, bool) or bits not in (8, 32):
        raise ArgumentError(op, f"state_bits must be 32 or 8, received {bits!r}")
    if bits == 8 and not eight_bit_slots(optimizer):
        raise ArgumentError(
            op,
            "its state cannot be kept in 8 bits: the class names no eight_bit_slots",
            hint="Use Adam, AdamW, Lamb, Lion, RMSprop or SGD, or 32 bits.",
        )
    return int(bits)


def eight_bit_slots(optimizer: Any) -> Mapping[str, bool]:
    """The slots that an optimizer may have in 8 bits: whether each has signs.

    A class whose rule is its own, and not that of the class which names the slots, must
    name them itself.
    """
    for cls in type(optimizer).__mro__:
        if "eight_bit_slots" in vars(cls):
            return cls.eight_bit_slots
        if {"transformation", "update_step"} & vars(cls).keys():
            break
    return {}


def pack(optimizer: Any, inner: Any) -> Any:
    """A rule's state with the optimizer's slots in 8 bits, where it has them so."""
    return _map_slots(optimizer, pack_slot, inner)


def unpack(optimizer: Any, inner: Any) -> Any:
    """A rule's state in float32."""
    return _map_slots(optimizer, unpack_slot, inner)


def initial(optimizer: Any, inner: Any) -> Any:
    """What ``pack`` gives of the state that a rule begins with: slots of zeros.

    They are constants, for which nothing must be compiled.
    """

    def zeros(leaf: Any, signed: bool) -> EightBitSlot:
        shapes = jax.eval_shape(lambda v: pack_slot(v, signed), leaf)
        return EightBitSlot(*(jnp.zeros(s.shape, s.dtype) for s in shapes))

    return _map_slots(optimizer, zeros, inner)


def convert(optimizer: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """A state whose slots have the optimizer's bits, whatever they had."""
    slots = eight_bit_slots(optimizer)

    def change(path: tuple, leaf: Any) -> Any:
        signed = next((slots[n] for n in _names(path) if n in slots), None)
        if signed is None or not _is_large(leaf):
            return leaf
        if isinstance(leaf, EightBitSlot):
            return leaf if optimizer.state_bits == 8 else unpack_slot(leaf, signed)
        return pack_slot(leaf, signed) if optimizer.state_bits == 8 else leaf

    inner = jax.tree_util.tree_map_with_path(
        change, state["inner"], is_leaf=lambda node: isinstance(node, EightBitSlot)
    )
    return {**state, "inner": inner}


def _map_slots(optimizer: Any, function: Any, inner: Any) -> Any:
    if optimizer.state_bits != 8:
        return inner
    slots = eight_bit_slots(optimizer)

    def change(path: tuple, leaf: Any) -> Any:
        signed = next((slots[n] for n in _names(path) if n in slots), None)
        if signed is None or not _is_large(leaf):
            return leaf
        return function(leaf, signed)

    return jax.tree_util.tree_map_with_path(
        change, inner, is_leaf=lambda node: isinstance(node, EightBitSlot)
    )


def _is_large(leaf: Any) -> bool:
    array = leaf.codes if isinstance(leaf, EightBitSlot) else leaf
    return math.prod(array.shape) >= LEAST


def _names(path: tuple) -> list[str]:
    """What a slot may be called on its path: a field of optax', or the last key."""
    fields = [key.name for key in path if hasattr(key, "name")]
    return [*fields, getattr(path[-1], "key", "")]
