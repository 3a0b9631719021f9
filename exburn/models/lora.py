"""Low-rank adaptation: a few trained numbers beside frozen weights.

``W + alpha / rank * A B`` with A of ``rank`` columns and B of ``rank`` rows: only these
are trained. B begins as zeros, so an adapted model starts as the model it was.

Source: Hu et al., *LoRA: Low-Rank Adaptation of Large Language Models*, 2021.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flax import nnx

from exburn.compression.masking import mask_of, mask_values
from exburn.compression.quantization.plan import choose
from exburn.compression.quantization.quantized_layers import (
    AnyStandIn,
    LowRank,
    put_back,
    put_in_place,
)
from exburn.compression.quantization.weight import QuantizedWeight
from exburn.core.checks import check_count, check_number
from exburn.errors import ArgumentError, FileFormatError, NotBuiltError
from exburn.errors.boundary import api_boundary
from exburn.layers import Dense, EinsumDense, Embedding, SpectralNormalization
from exburn.layers.contract.adaptable import Adaptable
from exburn.layers.convolution.conv import Conv
from exburn.layers.convolution.transposed import ConvTranspose
from exburn.module.building import materialize, require_built
from exburn.module.selection import layer_paths
from exburn.module.traversal import children, iter_modules, iter_weights
from exburn.module.variable import exact_weight


def adapt(model: Any, rank: int, alpha: float | None, selection: Any) -> dict[str, Any]:
    """Adds adapters and freezes everything else, in place.

    Args:
        model: A built model.
        rank: Columns of A.
        alpha: Factor of the term, over the rank; the rank itself if None.
        selection: Patterns, or a function of a layer; all layers that can if None.

    Returns:
        A record, from which ``restore`` does the same to an equal model.

    Raises:
        NotBuiltError: The model has no weights yet.
        ArgumentError: A number is out of range, there are adapters already, or no layer
            can have one.
        UnknownNameError: A pattern names no layer.
    """
    op = "add_lora"
    rank, alpha = _check_size(op, rank, alpha)
    require_built(model, op)
    if adapted_layers(model):
        raise ArgumentError(
            op,
            "the model has adapters already",
            {"layers": ", ".join(adapted_layers(model))},
            hint="Call model.merge_lora() first.",
        )
    chosen, terms, reasons = choose(model, selection, op=op), {}, {}
    layers = layer_paths(model)
    for path in layers:
        if path in chosen:
            term = _term(path, layers, rank, alpha)
            if isinstance(term, LowRank):
                terms[path] = term
            else:
                reasons[path] = term
    if not terms:
        raise ArgumentError(
            op,
            "no selected layer can have an adapter",
            reasons,
            hint="Dense, EinsumDense, Embedding, attention and convolutions can.",
        )
    frozen = _idle_layers(layers, list(terms))
    record = {
        "kind": "lora",
        "rank": rank,
        "alpha": alpha,
        "layers": list(terms),
        "frozen_layers": frozen,
        "frozen_weights": _to_freeze(model, frozen),
    }
    _apply(model, terms, record)
    return record


@api_boundary
def enable_lora(
    self: Adaptable,
    rank: int,
    a_initializer: Any = "he_uniform",
    b_initializer: Any = "zeros",
    lora_alpha: float | None = None,
) -> None:
    """Freezes the layer's large weight W and trains ``W + alpha / rank * A B``.

    For a whole model there is ``model.add_lora``, which freezes all else, too.

    Args:
        rank: Columns of A and rows of B.
        a_initializer: Initializer of A.
        b_initializer: Initializer of B; with zeros the outputs stay as they are.
        lora_alpha: Factor of the term, over the rank; ``rank`` by default.

    Raises:
        NotBuiltError: The layer has no weights yet.
        ArgumentError: A number is out of range, or the layer has an adapter, or can
            have none.

    Example:
        >>> from exburn.layers import Dense
        >>> layer = Dense(64)
        >>> layer.build((None, 32))
        >>> layer.enable_lora(2)
        >>> sum(w.numpy().size for w in layer.trainable_weights)  # bias, A and B
        256

    Source: Hu et al., *LoRA: Low-Rank Adaptation of Large Language Models*, 2021.
    """
    op = f"{self.name}.enable_lora"
    rank, alpha = _check_size(op, rank, lora_alpha)
    if not any(True for _ in iter_weights(self)):
        raise NotBuiltError(op, "the layer has no weights before it is built")
    if self.lora_enabled:
        raise ArgumentError(op, "the layer has an adapter already")
    term = _term_of(self, rank, alpha)
    if term is None:
        raise ArgumentError(op, f"no adapter for {type(self).__name__}")
    if rank > (limit := _sizes(term)[1]):
        raise ArgumentError(
            op,
            f"rank must be at most {limit}, the longer side of {term.attribute}, "
            f"received {rank}",
        )
    weight = exact_weight(getattr(self, term.attribute))
    if not isinstance(weight, QuantizedWeight):
        weight.set_metadata("frozen", True)
    _put_beside(self, term, a_initializer, b_initializer)


def _check_size(op: str, rank: Any, alpha: Any) -> tuple[int, float]:
    rank = check_count(op, "rank", rank)
    alpha = rank if alpha is None else alpha
    return rank, check_number(op, "alpha", alpha, open_low=True)


def restore(model: Any, record: dict[str, Any]) -> None:
    """Adds the adapters of a record; their values are still to be read."""
    if set(adapted_layers(model)) & set(record.get("layers") or ()):
        raise _unfit("the model has adapters already")
    record = checked_record(model, record)
    _apply(model, _terms(model, record), record)


def checked_record(model: Any, record: dict[str, Any]) -> dict[str, Any]:
    """A record, perhaps from a hostile file, completed for this model."""
    layers = layer_paths(model)
    paths, rank, alpha = (record.get(key) for key in ("layers", "rank", "alpha"))
    named = isinstance(paths, list) and all(isinstance(path, str) for path in paths)
    if not named or not paths or not set(paths) <= set(layers):
        raise _unfit(f"layers={paths!r}")
    if type(rank) is not int or not 1 <= rank < 2**31:
        raise _unfit(f"rank={rank!r}")
    if not isinstance(alpha, int | float) or not 0 < alpha < math.inf:
        raise _unfit(f"alpha={alpha!r}")
    frozen = record.get("frozen_layers")
    if frozen is None:
        frozen = _idle_layers(layers, paths)
    weights = record.get("frozen_weights")
    return {
        "kind": "lora",
        "rank": rank,
        "alpha": float(alpha),
        "layers": paths,
        "frozen_layers": [path for path in layers if path in frozen],
        "frozen_weights": _to_freeze(model, frozen) if weights is None else weights,
    }


def adapter_shapes(model: Any, record: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shapes of the adapters of a record by path."""
    shapes = {}
    for path, term in _terms(model, record).items():
        shapes[f"{path}/lora_a"], shapes[f"{path}/lora_b"] = term.a_shape, term.b_shape
    return shapes


def _terms(model: Any, record: dict[str, Any]) -> dict[str, LowRank]:
    layers, terms = layer_paths(model), {}
    for path in record["layers"]:
        term = _term(path, layers, record["rank"], record["alpha"], any_size=True)
        if not isinstance(term, LowRank):
            raise _unfit(f"{path}: {term}")
        terms[path] = term
    return terms


def _unfit(cause: str) -> FileFormatError:
    return FileFormatError(
        "lora", "the adapters belong to another model", {"cause": cause}
    )


def check_mergeable(model: Any, records: list[dict[str, Any]]) -> None:
    """Raises if an adapter cannot be merged."""
    layers = layer_paths(model)
    for path in (path for record in records for path in record["layers"]):
        layer = layers[path]
        if isinstance(getattr(layer, layer._low_rank.attribute), QuantizedWeight):
            raise ArgumentError(
                "merge_lora",
                f"the weight of {path!r} is quantized, and would be rounded again",
                hint="Keep the adapters (model.save_lora), or load them into the exact "
                "model, merge there, and quantize that.",
            )


def merge(model: Any, record: dict[str, Any]) -> None:
    """Adds the terms to the weights, and trains again what was trained before."""
    layers = layer_paths(model)
    for path in record["layers"]:
        layer, term = layers[path], layers[path]._low_rank
        weight = exact_weight(getattr(layer, term.attribute))
        delta = term.delta(layer.lora_a.get_value(), layer.lora_b.get_value())
        if (mask := mask_of(layer, term.attribute)) is not None:
            delta = mask_values(delta, mask.get_value())
        weight.assign(weight.get_value() + delta.astype(weight.dtype))
        for name in ("lora_a", "lora_b", "_low_rank"):
            delattr(layer, name)
        put_back(layer)
    for path, weight, _ in iter_weights(model):
        if path in record["frozen_weights"]:
            weight.set_metadata("frozen", False)
    for path in record["frozen_layers"]:
        layers[path]._trainable = True


def adapted_layers(model: Any) -> list[str]:
    """Paths of the layers that have an adapter."""
    return [
        path
        for path, module in iter_modules(model)
        if getattr(module, "_low_rank", None) is not None
    ]


def records_of(model: Any, paths: list[str]) -> list[dict[str, Any]]:
    """Records of the adapters of these layers, of which nothing else is known."""
    layers, groups = layer_paths(model), {}
    for path in paths:
        term = layers[path]._low_rank
        groups.setdefault((term.rank, term.alpha), []).append(path)
    return [
        {
            "kind": "lora",
            "rank": rank,
            "alpha": alpha,
            "layers": paths,
            "frozen_layers": [],
            "frozen_weights": [
                w for path in paths for w in _frozen_weight(layers, path)
            ],
        }
        for (rank, alpha), paths in groups.items()
    ]


def _frozen_weight(layers: dict[str, Any], path: str) -> list[str]:
    """The weight beside which a layer's adapter is trained, if that is an array."""
    name = layers[path]._low_rank.attribute
    weight = exact_weight(getattr(layers[path], name))
    frozen = isinstance(weight, nnx.Param) and weight.get_metadata().get("frozen")
    return [f"{path}/{name}"] if frozen else []


def adapters(model: Any) -> Iterator[tuple[str, Any]]:
    """The weights of all adapters, by path."""
    for path, weight, _ in iter_weights(model):
        if weight.get_metadata().get("lora"):
            yield path, weight


def _idle_layers(layers: dict[str, Any], adapted: list[str]) -> list[str]:
    """Trained layers without an adapter, neither of their own nor inside of them."""
    inside = {
        "/".join(parts[:n])
        for parts in (path.split("/") for path in adapted)
        for n in range(1, len(parts) + 1)
    }
    return [p for p, layer in layers.items() if layer._trainable and p not in inside]


def _to_freeze(model: Any, frozen: list[str]) -> list[str]:
    """Parameters to mark as frozen: those that no frozen layer holds."""
    layers = tuple(f"{path}/" for path in frozen)
    return [
        path
        for path, weight, _ in iter_weights(model)
        if isinstance(weight, nnx.Param)
        and not path.startswith(layers)
        and not weight.get_metadata().get("frozen")
        and not weight.get_metadata().get("lora")
    ]


def _term(
    path: str, layers: dict[str, Any], rank: int, alpha: float, *, any_size=False
) -> LowRank | str:
    """The adapter of a layer, or why it has none."""
    layer = layers[path]
    if isinstance(layers.get(path.rpartition("/")[0]), SpectralNormalization):
        return "SpectralNormalization divides its kernel at every call"
    term = _term_of(layer, rank, alpha)
    if term is None:
        return f"no adapter for {type(layer).__name__}"
    if isinstance(layer, Embedding) and mask_of(layer, term.attribute) is not None:
        return "its table is pruned, and read row by row"
    size, limit = _sizes(term)
    if rank > limit or size >= math.prod(term.shape) and not any_size:
        return f"an adapter of rank {rank} would be larger than its {term.attribute}"
    return term


def _sizes(term: LowRank) -> tuple[int, int]:
    """Entries of an adapter, and the rank beyond which none makes sense."""
    a, b = math.prod(term.a_shape), math.prod(term.b_shape)
    return a + b, max(a, b) // term.rank


def _term_of(layer: Any, rank: int, alpha: float) -> LowRank | None:
    name = "embeddings" if isinstance(layer, Embedding) else "kernel"
    weight = getattr(layer, name, None)
    summed = _summed_axes(layer) if weight is not None else None
    if weight is None or summed is None:
        return None
    return LowRank(name, tuple(weight.shape), summed, rank, alpha)


def _summed_axes(layer: Any) -> tuple[int, ...] | None:
    """The axes of the weight that A takes over."""
    if isinstance(layer, Dense | Embedding):
        return (0,)
    if isinstance(layer, EinsumDense):
        into, kernel, out = layer._terms
        return tuple(i for i, c in enumerate(kernel) if c in into and c not in out)
    if isinstance(layer, ConvTranspose):
        return (*range(layer.rank), layer.rank + 1)
    if isinstance(layer, Conv):
        return tuple(range(layer.rank + 1))
    return None


def _apply(model: Any, terms: dict[str, LowRank], record: dict[str, Any]) -> None:
    layers = layer_paths(model)
    for path, weight, _ in iter_weights(model):
        if path in record["frozen_weights"]:
            weight.set_metadata("frozen", True)
    for path in record["frozen_layers"]:
        layers[path]._trainable = False
    for path, term in terms.items():
        _put_beside(layers[path], term)
    materialize(model)


def _put_beside(
    layer: Any, term: LowRank, a_initializer="he_uniform", b_initializer="zeros"
) -> None:
    pruned = mask_of(layer, term.attribute) is not None
    put_in_place(layer, AnyStandIn if pruned else None)
    layer._low_rank = term
    layer.lora_a = layer.add_weight(
        term.a_shape, a_initializer, "float32", name="lora_a"
    )
    layer.lora_b = layer.add_weight(
        term.b_shape, b_initializer, "float32", name="lora_b"
    )
    for key, weight in children(layer):
        if key in ("lora_a", "lora_b"):
            weight.set_metadata("lora", True)
