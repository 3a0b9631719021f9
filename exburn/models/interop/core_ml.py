"""Core ML models, which run on macOS."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from exburn.errors import ArgumentError, DataError, require
from exburn.export.structure import KEY, decode


def is_core_ml(model: Any) -> bool:
    """Whether a value is a model of coremltools."""
    return type(model).__module__.startswith("coremltools.")


def load(path: str) -> Any:
    """The model of a ``.mlmodel`` or ``.mlpackage``."""
    _require_mac()
    reason = "a Core ML model is run by coremltools"
    coremltools = require("coremltools", "predict", reason, extra="coreml")
    return coremltools.models.MLModel(path)


def predict_core_ml(model: Any, x: Any) -> Any:
    """Outputs of the model: an array, or a dict by name if there are several.

    Those of a package that ``model.export`` wrote come in the model's structure.
    """
    _require_mac()
    description = model.get_spec().description
    names = [each.name for each in description.input]
    feed = x if isinstance(x, Mapping) else {names[0]: x}
    if set(feed) != set(names):
        raise DataError(
            "predict",
            f"the Core ML model takes {', '.join(map(repr, names))}",
            {"received": ", ".join(map(repr, feed))},
            hint="Pass a dict by these names.",
        )
    outputs = model.predict({name: np.asarray(value) for name, value in feed.items()})
    outputs = {name: np.asarray(value) for name, value in outputs.items()}
    return decode(description.metadata.userDefined.get(KEY), outputs)


def _require_mac() -> None:
    if sys.platform != "darwin":
        raise ArgumentError(
            "predict",
            f"Core ML runs models on macOS only, this is {sys.platform}",
            hint="Export the model to ONNX, or as StableHLO: model.export(path).",
        )
