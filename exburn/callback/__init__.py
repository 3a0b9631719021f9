"""The callback contract: what runs on the host between the chunks of a training loop.

`Callback` has Keras' hooks and attributes, `CallbackList` forwards the hooks, and
`History` records what `fit` logged. The ready-made callbacks are `exburn.callbacks`.
"""

from __future__ import annotations

from exburn.callback.base import Callback
from exburn.callback.foreign import ForeignCallback
from exburn.callback.function import FunctionCallback
from exburn.callback.history import History
from exburn.callback.sequence import CallbackList

__all__ = [
    "Callback",
    "CallbackList",
    "ForeignCallback",
    "FunctionCallback",
    "History",
]
