"""Answers of a trained model, and `load`, which reads the file of any of them.

Methods of a model make them: ``model.explain``, ``influence``, ``curvature`` and
``uncertainty``.
"""

from typing import TYPE_CHECKING

from exburn.core.lazy_names import importer

if TYPE_CHECKING:
    from exburn.insight.curvature import Curvature
    from exburn.insight.explanations.explanation import Explanation
    from exburn.insight.influence.result import Influence
    from exburn.insight.insight import Insight
    from exburn.insight.loading import load
    from exburn.insight.uncertainty.conformal import ConformalPredictor
    from exburn.insight.uncertainty.report import UncertaintyReport
    from exburn.insight.uncertainty.scaling import ScaledPredictor

__all__ = [
    "ConformalPredictor",
    "Curvature",
    "Explanation",
    "Influence",
    "Insight",
    "ScaledPredictor",
    "UncertaintyReport",
    "load",
]

_NAMES = {
    "exburn.insight.curvature": "Curvature",
    "exburn.insight.explanations.explanation": "Explanation",
    "exburn.insight.influence.result": "Influence",
    "exburn.insight.insight": "Insight",
    "exburn.insight.loading": "load",
    "exburn.insight.uncertainty.conformal": "ConformalPredictor",
    "exburn.insight.uncertainty.report": "UncertaintyReport",
    "exburn.insight.uncertainty.scaling": "ScaledPredictor",
}

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = importer(__name__, _NAMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
