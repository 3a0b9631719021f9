"""Logs and stops that processes share after a hook that each has run for itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from exburn.callbacks.contract.base import Callback, Logs
from exburn.callbacks.contract.foreign import ForeignCallback
from exburn.callbacks.contract.function import FunctionCallback
from exburn.runtime.sharding import processes

_STOPS = ("stop_training", "stop_evaluating", "stop_predicting")
_MOST_BYTES = 1 << 20  # of a logged array that is told to the others


def runs_own_code(callback: Callback) -> bool:
    """Tells callbacks with code of the user's, which may do something else elsewhere.

    Example:
        >>> runs_own_code(FunctionCallback(print)), runs_own_code(Callback())
        (True, False)
    """
    if isinstance(callback, ForeignCallback | FunctionCallback):
        return True
    own = not type(callback).__module__.startswith("exburn.")
    return own or callback.runs_given_code


def share(logs: Logs, model: Any) -> None:
    """Gives all processes the logs of process 0, and stops all if one is to stop.

    What a hook has logged in one process alone would have later callbacks, such as
    EarlyStopping, decide differently.

    Args:
        logs: What the hook was given; changed in place.
        model: The model that the hook may have told to stop.
    """
    mine = {name: value for name, value in logs.items() if _is_told(value)}
    stops = [bool(getattr(model, name, False)) for name in _STOPS]
    answers = processes.gather({"logs": mine, "stops": stops}, "a hook")
    if not processes.is_main():
        for name in [name for name in mine if name not in answers[0]["logs"]]:
            del logs[name]
        logs.update(answers[0]["logs"])
    for number, name in enumerate(_STOPS):
        if any(one["stops"][number] for one in answers):
            setattr(model, name, True)


def _is_told(value: Any) -> bool:
    if value is None or isinstance(value, bool | int | float | str | np.number):
        return True
    return isinstance(value, np.ndarray) and value.nbytes <= _MOST_BYTES
