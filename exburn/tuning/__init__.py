"""Sweeps: many variants of a model, trained side by side as one program."""

from exburn.tuning.callbacks import Progress, SweepCallback
from exburn.tuning.folds import Folds
from exburn.tuning.records import LaneRecord
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
    "Folds",
    "Halving",
    "Hyperband",
    "LaneRecord",
    "Progress",
    "SweepCallback",
    "choice",
    "grid",
    "integers",
    "log_uniform",
    "random",
    "sweep",
    "uniform",
    "when",
]
