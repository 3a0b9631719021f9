"""Names of a model's axes, for summaries and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from exburn.errors import ArgumentError

if TYPE_CHECKING:
    from exburn.models.model import Model


def infer_output_axes(model: Model) -> list[tuple[str | None, ...]] | None:
    """Axes of outputs, named after open axes of inputs that are as long."""
    if model.graph is None:
        return None
    names = {
        str(size): name
        for spec, axes in zip(model.graph.inputs, model.graph.axes, strict=True)
        for size, name in zip(spec.shape, axes or (), strict=axes is not None)
        if not isinstance(size, int)
    }
    return [
        tuple(names.get(str(size)) for size in symbol.spec.shape)
        for symbol in model.outputs
    ]


def check_output_axes(model: Model, names: Any) -> list[tuple[str | None, ...]]:
    """The names of each output's axes, as a user gave them.

    Raises:
        ArgumentError: Not every axis has one.
    """
    outputs = model.outputs
    if len(outputs) == 1 and all(isinstance(name, str | None) for name in names):
        names = [names]
    ranks = [len(symbol.shape) for symbol in outputs]
    if [len(axes) for axes in names] != ranks:
        raise ArgumentError(
            "output_axes",
            f"a name is needed for each axis, received {names!r}",
            {"shapes": ", ".join(str(symbol.shape) for symbol in outputs)},
        )
    return [tuple(axes) for axes in names]
