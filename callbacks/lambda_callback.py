"""A callback made of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, Unpack

from exburn.callbacks.contract import Callback
from exburn.callbacks.contract.every import Every, check_every
from exburn.errors import CallbackError, unknown_name


class Hooks(TypedDict, total=False):
    """The hooks of ``Callback`` that ``LambdaCallback`` does not list."""

    on_batch_begin: Callable[..., Any] | None
    on_batch_end: Callable[..., Any] | None
    on_chunk_end: Callable[..., Any] | None
    on_checkpoint: Callable[..., Any] | None
    on_compile: Callable[..., Any] | None
    on_compile_end: Callable[..., Any] | None
    on_data_wait: Callable[..., Any] | None
    on_test_begin: Callable[..., Any] | None
    on_test_end: Callable[..., Any] | None
    on_test_batch_begin: Callable[..., Any] | None
    on_test_batch_end: Callable[..., Any] | None
    on_test_chunk_end: Callable[..., Any] | None
    on_predict_begin: Callable[..., Any] | None
    on_predict_end: Callable[..., Any] | None
    on_predict_batch_begin: Callable[..., Any] | None
    on_predict_batch_end: Callable[..., Any] | None
    on_predict_chunk_end: Callable[..., Any] | None
    on_exit: Callable[..., Any] | None


class LambdaCallback(Callback):
    """Makes a callback of functions, one for each hook.

    Args:
        on_epoch_begin: Called with the epoch's number and the logs before each epoch.
        on_epoch_end: Called with the epoch's number and the logs after each epoch.
        on_train_begin: Called with the logs before the training.
        on_train_end: Called with the logs after it.
        on_train_batch_begin: Called with the batch's number and the logs before each
            batch.
        on_train_batch_end: Called with the batch's number and the logs after each
            batch.
        every: Which batches, or epochs, they are called for: see `Every`.
        light: Whether they leave the weights alone: see `Callback`.
        **hooks: Functions under the names of `Callback`'s other hooks, with the hooks'
            arguments.

    Raises:
        UnknownNameError: For a name that is not a hook's.
        CallbackError: For a hook that is not callable.

    Example:
        >>> callback = LambdaCallback(on_train_end=lambda logs: print("done", logs))
        >>> callback.on_train_end({"loss": 0.5})
        done {'loss': 0.5}
    """

    runs_given_code = True

    def __init__(
        self,
        on_epoch_begin: Callable[..., Any] | None = None,
        on_epoch_end: Callable[..., Any] | None = None,
        on_train_begin: Callable[..., Any] | None = None,
        on_train_end: Callable[..., Any] | None = None,
        on_train_batch_begin: Callable[..., Any] | None = None,
        on_train_batch_end: Callable[..., Any] | None = None,
        *,
        every: int | str | Every | None = None,
        light: bool = False,
        **hooks: Unpack[Hooks],
    ):
        functions: dict[str, Any] = {
            **hooks,
            "on_epoch_begin": on_epoch_begin,
            "on_epoch_end": on_epoch_end,
            "on_train_begin": on_train_begin,
            "on_train_end": on_train_end,
            "on_train_batch_begin": on_train_batch_begin,
            "on_train_batch_end": on_train_batch_end,
        }
        hook_names = [name for name in vars(Callback) if name.startswith("on_")]
        for name, function in functions.items():
            if name not in hook_names:
                raise unknown_name("hook", name, hook_names, op="LambdaCallback")
            if function is None:
                continue
            if not callable(function):
                raise CallbackError(
                    "LambdaCallback",
                    f"{name} must be a function",
                    {"received": repr(function)},
                )
            setattr(self, name, function)
        within = any(
            function for name, function in functions.items() if "batch" in name
        )
        units = () if within or functions.get("on_checkpoint") else ("epochs",)
        self.every = check_every("LambdaCallback", every, *units)
        self.light = light
