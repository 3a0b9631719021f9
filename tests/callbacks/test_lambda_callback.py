"""Tests of ``exburn.callbacks.lambda_callback``."""

import pytest

from exburn.callbacks import LambdaCallback
from exburn.callbacks.contract import Callback, CallbackList
from exburn.errors import CallbackError, UnknownNameError

HOOKS = [name for name in vars(Callback) if name.startswith("on_")]


def test_lambda_callback_takes_every_hook_and_nothing_else():
    for hook in HOOKS:
        seen = []
        callback = LambdaCallback(**{hook: seen.append})
        assert CallbackList([callback]).listens(hook)
        getattr(callback, hook)(1)
        assert seen == [1]
    with pytest.raises(UnknownNameError, match="Did you mean 'on_epoch_end'"):
        LambdaCallback(on_epoch_ends=print)
    with pytest.raises(CallbackError, match="must be a function"):
        LambdaCallback(on_epoch_end=3)
