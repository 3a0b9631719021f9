"""Checks of what ``fit``, ``evaluate`` and ``predict`` are called with."""

from __future__ import annotations

import sys
from typing import Any

import jax

from exburn.core.checks import check_count
from exburn.core.symbolic_shapes import describe
from exburn.data import ArrayDataset, RaggedDataset, StreamDataset
from exburn.data.trees import in_order
from exburn.errors import ArgumentError, DataError, DTypeError, warn
from exburn.module.layer import Layer

BATCH = 32  # rows of a step where the user says nothing


def first_batch(
    dataset: ArrayDataset | StreamDataset,
    seed: int | None,
    rows: int | None = None,
    batch_size: int = BATCH,
) -> tuple:
    """A batch of the data: for shapes only.

    Args:
        seed: For the order of a loader that shuffles; ``None`` for none.
        rows: Of a model that takes only so many.
    """
    if isinstance(dataset, StreamDataset):
        return dataset.peek(seed)
    size = rows or min(dataset.size, batch_size)
    if isinstance(dataset, RaggedDataset):
        return dataset.batch_specs(size)
    return jax.tree.map(
        lambda v: jax.ShapeDtypeStruct((size, *v.shape[1:]), v.dtype), dataset.tree
    )


def check_rows(op: str, x: Any, outputs: Any) -> None:
    """Rows can only be told apart if each output has as many as the inputs."""
    rows = jax.tree.leaves(x)[0].shape[0]
    for spec in jax.tree.leaves(outputs):
        if spec.shape[:1] != (rows,):
            raise DataError(
                op,
                f"an output must have one row for each of the {rows} rows of the "
                f"input, received {describe(spec)}",
                hint="Keep the batch axis first, or call the model itself: model(x).",
            )


def part_names(model: Any) -> tuple[Any, Any]:
    """Names of the inputs and of the outputs, of a model that has a graph.

    One that only passes on what another returns has that one's.
    """
    graph = getattr(getattr(model, "named_like", model), "graph", None)
    return getattr(graph, "input_names", None), getattr(graph, "output_names", None)


def check_form(op: str, batch: tuple, other: tuple, names: tuple) -> None:
    """Validation data have the structure and shapes of the training data.

    Args:
        batch, other: ``(x, y, …)`` of the one and the other.
        names: Of the inputs and of the outputs, as far as they are known: a dict by
            name is as good as a list.
    """
    for name, a, b, form_names in zip(("x", "y"), batch, other, names, strict=False):
        trees = (jax.tree.leaves(in_order(tree, form_names)) for tree in (a, b))
        shapes = [[tuple(v.shape[1:]) for v in leaves] for leaves in trees]
        if len(shapes[0]) != len(shapes[1]):
            hint = "Pass validation_data in the structure of the training data."
            if not shapes[0]:
                hint = "Pass validation_data=(x, y), or a loader that yields (x, y)."
            raise DataError(
                op,
                f"{name} has {len(shapes[0])} arrays, training has {len(shapes[1])}",
                hint=hint,
            )
        for mine, theirs in zip(*shapes, strict=True):
            if len(mine) != len(theirs):
                raise DataError(
                    op,
                    f"{name} has rows of shape {mine}, training has {theirs}",
                    hint="Prepare validation data as the training data.",
                )


def check_model(op: str, model: Any) -> None:
    """Refuses what is no model of ExBurn."""
    if not (isinstance(model, Layer) and model.is_model):
        raise DTypeError(
            op,
            f"a model of ExBurn is needed, received {type(model).__name__}",
            hint="Put layers and nnx modules into one: exburn.Sequential([...]).",
        )


def check_ends(op: str, name: str, steps: int | None, dataset: Any) -> None:
    """A data set that is known never to end needs a number of steps."""
    if steps is None and getattr(dataset, "batches", None) == sys.maxsize:
        raise ArgumentError(
            op,
            f"{name} must be given: the {dataset.name} never ends",
            hint=f"Pass {name}=n, or a loader that ends.",
        )


def check_enough(name: str, steps: int | None, dataset: Any, batch_size: int) -> None:
    """Arrays are not repeated within an epoch."""
    if steps is None or isinstance(dataset, StreamDataset):
        return
    there = -(-dataset.size // batch_size)
    if steps > there:
        raise ArgumentError(
            "fit",
            f"{name} must be at most {there}, the batches in the arrays, "
            f"received {steps}",
            {"rows": dataset.size, "batch_size": batch_size},
            hint="Leave it out, or train for more epochs.",
        )


def warn_of_end(steps: int | None, dataset: Any, batch_size: int) -> None:
    """Warns if arrays have fewer batches than the steps that were asked for."""
    if steps is None or not isinstance(dataset, ArrayDataset):
        return
    if steps > (there := -(-dataset.size // batch_size)):
        warn(f"the arrays ended after {there} of {steps} steps")


def check_repeats(dataset: Any, *, whole: bool, steps: int | None) -> None:
    """What is trained and validated on begins anew for each of the two."""
    if not isinstance(dataset, StreamDataset):
        return
    if whole and not dataset.reiterable:
        raise ArgumentError(
            "fit",
            f"the {dataset.name} cannot be x and validation_data: it gives each of its "
            "batches to only one of them",
            hint="Pass an object whose __iter__ starts anew, or another generator.",
        )
    if dataset.shared and steps is not None:
        raise ArgumentError(
            "fit",
            f"the {dataset.name} cannot be x and validation_data with steps_per_epoch: "
            "it keeps its workers, and begins anew where training is in its middle",
            hint="Pass a second one for the validation, or leave steps_per_epoch out.",
        )


def positive(op: str, name: str, value: Any, default: Any = None) -> Any:
    return default if value is None else check_count(op, name, value)


def logs_as(logs: dict[str, Any], return_dict: bool) -> Any:
    if return_dict:
        return logs
    values = list(logs.values())
    return values[0] if len(values) == 1 else values
