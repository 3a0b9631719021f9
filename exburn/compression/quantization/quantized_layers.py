"""Layers whose weights are no plain arrays any more: the classes put in their place.

A stand-in is a subclass with another ``call``; the layer object stays the same and its
class is exchanged, so the layers themselves know nothing of few bits or low ranks.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax.numpy as jnp

from exburn.compression.masking.masks import mask_of, mask_values
from exburn.compression.quantization.low_rank import (
    LowRank,
    RowTerms,
    active_terms,
    add_term,
    refuse_rows,
    row_terms,
    rows_differ,
)
from exburn.compression.quantization.weight import QuantizedWeight
from exburn.layers import Dense, EinsumDense, Embedding, TernaryDense
from exburn.module.layer import Layer
from exburn.module.seed_generator import SeedOfLayer
from exburn.runtime.kernels.padded_matmul import wide_product


class Adapted(Layer):
    """A layer with terms beside its weight: those of adapters, one of them active."""

    _low_rank: LowRank | None = None  # of the active adapter
    _low_ranks: tuple[LowRank, ...] = ()
    lora_adapters: Any
    lora_a: Any
    lora_b: Any

    seed_generator = SeedOfLayer(
        lambda layer: any(term.dropout for term in layer._low_ranks)
    )


class AnyStandIn(Adapted):
    """Adds the low-rank term to the weight wherever the layer reads it.

    The sum is zero where the weight is masked.
    """

    def cast(self, value, dtype=None):
        exact = super().cast(value, dtype)
        if rows_differ():
            if any(value is getattr(self, t.attribute) for t in row_terms(self)):
                refuse_rows(self, "it adds them to its weight")
            return exact
        terms = active_terms(self)
        term = next((t for t in terms if value is getattr(self, t.attribute)), None)
        if term is None:
            return exact
        weights = term.weights(self).items()
        values = {name: super(Adapted, self).cast(w, dtype) for name, w in weights}
        mask = mask_of(self, term.attribute)
        hide = None if mask is None else lambda v: mask_values(v, mask.get_value())
        return term.add_to(exact, values, hide)


class DenseStandIn(Adapted, Dense):
    """``x @ kernel`` from stored bits, and ``(x @ a) @ b`` beside it."""

    def call(self, x):
        x = self.cast(x)
        y = add_term(self, x, self._multiply(x), self._multiply, _two_products)
        if self.use_bias:
            y = y + self.cast(self.bias)
        return self.activation(y)

    def _multiply(self, x):
        if isinstance(self.kernel, QuantizedWeight):
            return self.kernel.multiply(x)
        return wide_product(x, self.cast(self.kernel))


class TernaryDenseStandIn(TernaryDense):
    """``x @ kernel`` from the stored -1, 0 and 1."""

    def call(self, inputs):
        x = self.cast(inputs)
        if isinstance(self.kernel, QuantizedWeight):
            return self._finish(self.kernel.multiply(x))
        return super().call(x)


class EinsumDenseStandIn(Adapted, EinsumDense):
    """The Einstein sum from stored bits, and one over two factors beside it."""

    def call(self, inputs):
        x = self.cast(inputs)
        letters, weight, result = self._terms
        moves = letters[0] != result[0] or letters[0] in weight
        if moves and rows_differ() and row_terms(self):
            refuse_rows(self, f"{self.equation} moves the rows")
        low_rank = self._low_rank_product
        spread = functools.partial(self._spread, hidden=_dotted_axes(self, x))
        y = add_term(self, x, self._multiply(x), self._multiply, low_rank, spread)
        if self.bias is not None:
            y = y + self.cast(self.bias)
        return self.activation(y)

    def _multiply(self, x):
        kernel = self.kernel
        if not (isinstance(kernel, QuantizedWeight) and is_matrix_product(self)):
            return self._product(x, self.cast(kernel))
        letters, weight, result = self._terms
        outer = [c for c in weight if c not in letters]
        out = _expand(result, _dotted_axes(self, x))
        x, rest = _summed_last(self, x)
        y = kernel.multiply(x)
        sizes = [kernel.shape[weight.index(c)] for c in outer]
        y = y.reshape(*y.shape[:-1], *sizes)
        return y.transpose([(rest + outer).index(label) for label in out])

    def _spread(self, ratio, hidden: int):
        """Numbers of outputs in the axes of the result, where others have size 1."""
        letters, weight, result = self._terms
        outer = [c for c in weight if c not in letters or c in result]
        axes = [outer.index(c) for c in result if c in outer]
        sizes = [
            ratio.shape[outer.index(label)] if label in outer else 1
            for label in _expand(result, hidden)
        ]
        return ratio.transpose(axes).reshape(sizes)

    def _low_rank_product(self, x, a, b):
        letters, weight, result = self._terms
        rank = next(c for c in "rzyxwvutsq" if c not in self.equation)
        summed = "".join(c for c in weight if c in letters and c not in result)
        outer = "".join(c for c in weight if c not in summed)
        inner = rank + "".join(c for c in letters if c not in summed)
        y = jnp.einsum(f"{letters},{summed}{rank}->{inner}", x, a)
        return jnp.einsum(f"{inner},{rank}{outer}->{result}", y, b)


class EmbeddingStandIn(Adapted, Embedding):
    """Rows of a table from stored bits, and of its low-rank term."""

    reverse_embeddings: Any

    def _rows(self, indices):
        table = self.embeddings
        if isinstance(table, QuantizedWeight):
            rows = table.take(indices, self.compute_dtype)
        else:
            rows = super()._rows(indices)
        if rows_differ():
            terms = RowTerms.of(self, len(indices))
            return rows if terms is None else terms.add_rows(rows, indices)
        if (term := self._low_rank) is not None:
            weights = term.weights(self)
            inner = jnp.take(weights["lora_a"].get_value(), indices, 0, mode="clip")
            product = self.cast(inner) @ self.cast(weights["lora_b"])
            rows = rows + product * term.scale
            rows = rows * term.ratio(self) if term.kind == "dora" else rows
        return rows

    def _own_scores(self, x):  # of a ReversibleEmbedding
        table = self.reverse_embeddings
        if isinstance(table, QuantizedWeight):
            return table.multiply(x)
        return x @ self.cast(table, x.dtype)

    def _scores(self, x):  # of a ReversibleEmbedding
        table, term = self.embeddings, self._low_rank
        rows = RowTerms.of(self, len(x)) if rows_differ() else None
        term = None if rows_differ() else term
        if rows is not None:
            x = rows.scale_vectors(x)
        elif term is not None and term.kind == "dora":
            x = x * self.cast(term.ratio(self), x.dtype)
        if isinstance(table, QuantizedWeight):
            y = table.multiply(x)
        else:
            y = jnp.einsum("...d,vd->...v", x, self.cast(table, x.dtype))
        if rows is not None:
            return rows.add(y, x, _transposed_products)
        if term is not None:
            weights = term.weights(self).values()
            a, b, *_ = (self.cast(weight, x.dtype) for weight in weights)
            y = y + _transposed_products(x, a, b) * term.scale
        return y


def _transposed_products(x: Any, a: Any, b: Any) -> Any:
    return jnp.einsum("...d,rd->...r", x, b) @ a.T


def _two_products(x: Any, a: Any, b: Any) -> Any:
    return jnp.matmul(jnp.matmul(x, a), b)


def is_matrix_product(layer: EinsumDense) -> bool:
    """Whether every letter is summed over, or in one of input and kernel only."""
    into, kernel, out = (t.replace("...", "") for t in layer._terms)
    shared = set(into) & set(kernel)
    return not (shared & set(out)) and set(into) - shared <= set(out)


def input_rows(layer: Any, x: Any) -> Any:
    """The rows that a Dense or EinsumDense multiplies by its matrix, ``[n, columns]``.

    Args:
        layer: The layer; an EinsumDense must be a matrix product.
    """
    x = layer.cast(x)
    if isinstance(layer, EinsumDense):
        rows, rest = _summed_last(layer, x)
        return rows.reshape(math.prod(rows.shape[: len(rest)]), -1)
    return x.reshape(-1, x.shape[-1])


def _summed_last(layer: EinsumDense, x: Any) -> tuple[Any, list[str]]:
    """The input as ``[…, columns]``, and the labels of the axes that are not summed."""
    letters, weight, _ = layer._terms
    summed = [c for c in weight if c in letters]
    labels = _expand(letters, _dotted_axes(layer, x))
    rest = [label for label in labels if label not in summed]
    x = x.transpose([labels.index(label) for label in rest + summed])
    return x.reshape(*x.shape[: len(rest)], -1), rest


def _dotted_axes(layer: EinsumDense, x: Any) -> int:
    """The number of axes that the dots stand for."""
    return x.ndim - len(layer._terms[0].replace("...", ""))


_KINDS: tuple[tuple[type, type, str], ...] = (
    (Dense, DenseStandIn, "call"),
    (TernaryDense, TernaryDenseStandIn, "call"),
    (EinsumDense, EinsumDenseStandIn, "call"),
    (Embedding, EmbeddingStandIn, "_rows"),
)


def has_own_product(cls: type) -> bool:
    """Whether a class computes as the layer that it is derived from, by our products.

    A subclass with a ``call`` of its own reads its weight by ``cast`` instead.
    """
    return _kind(cls) is not AnyStandIn


def _kind(cls: type) -> type:
    for base, kind, method in _KINDS:
        if issubclass(cls, base):
            same = getattr(cls, method) is getattr(base, method)
            return kind if same else AnyStandIn
    return AnyStandIn


@functools.cache
def _stand_in(cls: type, kind: type) -> type:
    bases = (kind, cls)
    own = {"stands_for": cls, "__doc__": cls.__doc__, "__module__": cls.__module__}
    return type(cls.__name__, bases, own)


def put_in_place(layer: Layer, kind: type | None = None) -> None:
    """Exchanges a layer's class for its stand-in."""
    cls = type(layer)
    if not hasattr(cls, "stands_for"):
        stand_in = _stand_in(cls, kind or _kind(cls))
        object.__setattr__(layer, "__class__", stand_in)


def put_back(layer: Layer) -> None:
    """Gives a layer its own class again."""
    cls = getattr(type(layer), "stands_for", None)
    if cls is not None:
        object.__setattr__(layer, "__class__", cls)


def _expand(term: str, hidden: int) -> list[str]:
    """The labels of a term, with numbers for what the dots stand for."""
    dots = [str(i) for i in range(hidden)]
    before, ellipsis, after = term.partition("...")
    return [*before, *dots, *after] if ellipsis else [*term]
