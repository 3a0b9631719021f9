"""Models as estimators of scikit-learn, which is imported when one is asked for."""

from typing import TYPE_CHECKING

from exburn.core.lazy_names import importer

if TYPE_CHECKING:
    from exburn.wrappers.estimators import (
        SKLearnClassifier,
        SKLearnRegressor,
        SKLearnTransformer,
    )

__all__ = ["SKLearnClassifier", "SKLearnRegressor", "SKLearnTransformer"]


__getattr__ = importer(__name__, {"exburn.wrappers.estimators": " ".join(__all__)})


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
