"""Checkpoints of a training, at whose weights gradients are taken."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exburn.core.checks import check_number
from exburn.errors import ArgumentError, FileFormatError, ShapeError
from exburn.models.network import Network
from exburn.module.traversal import iter_weights
from exburn.saving.checkpoint import CheckpointDirectory, saved_at
from exburn.saving.weights import open_whole

_OP = "influence"
_RATE = "state/opt_state/rate/"  # of a whole run


@dataclasses.dataclass(frozen=True)
class TrainingPoint:
    """Weights of a model at a time of its training.

    Attributes:
        source: A file, a checkpoint of a whole run, or arrays as of ``get_weights``;
            ``None``: the model as it is.
        rate: The learning rate from there on.
    """

    source: Any
    rate: float

    def read(self, model: Network) -> Mapping[str, np.ndarray]:
        """The weights by their paths; the model stays as it is."""
        if self.source is None:
            return {}
        paths = [path for path, _, _ in iter_weights(model, carried=False)]
        if isinstance(self.source, list):
            return dict(zip(paths, self.source, strict=True))
        with open_whole(model, self.source) as source:
            return source.read(paths)


def read_points(
    model: Network, checkpoints: Any, *, rates: bool
) -> list[TrainingPoint]:
    """The points of a training, each of which has been found to fit the model.

    Args:
        model: A built model.
        checkpoints: A folder of whole runs, or a list of paths and lists of arrays,
            each alone or in a tuple with a learning rate.
        rates: Whether learning rates count.

    Raises:
        ArgumentError: There are none, or one of them is of another model.
        CheckpointError: One of them is damaged.
    """
    if isinstance(checkpoints, str | os.PathLike):
        saved = CheckpointDirectory(checkpoints).checkpoints()
        checkpoints = [each.path for each in saved] or [checkpoints]
    if not isinstance(checkpoints, Sequence) or not checkpoints:
        raise ArgumentError(
            _OP,
            "checkpoints must be a folder of checkpoints, or a list of files, each "
            "perhaps in a tuple with a learning rate",
            {"received": repr(checkpoints)},
        )
    points = []
    for number, entry in enumerate(checkpoints):
        name = f"checkpoints[{number}]"
        source, rate = entry if _is_pair(entry) else (entry, None)
        if rate is not None and not rates:
            raise ArgumentError(_OP, f"{name}: learning rates are of 'tracin' alone")
        _check(model, source, name)
        if rate is None:
            rate = _rate_of(model, source) if rates else 1.0
        points.append(TrainingPoint(source, check_number(_OP, f"rate of {name}", rate)))
    if not any(point.rate for point in points):
        raise ArgumentError(_OP, "the learning rates of all checkpoints are 0")
    return points


def _is_pair(entry: Any) -> bool:
    return isinstance(entry, tuple) and len(entry) == 2


def _check(model: Network, source: Any, name: str) -> None:
    """Raises where a source is no whole set of the model's weights."""
    if isinstance(source, list):
        own = [tuple(w.shape) for _, w, _ in iter_weights(model, carried=False)]
        shapes = [np.shape(array) for array in source]
        if shapes != own:
            raise _other_model(name, f"arrays of shapes {shapes}, not {own}")
        return
    if not isinstance(source, str | os.PathLike):
        raise ArgumentError(
            _OP,
            f"{name} must be a path, or a list of arrays as of get_weights()",
            {"received": type(source)},
        )
    try:
        with open_whole(model, source) as weights:
            if weights.taken or weights.read_own():
                raise ArgumentError(
                    _OP,
                    f"{name} has weights that a layer reads by a method of its own",
                    hint="Load it, and pass model.get_weights().",
                )
    except (FileFormatError, ShapeError) as error:
        raise _other_model(name, error.reason) from error


def _other_model(name: str, reason: str) -> ArgumentError:
    return ArgumentError(_OP, f"{name} is of another model", {"because": reason})


def _rate_of(model: Network, source: Any) -> float:
    """The learning rate that a checkpoint of a whole run goes on with; else 1."""
    if isinstance(source, list) or not os.path.isdir(source):
        return 1.0
    saved, optimizer = saved_at(source), model.optimizer
    assert saved is not None
    arrays = {
        name.removeprefix(_RATE): array
        for name, array in saved.arrays.items()
        if name.startswith(_RATE)
    }
    return float(optimizer.rate({"rate": arrays})) if arrays else 1.0
