"""The inputs of a model that are explained, by name, and checked."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.symbolic_shapes import describe
from exburn.data import (
    ArrayDataset,
    StreamDataset,
    column_names,
    has_columns,
    has_packed,
    has_padded,
)
from exburn.errors import ArgumentError, DataError, unknown_name
from exburn.models.arguments import part_names
from exburn.models.encoding import read_batch, read_dataset
from exburn.models.inferring import require_predictor
from exburn.models.network import Network
from exburn.models.preparing import prepare

OP = "explain"


@dataclasses.dataclass(frozen=True)
class NamedInputs:
    """Inputs of a model, with their names.

    Attributes:
        leaves: The arrays, on the host.
        columns: Names of the columns of a table.
        floats: Of each array whether the model takes it as floats.
    """

    x: Any
    leaves: list[np.ndarray]
    names: list[str]
    columns: tuple[str, ...]
    floats: list[bool]

    @property
    def rows(self) -> int:
        return self.leaves[0].shape[0]


def read_inputs(model: Network, x: Any) -> NamedInputs:
    """The inputs, and the model built for them."""
    columns = tuple(map(str, column_names(x))) if has_columns(x) else ()
    dataset = read_dataset(model, x, op=OP)
    if isinstance(dataset, StreamDataset):
        x = _read_stream(dataset)
    inputs = read_batch(model, x, op=OP).tree[0]
    if has_padded(inputs) or has_packed(inputs):
        raise DataError(
            OP,
            "rows of unlike lengths are not explained together",
            hint="Pass rows of one length, or one row at a time.",
        )
    require_predictor(model)
    prepare(model, "predict", ArrayDataset(inputs, op=OP))
    host = model.host_graph
    own_names = tuple(host.names) if host is not None else part_names(model)[0]
    pairs, treedef = jax.tree_util.tree_flatten_with_path(inputs)
    names = [leaf_name(path, own_names) for path, _ in pairs]
    leaves = [np.asarray(value) for _, value in pairs]
    for name, value in zip(names, leaves, strict=True):
        _check_finite(name, value, columns)
    specs = {}
    if model.graph is not None:
        graph = host.program if host is not None else model.graph
        specs = dict(zip(graph.input_names, graph.inputs, strict=True))
    floats = [
        jnp.issubdtype(getattr(specs.get(n), "dtype", v.dtype), jnp.floating)
        or jnp.issubdtype(v.dtype, jnp.floating)
        for n, v in zip(names, leaves, strict=True)
    ]
    leaves = [
        v.astype(np.float32) if f and v.dtype.kind in "iub" else v
        for v, f in zip(leaves, floats, strict=True)
    ]
    width = leaves[0].shape[1:] if len(leaves) == 1 else ()
    columns = columns if width == (len(columns),) else ()
    x = jax.tree_util.tree_unflatten(treedef, leaves)
    return NamedInputs(x, leaves, names, columns, floats)


def _read_stream(dataset: StreamDataset) -> Any:
    """All rows of a loader; its targets are left out."""
    if dataset.batches in (None, sys.maxsize):
        raise DataError(
            OP,
            "all rows of a loader are explained, and this one may have no end",
            hint="Take some of it: explain(next(iter(loader))[0]).",
        )
    parts = [batch[0] for batch in dataset.iterate()]
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)


def leaf_name(path: tuple, names: Any) -> str:
    """The name of an input, or output, by its place in the structure of all."""
    if not path:
        return names[0] if names else "x"
    key = getattr(path[0], "key", getattr(path[0], "idx", None))
    if len(path) == 1 and isinstance(key, int) and names and key < len(names):
        return names[key]
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _check_finite(name: str, value: np.ndarray, columns: tuple[str, ...]) -> None:
    if not jnp.issubdtype(value.dtype, jnp.floating):
        return
    broken = ~np.isfinite(value)
    if broken.any():
        row, *place = (int(n) for n in np.argwhere(broken)[0])
        where = f"row {row}, place {tuple(place)}"
        if len(place) == 1 and place[0] < len(columns):
            where = f"row {row}, column {columns[place[0]]!r}"
        raise DataError(
            OP, f"the input {name!r} must be finite, and holds NaN or inf: {where}"
        )


def read_baseline(baseline: Any, inputs: NamedInputs, features: dict[str, Any]) -> dict:
    """The baseline of each feature, in the form of one row or of all rows.

    Args:
        baseline: A number, an array, or a dict of them by input.
        features: What is explained, by the number of the input as text.
    """
    parts: Any = baseline if isinstance(baseline, dict) else None
    if parts is None and len(features) > 1 and np.asarray(baseline).ndim:
        raise ArgumentError(
            OP,
            "the baseline of a model with several inputs is a number, or a dict",
            {"inputs": ", ".join(inputs.names)},
        )
    if parts is not None and (odd := set(parts) - set(inputs.names)):
        raise unknown_name("input", min(map(str, odd)), inputs.names, op=OP)
    bases = {}
    for number, value in features.items():
        name = inputs.names[int(number)]
        base = baseline if parts is None else parts.get(name, 0.0)
        base = np.asarray(base)
        fits = base.shape in ((), value.shape[1:], value.shape)
        fits = fits and base.dtype.kind in "iuf" and bool(np.isfinite(base).all())
        if fits and not jnp.issubdtype(value.dtype, jnp.inexact):
            fits = bool((base == base.astype(value.dtype)).all())
        if not fits:
            raise ArgumentError(
                OP,
                f"the baseline of {name!r} must be finite, of the input's kind: a "
                f"number, or an array of shape {value.shape[1:]} or {value.shape}",
                {"received": describe(base)},
            )
        bases[number] = np.broadcast_to(base.astype(value.dtype), value.shape)
    return bases
