"""What of a model is quantized, how, and what is left alone for which reason."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Set
from typing import Any

import numpy as np
from flax import nnx

from exburn.compression.masking.summed_axes import summed_axes
from exburn.compression.quantization.blocks import within
from exburn.compression.quantization.quantized_layers import (
    has_own_product,
    is_matrix_product,
)
from exburn.compression.quantization.scheme import Scheme
from exburn.compression.quantization.settings import PACKED, QuantizationSettings
from exburn.compression.quantization.weight import Packed, QuantizedWeight
from exburn.core.precision import DTypePolicy, is_float
from exburn.errors import (
    ArgumentError,
    NotBuiltError,
    UnknownNameError,
    unknown_name,
)
from exburn.layers import (
    BatchNormalization,
    Dense,
    EinsumDense,
    Embedding,
    GroupNormalization,
    LayerNormalization,
    ModuleLayer,
    RMSNormalization,
    SpectralNormalization,
    TernaryDense,
)
from exburn.module.building import require_built
from exburn.module.layer import Layer
from exburn.module.selection import layer_paths, select_layers
from exburn.module.traversal import iter_weights, own_weights

NOT_SELECTED = "not selected by filter"
NOT_REACHED = "in no block of sequential_blocks, or inside of a loop"
_NORMALIZATIONS = (
    BatchNormalization,
    LayerNormalization,
    GroupNormalization,
    RMSNormalization,
)


@dataclasses.dataclass(frozen=True)
class QuantizationTarget:
    """A layer that is quantized.

    Attributes:
        schemes: How each weight is stored, by its attribute; empty for a cast.
    """

    path: str
    layer: Layer
    schemes: dict[str, Scheme]
    policy: DTypePolicy
    label: str


@dataclasses.dataclass(frozen=True)
class QuantizationPlan:
    """The layers to quantize, and those with weights that are left alone."""

    settings: QuantizationSettings
    targets: list[QuantizationTarget]
    skipped: list[tuple[str, Layer, str]]


def make_plan(
    model: Any,
    settings: QuantizationSettings,
    chosen: set[str],
    *,
    again: bool = False,
    calibrated: Set[str] | None = None,
    op: str = "quantize",
) -> QuantizationPlan:
    """Decides layer by layer; changes nothing.

    Args:
        again: Whether layers may have the dtype already, from their configurations; and
            tables the form of gptq, as no data round them any more.
        calibrated: Paths of the layers that data goes through; all if None.
    """
    require_built(model, op)
    layers = layer_paths(model)
    targets, skipped = [], []
    for path, layer in layers.items():
        own = list(_own_weights(layer))
        if any("lora" in w.get_metadata() for _, w in own):
            raise ArgumentError(
                op,
                f"{path!r} has a low-rank adapter",
                hint=f"Call model.merge_lora() first, or add_lora() after {op}().",
            )
        target = reason = None
        if path not in chosen:
            reason = NOT_SELECTED
        elif settings.casts:
            target, reason = _cast_target(path, layer, settings, again)
        else:
            reached = calibrated is None or path in calibrated
            target, reason = _packed_target(
                path, layer, settings, layers, reached, again
            )
        if target is not None:
            targets.append(target)
        if reason is not None and any(is_float(w.dtype) for _, w in own):
            skipped.append((path, layer, reason))
    if any(True for _ in _own_weights(model)):
        skipped.append(("", model, "weights of the model itself"))
    if not any(any(True for _ in _own_weights(t.layer)) for t in targets):
        raise ArgumentError(
            op,
            "no layer can be quantized",
            {path: reason for path, _, reason in skipped} or {"layers": "no weights"},
            hint="Dense, EinsumDense, convolutions, Embedding, attention and recurrent "
            "layers can; as -1, 0 and 1, Dense and TernaryDense.",
        )
    return QuantizationPlan(settings, targets, skipped)


def plan_layer(layer: Any, settings: QuantizationSettings) -> QuantizationPlan:
    """The plan of a layer by itself: its weights, and those inside, are packed."""
    op = f"{layer.name}.quantize"
    if settings.casts:
        raise unknown_name("mode", settings.dtype, PACKED, op=op)
    parts = {"": layer, **layer_paths(layer)}
    if any(packed_schemes(part) for part in parts.values()):
        raise ArgumentError(op, "the layer is quantized already")
    weights = [weight for _, weight, _ in iter_weights(layer)]
    if not weights and not layer.built:
        raise NotBuiltError(op, "the layer has no weights before it is built")
    if any("lora" in weight.get_metadata() for weight in weights):
        raise ArgumentError(op, "the layer has a low-rank adapter")
    pairs = [
        _packed_target(path, part, settings, parts, again=True)
        for path, part in parts.items()
    ]
    targets = [target for target, _ in pairs if target is not None]
    if not targets:
        reason = next((r for _, r in reversed(pairs) if r), "nothing can be packed")
        raise ArgumentError(op, reason)
    return QuantizationPlan(settings, targets, [])


def choose(model: Any, selection: Any, *, op: str) -> set[str]:
    """Paths of the selected layers, and of all layers within them.

    Args:
        selection: A pattern, a list of them, a function of a layer; all if None.
    """
    layers = layer_paths(model)
    if selection is None:
        return set(layers)
    if callable(selection) and not isinstance(selection, Layer):
        paths = _by_function(selection, layers, op)
    else:
        listed = isinstance(selection, list | tuple | set)
        paths = set()
        for pattern in selection if listed else (selection,):
            paths |= _select_named(model, pattern, layers, op)
    return {p for p in layers if any(within(p, outer) for outer in paths)}


def _select_named(
    model: Any, pattern: Any, layers: dict[str, Any], op: str
) -> set[str]:
    """Paths of layers that ``freeze`` would find, else as Keras finds them in names."""
    try:
        return set(select_layers(model, (pattern,), op=op))
    except UnknownNameError:
        try:
            paths = {p for p, v in layers.items() if re.search(pattern, v.name)}
        except (re.error, TypeError):
            paths = set()
        if not paths:
            raise
        return paths


def _by_function(selection: Callable, layers: dict[str, Any], op: str) -> set[str]:
    paths = {path for path, layer in layers.items() if selection(layer)}
    if not paths:
        raise ArgumentError(
            op,
            "filters returned False for every layer",
            {"layers": ", ".join(layers)},
            hint="It is called with each layer, also those within others.",
        )
    return paths


def packed_schemes(layer: Any) -> list[Scheme]:
    """How the layer's own weights are stored, those in few bits."""
    values = vars(layer).values()
    return [value.scheme for value in values if isinstance(value, QuantizedWeight)]


def quantized_weights(model: Any) -> list[str]:
    """Paths of the weights in a model that are packed."""
    parts = [path for path, w, _ in iter_weights(model) if isinstance(w, Packed)]
    return list(dict.fromkeys(path.rpartition("/")[0] for path in parts))


# ------------------------------------------------------------------------- one layer
def _own_weights(layer: Any) -> Iterator[tuple[str, Any]]:
    """The parameters of the layer that are in no layer inside of it."""
    return ((key, w) for key, w in own_weights(layer) if isinstance(w, nnx.Param))


def _cast_target(path, layer, settings, again):
    stays = _stays_float32(layer)
    if stays == "preprocessing":
        return None, "preprocessing is computed in float32"
    if isinstance(layer, ModuleLayer):
        return None, "a flax module has dtypes of its own"
    before, dtype = layer.precision, settings.dtype
    if before.param == before.compute == dtype and not again:
        return None, f"is {dtype} already"
    policy = before.replace(param="float32" if stays else dtype, compute=dtype)
    reason = "normalization stays in float32" if stays else None
    return QuantizationTarget(path, layer, {}, policy, dtype), reason


def _packed_target(path, layer, settings, layers, reached=True, again=False):
    policy = layer.precision
    preprocesses = _stays_float32(layer) == "preprocessing"
    if settings.compute_dtype is not None and not preprocesses:
        policy = policy.replace(compute=settings.compute_dtype)
    reason, schemes = None, {}
    ternary = isinstance(layer, TernaryDense)
    rule: Any = {"kernel": (0,)} if ternary else summed_axes(layer)
    outer = layers.get(path.rpartition("/")[0])
    if _stays_float32(layer):
        reason = "normalization stays in float32"
    elif isinstance(outer, SpectralNormalization):
        reason = "SpectralNormalization divides its kernel at every call"
    elif rule is None:
        reason = f"no rule for {type(layer).__name__}"
    elif ternary and settings.storage != "ternary":
        reason = 'TernaryDense is stored by mode "ternary" alone'
    elif settings.storage == "ternary" and not isinstance(layer, Dense | TernaryDense):
        reason = "only Dense and TernaryDense are stored as -1, 0 and 1"
    elif not reached:
        reason = NOT_REACHED
    elif settings.uses_calibration and (why := _why_exact(layer, again)) is not None:
        reason = why
    else:
        for name, summed in rule.items():
            weight = getattr(layer, name, None)
            if not isinstance(weight, nnx.Variable):
                continue
            value = weight.get_raw_value()
            scheme = settings.scheme(tuple(value.shape), summed, value.dtype)
            if ternary:
                scheme = dataclasses.replace(scheme, threshold=layer.threshold)
            if scheme.nbytes < int(np.prod(value.shape)) * value.dtype.itemsize:
                schemes[name] = scheme
            else:
                reason = f"{name} would not get smaller"
    if not schemes and policy == layer.precision:
        return None, reason
    label = next(iter(schemes.values())).name if schemes else policy.compute
    return QuantizationTarget(
        path, layer, schemes, policy, label
    ), reason if not schemes else None


def _why_exact(layer: Layer, again: bool) -> str | None:
    """Why the layer's weight cannot be chosen on its inputs, if so."""
    kind = type(layer).__name__
    if again and isinstance(layer, Embedding):
        return None if has_own_product(type(layer)) else f"{kind} reads its own table"
    if not isinstance(layer, Dense | EinsumDense):
        return f"only Dense and EinsumDense are rounded on data, not {kind}"
    if not has_own_product(type(layer)):
        return f"{kind} multiplies by its weight in its own way"
    if isinstance(layer, EinsumDense) and not is_matrix_product(layer):
        return "its kernel, inputs and outputs share an axis"
    return None


def _stays_float32(layer: Layer) -> str | None:
    if isinstance(layer, _NORMALIZATIONS):
        return "normalization"
    package = "exburn.layers.preprocessing"
    inside = any(cls.__module__.startswith(package) for cls in type(layer).__mro__)
    return "preprocessing" if inside else None
