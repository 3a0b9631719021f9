"""The trained term beside a weight: its factors, and what kinds of it compute.

A layer computes the term of its active adapter; in a pass whose context names an
adapter for each row (``RowAdapters``), those of the rows.

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
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from exburn.compression.quantization.weight import QuantizedWeight
from exburn.core import forward_context
from exburn.errors import ArgumentError

KINDS = ("lora", "rslora", "dora")
DEFAULT = "default"  # the adapter whose weights are attributes of the layer itself


@dataclasses.dataclass(frozen=True)
class LowRank:
    """A trained term ``scale * a @ b`` beside a weight of a layer.

    Args:
        summed: Its axes that belong to ``a``; the others belong to ``b``.
        stacked: Whether its first axis numbers matrices, each with factors of its own:
            those of experts. A layer may have terms beside several such weights.
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
    stacked: bool = False

    @property
    def scale(self) -> float:
        root = math.sqrt(self.rank) if self.kind == "rslora" else self.rank
        return self.alpha / root

    @property
    def kept_axes(self) -> tuple[int, ...]:
        first = 1 if self.stacked else 0
        return tuple(i for i in range(first, len(self.shape)) if i not in self.summed)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the term's weights by their names."""
        outputs = tuple(self.shape[i] for i in self.kept_axes)
        stack = self.shape[:1] if self.stacked else ()
        shapes = {
            "lora_a": (*stack, *(self.shape[i] for i in self.summed), self.rank),
            "lora_b": (*stack, self.rank, *outputs),
        }
        return shapes | ({"lora_magnitude": outputs} if self.kind == "dora" else {})

    @property
    def place(self) -> str:
        """Path from the layer to the term's weights, up to their names."""
        place = "" if self.name == DEFAULT else f"lora_adapters/{self.name}/"
        return place + self.prefix

    @property
    def prefix(self) -> str:
        """What the names of the term's weights begin with in the layer."""
        return f"{self.attribute}_" if self.stacked else ""

    def weights(self, layer: Any) -> dict[str, Any]:
        """The term's weights in a layer, by their names."""
        names = {name: self.prefix + name for name in self.shapes}
        if self.name == DEFAULT:
            return {name: getattr(layer, own) for name, own in names.items()}
        return {k: layer.lora_adapters[self.name][own] for k, own in names.items()}

    def delta(self, a: Any, b: Any) -> Any:
        """The product of the factors in the weight's own shape."""
        if self.stacked:
            return jnp.matmul(a, b) * self.scale
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


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RowAdapters:
    """Which adapter each row of a pass is computed with, whichever is active.

    It is ``adapters`` of the pass' context. All adapters of a name lie in the model
    as ever, so a program is made for the names, and takes the numbers.

    Attributes:
        numbers: ``int32[rows]`` into ``names``; -1 for rows without an adapter.
        names: Adapters of the model.
    """

    numbers: Any
    names: tuple[str, ...] = dataclasses.field(metadata={"static": True})


class RowTerms:
    """The terms of a layer's adapters, as its rows have them in the pass under way.

    Those of several adapters are stacked, with zeros where one has a lower rank, and
    gathered by row.

    Args:
        terms: Of the adapters that the layer has.
        rows: ``int32[rows]`` into ``terms``; -1 for rows without one.

    Attributes:
        scaled: Whether some of them scale the outputs: dora.
    """

    def __init__(self, layer: Any, terms: list[LowRank], rows: Any):
        self._layer, self._terms, self._rows = layer, terms, rows
        self.scaled = any(term.kind == "dora" for term in terms)

    @classmethod
    def of(cls, layer: Any, count: int) -> RowTerms | None:
        """Those of a layer whose input has so many rows; ``None`` without any.

        Raises:
            ArgumentError: They cannot be computed by row.
        """
        ctx, terms = forward_context.current(), row_terms(layer)
        if ctx is None or not terms:
            return None
        adapters: RowAdapters = ctx.adapters
        if count != len(adapters.numbers):
            rows = f"its input has {count} rows, the pass {len(adapters.numbers)}"
            refuse_rows(layer, rows)
        if ctx.training and any(term.dropout for term in terms):
            refuse_rows(layer, "dropout in training is of the active adapter")
        names = [term.name for term in terms]
        places = [names.index(n) if n in names else -1 for n in adapters.names]
        table = np.array([*places, -1], np.int32)  # of which -1 reads the last
        return cls(layer, terms, jnp.asarray(table)[adapters.numbers])

    def add(
        self,
        y: Any,
        x: Any,
        factors: Callable[[Any, Any, Any], Any],
        spread: Callable[[Any], Any] | None = None,
    ) -> Any:
        """A product with the terms.

        Args:
            y: The product of ``x``, the inputs.
            factors: Multiplies by both factors.
            spread: As of ``add_term``; ``None`` where dora has scaled the inputs.
        """
        cast, single = self._layer.cast, len(self._terms) == 1
        a, b = (
            cast(self._stack("lora_a"), x.dtype),
            cast(self._stack("lora_b"), x.dtype),
        )
        if single:  # by the products of an active one
            update = factors(x, a[0], b[0])
        else:
            near = jnp.maximum(self._rows, 0)
            update = jax.vmap(_of_one_row(factors))(x, a[near], b[near])
        update = self._scale(update)
        if not self.scaled or spread is None:
            return y + update

        def widen(ratio: Any) -> Any:
            return jnp.broadcast_to(spread(ratio), (1, *y.shape[1:]))[0]

        ratio = jax.vmap(widen)(self._ratios())
        return y + (ratio - 1) * y + ratio * update

    def add_rows(self, vectors: Any, indices: Any) -> Any:
        """Vectors of a table with those of the terms, ``[rows, …, size]``."""
        near = jnp.maximum(self._rows, 0)
        inner = self._stack("lora_a")
        inner = inner.at[_beside(near, indices.ndim), indices].get(mode="clip")
        b = self._layer.cast(self._stack("lora_b"))[near]
        product = jax.vmap(jnp.matmul)(self._layer.cast(inner), b)
        return self.scale_vectors(vectors + self._scale(product))

    def scale_vectors(self, x: Any) -> Any:
        """Vectors of a table, ``[rows, …, size]``, as dora scales them."""
        if not self.scaled:
            return x
        ratios = self._ratios().astype(x.dtype)
        return x * ratios.reshape(len(x), *(1,) * (x.ndim - 2), x.shape[-1])

    def _scale(self, update: Any) -> Any:
        """Updates by their terms' scales, zero for rows without one."""
        scales = jnp.asarray([term.scale for term in self._terms], update.dtype)
        here = _beside(self._rows >= 0, update.ndim)
        return jnp.where(here, update * _beside(scales[self._rows], update.ndim), 0)

    def _ratios(self) -> Any:
        """The factor of each output in dora, ``[rows, …]``; 1 where there is none."""
        ratios = [
            term.ratio(self._layer)
            if term.kind == "dora"
            else jnp.ones([term.shape[axis] for axis in term.kept_axes])
            for term in self._terms
        ]
        ratio = self._layer.cast(jnp.stack(ratios))[self._rows]
        return jnp.where(_beside(self._rows >= 0, ratio.ndim), ratio, 1)

    def _stack(self, name: str) -> Any:
        """A factor of all terms, ``[terms, …]``, filled up to one rank."""
        rank, parts = max(term.rank for term in self._terms), []
        for term in self._terms:
            value = term.weights(self._layer)[name].get_value()
            widths = [(0, 0)] * value.ndim
            widths[0 if name == "lora_b" else -1] = (0, rank - term.rank)
            parts.append(jnp.pad(value, widths))
        return jnp.stack(parts)


def _of_one_row(factors: Callable) -> Callable:
    return lambda x, a, b: factors(x[None], a, b)[0]


def _beside(values: Any, ndim: int) -> Any:
    """Numbers of rows, ``[rows, 1, …]``."""
    return values.reshape(-1, *(1,) * (ndim - 1))


def row_terms(layer: Any) -> list[LowRank]:
    """The layer's terms of the adapters that the pass under way names for rows."""
    ctx = forward_context.current()
    if ctx is None or ctx.adapters is None:
        return []
    return [term for term in layer._low_ranks if term.name in ctx.adapters.names]


def active_terms(layer: Any) -> list[LowRank]:
    """The terms of the layer's active adapter: one, but for experts."""
    active = getattr(layer, "_low_rank", None)
    terms = getattr(layer, "_low_ranks", ())
    return [] if active is None else [t for t in terms if t.name == active.name]


def rows_differ() -> bool:
    """Whether the pass under way names an adapter for each row."""
    ctx = forward_context.current()
    return ctx is not None and ctx.adapters is not None


def refuse_rows(layer: Any, reason: str) -> NoReturn:
    """Raises because a layer's adapters cannot be computed by row.

    Raises:
        ArgumentError: Always.
    """
    raise ArgumentError(
        layer.name,
        f"its adapters cannot be computed by row: {reason}",
        hint="Leave the layer out of them (model.add_lora(filter=…)), or compute the "
        "rows of one adapter at a time, after model.set_adapter(name).",
    )


def add_term(
    layer: Any,
    x: Any,
    y: Any,
    product: Callable[[Any], Any],
    factors: Callable[[Any, Any, Any], Any],
    spread: Callable[[Any], Any] = lambda ratio: ratio,
) -> Any:
    """A layer's product with the term of its active adapter, or with those of its rows.

    Args:
        x: The inputs, in the compute dtype.
        y: ``product(x)``.
        product: Multiplies by the weight.
        factors: Multiplies by both factors.
        spread: Gives numbers of outputs the axes that they have in ``y``.
    """
    if rows_differ():
        terms = RowTerms.of(layer, len(x))
        return y if terms is None else terms.add(y, x, factors, spread)
    term: LowRank | None = layer._low_rank
    if term is None:
        return y
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
