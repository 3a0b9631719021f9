"""The trained term beside a weight: its factors, and what kinds of it compute.

``lora``: ``W + alpha / rank * A B``; ``rslora``: ``W + alpha / sqrt(rank) * A B``;
``dora``: the sum of lora, each output scaled to a trained magnitude.

Source: Hu et al., *LoRA*, 2021; Kalajdzievski, *A Rank Stabilization Scaling Factor for
Fine-Tuning with LoRA*, 2023; Liu et al., *DoRA: Weight-Decomposed Low-Rank Adaptation*,
2024.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.compression.quantization.weight import QuantizedWeight
from exburn.core import forward_context

KINDS = ("lora", "rslora", "dora")
DEFAULT = "default"  # the adapter whose weights are attributes of the layer itself


@dataclasses.dataclass(frozen=True)
class LowRank:
    """A trained term ``scale * a @ b`` beside a weight of a layer.

    Args:
        summed: Its axes that belong to ``a``; the others belong to ``b``.
        alpha: The term is multiplied by ``alpha / rank``, or by the root for rslora.
        kind: One of ``KINDS``.
        dropout: Share of the inputs that the term does not see in training.
        name: The adapter that it is a part of.
    """

    attribute: str
    shape: tuple[int, ...]
    summed: tuple[int, ...]
    rank: int
    alpha: float
    kind: str = "lora"
    dropout: float = 0.0
    name: str = DEFAULT

    @property
    def scale(self) -> float:
        root = math.sqrt(self.rank) if self.kind == "rslora" else self.rank
        return self.alpha / root

    @property
    def kept_axes(self) -> tuple[int, ...]:
        return tuple(i for i in range(len(self.shape)) if i not in self.summed)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the term's weights by their names."""
        outputs = tuple(self.shape[i] for i in self.kept_axes)
        shapes = {
            "lora_a": (*(self.shape[i] for i in self.summed), self.rank),
            "lora_b": (self.rank, *outputs),
        }
        return shapes | ({"lora_magnitude": outputs} if self.kind == "dora" else {})

    @property
    def place(self) -> str:
        """Path from the layer to the term's weights, with a slash behind it."""
        return "" if self.name == DEFAULT else f"lora_adapters/{self.name}/"

    def weights(self, layer: Any) -> dict[str, Any]:
        """The term's weights in a layer, by their names."""
        if self.name == DEFAULT:
            return {name: getattr(layer, name) for name in self.shapes}
        return {name: layer.lora_adapters[self.name][name] for name in self.shapes}

    def delta(self, a: Any, b: Any) -> Any:
        """The product of the factors in the weight's own shape."""
        term = jnp.tensordot(a, b, 1) * self.scale
        return term.transpose(np.argsort(self.summed + self.kept_axes))

    def add_to(self, exact: Any, values: dict[str, Any], mask: Any = None) -> Any:
        """The weight with its term.

        Args:
            exact: The weight.
            values: Arrays of the term's weights.
            mask: Sets entries of the sum to zero, if there is one.
        """
        total = exact + self.delta(values["lora_a"], values["lora_b"])
        total = total if mask is None else mask(total)
        if self.kind != "dora":
            return total
        wide = jax.lax.stop_gradient(total).astype(jnp.float32)
        squares = jnp.square(wide).sum(self.summed, keepdims=True)
        sizes = [1 if i in self.summed else n for i, n in enumerate(self.shape)]
        magnitude = values["lora_magnitude"].reshape(sizes)
        return total * _divide(magnitude, squares).astype(total.dtype)

    def magnitudes(self, layer: Any) -> Any:
        """First magnitudes of dora: the norm of each output's weights."""
        wide = getattr(layer, self.attribute).get_value().astype(jnp.float32)
        return jnp.sqrt(jnp.square(wide).sum(self.summed))

    def ratio(self, layer: Any) -> Any:
        """The factor of each output in dora, in the compute dtype."""
        values = {k: w.get_value() for k, w in self.weights(layer).items()}
        a, b = (
            jax.lax.stop_gradient(values[name]).astype(jnp.float32)
            for name in ("lora_a", "lora_b")
        )
        squares = self._squares(getattr(layer, self.attribute), a, b)
        return layer.cast(_divide(values["lora_magnitude"], squares))

    def _squares(self, weight: Any, a: Any, b: Any) -> Any:
        """Squared norms of the outputs of ``W + scale * a @ b``.

        Neither the sum nor a packed W is made: of ``|W + D|² = |W|² + 2 W·D + |D|²``
        the middle is ``b · (Wᵀ a)`` and the last ``b · (aᵀ a) b``.
        """
        outputs = b.shape[1:]
        a, b = a.reshape(-1, self.rank), b.reshape(self.rank, -1)
        packed = isinstance(weight, QuantizedWeight)
        if packed and weight.scheme.summed == self.summed:
            cross, own = weight.multiply(a.T), weight.square_norms()
        else:
            matrix = weight.get_value().astype(jnp.float32)
            matrix = matrix.transpose(self.summed + self.kept_axes)
            matrix = jax.lax.stop_gradient(matrix.reshape(len(a), -1))
            cross, own = a.T @ matrix, jnp.square(matrix).sum(0)
        terms = 2 * self.scale * cross + self.scale**2 * ((a.T @ a) @ b)
        return (own + (b * terms).sum(0)).reshape(outputs)


def _divide(magnitude: Any, squares: Any) -> Any:
    """Magnitudes by norms; where no input counts, and the norm is 0, by 1."""
    squares = jnp.where(squares > 0, squares, 1)
    return magnitude.astype(jnp.float32) / jnp.sqrt(squares)


def add_term(
    layer: Any,
    x: Any,
    y: Any,
    product: Callable[[Any], Any],
    factors: Callable[[Any, Any, Any], Any],
    spread: Callable[[Any], Any] = lambda ratio: ratio,
) -> Any:
    """A layer's product with the term of its active adapter.

    Args:
        x: The inputs, in the compute dtype.
        y: ``product(x)``.
        product: Multiplies by the weight.
        factors: Multiplies by both factors.
        spread: Gives numbers of outputs the axes that they have in ``y``.
    """
    term: LowRank = layer._low_rank
    weights, seen = term.weights(layer), _drop(layer, x, term.dropout)
    a, b = layer.cast(weights["lora_a"]), layer.cast(weights["lora_b"])
    update = factors(seen, a, b) * term.scale
    if term.kind != "dora":
        return y + update
    ratio = spread(term.ratio(layer))
    return y + (ratio - 1) * (y if seen is x else product(seen)) + ratio * update


def _drop(layer: Any, x: Any, rate: float) -> Any:
    ctx = forward_context.current()
    if not rate or ctx is None or not ctx.training:
        return x
    keep, share = layer._keep_mask(rate, x.shape)
    return jnp.where(keep, x / share, 0)
