"""The callback contract: hooks, attributes and state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exburn.core.catalogue_class import CatalogueClass
from exburn.errors import CallbackError
from exburn.runtime.sharding import processes

Logs = dict[str, Any]


class Callback(CatalogueClass):
    """Base of all callbacks: override the hooks you need.

    Hooks run in the order of the list, and all of them receive the same `logs`
    dictionary: what one callback adds, the later ones (and the History) see.
    `model.stop_training = True` ends the training after the current step or epoch.

    A callback that overrides a batch hook makes the trainer run single steps, so
    that it sees each of them. Set `every = n` to be called after every n-th step
    only, `every = "chunk"`, which costs nothing, or another filter: see `Every`.

    Attributes:
        model: The model that is being trained.
        params: What the run was called with: `epochs`, `steps` (None if unknown),
            `batch_size`, `samples`, `verbose`, `validation`, `metrics`.
        every: Which batches, or epochs, its hooks are called for: an `Every`, a number
            of steps (of epochs, where it has no batch hooks), `"chunk"`, `"epoch"`.
        light: A promise that the hooks of epochs, chunks and evaluations neither read
            nor write the model's weights, so that the trainer need not bring them up to
            date. To read them then is a `BusyError`.
        together: Whether several processes train one model, each of which runs the
            hooks. `writes` says which of them prints and writes files for all.
        shows_progress: Whether it shows what `fit`'s own progress bar would, which is
            left out then.
        runs_given_code: Whether a hook of this class runs a function that it was given.
        async_safe: Accepted for Keras' sake; hooks always run in the main thread.

    Example:
        >>> class Worst(Callback):
        ...     light = True
        ...     loss = 0.0
        ...
        ...     def on_epoch_end(self, epoch, logs=None):
        ...         self.loss = max(self.loss, logs["loss"])
        >>> worst = Worst()
        >>> worst.on_epoch_end(0, {"loss": 0.7})
        >>> worst.loss
        0.7
    """

    model: Any = None
    params: Any = None
    every: Any = None
    light: bool = False
    together: bool = False
    shows_progress: bool = False
    runs_given_code: bool = False
    async_safe: bool = False

    @property
    def writes(self) -> bool:
        """Whether the callback may print and write files: in process 0 of several."""
        return not self.together or processes.is_main()

    def set_model(self, model: Any) -> None:
        """Receives the model before anything else happens."""
        self.model = model

    def set_params(self, params: Any) -> None:
        """Receives the arguments of the run."""
        self.params = params

    def state_dict(self) -> dict[str, Any]:
        """Returns what a resumed run needs: JSON values and NumPy arrays."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state_dict` returned; called before `on_train_begin`."""
        if state:
            raise CallbackError(
                type(self).__name__,
                "this callback has no state to restore",
                {"received": ", ".join(state)},
                hint="Override load_state_dict together with state_dict.",
            )

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Called when `fit` begins."""

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Called when `fit` ends normally, with the last epoch's logs."""

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Called when an epoch begins; `epoch` counts from 0."""

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Called after an epoch and its validation, with the means of the epoch."""

    def on_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Older name of `on_train_batch_begin`."""

    def on_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Older name of `on_train_batch_end`."""

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Called before a training step; `batch` counts from 0 in each epoch."""
        self.on_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Called after a training step, with that step's logs."""
        self.on_batch_end(batch, logs)

    def on_chunk_end(self, step: int, logs: Logs | None = None) -> None:
        """Called between chunks, ten times a second at most, and when an epoch ends:
        `step` steps of it are done, and `logs` holds running means."""

    def on_checkpoint(self, point: Any) -> None:
        """Called where the run could be taken up again: after a chunk, and after an
        epoch when all of its hooks have run. `point.save(writer)` saves the run; see
        `exburn.training.checkpoint.run_points.RunPoint`. With `every = n`, chunks end
        at the multiples of n."""

    def on_compile(self, program: str) -> None:
        """Called before a program, such as `"train"`, is compiled: the first time, and
        for data of another shape. That takes up to minutes."""

    def on_compile_end(self, program: str, seconds: float) -> None:
        """Called when it is compiled, with the seconds that this took: tracing it, and
        compiling it or reading it from the cache on disk."""

    def on_data_wait(self) -> None:
        """Called twice a second while `fit` waits for its next data."""

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Called when `evaluate`, or the validation inside `fit`, begins."""

    def on_test_end(self, logs: Logs | None = None) -> None:
        """Called when `evaluate`, or the validation inside `fit`, ends."""

    def on_test_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Called before a batch is evaluated."""

    def on_test_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Called after a batch was evaluated."""

    def on_test_chunk_end(self, step: int, logs: Logs | None = None) -> None:
        """Called after a chunk of `evaluate` or of the validation."""

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        """Called when `predict` begins."""

    def on_predict_end(self, logs: Logs | None = None) -> None:
        """Called when `predict` ends."""

    def on_predict_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Called before a batch is predicted."""

    def on_predict_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Called after a batch was predicted; `logs["outputs"]` are the model's for its
        rows, as NumPy arrays (with `every = n`, for those of the last call)."""

    def on_predict_chunk_end(self, step: int, logs: Logs | None = None) -> None:
        """Called after a chunk of `predict`."""

    def on_exit(self, error: BaseException | None = None) -> None:
        """Called last, whatever happened: `error` is what ended the run, if any."""
