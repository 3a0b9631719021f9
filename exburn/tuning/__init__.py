"""Sweeps: many variants of a model, trained side by side as one program."""

from typing import TYPE_CHECKING

from exburn.core.missing_names import refuser
from exburn.tuning import ray
from exburn.tuning.calibration import Calibration, calibration
from exburn.tuning.callbacks import Progress, SweepCallback
from exburn.tuning.ensemble import Ensemble, Uncertainty
from exburn.tuning.folds import ConfidenceInterval, Folds, confidence_interval
from exburn.tuning.optuna import StudySampler
from exburn.tuning.plan import SweepPlan, plan
from exburn.tuning.records import LaneRecord
from exburn.tuning.result import SweepResult
from exburn.tuning.schedulers import PBT, Halving, Hyperband
from exburn.tuning.space import (
    choice,
    grid,
    integers,
    log_uniform,
    random,
    uniform,
    when,
)
from exburn.tuning.sweep import sweep

__all__ = [
    "PBT",
    "Calibration",
    "ConfidenceInterval",
    "Ensemble",
    "Folds",
    "Halving",
    "Hyperband",
    "LaneRecord",
    "Progress",
    "StudySampler",
    "SweepCallback",
    "SweepPlan",
    "SweepResult",
    "Uncertainty",
    "calibration",
    "choice",
    "confidence_interval",
    "grid",
    "integers",
    "log_uniform",
    "plan",
    "random",
    "ray",
    "sweep",
    "uniform",
    "when",
]

vars(sweep)["plan"] = plan  # as ``exburn.sweep.plan``

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
