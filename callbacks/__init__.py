"""Ready-made callbacks for `fit`, `evaluate` and `predict`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from exburn.callbacks.backup_and_restore import BackupAndRestore
from exburn.callbacks.contract import (
    Callback,
    CallbackList,
    Every,
    FunctionCallback,
    History,
)
from exburn.callbacks.contract.monitor import MonitorCallback
from exburn.callbacks.contract.state_checkpoint import StateCheckpoint
from exburn.callbacks.csv_logger import CSVLogger
from exburn.callbacks.dashboard import Dashboard
from exburn.callbacks.early_stopping import EarlyStopping
from exburn.callbacks.lambda_callback import LambdaCallback
from exburn.callbacks.learning_rate_scheduler import LearningRateScheduler
from exburn.callbacks.logger.callback import Logger
from exburn.callbacks.logging_callback import LoggingCallback
from exburn.callbacks.model_checkpoint import ModelCheckpoint
from exburn.callbacks.orbax_checkpoint import OrbaxCheckpoint
from exburn.callbacks.pictures import ConfusionMatrix, PredictionGallery
from exburn.callbacks.progress_bar.callback import ProgbarLogger, ProgressBar
from exburn.callbacks.reduce_lr_on_plateau import ReduceLROnPlateau
from exburn.callbacks.remote_monitor import RemoteMonitor
from exburn.callbacks.screen_callback import ScreenCallback, screen_callback
from exburn.callbacks.standard import EpochCheckpoint, standard
from exburn.callbacks.stochastic_weight_averaging import StochasticWeightAveraging
from exburn.callbacks.swap_ema_weights import SwapEMAWeights
from exburn.callbacks.tensorboard import TensorBoard
from exburn.callbacks.terminate_on_nan import TerminateOnNaN
from exburn.callbacks.warm_up import WarmUp
from exburn.callbacks.watch import Watch
from exburn.core.missing_names import refuser

__all__ = [
    "BackupAndRestore",
    "CSVLogger",
    "Callback",
    "CallbackList",
    "ConfusionMatrix",
    "Dashboard",
    "EarlyStopping",
    "EpochCheckpoint",
    "Every",
    "FunctionCallback",
    "History",
    "LambdaCallback",
    "LearningRateScheduler",
    "Logger",
    "LoggingCallback",
    "ModelCheckpoint",
    "MonitorCallback",
    "OrbaxCheckpoint",
    "PredictionGallery",
    "ProgbarLogger",
    "ProgressBar",
    "ReduceLROnPlateau",
    "RemoteMonitor",
    "ScreenCallback",
    "StateCheckpoint",
    "StochasticWeightAveraging",
    "SwapEMAWeights",
    "TensorBoard",
    "TerminateOnNaN",
    "WarmUp",
    "Watch",
    "screen_callback",
    "standard",
]

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
