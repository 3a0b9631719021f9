"""Ready-made callbacks for `fit`, `evaluate` and `predict`."""

from __future__ import annotations

from exburn.callback import Callback, CallbackList, FunctionCallback, History
from exburn.callbacks.csv_logger import CSVLogger
from exburn.callbacks.early_stopping import EarlyStopping
from exburn.callbacks.lambda_callback import LambdaCallback
from exburn.callbacks.learning_rate_scheduler import LearningRateScheduler
from exburn.callbacks.model_checkpoint import ModelCheckpoint
from exburn.callbacks.monitor import MonitorCallback
from exburn.callbacks.progress import ProgbarLogger, ProgressBar
from exburn.callbacks.reduce_lr_on_plateau import ReduceLROnPlateau
from exburn.callbacks.terminate_on_nan import TerminateOnNaN
from exburn.callbacks.warm_up import WarmUp

__all__ = [
    "CSVLogger",
    "Callback",
    "CallbackList",
    "EarlyStopping",
    "FunctionCallback",
    "History",
    "LambdaCallback",
    "LearningRateScheduler",
    "ModelCheckpoint",
    "MonitorCallback",
    "ProgbarLogger",
    "ProgressBar",
    "ReduceLROnPlateau",
    "TerminateOnNaN",
    "WarmUp",
]
