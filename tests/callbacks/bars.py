"""A fit without a model for progress bars, and a terminal without a screen."""

import io

from rich.console import Console

from exburn.callbacks import CallbackList

FIT = {
    "epochs": 2,
    "steps": 100,
    "batch_size": 32,
    "samples": 3190,
    "verbose": 1,
    "validation": True,
}


class Clock:
    """Time that passes only when the test says so."""

    now = 0.0

    def __call__(self):
        return self.now


def run(bar, params=FIT, chunks=4, epoch_logs=None, seconds=0.5):
    """A fit of two epochs, its chunks `seconds` apart."""
    clock = bar._clock = Clock()
    callbacks = CallbackList([bar], params=params)
    callbacks.on_train_begin()
    for epoch in range(2):
        callbacks.on_epoch_begin(epoch)
        for chunk in range(1, chunks + 1):
            clock.now += seconds
            logs = {"loss": 1 / (chunk + epoch), "accuracy": 0.5}
            callbacks.on_chunk_end(100 * chunk // chunks, logs)
        callbacks.on_test_begin()
        clock.now += seconds
        callbacks.on_test_chunk_end(7, {"loss": 0.75})
        callbacks.on_test_end({"loss": 0.75})
        callbacks.on_epoch_end(epoch, {"loss": 0.25, "val_loss": 0.75})
    callbacks.on_train_end()
    callbacks.on_exit()


def terminal(width=100, color_system=None, **options):
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        width=width,
        color_system=color_system,
        legacy_windows=False,
        _environ={"TERM": "xterm"},
        **options,
    )
