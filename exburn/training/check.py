"""Values of real data that a compiled program could not complain about."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from exburn.core.symbolic_shapes import describe, tracer_hint
from exburn.data import check_finite
from exburn.errors import DataError, ExBurnError, locate, places_of

_COPIED = 64 << 20  # bytes that are brought back from an accelerator to be looked at


class ValueCheck:
    """Looks at values on the host: finite, within tables, and fit for the losses.

    Equal ones find no fault in the same data.

    Args:
        preparer: Has made a model ready for such data.
        outputs: Specs of what the model makes of them.
        finite, targets: Whether numbers and targets are looked at.
    """

    def __init__(
        self, preparer: Any, outputs: Any, op: str, finite: bool, targets: bool
    ):
        self._matching, self._objective = preparer.matching, preparer.objective
        self._forward, self._outputs = preparer.passes.latest, outputs
        self._asked = op, finite, targets

    def __call__(self, batch: tuple) -> None:
        op, finite, targets = self._asked
        if finite:
            check_finite(batch, op=op)
        if self._outputs is None or self._forward is None:
            return
        check_ids(batch[0], self._forward.lookups, op)
        if targets and self._matching.has_targets:
            check_targets(self._objective, batch[1], self._outputs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ValueCheck):
            return NotImplemented
        return self._asked == other._asked and (
            self._forward is other._forward
            and self._objective is other._objective
            and self._outputs is other._outputs
        )

    def __hash__(self) -> int:
        return hash((self._asked, id(self._forward), id(self._objective)))


def check_ids(
    x: Any,
    lookups: tuple[tuple[int, int | None, str], ...],
    op: str,
    names: Sequence[str] | None = None,
) -> None:
    """Raises unless every looked-up value is a whole number below the table's rows.

    Without a table it only has to be whole: it is cast to an integer.

    Args:
        lookups: Of each input that is looked up: its place, rows and layer.
        names: The inputs' names in errors, in the order of the leaves; their paths in
            ``x`` by default.
    """
    if not lookups:
        return
    named = jax.tree_util.tree_leaves_with_path(x)
    for place, rows, layer in lookups:
        path, array = named[place]
        ids = on_host(array)
        if ids is None or not ids.size:
            continue
        low, end = (-np.inf, np.inf) if rows is None else (0, rows)
        whole = ids.dtype.kind != "f" or bool((ids == np.floor(ids)).all())
        if whole and ids.min() >= low and ids.max() < end:
            continue
        bad = ~((ids >= low) & (ids < end) & (ids == np.floor(ids)))
        at = np.unravel_index(int(bad.argmax()), ids.shape)
        name = f"x{_leaf_name(path)}" if names is None else names[place]
        details = {
            "first bad value": f"{ids[at]} at row {at[0]}, position "
            f"{tuple(map(int, at))}",
            "bad values": f"{int(bad.sum())} of {ids.size}",
        }
        if rows is None:
            raise DataError(
                op,
                f"{name} must hold whole numbers: the input {layer!r} is of integers",
                details,
                hint="Round it, or give the Input a floating dtype.",
            )
        raise DataError(
            op,
            f"the ids in {name} must be whole numbers from 0 to {rows - 1}",
            details | {"layer": layer},
            hint=f"The table of {layer!r} has {rows} rows: raise its input_dim, or "
            "number the ids anew.",
        )


def _leaf_name(path: Any) -> str:
    """Where an input is in a tree; filled-up and packed rows are one."""
    name = jax.tree_util.keystr(path)
    return name.removesuffix(".values").removesuffix(".tokens")


def check_targets(objective: Any, y: Any, pred_spec: Any) -> None:
    """Checks the targets' values on the host."""
    preds = jax.tree.leaves(pred_spec)
    targets = objective.split_targets(y)
    for term in objective.terms:
        target = on_host(targets[term.output])
        if target is not None:
            term.loss.check_targets(target, preds[term.output])


def on_host(array: Any) -> np.ndarray | None:
    """The array in host memory, unless that meant to bring a large one back."""
    if isinstance(array, np.ndarray):
        return array
    near = all(device.platform == "cpu" for device in array.devices())
    return np.asarray(array) if near or array.nbytes <= _COPIED else None


@contextlib.contextmanager
def noting(
    where: str, y_true: Any, y_pred: Any, output: str | None = None
) -> Iterator[None]:
    """A foreign exception of the block keeps its type, and says where it happened."""
    place = where if output is None else f"{where} of the output {output!r}"
    try:
        yield
    except Exception as error:
        if isinstance(error, ExBurnError):
            if where in places_of(error) or output is not None:
                locate(error, place, instead_of=where)
            raise
        received = ", ".join(describe(v) for v in jax.tree.leaves((y_true, y_pred)))
        place = f"{place}, which received {received}"
        locate(error, place, instead_of=where, hint=tracer_hint(error))
        raise
