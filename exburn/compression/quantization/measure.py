"""Measuring what a plan did: bytes, and errors against the exact model."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn.compression.quantization.blocks import watchable_layers
from exburn.compression.quantization.plan import (
    NOT_REACHED,
    NOT_SELECTED,
    QuantizationPlan,
)
from exburn.compression.quantization.ranges import Ranges
from exburn.core.precision import is_float
from exburn.layers import TernaryDense
from exburn.module.building import is_spec
from exburn.module.copying import running_copy
from exburn.module.forward_hooks import Capture
from exburn.module.selection import layer_paths
from exburn.module.traversal import iter_weights, own_weights
from exburn.quantizers.report import (
    LayerReport,
    QuantizationReport,
    relative_errors,
)


def measure(exact: Any, small: Any, plan: QuantizationPlan, batch: Any = None) -> Any:
    """The report of a plan that was carried out.

    Args:
        batch: Inputs to compare the outputs on; with None the weights are compared.
    """
    layers = {"": exact, **layer_paths(exact)}
    after = {"": small, **layer_paths(small)}
    done = [t for t in plan.targets if _own(layers[t.path])]
    if batch is None:
        errors = {t.path: _weight_errors(layers[t.path], after[t.path]) for t in done}
    else:
        errors = _output_errors(exact, small, batch)
    rows = []
    for target in done:
        mean, worst = errors[_nearest(target.path, errors)]
        rows.append(
            LayerReport(
                target.path,
                type(layers[target.path]).__name__,
                target.label,
                _nbytes(_own(layers[target.path])),
                _nbytes(_own(after[target.path])),
                mean,
                worst,
            )
        )
    skipped = []
    for path, layer, reason in plan.skipped:
        before, now = _nbytes(_own(layers[path])), _nbytes(_own(after[path]))
        if any(row.path == path for row in rows) and now < before:
            continue
        kind = type(layer).__name__
        name = path or exact.name
        why = _kind(reason)
        row = LayerReport(
            name, kind, None, before, now, reason=reason, kind_of_reason=why
        )
        skipped.append(row)
    listed = {row.path for row in skipped}
    rows = [row for row in rows if row.path not in listed]
    report = QuantizationReport(plan.settings.dtype)
    report.layers, report.left_alone = tuple(rows), tuple(skipped)
    report.bytes_before = _nbytes(w for _, w, _ in iter_weights(exact))
    report.bytes_after = _nbytes(w for _, w, _ in iter_weights(small))
    report.calibrated = batch is not None
    report.mean_error, report.worst_error = errors.get("", (None, None))
    return report


def _kind(reason: str) -> str:
    """The kind of a plan's reason, of those that Keras has."""
    if reason == NOT_SELECTED:
        return QuantizationReport.SKIP_FILTERED
    if reason == NOT_REACHED:
        return QuantizationReport.SKIP_OUTSIDE_STRUCTURE
    return QuantizationReport.SKIP_NO_SUPPORT


def _own(layer: Any) -> list[Any]:
    """The weights that are in no layer inside of this one, packed ones too."""
    return [weight for _, weight in own_weights(layer)]


def _nbytes(weights: Any) -> int:
    values = [w.get_raw_value() for w in weights]
    return sum(int(np.prod(v.shape)) * v.dtype.itemsize for v in values)


def _nearest(path: str, errors: dict) -> str:
    """The path, or that of the nearest layer around it that was called as a layer."""
    while path not in errors:
        path = path.rpartition("/")[0]
    return path


def _weight_errors(exact: Any, small: Any) -> tuple[float, float]:
    if any(is_spec(weight.get_raw_value()) for _, weight in own_weights(exact)):
        return math.nan, math.nan  # a model without weights: nothing is known
    exact_weights = dict(own_weights(small))
    pairs = []
    for key, weight in own_weights(exact):
        name = key.partition("/")[0]
        if isinstance(getattr(exact, name), Ranges):  # no weights of the layer's own
            continue
        if is_float(weight.get_raw_value().dtype):
            other = (
                exact_weights[key] if key in exact_weights else getattr(small, name)
            )  # packed
            value = weight.get_value()
            if name == "kernel" and isinstance(exact, TernaryDense):
                value = math.prod(exact.ternary_kernel())  # what it computes with
            values = value, other.get_value()
            pairs.append([jnp.ravel(value) for value in values])
    if not pairs:  # only integers, such as counts
        return 0.0, 0.0
    if len(pairs) == 1:
        return relative_errors(*pairs[0])
    exact, other = (jnp.concatenate([p[i] for p in pairs]) for i in (0, 1))
    return relative_errors(exact, other)


# ------------------------------------------------------------------------ outputs
def _output_errors(exact: Any, small: Any, batch: Any) -> dict[str, tuple]:
    """Errors by path: of each layer on the inputs it gets in the exact model.

    The empty path stands for the whole model.
    """
    graphs, states = zip(*(nnx.split(model) for model in (exact, small)), strict=True)

    def run(states, batch):
        reference, other = map(nnx.merge, graphs, states)
        capture = Capture(watchable_layers(reference))
        layers = layer_paths(other)
        with running_copy(exact, reference, capture):
            outputs = reference._call_arrays((batch,), {})
        with running_copy(small, other):
            result = {"": _compare(outputs, other._call_arrays((batch,), {}))}
        for path, calls in capture.calls.items():
            if calls:
                args, kwargs, outputs = calls[0]
                with running_copy(small, other):
                    again = layers[path]._call_arrays(args, kwargs)
                result[path] = _compare(outputs, again)
        return result

    host = jax.device_get(jax.jit(run)(states, batch))
    return {
        path: (float(mean), float(worst))
        for path, (mean, worst) in host.items()
        if np.isfinite(mean)
    }


def _compare(exact: Any, other: Any) -> tuple[jax.Array, jax.Array]:
    """Mean and worst difference, over the exact values' RMS; NaN of no floats."""
    pairs = zip(jax.tree.leaves(exact), jax.tree.leaves(other), strict=True)
    pairs = [(a, b) for a, b in pairs if is_float(a.dtype)]
    if not pairs:
        return jnp.array(jnp.nan), jnp.array(jnp.nan)
    a, b = (
        jnp.concatenate([p[i].astype(jnp.float32).ravel() for p in pairs])
        for i in (0, 1)
    )
    size = jnp.sqrt(jnp.mean(a**2))
    size = jnp.where(size > 0, size, 1)
    difference = jnp.abs(a - b)
    return difference.mean() / size, difference.max() / size
