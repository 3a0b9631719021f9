"""Models as estimators of scikit-learn, which is imported when one is asked for."""

import importlib
from typing import TYPE_CHECKING

from exburn.core.missing_names import missing
from exburn.errors.boundary import api_boundary

if TYPE_CHECKING:
    from exburn.wrappers.estimators import (
        SKLearnClassifier,
        SKLearnRegressor,
        SKLearnTransformer,
    )

__all__ = ["SKLearnClassifier", "SKLearnRegressor", "SKLearnTransformer"]


@api_boundary
def __getattr__(name: str):
    if name not in __all__:
        raise missing(__name__, name)
    return getattr(importlib.import_module("exburn.wrappers.estimators"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
