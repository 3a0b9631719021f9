"""Forwarding hooks to many callbacks, and functions as callbacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from exburn.callbacks.contract.base import Callback, Logs
from exburn.callbacks.contract.every import Every, Occasions, check_every
from exburn.callbacks.contract.foreign import ForeignCallback
from exburn.callbacks.contract.function import FunctionCallback
from exburn.callbacks.contract.history import History
from exburn.callbacks.contract.reading import reads_logs
from exburn.callbacks.contract.sharing import runs_own_code, share
from exburn.errors import CallbackError, ExBurnError, locate
from exburn.errors.boundary import guard_methods

_PLAIN = {name: hook for name, hook in vars(Callback).items() if name[:3] == "on_"}
_POINTS = "on_checkpoint"
_FILTERS = "every="  # under which the state of filters is kept: no class has that name
_BATCH_HOOKS = {
    "train": (
        "on_train_batch_begin",
        "on_train_batch_end",
        "on_batch_begin",
        "on_batch_end",
    ),
    "test": ("on_test_batch_begin", "on_test_batch_end"),
    "predict": ("on_predict_batch_begin", "on_predict_batch_end"),
}


def _own_hooks(callback: Callback) -> set[str]:
    """The hooks that are not the empty ones of ``Callback``."""
    own, of_class = vars(callback), type(callback)
    return {
        name
        for name, plain in _PLAIN.items()
        if getattr(of_class, name) is not plain or name in own
    }


class _Filter:
    """The filter of one callback, with its counts of epochs and of batches.

    Args:
        callback: The callback, whose ``every`` it follows.
        own: Its own hooks.
    """

    def __init__(self, callback: Callback, own: set[str]):
        kinds = [
            kind for kind, hooks in _BATCH_HOOKS.items() if not own.isdisjoint(hooks)
        ]
        within = kinds or _POINTS in own
        units = () if within else ("epochs",)
        every = check_every(type(callback).__name__, callback.every, *units)
        self.every, counted = every, every or Every(1)
        self.batches = {kind: Occasions(counted) for kind in kinds}
        self.epochs, self._passes = Occasions(counted), True

    def limit(self, kind: str) -> int | None:
        """After how many steps a chunk must end for it, at the latest."""
        if self.every is None or self.every.unit == "epochs":
            return 1 if kind in self.batches else None
        return self.every.steps

    def begin_run(self) -> None:
        for count in (self.epochs, *self.batches.values()):
            count.begin_run()

    def begin_epoch(self, epoch: int) -> None:
        self._passes = self.epochs.in_epoch(epoch)

    def end_epoch(self, epoch: int) -> None:
        if self.epochs.in_epoch(epoch):
            self.epochs.pass_once()

    def hears(self, hook: str, position: tuple[int, ...]) -> bool:
        """Whether a hook is called: those of epochs are, where the epoch is chosen."""
        return "epoch" not in hook or self.epochs.in_epoch(position[0])

    def listens(self, kind: str) -> bool:
        """Whether it counts batches now."""
        return kind in self.batches and (self._passes or kind != "train")

    def state_dict(self) -> dict[str, Any]:
        """What its counts depend on besides the epoch and the step."""
        every = self.every
        if every is None:
            return {}
        if every.unit == "epochs":
            return {"epochs": self.epochs.state_dict()} if every.once else {}
        bounded = every.after or every.before or every.once or every.steps is None
        if not bounded or "train" not in self.batches:
            return {}
        return {"train": self.batches["train"].state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, saved in state.items():
            count = self.epochs if name == "epochs" else self.batches.get(name)
            if count is not None:
                count.load_state_dict(saved)


@guard_methods
class CallbackList:
    """Forwards every hook to a list of callbacks, in order.

    Args:
        callbacks: A `Callback`, one that was written for Keras (see
            `ForeignCallback`), a function (see `FunctionCallback`), another
            `CallbackList`, or a (nested) list of these.
        add_history: Adds a `History`, if there is none, as the attribute `history` of
            the list and of its model.
        add_progbar: Adds a `ProgbarLogger`, if there is none. It follows the batch
            hooks, too, which a loop by hand calls.
        model: Given to every callback's `set_model`.
        params: Given to every callback's `set_params`; further keywords count as
            well, as in Keras.

    Raises:
        CallbackError: For anything that is not a callback, a class instead of an
            instance, or one instance listed twice.

    Example:
        >>> from types import SimpleNamespace
        >>> model = SimpleNamespace(stop_training=False)
        >>> stop = lambda logs: {"stop_training": logs["loss"] < 0.2}
        >>> show = lambda logs: print(logs["epoch"], logs["loss"])
        >>> callbacks = CallbackList([show, stop], model=model)
        >>> callbacks.on_epoch_end(0, {"loss": 0.1})
        0 0.1
        >>> model.stop_training
        True
    """

    #: Class of the progress bar; a level above this one knows it.
    progress_bar: ClassVar[Any] = None

    def __init__(
        self,
        callbacks: Any = None,
        add_history: bool = False,
        add_progbar: bool = False,
        model: Any = None,
        params: Mapping[str, Any] | None = None,
        **more_params: Any,
    ):
        self.callbacks: list[Callback] = []
        self.model: Any = None
        self.params: dict[str, Any] = {}
        self.history: History | None = None
        self._bar: Any = None
        self._together = self._restored = False
        for callback in _flatten(callbacks):
            self._add(callback)
        if add_history:
            histories = [c for c in self.callbacks if isinstance(c, History)]
            self.history = histories[0] if histories else History()
            if not histories:
                self._add(self.history)
        if add_progbar:
            bars = [c for c in self.callbacks if isinstance(c, self.progress_bar)]
            self._bar = bars[0] if bars else self.progress_bar()
            if not bars:
                self._add(self._bar)
        self._index()
        if model is not None:
            self.set_model(model)
        if params is not None or more_params:
            self.set_params({**(params or {}), **more_params})

    def append(self, callback: Any) -> None:
        """Adds a callback, or a function, at the end."""
        self._add(callback)
        self._index()

    def _add(self, callback: Any) -> None:
        """Adds a callback, of whose hooks nobody hears before ``_index``."""
        callback = _as_callback(callback)
        if any(_original(callback) is _original(there) for there in self.callbacks):
            raise CallbackError(
                "callbacks",
                "one callback object is listed twice, so its hooks would run twice",
                {"callback": type(callback).__name__},
                hint="List it once, or make a second one.",
            )
        if self.model is not None:
            callback.set_model(self.model)
        if self.params:
            callback.set_params(self.params)
        self.callbacks.append(callback)

    def _index(self) -> None:
        """Notes who listens to what, so that a hook costs nothing to the others."""
        self._hooks: dict[str, list[Callback]] = {hook: [] for hook in _PLAIN}
        self._filters: dict[int, _Filter] = {}
        for callback in self.callbacks:
            own = _own_hooks(callback)
            for hook in own:
                self._hooks[hook].append(callback)
            self._filters[id(callback)] = _Filter(callback, own)

    def set_together(self, together: bool) -> None:
        """Says whether several processes run these hooks, for one model.

        Then they go on with the same logs after each of them, and process 0 alone
        prints and writes.
        """
        self._together = together
        for callback in self.callbacks:
            callback.together = together
            for count in self._filters[id(callback)].batches.values():
                count.together = together

    def set_model(self, model: Any) -> None:
        self.model = model
        if self.history is not None:
            model.history = self.history
        for callback in self.callbacks:
            callback.set_model(model)

    def set_params(self, params: Mapping[str, Any]) -> None:
        self.params = dict(params)
        for callback in self.callbacks:
            callback.set_params(self.params)

    @property
    def light(self) -> bool:
        """Whether no callback touches the weights in an epoch hook."""
        return self.light_in("on_epoch_begin", "on_epoch_end")

    @property
    def light_tests(self) -> bool:
        """Whether no callback touches the weights in a hook of an evaluation."""
        return self.light_in("on_test_begin", *_BATCH_HOOKS["test"], "on_test_end")

    def light_in(self, *hooks: str) -> bool:
        """Whether no callback touches the weights in the hooks of these names."""
        return all(c.light for hook in hooks for c in self._hooks[hook])

    def only_shows(self, hook: str) -> bool:
        """Whether it is heard by histories and bars alone, which leave models alone."""
        shows = History, self.progress_bar
        return all(type(callback) in shows for callback in self._hooks[hook])

    def listens(self, hook: str) -> bool:
        """Whether any callback overrides the hook of this name."""
        return bool(self._hooks[hook])

    def reads_logs(self, *hooks: str) -> bool:
        """Whether any callback may look at the logs that these hooks are given."""
        return any(reads_logs(getattr(c, h)) for h in hooks for c in self._hooks[h])

    def batch_interval(self, kind: str = "train") -> int | None:
        """Returns after how many steps a chunk must end for batch hooks, None for any.

        Args:
            kind: `"train"`, `"test"` or `"predict"`.
        """
        limits = [f.limit(kind) for f in self._filters.values() if kind in f.batches]
        return min((n for n in limits if n is not None), default=None)

    def hears_batches(self, kind: str) -> bool:
        """Whether any callback has hooks of such batches."""
        return any(
            kind in event_filter.batches for event_filter in self._filters.values()
        )

    def is_due(self, kind: str, batch: int) -> bool:
        """Whether a batch hook is called when the batch of this number ends."""
        return any(count.is_due(batch + 1) for _, count in self._counts(kind))

    def chunk_limit(self) -> int | None:
        """Returns how long a chunk of the training may be, None for any length."""
        hooked = self.batch_interval("train")
        points = [self._filters[id(c)] for c in self._hooks[_POINTS]]
        limits = [f.limit(_POINTS) for f in points]
        return min((n for n in (hooked, *limits) if n is not None), default=None)

    def resume_at(self, batch: int) -> None:
        """Tells the batch hooks that an epoch goes on after this many batches."""
        for _, count in self._counts("train"):
            count.resume_at(batch)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of every callback that has some, by class name."""
        states = {name: c.state_dict() for name, c in self._callbacks_by_name()}
        filters = {
            name: state
            for name, c in self._callbacks_by_name()
            if (state := self._filters[id(c)].state_dict())
        }
        states |= {_FILTERS: filters}
        return {name: state for name, state in states.items() if state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned; call it before `on_train_begin`.

        A callback without saved state starts afresh.

        Raises:
            CallbackError: If a saved state's callback is not in this list.
        """
        named = dict(self._callbacks_by_name())
        state = dict(state)
        filters = state.pop(_FILTERS, {})
        missing = [name for name in state if name not in named]
        if missing:
            raise CallbackError(
                "callbacks",
                "the saved run had callbacks that this run does not have",
                {"missing": ", ".join(missing), "present": ", ".join(named)},
                hint="Pass the same callbacks, or drop their entries from the state.",
            )
        for name, saved in state.items():
            named[name].load_state_dict(saved)
        for name, saved in filters.items():
            if name in named:
                self._filters[id(named[name])].load_state_dict(saved)
        self._restored = True

    def names(self, hook: str) -> list[str]:
        """Returns the names, as in `state_dict`, of those that override a hook."""
        return [name for name, c in self._callbacks_by_name() if c in self._hooks[hook]]

    def _callbacks_by_name(self) -> Iterable[tuple[str, Callback]]:
        counts: dict[str, int] = {}
        for callback in self.callbacks:
            name = _name(callback)
            counts[name] = counts.get(name, 0) + 1
            yield (name if counts[name] == 1 else f"{name}#{counts[name]}"), callback

    def _call(self, hook: str, logs: Logs | None, *position: int) -> None:
        logs = {} if logs is None else logs
        for callback in self._hooks[hook]:
            if not self._filters[id(callback)].hears(hook, position):
                continue
            _run(callback, hook, *position, logs)
            if self._together:
                self._share(callback, hook, logs)

    def _share(self, callback: Callback, hook: str, logs: Logs) -> None:
        """Has all processes go on with the same logs after a hook of the user's."""
        if runs_own_code(callback):
            # Outputs are each process' own where its rows are.
            share({} if "predict" in hook else logs, self.model)

    def _begin(self, kind: str, hook: str, logs: Logs | None, *position: int) -> None:
        for _, count in self._counts(kind):
            count.begin_epoch()
        self._call(hook, logs, *position)

    def _counts(self, kind: str) -> Iterable[tuple[Callback, Occasions]]:
        """The callbacks that hear such batches now, with their counts of them."""
        for callback in self.callbacks:
            event_filter = self._filters[id(callback)]
            if event_filter.listens(kind):
                yield callback, event_filter.batches[kind]

    def _batch(self, kind: str, edge: str, batch: int, logs: Logs | None) -> None:
        logs = {} if logs is None else logs
        for callback, count in self._counts(kind):
            if count.begins() if edge == "begin" else count.ends(batch + 1):
                hook = f"on_{kind}_batch_{edge}"
                _run(callback, hook, batch, logs)
                if self._together:
                    self._share(callback, hook, logs)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        if not self._restored:
            for event_filter in self._filters.values():
                event_filter.begin_run()
        self._restored = False
        self._call("on_train_begin", logs)

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._call("on_train_end", logs)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        for event_filter in self._filters.values():
            event_filter.begin_epoch(epoch)
        self._begin("train", "on_epoch_begin", logs, epoch)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._call("on_epoch_end", logs, epoch)
        for event_filter in self._filters.values():
            event_filter.end_epoch(epoch)

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        self._batch("train", "begin", batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._batch("train", "end", batch, logs)
        if self._bar is not None:
            self._bar.on_chunk_end(batch + 1, logs)

    on_batch_begin = on_train_batch_begin
    on_batch_end = on_train_batch_end

    def on_chunk_end(self, step: int, logs: Logs | None = None) -> None:
        self._call("on_chunk_end", logs, step)

    def on_checkpoint(self, point: Any) -> None:
        for callback in self._hooks["on_checkpoint"]:
            _run(callback, "on_checkpoint", point)

    def on_compile(self, program: str) -> None:
        for callback in self._hooks["on_compile"]:
            _run(callback, "on_compile", program)

    def on_compile_end(self, program: str, seconds: float) -> None:
        for callback in self._hooks["on_compile_end"]:
            _run(callback, "on_compile_end", program, seconds)

    def on_data_wait(self) -> None:
        for callback in self._hooks["on_data_wait"]:
            _run(callback, "on_data_wait")

    def on_test_begin(self, logs: Logs | None = None) -> None:
        self._begin("test", "on_test_begin", logs)

    def on_test_end(self, logs: Logs | None = None) -> None:
        self._call("on_test_end", logs)

    def on_test_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        self._batch("test", "begin", batch, logs)

    def on_test_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._batch("test", "end", batch, logs)
        if self._bar is not None:
            self._bar.on_test_chunk_end(batch + 1, logs)

    def on_test_chunk_end(self, step: int, logs: Logs | None = None) -> None:
        self._call("on_test_chunk_end", logs, step)

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        self._begin("predict", "on_predict_begin", logs)

    def on_predict_end(self, logs: Logs | None = None) -> None:
        self._call("on_predict_end", logs)

    def on_predict_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        self._batch("predict", "begin", batch, logs)

    def on_predict_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._batch("predict", "end", batch, logs)
        if self._bar is not None:
            self._bar.on_predict_chunk_end(batch + 1, logs)

    def on_predict_chunk_end(self, step: int, logs: Logs | None = None) -> None:
        self._call("on_predict_chunk_end", logs, step)

    def on_exit(self, error: BaseException | None = None) -> None:
        """Lets every callback clean up; call it in `finally`, with the exception."""
        failures: list[Exception] = []
        for callback in self._hooks["on_exit"]:
            try:
                _run(callback, "on_exit", error)
            except Exception as failure:
                failures.append(failure)
        for failure in failures:
            if error is None:
                raise failure
            if failure is error:  # a lost process is lost for all callbacks
                continue
            error.add_note(f"while cleaning up after it: {failure!r}")


def _run(callback: Callback, hook: str, *args: Any) -> None:
    try:
        getattr(callback, hook)(*args)
    except ExBurnError:
        raise
    except Exception as error:
        where = hook
        if args and isinstance(args[0], int):
            where += f", {'epoch' if 'epoch' in hook else 'step'} {args[0]}"
        locate(error, f"in callback '{_name(callback)}' ({where})")
        raise


def _flatten(callbacks: Any) -> Iterable[Any]:
    if callbacks is None:
        return
    if isinstance(callbacks, CallbackList):
        yield from callbacks.callbacks
    elif isinstance(callbacks, (list, tuple)):
        for callback in callbacks:
            yield from _flatten(callback)
    else:
        yield callbacks


def _as_callback(callback: Any) -> Callback:
    if isinstance(callback, Callback):
        return callback
    if isinstance(callback, type):
        raise CallbackError(
            "callbacks",
            "a callback must be an instance, not a class",
            {"received": callback.__name__},
            hint=f"Write {callback.__name__}() with parentheses.",
        )
    if all(hasattr(type(callback), name) for name in ("set_model", "set_params")):
        return ForeignCallback(callback)
    if hasattr(callback, "on_epoch_end"):
        raise CallbackError(
            "callbacks",
            "a callback must derive from exburn.callbacks.contract.Callback",
            {"received": f"{type(callback).__module__}.{type(callback).__name__}"},
            hint="Change its base class, or use its namesake in exburn.callbacks.",
        )
    if not callable(callback):
        raise CallbackError(
            "callbacks",
            "a callback must be a Callback or a function of the epoch's logs",
            {"received": f"{type(callback).__name__}: {callback!r}"},
            hint="Subclass exburn.callbacks.Callback, or pass a function of logs.",
        )
    return FunctionCallback(callback)


def _original(callback: Callback) -> Any:
    return getattr(callback, "original", callback)


def _name(callback: Callback) -> str:
    return type(_original(callback)).__name__
