"""``model.uncertainty(x, y)``: predictions with how far they can be believed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from exburn.core.checks import check_choice
from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary
from exburn.insight.uncertainty.conformal import ConformalPredictor, conformal
from exburn.insight.uncertainty.laplace import LaplacePredictor, laplace
from exburn.insight.uncertainty.predictor import Predictor
from exburn.insight.uncertainty.samples import SampledPredictor, dropout, ensemble
from exburn.insight.uncertainty.scaling import ScaledPredictor, scaling
from exburn.insight.uncertainty.swag import swag
from exburn.models.network import Network
from exburn.saving.beside import read_beside
from exburn.saving.json_text import damage_error

_OP = "uncertainty"

#: A function of a model, x, y and its own options for each method.
METHODS: Mapping[str, Callable[..., Predictor]] = {
    "conformal": conformal,
    "temperature": functools.partial(scaling, "temperature"),
    "vector": functools.partial(scaling, "vector"),
    "laplace": laplace,
    "swag": swag,
    "dropout": dropout,
    "ensemble": ensemble,
}

KINDS = ConformalPredictor, ScaledPredictor, LaplacePredictor, SampledPredictor


def uncertainty(
    self: Network,
    x: Any = None,
    y: Any = None,
    *,
    method: str = "conformal",
    **options: Any,
) -> Predictor:
    """Learns from rows how far the model's predictions can be believed.

    Args:
        x, y: Rows as ``evaluate`` takes them, that the model was not trained on; for
            ``"laplace"`` and ``"swag"`` those that it was trained on.
        method: ``"conformal"``, sets and intervals that hold the target as often as
            asked, whatever the model; ``"temperature"``, one factor for all logits;
            ``"vector"``, a factor and an offset for each class; ``"laplace"``, a normal
            distribution of the last layer's weights; ``"swag"``, one of all weights,
            along some epochs of training; ``"dropout"``, passes with dropout on;
            ``"ensemble"``, several models side by side.
        **options: Of the method; ``docs/uncertainty.md`` lists them. All take
            ``batch_size``, and ``output``, the name or number of one of several.

    Returns:
        ``.predict(x, level=0.9)``, ``.report(x, y)``, ``.save(path)``; printed, it is a
        table.

    Raises:
        ArgumentError: An option is not of the method, or does not fit the model.
        DataError, ShapeError: The data do not fit the model.
        NotBuiltError: The model has not been called yet.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> y, x = np.arange(20.0)[:, None], np.zeros((20, 1))
        >>> dense = exburn.layers.Dense(1, kernel_initializer="ones")
        >>> model = exburn.Sequential([exburn.Input((1,)), dense])
        >>> sure = model.uncertainty(x, y, score="absolute")
        >>> sure.predict(x[:1], level=0.9).sets.tolist()
        [[[-18.0, 18.0]]]
        >>> softmax = exburn.layers.Dense(2, "softmax", kernel_initializer="identity")
        >>> model = exburn.Sequential([exburn.Input((2,)), softmax])
        >>> x, y = 4 * np.eye(2)[[0, 0, 0, 0]], [0, 0, 0, 1]
        >>> sure = model.uncertainty(x, y, method="temperature")
        >>> p, sets = sure.predict(x[:1], level=0.9)
        >>> p.round(3).tolist(), sets.tolist()
        ([[0.75, 0.25]], [[True, True]])
    """
    method = check_choice(_OP, "method", method, METHODS)
    function = METHODS[method]
    own = [
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    ]
    if strange := [name for name in options if name not in own]:
        raise ArgumentError(
            _OP, f"{strange[0]} is not of {method!r}, which has {', '.join(own)}"
        )
    return function(self, x, y, **options)


@api_boundary
def load_predictor(path: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Reads a predictor, of whatever method, that was saved with its model.

    Args:
        custom_objects: Classes and functions of the model by name.

    Raises:
        ModelFormatError: The file is damaged, or holds no predictor with a model.
        ArgumentError: There is no such file, or its weights are others.
    """
    op, kinds = "load_predictor", {one.kind: one for one in KINDS}
    beside = read_beside(path, op)
    if beside is None or beside.kind not in kinds:
        received = "nothing" if beside is None else beside.kind
        reason = "the file holds no predictor with its model"
        raise damage_error(op, path, reason, received=received)
    return kinds[beside.kind].load(path, custom_objects)
