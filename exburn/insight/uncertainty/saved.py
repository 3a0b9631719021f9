"""Predictors in files with their models, by the kind that a file says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exburn.errors.boundary import api_boundary
from exburn.insight.uncertainty.conformal import ConformalPredictor
from exburn.insight.uncertainty.laplace import LaplacePredictor
from exburn.insight.uncertainty.predictor import Predictor
from exburn.insight.uncertainty.samples import SampledPredictor
from exburn.insight.uncertainty.scaling import ScaledPredictor
from exburn.saving.beside import read_beside
from exburn.saving.json_text import damage_error

KINDS: Mapping[str, type[Predictor]] = {
    kind.kind: kind
    for kind in (
        ConformalPredictor,
        LaplacePredictor,
        SampledPredictor,
        ScaledPredictor,
    )
}


@api_boundary
def load_predictor(path: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Reads a predictor, of whatever method, that was saved with its model.

    Args:
        custom_objects: Classes and functions of the model by name.

    Raises:
        ModelFormatError: The file is damaged, or holds no predictor with a model.
        ArgumentError: There is no such file, or its weights are others.
    """
    op = "load_predictor"
    beside = read_beside(path, op)
    if beside is None or beside.kind not in KINDS:
        received = "nothing" if beside is None else beside.kind
        reason = "the file holds no predictor with its model"
        raise damage_error(op, path, reason, received=received)
    return KINDS[beside.kind].load(path, custom_objects)
