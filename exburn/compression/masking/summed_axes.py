"""The axes that products of layers sum over, of each of their large weights."""

from __future__ import annotations

from typing import Any

from exburn.layers import Dense, EinsumDense, Embedding, MixtureOfExperts
from exburn.layers.contract.recurrent_cell import RecurrentCell
from exburn.layers.convolution.conv import Conv
from exburn.layers.convolution.depthwise import DepthwiseConv, SeparableConv
from exburn.layers.convolution.transposed import ConvTranspose


def summed_axes(layer: Any) -> dict[str, tuple[int, ...]] | None:
    """The axes that its product sums over, of each large weight of a layer.

    Returns:
        The axes by the attributes of the weights, which the layer may have set to None;
        ``None`` for a layer whose products are not known.
    """
    if isinstance(layer, Dense):
        return {"kernel": (0,)}
    if isinstance(layer, EinsumDense):
        into, kernel, out = layer._terms
        axes = (i for i, c in enumerate(kernel) if c in into and c not in out)
        return {"kernel": tuple(axes)}
    if isinstance(layer, Embedding):  # and ReversibleEmbedding, whose way back it is
        return {"embeddings": (1,), "reverse_embeddings": (0,)}
    if isinstance(layer, SeparableConv):
        space = tuple(range(layer.rank))
        return {"depthwise_kernel": space, "pointwise_kernel": (*space, layer.rank)}
    if isinstance(layer, DepthwiseConv):
        return {"kernel": tuple(range(layer.rank))}
    if isinstance(layer, ConvTranspose):
        return {"kernel": (*range(layer.rank), layer.rank + 1)}
    if isinstance(layer, Conv):
        return {"kernel": tuple(range(layer.rank + 1))}
    if isinstance(layer, MixtureOfExperts):
        return dict.fromkeys(("gate", "up", "down"), (1,))
    if isinstance(layer, RecurrentCell):
        axes = tuple(range(len(layer.kernel.shape) - 1))  # type: ignore[union-attr]
        return {"kernel": axes, "recurrent_kernel": axes}
    return None
