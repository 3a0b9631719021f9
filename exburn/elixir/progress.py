"""Trainings that return what a caller shows: the model and its history as a list.

Example:
    >>> import numpy as np
    >>> import exburn
    >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> data = np.ones((8, 2)), np.ones((8, 1))
    >>> model, history = exburn.fit_with_progress(model, data, epochs=2, verbose=False)
    >>> [sorted(entry) for entry in history]
    [['epoch', 'loss', 'val_loss'], ['epoch', 'loss', 'val_loss']]
"""

from __future__ import annotations

from typing import Any

from exburn.callbacks import LoggingCallback, screen_callback
from exburn.callbacks.contract import Callback, CallbackList, History
from exburn.errors.boundary import api_boundary
from exburn.models.arguments import check_model


@api_boundary
def fit_with_progress(
    model: Any,
    data: Any,
    *,
    epochs: int = 10,
    verbose: bool = True,
    screen: Any = None,
    callbacks: Any = None,
    **options: Any,
) -> tuple[Any, list[dict[str, Any]]]:
    """Trains, with a line for every epoch, and returns the model and its history.

    Args:
        model: A compiled model.
        data: ``(x, y)``, ``(x, y, sample_weight)`` or a loader.
        epochs: Number of epochs.
        verbose: Whether `LoggingCallback` prints.
        screen: A queue or function that gets progress messages: see
            ``exburn.callbacks.screen_callback``.
        callbacks: Further callbacks.
        **options: Of ``model.fit``.

    Returns:
        ``(model, history)``; an entry of the history holds ``epoch`` (from 1),
        ``loss``, ``val_loss`` (None without validation), and all else that is logged.

    Raises:
        NotCompiledError: ``compile`` was not called.
        DataError, ShapeError, TargetError: The data do not fit the model.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(2)])
        >>> model.compile("adam", "cross_entropy")
        >>> data = np.ones((8, 2)), np.zeros(8, int)
        >>> model, history = fit_with_progress(model, data, epochs=2, verbose=False)
        >>> [entry["epoch"] for entry in history]
        [1, 2]

    Source: Dala.ML, ``Burn.Training.fit_with_progress``.
    """
    check_model("fit_with_progress", model)
    given = CallbackList(callbacks).callbacks
    extra: list[Callback] = [LoggingCallback()] if verbose else []
    if screen is not None:
        extra.append(screen_callback(screen))
    parts = data if isinstance(data, tuple) else (data,)
    names = dict(zip(("x", "y", "sample_weight"), parts, strict=False))
    history: History = model.fit(
        **names, epochs=epochs, verbose=0, callbacks=[*given, *extra], **options
    )
    return model, _entries(history)


@api_boundary
def fit_with_accuracy(
    model: Any, data: Any, **options: Any
) -> tuple[Any, list[dict[str, Any]]]:
    """`fit_with_progress` with accuracy among the metrics.

    Args:
        model: A compiled model.
        data: ``(x, y)``, ``(x, y, sample_weight)`` or a loader.
        **options: As of `fit_with_progress`.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(2)])
        >>> model.compile("adam", "cross_entropy")
        >>> data = np.ones((8, 2)), np.zeros(8, int)
        >>> model, history = fit_with_accuracy(model, data, epochs=1, verbose=False)
        >>> "accuracy" in history[0]
        True

    Source: Dala.ML, ``Burn.Training.fit_with_accuracy``.
    """
    return fit_with_progress(model, data, accuracy=True, **options)


def _entries(history: History) -> list[dict[str, Any]]:
    entries = [{"epoch": e + 1, "loss": None, "val_loss": None} for e in history.epoch]
    at = {epoch: entry for epoch, entry in zip(history.epoch, entries, strict=True)}
    for name, values in history.history.items():
        for epoch, value in zip(history.epochs_of(name), values, strict=True):
            at[epoch][name] = value
    return entries
