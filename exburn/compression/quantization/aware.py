"""A model that is trained as it will be stored, and ranges measured on data."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn import activations
from exburn.compression.quantization.plan import QuantizationPlan, QuantizationTarget
from exburn.compression.quantization.ranges import PLACES, SUM, Range, Ranges
from exburn.compression.quantization.settings import QuantizationSettings
from exburn.compression.quantization.weight import (
    SimulatedWeight,
    simulated_schemes,
)
from exburn.errors import ArgumentError, DataError
from exburn.module.copying import running_copy
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
    """Gives layers ranges for their activations, in place."""
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
    """Tells if weights of a model are read as they will be stored."""
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
    """Raises where no range of a model has seen anything but 0."""
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


METHODS = ("minmax", "percentile", "mse")
_ROWS, _BINS, _TRIES = 128, 2048, 60


def measure_ranges(model: Any, batch: Any, method: str, percentile: float) -> None:
    """Gives the ranges of a model ends that fit the activations of a batch, in place.

    The model runs exactly, in parts of 128 rows: once for the ends, and for the other
    methods once more for histograms of 2,048 bins between them.

    Args:
        method: ``"minmax"``: the ends themselves. ``"percentile"``: those without the
            outermost values. ``"mse"``: those with the least mean square of the error
            that rounding makes, of what is cut off too.
    """
    ends: dict[str, tuple[float, float]] = {}
    for readings in _passes(model, batch, lambda x, _: jnp.stack([x.min(), x.max()])):
        for key, (low, high) in readings.items():
            before = ends.get(key, (0.0, 0.0))
            ends[key] = min(before[0], float(low)), max(before[1], float(high))
    for key, pair in ends.items():
        if not np.isfinite(pair).all():
            raise DataError(
                "quantize",
                f"activations of {key!r} hold NaN or infinity on the calibration batch",
            )
    if method != "minmax":
        counts = {key: np.zeros(_BINS) for key in ends}
        for readings in _passes(model, batch, _histogram, ends):
            for key, part in readings.items():
                counts[key] += part
        ends = {
            key: _cut(pair, counts[key], percentile)
            if method == "percentile"
            else _fit(pair, counts[key])
            for key, pair in ends.items()
        }
    for path, place, range_ in all_ranges(model):
        if (pair := ends.get(f"{path}/{place}")) is not None and pair[0] < pair[1]:
            range_.set(*pair)


def _passes(
    model: Any,
    batch: Any,
    look: Callable[[Any, Any], Any],
    ends: dict[str, tuple[float, float]] | None = None,
) -> Iterator[dict[str, np.ndarray]]:
    """The results of a function of each activation, for parts of the batch.

    An activation that is computed more than once is seen as a whole.
    """
    graph, state = nnx.split(model)

    def run(state: Any, x: Any, ends: Any) -> Any:
        copied = nnx.merge(graph, state)
        seen: dict[str, list[Any]] = {}

        def see(name: str, x: Any) -> None:
            seen.setdefault(name, []).append(x.astype(jnp.float32).ravel())

        for path, place, one in all_ranges(copied):
            one.watcher = functools.partial(see, f"{path}/{place}")
        with running_copy(model, copied):
            copied._call_arrays((x,), {})
        return {
            key: look(jnp.concatenate(parts), None if ends is None else ends[key])
            for key, parts in seen.items()
        }

    compiled = jax.jit(run)
    rows = jax.tree.leaves(batch)[0].shape[0]
    pairs = None if ends is None else {k: np.array(v, "f4") for k, v in ends.items()}
    for start in range(0, rows, _ROWS):
        part = jax.tree.map(lambda v, start=start: v[start : start + _ROWS], batch)
        yield jax.device_get(compiled(state, part, pairs))


def _histogram(x: Any, ends: Any) -> Any:
    low, high = ends
    width = jnp.maximum(high - low, 1e-30) / _BINS
    place = jnp.clip(((x - low) / width).astype(jnp.int32), 0, _BINS - 1)
    return jnp.bincount(place, length=_BINS)


def _cut(pair: tuple[float, float], counts: np.ndarray, percentile: float) -> Any:
    """The ends between which a percentage of the values lies, and 0."""
    edges = np.linspace(*pair, _BINS + 1)
    share = np.cumsum(counts) / max(counts.sum(), 1)
    off = (1 - percentile / 100) / (2 if pair[0] < 0 < pair[1] else 1)
    low = edges[np.searchsorted(share, off, "right")] if pair[0] < 0 else pair[0]
    high = edges[np.searchsorted(share, 1 - off) + 1] if pair[1] > 0 else pair[1]
    return min(float(low), 0.0), max(float(high), 0.0)


def _fit(pair: tuple[float, float], counts: np.ndarray) -> Any:
    """The ends with the least error: one, then the other, twice."""
    edges = np.linspace(*pair, _BINS + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    best = list(pair)
    for end in (1, 0, 1, 0):
        tries = pair[end] * np.linspace(1, 0.2, _TRIES) if pair[end] else [pair[end]]
        errors = []
        for value in tries:
            low, high = (best[0], value) if end else (value, best[1])
            scale = (high - low) / 255 or 1.0
            zero = np.rint(-128 - low / scale)
            whole = np.clip(np.rint(middles / scale) + zero, -128, 127)
            errors.append((counts * ((whole - zero) * scale - middles) ** 2).sum())
        best[end] = float(tries[int(np.argmin(errors))])
    return tuple(best)
