"""Ranges of activations that are measured on data, after training or before it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn.compression.quantization.aware import all_ranges
from exburn.compression.quantization.probing import running
from exburn.errors import DataError

METHODS = ("minmax", "percentile", "mse")
_ROWS, _BINS, _TRIES = 128, 2048, 60


def measure_ranges(model: Any, batch: Any, method: str, percentile: float) -> None:
    """Gives the ranges of a model ends that fit the activations of a batch, in place.

    The model runs exactly, in parts of 128 rows: once for the ends, and for the other
    methods once more for histograms of 2,048 bins between them.

    Args:
        model: The model.
        batch: Inputs, on the device.
        method: ``"minmax"``: the ends themselves. ``"percentile"``: those without the
            outermost values. ``"mse"``: those with the least mean square of the error
            that rounding makes, of what is cut off too.
        percentile: The percentage of values that is within the range.

    Raises:
        DataError: An activation is not finite.
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
    """What a function sees of each activation, for parts of the batch.

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
        with running(model, copied):
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
