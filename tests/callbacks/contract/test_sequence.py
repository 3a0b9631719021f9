"""Tests of ``exburn.callbacks.contract.sequence``."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest

import exburn as keras
from exburn.callbacks import (
    EarlyStopping,
    LambdaCallback,
    ProgressBar,
    ReduceLROnPlateau,
)
from exburn.callbacks.contract import Callback, CallbackList, History
from exburn.errors import CallbackError, places_of

HOOKS = [name for name in vars(Callback) if name.startswith("on_")]


def recorder(*hooks, **attributes):
    """A callback overriding exactly these hooks, and the list of its calls."""
    calls = []

    def hook(name):
        return lambda self, *args: calls.append((name, *args))

    body = {name: hook(name) for name in hooks}
    return type("Recorder", (Callback,), {**body, **attributes})(), calls


def test_every_hook_reaches_an_overriding_callback_with_its_arguments():
    for hook in HOOKS:
        callback, calls = recorder(hook)
        callbacks = CallbackList([callback])
        arguments = [
            {
                "epoch": 3,
                "batch": 3,
                "step": 3,
                "logs": {"loss": 1.0},
                "error": None,
                "point": "here",
                "program": "train",
                "seconds": 2.5,
            }[p]
            for p in list(inspect.signature(getattr(Callback, hook)).parameters)[1:]
        ]
        getattr(callbacks, hook)(*arguments)
        assert calls == [(hook, *arguments)]


def test_missing_logs_arrive_as_an_empty_dictionary():
    callback, calls = recorder("on_train_begin", "on_train_batch_end")
    callbacks = CallbackList([callback])
    callbacks.on_train_begin()
    callbacks.on_train_batch_end(0)
    assert calls == [("on_train_begin", {}), ("on_train_batch_end", 0, {})]


def test_callbacks_share_one_logs_dictionary_in_order():
    class Adds(Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["extra"] = 2.0

    history = History()
    CallbackList([Adds(), history]).on_epoch_end(0, {"loss": 1.0})
    assert history.history == {"loss": [1.0], "extra": [2.0]}


def test_the_old_names_of_the_batch_hooks_are_called():
    callback, calls = recorder("on_batch_begin", "on_batch_end")
    callbacks = CallbackList(callback)
    callbacks.on_epoch_begin(0)
    callbacks.on_train_batch_begin(0)
    callbacks.on_train_batch_end(0, {"loss": 1.0})
    assert calls == [("on_batch_begin", 0, {}), ("on_batch_end", 0, {"loss": 1.0})]
    assert callbacks.batch_interval() == 1


@pytest.mark.parametrize(
    ("every", "seen"),
    [
        (None, [0, 1, 2, 3, 4, 5, 6]),
        (1, [0, 1, 2, 3, 4, 5, 6]),
        (3, [2, 5]),
        (7, [6]),
        (8, []),
    ],
)
def test_every_n_steps_in_every_epoch(every, seen):
    callback, calls = recorder(
        "on_train_batch_begin", "on_train_batch_end", every=every
    )
    callbacks = CallbackList([callback])
    for epoch in range(2):
        calls.clear()
        callbacks.on_epoch_begin(epoch)
        for batch in range(7):
            callbacks.on_train_batch_begin(batch)
            callbacks.on_train_batch_end(batch)
        assert [b for name, b, _ in calls if name.endswith("end")] == seen
        begins = [b for name, b, _ in calls if name.endswith("begin")]
        assert begins == [b for b in [0, *(s + 1 for s in seen)] if b < 7]


def test_two_intervals_over_the_trainers_coarser_calls():
    tens, ten_calls = recorder("on_train_batch_end", every=10)
    fifteens, fifteen_calls = recorder("on_train_batch_end", every=15)
    callbacks = CallbackList([tens, fifteens])
    assert callbacks.batch_interval("train") == 10
    callbacks.on_epoch_begin(0)
    for batch in range(9, 60, 10):
        callbacks.on_train_batch_end(batch)
    assert [batch for _, batch, _ in ten_calls] == [9, 19, 29, 39, 49, 59]
    # 15, 30, 45 and 60 steps, each at the first opportunity
    assert [batch for _, batch, _ in fifteen_calls] == [19, 29, 49, 59]


def test_who_listens_decides_the_interval():
    assert CallbackList([EarlyStopping(), History(), print]).batch_interval() is None
    by_lambda = LambdaCallback(on_train_batch_end=print, every=5)
    assert CallbackList([by_lambda]).batch_interval("train") == 5
    assert CallbackList([by_lambda]).batch_interval("test") is None
    test, _ = recorder("on_test_batch_end")
    assert CallbackList([by_lambda, test]).batch_interval("test") == 1
    assert CallbackList([test]).listens("on_test_batch_end")
    assert not CallbackList([test]).listens("on_predict_batch_end")


@pytest.mark.parametrize("every", [0, -1, 2.5, True, "3"])
def test_every_must_be_a_positive_number(every):
    callback, _ = recorder("on_batch_end", every=every)
    with pytest.raises(CallbackError, match="every must be"):
        CallbackList([callback])


def test_light_lists_do_not_need_the_weights():
    assert CallbackList([History(), EarlyStopping(), ReduceLROnPlateau()]).light
    assert not CallbackList([EarlyStopping(restore_best_weights=True)]).light
    assert not CallbackList([lambda logs: None]).light
    batches, _ = recorder("on_train_batch_end")
    assert CallbackList([batches]).light


class Setter(History):
    """A history of the user's, which changes the model."""

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self.model.layers[0].kernel.assign(7 * np.ones((2, 1)))


def test_histories_and_bars_leave_models_alone_but_not_what_derives_from_them():
    shows = CallbackList([History(), ProgressBar()])
    assert shows.only_shows("on_train_begin") and shows.only_shows("on_train_end")
    assert not CallbackList([History(), Setter()]).only_shows("on_train_begin")
    assert CallbackList([History(), Setter()]).only_shows("on_train_end")


def test_a_history_of_the_users_changes_weights_before_the_first_step():
    model = keras.Sequential([keras.layers.Dense(1, use_bias=False)])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    x, y = np.ones((4, 2), "float32"), np.zeros((4, 1), "float32")
    for _ in range(2):
        model.fit(x, y, verbose=0)
    history = model.fit(x, y, verbose=0, callbacks=[Setter()])
    assert history.history["loss"] == [14.0**2]


def test_nested_lists_are_flattened():
    first, second, third = History(), Callback(), Callback()
    callbacks = CallbackList([first, [second, (CallbackList([third]),)]])
    assert callbacks.callbacks == [first, second, third]
    assert CallbackList(None).callbacks == []


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        ([History], r"an instance, not a class(.|\n)*History\(\)"),
        ([3], "Callback or a function"),
        (["EarlyStopping"], "Callback or a function"),
        ([lambda epoch, logs: None], "called with one argument"),
        ([lambda: None], "called with one argument"),
        ([SimpleNamespace(on_epoch_end=print)], "must derive from"),
    ],
)
def test_what_is_no_callback_is_refused(callbacks, message):
    with pytest.raises(CallbackError, match=message):
        CallbackList(callbacks)


def test_one_object_twice_is_refused():
    stopping = EarlyStopping()
    with pytest.raises(CallbackError, match="listed twice"):
        CallbackList([stopping, stopping])


def test_an_exception_tells_where_it_came_from():
    class Broken(Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise ZeroDivisionError("oops")

    with pytest.raises(ZeroDivisionError) as caught:
        CallbackList([Broken()]).on_epoch_end(4)
    assert places_of(caught.value) == ["in callback 'Broken' (on_epoch_end, epoch 4)"]


def test_all_callbacks_may_clean_up_after_an_exception():
    class Fails(Callback):
        def on_exit(self, error=None):
            raise OSError("disk full")

    last, calls = recorder("on_exit")
    error = RuntimeError("training broke")
    CallbackList([Fails(), last]).on_exit(error)
    assert calls == [("on_exit", error)]
    assert "disk full" in error.__notes__[0]
    with pytest.raises(OSError, match="disk full"):
        CallbackList([Fails(), last]).on_exit()
    assert calls[1:] == [("on_exit", None)]


def test_a_callback_appended_later_knows_the_model(model):
    callbacks = CallbackList([], model=model, params={"epochs": 3})
    history = History()
    callbacks.append(history)
    assert history.model is model and history.params["epochs"] == 3
    callbacks.on_epoch_end(0, {"loss": 1.0})
    assert history.epoch == [0]


def test_state_goes_by_class_and_position():
    first, second = EarlyStopping("loss"), EarlyStopping("accuracy")
    first.best, second.best = 0.5, 0.9
    state = CallbackList([Callback(), first, second]).state_dict()
    assert sorted(state) == ["EarlyStopping", "EarlyStopping#2"]
    again = EarlyStopping("loss"), EarlyStopping("accuracy")
    CallbackList([*again, ReduceLROnPlateau()]).load_state_dict(state)
    assert [callback.best for callback in again] == [0.5, 0.9]
    with pytest.raises(CallbackError, match="EarlyStopping#2"):
        CallbackList([EarlyStopping()]).load_state_dict(state)
    with pytest.raises(CallbackError, match="no state to restore"):
        Callback().load_state_dict({"x": 1})
