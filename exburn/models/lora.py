"""Low-rank adaptation: a few trained numbers beside frozen weights.

``W + alpha / rank * A B`` with A of ``rank`` columns and B of ``rank`` rows: only these
are trained. B begins as zeros, so an adapted model starts as the model it was.

A model may have several adapters by name, of which one is active: it is computed and
trained, the others rest. Weights of that named ``default`` lie in the layer itself,
those of another in ``lora_adapters/<name>``, whichever is active.

Source: Hu et al., *LoRA: Low-Rank Adaptation of Large Language Models*, 2021.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx

from exburn.compression.masking import mask_of, mask_values
from exburn.compression.quantization.low_rank import (
    DEFAULT,
    KINDS,
    LowRank,
    active_terms,
)
from exburn.compression.quantization.plan import choose, packed_schemes
from exburn.compression.quantization.quantized_layers import (
    AnyStandIn,
    has_own_product,
    put_back,
    put_in_place,
)
from exburn.compression.quantization.weight import QuantizedWeight
from exburn.core.checks import check_choice, check_count, check_number
from exburn.errors import (
    ArgumentError,
    FileFormatError,
    NotBuiltError,
)
from exburn.errors.boundary import api_boundary
from exburn.initializers import ArrayInitializer, VarianceScaling
from exburn.layers import (
    Dense,
    EinsumDense,
    Embedding,
    MixtureOfExperts,
    SpectralNormalization,
)
from exburn.layers.contract.adaptable import Adaptable
from exburn.layers.convolution.conv import Conv
from exburn.layers.convolution.transposed import ConvTranspose
from exburn.module.building import materialize, require_built
from exburn.module.selection import layer_paths
from exburn.module.traversal import is_abstract, iter_modules, iter_weights
from exburn.module.variable import exact_weight

_Terms = dict[str, list[LowRank]]  # by the layers' paths

#: What a record of an adapter says of its terms, and what one without it means.
_OPTIONS = {"method": "lora", "dropout": 0.0, "name": DEFAULT}


def adapt(
    model: Any,
    rank: int,
    alpha: float | None,
    selection: Any,
    kind: str = "lora",
    dropout: float = 0.0,
    name: str = DEFAULT,
) -> dict[str, Any]:
    """Adds adapters and freezes everything else, in place.

    Args:
        model: A built model.
        rank: Columns of A.
        alpha: Factor of the term, over the rank; the rank itself if None.
        selection: Patterns, or a function of a layer; all layers that can if None.
        kind, dropout, name: As of ``LowRank``.

    Returns:
        A record, from which ``restore`` does the same to an equal model.

    Raises:
        NotBuiltError: The model has no weights yet.
        ArgumentError: A number is out of range, there is an adapter of that name
            already, or no layer can have one.
        UnknownNameError: A pattern names no layer.
    """
    op = "add_lora"
    rank, alpha = _check_size(op, rank, alpha)
    kind = check_choice(op, "kind", kind, KINDS)
    dropout = check_number(op, "dropout", dropout, low=0, high=1, open_high=True)
    check_name(op, name)
    require_built(model, op)
    if name in adapter_names(model):
        raise ArgumentError(
            op,
            "the model has adapters already",
            {"name": name, "layers": ", ".join(adapted_layers(model, name))},
            hint="Call model.merge_lora() first, or give these another name=….",
        )
    chosen, terms, reasons = choose(model, selection, op=op), {}, {}
    layers = layer_paths(model)
    options = {"kind": kind, "dropout": dropout, "name": name}
    for path in layers:
        if path in chosen:
            if selection is None and isinstance(layers[path], MixtureOfExperts):
                reasons[path] = "experts have adapters where filter=… names them"
            elif isinstance(
                own := _layer_terms(path, layers, rank, alpha, **options), str
            ):
                reasons[path] = own
            else:
                terms[path] = own
    if not terms:
        raise ArgumentError(
            op,
            "no selected layer can have an adapter",
            reasons,
            hint="Dense, EinsumDense, Embedding, attention, convolutions and experts "
            "can.",
        )
    _check_dropout(op, layers, terms)
    frozen = _idle_layers(layers, list(terms))
    record = {
        "kind": "lora",
        "method": kind,
        "name": name,
        "active": True,
        "rank": rank,
        "alpha": alpha,
        "dropout": dropout,
        "layers": list(terms),
        "frozen_layers": frozen,
        "frozen_weights": _to_freeze(model, frozen),
    }
    activate(model, None)
    _apply(model, terms, record)
    return record


def check_name(op: str, name: Any) -> None:
    """Raises for a name that no adapter may have: it is a part of weights' paths."""
    right = isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9][\w-]{0,99}", name)
    if not right or hasattr(nnx.Dict, name):
        raise ArgumentError(
            op,
            "the name of an adapter is letters, digits, '_' and '-', beginning with "
            f"one of the former, received {name!r}",
            hint="Names of methods of a dict, such as 'items', are taken.",
        )


def _check_dropout(op: str, layers: dict[str, Any], terms: _Terms) -> None:
    """Raises where a term is added to the weight, and has no inputs of its own."""
    whole = []
    for path, (term, *_) in terms.items():
        layer = layers[path]
        own = has_own_product(getattr(type(layer), "stands_for", type(layer)))
        masked = mask_of(layer, term.attribute) is not None
        if term.dropout and not isinstance(layer, Embedding) and (masked or not own):
            whole.append(path)
    if whole:
        raise ArgumentError(
            op,
            "dropout is of the inputs of Dense and EinsumDense; these layers add the "
            "term to their weight",
            {"layers": ", ".join(whole[:6])},
            hint="Leave them out by filter=…, or add them without dropout.",
        )


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
    if not (terms := terms_of(self, rank, alpha)):
        raise ArgumentError(op, f"no adapter for {type(self).__name__}")
    (term,) = terms
    if rank > (limit := _sizes(term)[1]):
        raise ArgumentError(
            op,
            f"rank must be at most {limit}, the longer side of {term.attribute}, "
            f"received {rank}",
        )
    if any(other.name == term.name for other in _terms_of(self)):
        raise ArgumentError(op, f"an adapter {term.name!r} rests beside the layer")
    weight = exact_weight(getattr(self, term.attribute))
    if not isinstance(weight, QuantizedWeight):
        weight.set_metadata("frozen", True)
    _put_beside(self, terms, a_initializer, b_initializer)


def _check_size(op: str, rank: Any, alpha: Any) -> tuple[int, float]:
    rank = check_count(op, "rank", rank)
    alpha = rank if alpha is None else alpha
    return rank, check_number(op, "alpha", alpha, open_low=True)


def restore(model: Any, record: dict[str, Any]) -> dict[str, Any]:
    """Adds the adapters of a record, and completes it; their values are to be read."""
    record = checked_record(model, record)
    if set(adapted_layers(model, record["name"])) & set(record["layers"]):
        raise _unfit("the model has adapters already")
    active = record["name"] if record["active"] else active_name(model)
    _rest_others(model, record["name"])
    _apply(model, _terms(model, record), record)
    activate(model, active)
    return record


def add_groups(
    model: Any,
    groups: Mapping[tuple[int, float], list[str]],
    options: Mapping[str, Any],
    beside: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Adds an adapter whose layers have several ranks; returns its records.

    Args:
        groups: Paths of the layers by their rank and alpha.
        options: Method, dropout and name.
        beside: Paths of weights that are trained, too.
    """
    paths = [path for group in groups.values() for path in group]
    frozen = _idle_layers(layer_paths(model), paths)
    weights = [p for p in _to_freeze(model, frozen) if p not in beside]
    rest = {"frozen_layers": frozen, "frozen_weights": weights}
    added = []
    for (rank, alpha), group in groups.items():
        record = {"rank": rank, "alpha": alpha, "layers": group, **options, **rest}
        added.append(restore(model, record))
        rest = {"frozen_layers": [], "frozen_weights": []}
    return added


def checked_record(model: Any, record: dict[str, Any]) -> dict[str, Any]:
    """A record, perhaps from a hostile file, completed for this model."""
    layers = layer_paths(model)
    record = {**_OPTIONS, "active": True, **record}
    paths, rank, alpha = (record.get(key) for key in ("layers", "rank", "alpha"))
    named = isinstance(paths, list) and all(isinstance(path, str) for path in paths)
    if not named or not paths or not set(paths) <= set(layers):
        raise _unfit(f"layers={paths!r}")
    if type(rank) is not int or not 1 <= rank < 2**31:
        raise _unfit(f"rank={rank!r}")
    if not isinstance(alpha, int | float) or not 0 < alpha < math.inf:
        raise _unfit(f"alpha={alpha!r}")
    dropout, name = record["dropout"], record["name"]
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise _unfit(f"dropout={dropout!r}")
    if record["method"] not in KINDS:
        raise _unfit(f"method={record['method']!r}")
    try:
        check_name("lora", name)
    except ArgumentError as error:
        raise _unfit(f"name={name!r}") from error
    frozen = record.get("frozen_layers")
    if frozen is None:
        frozen = _idle_layers(layers, paths)
    weights = record.get("frozen_weights")
    return {
        "kind": "lora",
        "method": record["method"],
        "name": name,
        "active": record["active"] is True,
        "rank": rank,
        "alpha": float(alpha),
        "dropout": float(dropout),
        "layers": paths,
        "frozen_layers": [path for path in layers if path in frozen],
        "frozen_weights": _to_freeze(model, frozen) if weights is None else weights,
    }


def adapter_shapes(model: Any, record: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shapes of the weights of a record's adapters by layer and name."""
    return {
        f"{path}/{term.prefix}{name}": shape
        for path, terms in _terms(model, record).items()
        for term in terms
        for name, shape in term.shapes.items()
    }


def _terms(model: Any, record: dict[str, Any]) -> _Terms:
    layers, terms = layer_paths(model), {}
    options = {"kind": record["method"], "any_size": True}
    options |= {key: record[key] for key in ("dropout", "name")}
    for path in record["layers"]:
        own = _layer_terms(path, layers, record["rank"], record["alpha"], **options)
        if isinstance(own, str):
            raise _unfit(f"{path}: {own}")
        terms[path] = own
    return terms


def _unfit(cause: str) -> FileFormatError:
    return FileFormatError(
        "lora", "the adapters belong to another model", {"cause": cause}
    )


# ------------------------------------------------------------------ several adapters
def adapter_names(model: Any) -> list[str]:
    """Names of the model's adapters, in the order in which layers came to have them."""
    terms = (t for _, module in iter_modules(model) for t in _terms_of(module))
    return list(dict.fromkeys(term.name for term in terms))


def active_name(model: Any) -> str | None:
    """The name of the adapter that is computed, if one is."""
    for _, module in iter_modules(model):
        if (term := getattr(module, "_low_rank", None)) is not None:
            return term.name
    return None


def activate(model: Any, name: str | None) -> None:
    """Lets the adapter of a name be computed and trained, and all others rest."""
    _rest_others(model, name)
    for _, layer in iter_modules(model):
        for term in [] if name is None else _terms_of(layer, name):
            layer._low_rank = term
            _mark(term.weights(layer).values(), frozen=False)


def _rest_others(model: Any, name: str | None) -> None:
    for _, layer in iter_modules(model):
        for term in active_terms(layer):
            if term.name != name:
                layer._low_rank = None
                _mark(term.weights(layer).values(), frozen=True)


def _mark(weights: Iterable[Any], frozen: bool) -> None:
    for weight in weights:
        weight.set_metadata("frozen", frozen)


def remove(model: Any, name: str) -> None:
    """Takes the adapter of a name away; frozen weights stay so."""
    for _, layer in iter_modules(model):
        if _terms_of(layer, name):
            _take_away(layer, name)


def _take_away(layer: Any, name: str) -> None:
    if name == DEFAULT:
        for term in _terms_of(layer, name):
            for part in term.shapes:
                delattr(layer, term.prefix + part)
    else:
        del layer.lora_adapters[name]
    if layer._low_rank is not None and layer._low_rank.name == name:
        layer._low_rank = None
    layer._low_ranks = tuple(t for t in layer._low_ranks if t.name != name)
    if not layer._low_ranks:
        for key in ("_low_rank", "_low_ranks", "lora_adapters"):
            if key in vars(layer):
                delattr(layer, key)
        if not packed_schemes(layer):
            put_back(layer)


def thaw(model: Any, records: Iterable[dict[str, Any]]) -> None:
    """Trains again what the records of adapters say that they have frozen."""
    layers, records = layer_paths(model), list(records)
    weights = {path for record in records for path in record["frozen_weights"]}
    for path, weight, _ in iter_weights(model):
        if path in weights:
            weight.set_metadata("frozen", False)
    for path in (path for record in records for path in record["frozen_layers"]):
        layers[path]._trainable = True


def _terms_of(layer: Any, name: str | None = None) -> list[LowRank]:
    """The terms of a layer's adapters, or of that of a name."""
    terms = getattr(layer, "_low_ranks", ())
    return [term for term in terms if name in (None, term.name)]


def merge(model: Any) -> None:
    """Makes the active adapter a part of the weights."""
    for layer in layer_paths(model).values():
        terms = active_terms(layer)
        for term in terms:
            weight = exact_weight(getattr(layer, term.attribute))
            total = _with_term(layer, term, weight.get_value().astype("float32"))
            weight.assign(total.astype(weight.dtype))
        if terms:
            _take_away(layer, terms[0].name)


def _with_term(layer: Any, term: LowRank, exact: Any) -> Any:
    """The weight of a layer with its term; what is pruned stays zero."""
    mask, hide = mask_of(layer, term.attribute), None
    if mask is not None:
        hide = functools.partial(_hide, mask.get_value())
    values = {name: w.get_value() for name, w in term.weights(layer).items()}
    return term.add_to(exact, values, hide)


@dataclasses.dataclass(frozen=True)
class MergedAdapter:
    """A merged adapter, and the weights as they were without it.

    Attributes:
        records: Those of the adapter.
        weights: The weights before, by path.
        values: The adapter's weights, by path.
        digests: Of the merged weights, by path.
    """

    records: list[dict[str, Any]]
    weights: dict[str, np.ndarray]
    values: dict[str, np.ndarray]
    digests: dict[str, bytes]

    @classmethod
    def of(cls, model: Any, records: list[dict[str, Any]]) -> MergedAdapter:
        """What is needed to undo the merge of the active adapter."""
        values = adapter_weights(model, active_name(model) or "")
        return cls(
            records,
            {path: np.array(w.get_value()) for path, w in _merging(model)},
            {path: np.array(w.get_value()) for path, w in values},
            {},
        )

    def after(self, model: Any) -> MergedAdapter:
        """The same with what the weights are now."""
        weights = {path: weight for path, weight, _ in iter_weights(model)}
        digests = {path: _digest(weights[path]) for path in self.weights}
        return dataclasses.replace(self, digests=digests)

    def undo(self, model: Any) -> list[dict[str, Any]]:
        """Gives the model its weights and its adapter again.

        Raises:
            ArgumentError: The weights have changed, or there is another adapter.
        """
        op = "unmerge_lora"
        if names := adapter_names(model):
            raise ArgumentError(op, "the model has adapters", {"names": names})
        weights = {path: weight for path, weight, _ in iter_weights(model)}
        changed = [
            path
            for path, digest in self.digests.items()
            if path not in weights or _digest(weights[path]) != digest
        ]
        if changed:
            raise ArgumentError(
                op,
                "weights have changed since the merge, and would be lost",
                {"weights": ", ".join(changed[:4])},
            )
        for path, array in self.weights.items():
            weights[path].assign(array)
        for record in self.records:
            restore(model, record)
        for path, weight in adapter_weights(model, active_name(model) or ""):
            weight.assign(self.values[path])
        return self.records


def _merging(model: Any) -> Iterator[tuple[str, Any]]:
    """The weights that the active adapter lies beside."""
    for path, layer in layer_paths(model).items():
        for term in active_terms(layer):
            name = term.attribute
            yield f"{path}/{name}", exact_weight(getattr(layer, name))


def _digest(weight: Any) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(weight.get_value()).tobytes()).digest()


class MergedWeight:
    """A weight as it would be without adapters and few bits, made when it is read.

    Args:
        layer: The layer, which stays as it is.
        attribute: The weight's.
        dtype: What it is read in.
    """

    def __init__(self, layer: Any, attribute: str, dtype: Any):
        self._layer, self._attribute, self.dtype = layer, attribute, np.dtype(dtype)
        self.shape = tuple(getattr(layer, attribute).shape)

    def get_raw_value(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype; nothing is computed."""
        return jax.ShapeDtypeStruct(self.shape, self.dtype)

    def get_value(self) -> Any:
        """The weight with the term of the active adapter."""
        value = getattr(self._layer, self._attribute).get_value().astype("float32")
        for term in active_terms(self._layer):
            if term.attribute == self._attribute:
                value = _with_term(self._layer, term, value)
        return value.astype(self.dtype)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.get_value(), dtype=dtype)


def merged_weights(model: Any, dtype: Any = None) -> dict[str, Any]:
    """The weights by path, as of a model without adapters and few bits.

    Args:
        dtype: Of weights that are merged; that of the exact weight if None.
    """
    merged: dict[str, Any] = {}
    parts: set[str] = set()
    for path, layer in layer_paths(model).items():
        adapted = {term.attribute for term in active_terms(layer)}
        for name, value in vars(layer).items():
            packed = isinstance(value, QuantizedWeight)
            if packed or name in adapted:
                place = f"{path}/{name}"
                kind = dtype or (value.dtype if packed else exact_weight(value).dtype)
                merged[place] = MergedWeight(layer, name, kind)
                if packed:
                    parts |= {f"{place}/{part}" for part in value.scheme.parts}
    others = {
        path: weight
        for path, weight, _ in iter_weights(model, carried=False)
        if path not in parts and not weight.get_metadata().get("lora")
    }
    return others | merged


def _hide(mask: Any, value: Any) -> Any:
    return mask_values(value, mask)


def check_mergeable(model: Any) -> None:
    """Raises if the active adapter cannot be merged."""
    if (name := active_name(model)) is None:
        raise ArgumentError(
            "merge_lora",
            "no adapter is active",
            {"resting": ", ".join(adapter_names(model))},
            hint='model.set_adapter("name") activates one.',
        )
    if others := [other for other in adapter_names(model) if other != name]:
        raise ArgumentError(
            "merge_lora",
            "other adapters rest beside the weights, which would be others then",
            {"active": name, "resting": ", ".join(others)},
            hint="model.remove_adapter(name) takes one away; a clone has its own.",
        )
    for path, layer in layer_paths(model).items():
        weights = (getattr(layer, term.attribute) for term in active_terms(layer))
        if any(isinstance(weight, QuantizedWeight) for weight in weights):
            raise ArgumentError(
                "merge_lora",
                f"the weight of {path!r} is quantized, and would be rounded again",
                hint="Keep the adapters (model.save_lora), or load them into the exact "
                "model, merge there, and quantize that.",
            )


def adapted_layers(model: Any, name: str | None = None) -> list[str]:
    """Paths of the layers that have an adapter, or that of a name."""
    return [path for path, module in iter_modules(model) if _terms_of(module, name)]


def records_of(model: Any, pairs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """Records of adapters of which nothing else is known, by layer and name."""
    layers, groups = layer_paths(model), {}
    for path, name in pairs:
        term, *_ = _terms_of(layers[path], name)
        options = (term.rank, term.alpha, term.kind, term.dropout, name)
        groups.setdefault(options, []).append(path)
    return [
        {
            "kind": "lora",
            "method": kind,
            "name": name,
            "rank": rank,
            "alpha": alpha,
            "dropout": dropout,
            "layers": paths,
            "frozen_layers": [],
            "frozen_weights": [
                w for path in paths for w in _frozen_weight(layers, path, name)
            ],
        }
        for (rank, alpha, kind, dropout, name), paths in groups.items()
    ]


def adapters_of(model: Any) -> list[tuple[str, str]]:
    """Path and name of each layer's adapters."""
    modules = iter_modules(model)
    pairs = [(path, t.name) for path, module in modules for t in _terms_of(module)]
    return list(dict.fromkeys(pairs))


def _frozen_weight(layers: dict[str, Any], path: str, adapter: str) -> list[str]:
    """The weights beside which a layer's adapter is trained, if they are arrays."""
    names = [term.attribute for term in _terms_of(layers[path], adapter)]
    weights = {name: exact_weight(getattr(layers[path], name)) for name in names}
    return [
        f"{path}/{name}"
        for name, weight in weights.items()
        if isinstance(weight, nnx.Param) and weight.get_metadata().get("frozen")
    ]


def terms_by_weight(model: Any, name: str) -> dict[str, LowRank]:
    """The terms of an adapter by the paths of the weights that they lie beside."""
    layers = layer_paths(model).items()
    return {
        f"{path}/{term.attribute}": term
        for path, layer in layers
        for term in _terms_of(layer, name)
    }


def adapter_weights(model: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The weights of an adapter, by the layer's path and their names."""
    for path, layer in layer_paths(model).items():
        for term in _terms_of(layer, name):
            for part, weight in term.weights(layer).items():
                yield f"{path}/{term.prefix}{part}", weight


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


def _layer_terms(
    path: str,
    layers: dict[str, Any],
    rank: int,
    alpha: float,
    *,
    any_size: bool = False,
    **options: Any,
) -> list[LowRank] | str:
    """The terms of a layer's adapter, or why it has none."""
    layer = layers[path]
    if isinstance(layers.get(path.rpartition("/")[0]), SpectralNormalization):
        return "SpectralNormalization divides its kernel at every call"
    terms = terms_of(layer, rank, alpha, **options)
    if not terms:
        return f"no adapter for {type(layer).__name__}"
    if terms[0].stacked and terms[0].kind == "dora":
        return "experts have no magnitudes: kind='dora' is not for them"
    for term in terms:
        if isinstance(layer, Embedding) and mask_of(layer, term.attribute) is not None:
            return "its table is pruned, and read row by row"
        size, limit = _sizes(term)
        if rank > limit or size >= math.prod(term.shape) and not any_size:
            return (
                f"an adapter of rank {rank} would be larger than its {term.attribute}"
            )
    return terms


def _sizes(term: LowRank) -> tuple[int, int]:
    """Entries of both factors, and the rank beyond which none makes sense."""
    a, b = (math.prod(term.shapes[name]) for name in ("lora_a", "lora_b"))
    count = term.shape[0] if term.stacked else 1
    return a + b, max(a, b) // (term.rank * count)


def terms_of(layer: Any, rank: int, alpha: float, **options: Any) -> list[LowRank]:
    """The terms of the adapter that a layer can have; empty for layers without."""
    if isinstance(layer, MixtureOfExperts):
        weights = {name: getattr(layer, name, None) for name in ("gate", "up", "down")}
        return [
            LowRank(name, tuple(w.shape), (1,), rank, alpha, stacked=True, **options)
            for name, w in weights.items()
            if w is not None
        ]
    name = "embeddings" if isinstance(layer, Embedding) else "kernel"
    weight = getattr(layer, name, None)
    summed = _summed_axes(layer) if weight is not None else None
    if weight is None or summed is None:
        return []
    return [LowRank(name, tuple(weight.shape), summed, rank, alpha, **options)]


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


def _apply(model: Any, terms: _Terms, record: dict[str, Any]) -> None:
    layers = layer_paths(model)
    for path, weight, _ in iter_weights(model):
        if path in record["frozen_weights"]:
            weight.set_metadata("frozen", True)
    for path in record["frozen_layers"]:
        layers[path]._trainable = False
    materialize(model)  # magnitudes of dora come from the weights
    for path, own in terms.items():
        _put_beside(layers[path], own)
    materialize(model)


def _put_beside(
    layer: Any,
    terms: list[LowRank],
    a_initializer: Any = "he_uniform",
    b_initializer: Any = "zeros",
) -> None:
    pruned = any(mask_of(layer, term.attribute) is not None for term in terms)
    put_in_place(layer, AnyStandIn if pruned else None)
    weights = {}
    for term in terms:
        initializers = {"lora_a": a_initializer, "lora_b": b_initializer}
        if term.stacked and a_initializer == "he_uniform":  # by one expert's inputs
            initializers["lora_a"] = VarianceScaling(
                2.0, "fan_in", "uniform", None, (-2,), (-1,)
            )
        if term.kind == "dora":
            weight = exact_weight(getattr(layer, term.attribute))
            stored = weight.values if isinstance(weight, QuantizedWeight) else weight
            # Ones until a file is read, which has the weight and the magnitudes.
            abstract = is_abstract(stored)
            first = "ones" if abstract else ArrayInitializer(term.magnitudes(layer))
            initializers["lora_magnitude"] = first
        for part, shape in term.shapes.items():
            name = term.prefix + part
            start = initializers[part]
            weights[name] = layer.add_weight(shape, start, "float32", name=name)
    name = terms[0].name
    if name == DEFAULT:
        for part, weight in weights.items():
            setattr(layer, part, weight)
    else:
        if "lora_adapters" not in vars(layer):
            layer.lora_adapters = nnx.Dict()
        layer.lora_adapters[name] = nnx.Dict(weights)
    layer._low_ranks = (*_terms_of(layer), *terms)
    layer._low_rank = terms[0]
    for weight in weights.values():
        weight.set_metadata("lora", True)
