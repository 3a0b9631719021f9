"""Callbacks that were written for Keras, as other libraries have them."""

from __future__ import annotations

from typing import Any

from exburn.callbacks.contract.base import Callback

_OLDER = {
    "on_train_batch_begin": "on_batch_begin",
    "on_train_batch_end": "on_batch_end",
}
_EDGES = [f"{part}{edge}" for part in ("", "batch_") for edge in ("begin", "end")]
_HOOKS = [f"on_{kind}_{e}" for kind in ("train", "test", "predict") for e in _EDGES]
_HOOKS += ["on_epoch_begin", "on_epoch_end"]


class ForeignCallback(Callback):
    """Hands on Keras' hooks to an object that has them, such as tqdm's or wandb's.

    Only hooks are handed on that its class has of its own, so that one without batch
    hooks does not make the trainer run single steps.

    Args:
        original: An object with Keras' ``set_model``, ``set_params`` and hooks.

    Example:
        >>> class Shown:
        ...     set_model = set_params = lambda self, value: None
        ...
        ...     def on_epoch_end(self, epoch, logs=None):
        ...         print(epoch, logs)
        >>> callback = ForeignCallback(Shown())
        >>> callback.on_epoch_end(0, {"loss": 0.5})
        0 {'loss': 0.5}
    """

    def __init__(self, original: Any):
        self.original = original
        own = _own_names(original)
        for hook in _HOOKS:
            if hook in own or _OLDER.get(hook) in own:
                setattr(self, hook, getattr(original, hook))

    def set_model(self, model: Any) -> None:
        self.model = model
        self.original.set_model(model)

    def set_params(self, params: Any) -> None:
        self.params = params
        self.original.set_params(params)


def _own_names(original: Any) -> set[str]:
    """Names of what it has, but for what its library's base class has.

    That is the oldest of its classes that knows models; its hooks do nothing.
    """
    classes = type(original).__mro__
    base = [c for c in classes if "set_model" in vars(c)][-1]
    own = classes[: classes.index(base)] or (base,)
    return set(vars(original)).union(*(vars(c) for c in own))
