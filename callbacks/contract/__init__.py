"""The callback contract: what runs on the host between the chunks of a training loop.

`Callback` has Keras' hooks and attributes, `CallbackList` forwards the hooks, and
`History` records what `fit` logged. The ready-made callbacks are `exburn.callbacks`.
"""

from __future__ import annotations

from exburn.callbacks.contract.base import Callback
from exburn.callbacks.contract.every import Every
from exburn.callbacks.contract.foreign import ForeignCallback
from exburn.callbacks.contract.function import FunctionCallback
from exburn.callbacks.contract.history import History
from exburn.callbacks.contract.sequence import CallbackList

__all__ = [
    "Callback",
    "CallbackList",
    "Every",
    "ForeignCallback",
    "FunctionCallback",
    "History",
]
