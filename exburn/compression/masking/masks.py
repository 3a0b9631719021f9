"""Masks beside weights: one bit for each number of the weight, set if it may be used.

A weight is zero wherever its mask is, so nothing that computes with it asks for the
mask. Only what changes weights does: a step of training, an adapter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn.initializers import Constant
from exburn.module.selection import layer_paths
from exburn.module.traversal import iter_modules
from exburn.module.variable import exact_weight

_SUFFIX = "_mask"
_MASKS = "masks"  # the attribute that a mask is of, in its metadata


def pack(alive: Any) -> jax.Array:
    """Eight entries in a byte, in the order of the flat weight; set bits at the end."""
    flat = jnp.asarray(alive).reshape(-1)
    return jnp.packbits(jnp.pad(flat, (0, -flat.size % 8), constant_values=True))


def unpack(bits: Any, shape: tuple[int, ...]) -> jax.Array:
    """The inverse of ``pack``: bool, of the weight's shape."""
    return jnp.unpackbits(bits)[: math.prod(shape)].reshape(shape).astype(bool)


def count_zeros(bits: Any) -> jax.Array:
    """The count of numbers that a mask forbids, uint32."""
    ones = jax.lax.population_count(bits).astype(jnp.uint32).sum()
    return np.uint32(8 * bits.size) - ones


def mask_values(value: Any, bits: Any) -> jax.Array:
    """A weight, or what is added to it, with zeros where the mask is zero."""
    return jnp.where(unpack(bits, value.shape), value, jnp.zeros((), value.dtype))


# ------------------------------------------------------------------ masks of layers
def add_mask(layer: Any, attribute: str) -> None:
    """Puts a mask that forbids nothing beside a weight that has none."""
    if mask_of(layer, attribute) is not None:
        return
    weight = getattr(layer, attribute)
    size = -(-math.prod(weight.shape) // 8)
    name = attribute + _SUFFIX
    mask = layer.add_weight((size,), Constant(255), "uint8", trainable=False, name=name)
    mask.set_metadata(_MASKS, attribute)
    mask.set_metadata("scalars", 0)  # it is no parameter of the model
    setattr(layer, name, mask)


def remove_mask(layer: Any, attribute: str) -> None:
    """Takes the mask of a weight away, if there is one; its zeros stay."""
    if mask_of(layer, attribute) is not None:
        delattr(layer, attribute + _SUFFIX)


def places_of(model: Any, paths: Iterable[str]) -> Iterator[tuple[str, Any, str]]:
    """Weights by their paths from a model: the path, its layer, and the attribute.

    Raises:
        KeyError: A path leads to no layer.
    """
    layers = {"": model, **layer_paths(model)}
    for path in paths:
        layer, _, name = path.rpartition("/")
        yield path, layers[layer], name


def mask_of(layer: Any, attribute: str) -> Any:
    """The mask of a layer's weight, a variable; ``None`` if it has none."""
    mask = vars(layer).get(attribute + _SUFFIX)
    return mask if isinstance(mask, nnx.Variable) and _is_mask(mask) else None


def iter_masks(root: Any) -> Iterator[tuple[str, Any, str, Any]]:
    """Every mask below a module: its layer's path, the layer, the attribute, the mask.

    Adapters of a weight do not hide it, a weight of few bits has no mask.
    """
    for path, module in iter_modules(root):
        for value in list(vars(module).values()):
            if isinstance(value, nnx.Variable) and _is_mask(value):
                yield path, module, value.get_metadata()[_MASKS], value


def join(path: str, attribute: str) -> str:
    """The path of a weight in a layer."""
    return f"{path}/{attribute}" if path else attribute


def apply_masks(root: Any) -> None:
    """Sets weights to zero where their masks are."""
    for _, layer, attribute, mask in iter_masks(root):
        weight = exact_weight(getattr(layer, attribute))
        weight.set_raw_value(mask_values(weight.get_raw_value(), mask.get_raw_value()))


def _is_mask(variable: nnx.Variable) -> bool:
    return _MASKS in variable.get_metadata()
