"""Ready-made callbacks for `fit`, `evaluate` and `predict`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from exburn.callbacks.screen_callback import ScreenCallback, screen_callback
from exburn.callbacks.standard import EpochCheckpoint, standard
from exburn.core.lazy_names import importer

if TYPE_CHECKING:
    from exburn.callbacks.backup_and_restore import (
        BackupAndRestore,
    )
    from exburn.callbacks.contract.base import (
        Callback,
    )
    from exburn.callbacks.contract.every import (
        Every,
    )
    from exburn.callbacks.contract.function import (
        FunctionCallback,
    )
    from exburn.callbacks.contract.history import (
        History,
    )
    from exburn.callbacks.contract.monitor import (
        MonitorCallback,
    )
    from exburn.callbacks.contract.sequence import (
        CallbackList,
    )
    from exburn.callbacks.contract.state_checkpoint import (
        StateCheckpoint,
    )
    from exburn.callbacks.csv_logger import (
        CSVLogger,
    )
    from exburn.callbacks.dashboard.callback import (
        Dashboard,
    )
    from exburn.callbacks.early_stopping import (
        EarlyStopping,
    )
    from exburn.callbacks.lambda_callback import (
        LambdaCallback,
    )
    from exburn.callbacks.learning_rate_scheduler import (
        LearningRateScheduler,
    )
    from exburn.callbacks.logger.callback import (
        Logger,
    )
    from exburn.callbacks.logging_callback import (
        LoggingCallback,
    )
    from exburn.callbacks.model_checkpoint import (
        ModelCheckpoint,
    )
    from exburn.callbacks.orbax_checkpoint import (
        OrbaxCheckpoint,
    )
    from exburn.callbacks.pictures import (
        ConfusionMatrix,
        PredictionGallery,
    )
    from exburn.callbacks.progress_bar.callback import (
        ProgbarLogger,
        ProgressBar,
    )
    from exburn.callbacks.reduce_lr_on_plateau import (
        ReduceLROnPlateau,
    )
    from exburn.callbacks.remote_monitor import (
        RemoteMonitor,
    )
    from exburn.callbacks.sharpness import Sharpness
    from exburn.callbacks.stochastic_weight_averaging import (
        StochasticWeightAveraging,
    )
    from exburn.callbacks.swag import (
        SWAG,
    )
    from exburn.callbacks.swap_ema_weights import (
        SwapEMAWeights,
    )
    from exburn.callbacks.tensorboard import (
        TensorBoard,
    )
    from exburn.callbacks.terminate_on_nan import (
        TerminateOnNaN,
    )
    from exburn.callbacks.warm_up import (
        WarmUp,
    )
    from exburn.callbacks.watch import (
        Watch,
    )

# Imported when they are first used; functions that their modules are named like, at
# once, since a module takes its name in the package when anything imports it.
_LAZY_NAMES = {
    "exburn.callbacks.backup_and_restore": "BackupAndRestore",
    "exburn.callbacks.contract.base": "Callback",
    "exburn.callbacks.contract.every": "Every",
    "exburn.callbacks.contract.function": "FunctionCallback",
    "exburn.callbacks.contract.history": "History",
    "exburn.callbacks.contract.monitor": "MonitorCallback",
    "exburn.callbacks.contract.sequence": "CallbackList",
    "exburn.callbacks.contract.state_checkpoint": "StateCheckpoint",
    "exburn.callbacks.csv_logger": "CSVLogger",
    "exburn.callbacks.dashboard.callback": "Dashboard",
    "exburn.callbacks.early_stopping": "EarlyStopping",
    "exburn.callbacks.lambda_callback": "LambdaCallback",
    "exburn.callbacks.learning_rate_scheduler": "LearningRateScheduler",
    "exburn.callbacks.logger.callback": "Logger",
    "exburn.callbacks.logging_callback": "LoggingCallback",
    "exburn.callbacks.model_checkpoint": "ModelCheckpoint",
    "exburn.callbacks.orbax_checkpoint": "OrbaxCheckpoint",
    "exburn.callbacks.pictures": "ConfusionMatrix PredictionGallery",
    "exburn.callbacks.progress_bar.callback": "ProgbarLogger ProgressBar",
    "exburn.callbacks.reduce_lr_on_plateau": "ReduceLROnPlateau",
    "exburn.callbacks.remote_monitor": "RemoteMonitor",
    "exburn.callbacks.sharpness": "Sharpness",
    "exburn.callbacks.stochastic_weight_averaging": "StochasticWeightAveraging",
    "exburn.callbacks.swag": "SWAG",
    "exburn.callbacks.swap_ema_weights": "SwapEMAWeights",
    "exburn.callbacks.tensorboard": "TensorBoard",
    "exburn.callbacks.terminate_on_nan": "TerminateOnNaN",
    "exburn.callbacks.warm_up": "WarmUp",
    "exburn.callbacks.watch": "Watch",
}

__all__ = [
    "SWAG",
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
    "Sharpness",
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
    __getattr__ = importer(__name__, _LAZY_NAMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
