"""A model that is trained as it will be stored, and what becomes of it afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flax import nnx

from exburn import activations
from exburn.compression.quantization.plan import QuantizationPlan, QuantizationTarget
from exburn.compression.quantization.ranges import PLACES, SUM, Range, Ranges
from exburn.compression.quantization.settings import QuantizationSettings
from exburn.compression.quantization.simulated import (
    SimulatedWeight,
    simulated_schemes,
)
from exburn.errors import ArgumentError
from exburn.module.selection import layer_paths


def simulate(plan: QuantizationPlan) -> None:
    """Lets the weights of a plan's layers read as they would be stored, in place.

    They keep their paths, and their places among the layer's weights.
    """
    for target in plan.targets:
        held_since = target.layer._meta.value.held_since
        before = dict(held_since)
        for name, scheme in target.schemes.items():
            weight = getattr(target.layer, name)
            setattr(target.layer, name, SimulatedWeight(weight, scheme))
        held_since.clear()
        held_since.update(before)


def add_ranges(model: Any, places: Mapping[str, Any], **options: Any) -> None:
    """Gives layers ranges for their activations, in place.

    Args:
        model: The model.
        places: Where, by the path of a layer.
        options: Of :class:`Ranges`.
    """
    layers = layer_paths(model)
    for path, names in places.items():
        layer: Any = layers[path]
        activation = None
        if SUM in names:
            # It is called by the ranges; the configuration keeps what it was given.
            activation = layer.activation
            object.__setattr__(layer, "activation", activations.linear)
        layer._ranges = Ranges(names, activation=activation, **options)


def check_record(
    model: Any,
    places: Mapping[str, tuple[str, ...]],
    dtype: Any,
    learned: Any,
    momentum: Any,
    settled: Any,
) -> None:
    """Raises a ``ValueError`` where ranges that a file tells of do not fit a model."""
    layers = layer_paths(model)
    if dtype not in ("int8", "float8") or {type(learned), type(settled)} != {bool}:
        raise ValueError(f"{dtype!r}, {learned!r}, {settled!r}")
    if not isinstance(momentum, float) or not 0 <= momentum < 1:
        raise ValueError(f"momentum={momentum!r}")
    for path, names in places.items():
        layer = layers.get(path)
        if layer is None or not names or not set(names) <= set(PLACES):
            raise ValueError(f"{path}: {names}")
        if (
            layer._ranges is not None
            or SUM in names
            and not hasattr(layer, "activation")
        ):
            raise ValueError(f"{path}: {names}")


def all_ranges(model: Any) -> Iterator[tuple[str, str, Range]]:
    """The ranges of a model: the layer's path, the place, and the range."""
    for path, layer in layer_paths(model).items():
        if layer._ranges is not None:
            for place, range_ in layer._ranges.items():
                yield path, place, range_


def is_simulated(model: Any) -> bool:
    """Whether weights of a model are read as they will be stored."""
    return any(simulated_schemes(layer) for layer in layer_paths(model).values())


def plan_as_trained(model: Any) -> QuantizationPlan:
    """The plan that stores the simulated weights of a model."""
    targets, settings = [], None
    for path, layer in layer_paths(model).items():
        schemes = {
            name: value.scheme
            for name, value in vars(layer).items()
            if isinstance(value, SimulatedWeight)
        }
        if schemes:
            one = next(iter(schemes.values()))
            settings = settings or _settings_of(one)
            targets.append(
                QuantizationTarget(path, layer, schemes, layer.precision, one.name)
            )
    assert settings is not None
    return QuantizationPlan(settings, targets, [])


def require_known(model: Any, op: str) -> None:
    """Raises where no range of a model has seen anything but 0.

    Raises:
        ArgumentError: There are ranges, and none is known.
    """
    states = [each.is_known for _, _, each in all_ranges(model)]
    if states and not any(states):
        raise ArgumentError(
            op,
            "the ranges of activations are not known yet: they saw nothing but 0",
            {"ranges": len(states)},
            hint="Call fit() first, or quantize_aware(model, mode, calibration=x).",
        )


def settle(model: Any) -> tuple[str, ...]:
    """Fixes the ranges of a model as they are, in place; unknown ones go.

    An activation that was 0 throughout, or that nothing computed, has no range: it is
    not rounded, as it was not in training.

    Returns:
        The places of those, each the path of a layer and a name of `PLACES`.
    """
    layers, gone = layer_paths(model), []
    for path, place, range_ in list(all_ranges(model)):
        if range_.is_known:
            range_.settled = True
            for end in (range_.low, range_.high):
                if isinstance(end, nnx.Param):
                    end.set_metadata("frozen", True)
        else:
            layers[path]._ranges.drop(place)
            gone.append(f"{path}/{place}")
    return tuple(gone)


def _settings_of(scheme: Any) -> QuantizationSettings:
    settings = QuantizationSettings(
        scheme.dtype, scheme.block_size, scales=scheme.scales
    )
    return settings.with_ranges() if scheme.static else settings
