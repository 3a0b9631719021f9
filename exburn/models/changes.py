"""What was done to a model after it was built, so that a file can tell.

A record is JSON-able; a model of the same architecture that repeats the records takes
the same weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flax import nnx

from exburn.compression import masking
from exburn.compression.masking.records import reading_record
from exburn.compression.quantization.aware import (
    add_ranges,
    all_ranges,
    check_record,
    settle,
    simulate,
)
from exburn.compression.quantization.calibrate import calibrate
from exburn.compression.quantization.convert import carry_out, freeze_parameters
from exburn.compression.quantization.plan import (
    QuantizationPlan,
    make_plan,
    packed_schemes,
)
from exburn.compression.quantization.settings import QuantizationSettings
from exburn.compression.quantization.weight import simulated_schemes
from exburn.core.precision import DTypePolicy, PrecisionPolicy
from exburn.errors import FileFormatError
from exburn.models import lora
from exburn.module.building import materialize
from exburn.module.policies import spread_precision
from exburn.module.selection import layer_paths
from exburn.module.traversal import iter_modules, iter_weights
from exburn.module.variable import Static


def records(model: Any) -> list[dict[str, Any]]:
    """What was done to the layers of a model, in an order in which it can be repeated.

    Stored weights and adapters are read off the layers, so that a model which was made
    of another one's layers tells of them, too.
    """
    stored = list(_stored_records(model))
    casts = [r for r in stored if r["kind"] == "quantization"]
    terms = list(_lora_records(model, stored))
    # Masks before adapters: those of a masked weight are masked, too.
    changes = [*_policies(model), *casts, *_packing_records(model)]
    changes += [*_range_records(model), *masking.records_of(model), *terms]
    return [record for record in changes if record["layers"]]


def _lora_records(model: Any, stored: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The records of adapters that are there, stored or not."""
    adapters, active = lora.adapters_of(model), lora.active_name(model)
    records = []
    for record in stored:
        if record["kind"] == "lora":
            name = record["name"]
            paths = [path for path in record["layers"] if (path, name) in adapters]
            records.append(record | {"layers": paths})
    told = {(path, r["name"]) for r in records for path in r["layers"]}
    records += lora.records_of(model, [pair for pair in adapters if pair not in told])
    return (record | {"active": record["name"] == active} for record in records)


def _policies(model: Any) -> list[dict[str, Any]]:
    """A record for each policy that layers were given after they were made."""
    groups: dict[DTypePolicy, list[str]] = {}
    for path, layer in layer_paths(model).items():
        if layer._policy_was_set:
            groups.setdefault(layer.precision, []).append(path)
    return [
        {"kind": "precision", "policy": policy.identifier, "layers": paths}
        for policy, paths in groups.items()
    ]


def _stored_records(model: Any) -> Iterator[dict[str, Any]]:
    """The records that the model and the models in it keep, with paths from here."""
    layers = layer_paths(model)
    for path, module in iter_modules(model):
        stored = vars(module).get("_changes")
        for record in [] if stored is None else stored.value:
            full = {
                key: [f"{path}/{p}" if path else p for p in record[key]]
                for key in ("layers", "frozen_layers", "frozen_weights")
                if key in record
            }
            full["layers"] = [p for p in full["layers"] if p in layers]
            yield record | full


def _packing_records(model: Any) -> list[dict[str, Any]]:
    """A record for each way in which weights are stored, or read as if they were."""
    groups: dict[tuple, list[str]] = {}
    for path, layer in layer_paths(model).items():
        packed = packed_schemes(layer)
        schemes = packed or simulated_schemes(layer)
        if schemes:
            scheme = schemes[0]
            kind = "_dynamic" if scheme.dynamic else "_static" if scheme.static else ""
            dtype, compute = f"{scheme.mode}{kind}", layer.precision.compute
            bits = None if scheme.method is None else scheme.bits
            key = (dtype, bits, scheme.block_size, compute, scheme.scales, not packed)
            groups.setdefault(key, []).append(path)
    frozen = [
        path
        for path, weight, _ in iter_weights(model)
        if isinstance(weight, nnx.Param) and weight.get_metadata().get("frozen")
    ]
    return [
        {
            "kind": "quantization",
            "dtype": dtype,
            **({} if bits is None else {"bits": bits}),
            "block_size": block_size,
            "compute_dtype": compute,
            "scales": scales,
            "layers": paths,
            "frozen_weights": frozen,
            **({"simulated": True} if simulated else {}),
        }
        for (
            dtype,
            bits,
            block_size,
            compute,
            scales,
            simulated,
        ), paths in groups.items()
    ]


def _range_records(model: Any) -> list[dict[str, Any]]:
    """A record for each kind of ranges that activations have."""
    groups: dict[tuple, dict[str, list[str]]] = {}
    for path, place, ranges in all_ranges(model):
        key = (ranges.dtype, ranges.learned, ranges.momentum, ranges.settled)
        groups.setdefault(key, {}).setdefault(path, []).append(place)
    return [
        {
            "kind": "ranges",
            "dtype": dtype,
            "learned": learned,
            "momentum": momentum,
            "settled": settled,
            "layers": list(places),
            "places": list(places.values()),
        }
        for (dtype, learned, momentum, settled), places in groups.items()
    ]


def add_record(model: Any, record: dict[str, Any]) -> None:
    stored = vars(model).get("_changes")
    model._changes = Static([*([] if stored is None else stored.value), record])


def remove_adapter_records(model: Any, name: str) -> None:
    """Forgets an adapter; what it has frozen is noted of one that stays, or thawed."""
    gone = [r for r in records(model) if r["kind"] == "lora" and r["name"] == name]
    lora.remove(model, name)
    rest = next((r for r in records(model) if r["kind"] == "lora"), None)
    stored = vars(model).get("_changes")
    kept = [
        record
        for record in ([] if stored is None else stored.value)
        if record["kind"] != "lora" or record["name"] != name
    ]
    if rest is None:
        lora.thaw(model, gone)
    else:
        heir = {key: list(rest[key]) for key in ("frozen_layers", "frozen_weights")}
        for record in gone:
            for key, paths in heir.items():
                paths += [path for path in record[key] if path not in paths]
        same = [record for record in kept if _is_of(record, rest)]
        kept = [record for record in kept if record not in same]
        kept.append(rest | heir)
    model._changes = Static(kept)


def forget_adapters(model: Any) -> None:
    """Takes the records of all adapters away."""
    stored = vars(model).get("_changes")
    others = [] if stored is None else [r for r in stored.value if r["kind"] != "lora"]
    model._changes = Static(others)


def _is_of(record: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two records are of the same adapter, added at once."""
    keys = ("kind", "name", "rank", "alpha", "layers")
    return all(record.get(key) == other.get(key) for key in keys)


def quantize_in_place(
    model: Any,
    plan: QuantizationPlan,
    frozen: list[str] | None = None,
    calibration: Any = None,
    rounded: Any = None,
) -> tuple[str, ...]:
    """Carries a plan out and records it.

    Args:
        frozen: Paths of weights that are not trained beside packed ones; all if None.
        calibration: What weights are chosen on, if they are.
        rounded: Parts of weights that were rounded already, by layer and name.

    Returns:
        The places of activations that have no range: see ``settle``.
    """
    if calibration is None:
        carry_out(plan, rounded)
    else:
        calibrate(model, plan, calibration)
    unrounded = settle(model)
    masking.forget(model)  # of weights of few bits the zeros stay, without masks
    if plan.settings.casts:
        paths = [target.path for target in plan.targets]
        record = {"kind": "quantization", "dtype": plan.settings.dtype, "layers": paths}
        add_record(model, record)
    else:
        freeze_parameters(model, frozen)
    make_again(model)
    return unrounded


def simulate_in_place(model: Any, plan: QuantizationPlan) -> None:
    """Lets a model read the plan's weights as they would be stored."""
    simulate(plan)
    make_again(model)


def make_again(model: Any) -> None:
    """Makes symbols and programs of a model anew, whose layers were changed."""
    if getattr(model, "graph", None) is not None:
        retrace(model)
    materialize(model)


def retrace(model: Any) -> None:
    """Symbols anew, of nested models first: dtypes and layers are others now."""
    nested = [m for _, m in iter_modules(model) if getattr(m, "is_model", False)]
    for inner in reversed(nested):
        if inner.graph is not None:
            inner._retrace()


def repeat(model: Any, changes: Any) -> Any:
    """Does to a fresh model what the records say was done to it; returns the model."""
    for record in changes or ():
        kind = record.get("kind") if isinstance(record, dict) else None
        if kind == "quantization":
            _quantize_again(model, record)
        elif kind == "ranges":
            _add_ranges_again(model, record)
        elif kind == "precision":
            _set_policy_again(model, record)
        elif kind == "pruning":
            masking.restore(model, record)
        elif kind == "lora":
            add_record(model, lora.restore(model, record))
        else:
            raise FileFormatError("from_config", f"unknown change {record!r}")
    return model


def _set_policy_again(model: Any, record: dict[str, Any]) -> None:
    layers = layer_paths(model)
    with reading_record("a layer's precision"):
        policy = PrecisionPolicy.of(record["policy"])
        chosen = [layers[path] for path in record["layers"]]
    for layer in chosen:
        layer._policy = policy
        layer._own_policy = layer._policy_was_set = True
        spread_precision(layer, policy)
    make_again(model)


def _quantize_again(model: Any, record: dict[str, Any]) -> None:
    with reading_record("the quantization"):
        settings = QuantizationSettings.of_record(record)
        layers = [str(path) for path in record["layers"]]
        parts = layer_paths(model)
        there = {
            path
            for path in layers
            if packed_schemes(parts[path]) or simulated_schemes(parts[path])
        }  # by its dtype
        rest = set(layers) - there
        plan = make_plan(model, settings, rest, again=True) if rest else None
    done = there | {target.path for target in (plan.targets if plan else ())}
    if done != set(layers):
        raise FileFormatError(
            "from_config",
            "the record of the quantization belongs to another model",
            {"layers that do not fit": sorted(done ^ set(layers))},
        )
    frozen = record.get("frozen_weights") or []
    if record.get("simulated") is True and plan is not None:
        simulate_in_place(model, plan)
    elif plan is None:
        freeze_parameters(model, frozen)
    else:
        quantize_in_place(model, plan, frozen)


def _add_ranges_again(model: Any, record: dict[str, Any]) -> None:
    with reading_record("ranges"):
        named = zip(record["layers"], record["places"], strict=True)
        places = {str(path): tuple(names) for path, names in named}
        options = {key: record[key] for key in ("dtype", "learned", "momentum")}
        check_record(model, places, settled=record["settled"], **options)
    add_ranges(model, places, **options)
    for path, _, ranges in all_ranges(model):
        if path in places:
            ranges.settled = record["settled"]
    materialize(model)
