"""SIGTERM during a run with checkpoints: saved, and ended with 143."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from tests.saving.runs import Stops, fit, make, outcome

import exburn
from exburn.callbacks import Callback, ModelCheckpoint, StateCheckpoint
from exburn.saving.checkpoint import CheckpointDirectory

# The shared models see data of several shapes, and are to compile for each.
pytestmark = pytest.mark.filterwarnings("ignore::exburn.errors.RecompileWarning")


def test_sigterm_is_untouched_without_checkpoints():
    seen = []

    class Looks(Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    fit(make(), [Looks()], epochs=1)
    assert seen == [before]


def test_sigterm_is_handed_back_and_only_the_main_thread_takes_it(tmp_path):
    handlers = []

    class Looks(Callback):
        def on_epoch_end(self, epoch, logs=None):
            handlers.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    callbacks = [Looks(), StateCheckpoint(tmp_path / "a")]
    fit(make(), callbacks, epochs=1)
    assert signal.getsignal(signal.SIGTERM) is before and handlers[0] is not before
    thread = threading.Thread(
        target=fit, args=(make(), callbacks), kwargs={"epochs": 1}
    )
    thread.start()
    thread.join()
    assert handlers[1] is before


@pytest.mark.parametrize("where", ["batch", "validation", "epoch end", "train end"])
def test_sigterm_saves_and_exits_with_143(tmp_path, where):
    """The signal comes at different moments of the third epoch."""

    class Kills(Callback):
        epoch = None

        def kill(self, moment, epoch=2):
            if moment == where and self.epoch == epoch:
                os.kill(os.getpid(), signal.SIGTERM)

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                self.kill("batch")

        def on_test_begin(self, logs=None):
            self.kill("validation")

        def on_epoch_end(self, epoch, logs=None):
            self.kill("epoch end")

        def on_train_end(self, logs=None):
            self.kill("train end", 3)

    options = {"validation_split": 0.2}
    model = make()
    expected = outcome(model, fit(model, [Stops(9)], **options))
    before = signal.getsignal(signal.SIGTERM)
    folder = str(tmp_path / "c") + "/"
    model = make()
    with pytest.raises(SystemExit) as caught:
        fit(model, [Kills(), ModelCheckpoint(folder, keep=1)], **options)
    assert caught.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    place = CheckpointDirectory(folder).checkpoints()[-1]
    moments = {"batch": (2, 4), "validation": (2, 5), "epoch end": (3, 0)}
    assert (place.epoch, place.batch) == moments.get(where, (4, 0))
    model = make(seed=99)
    history = fit(model, [Stops(9), ModelCheckpoint(folder)], resume="auto", **options)
    assert outcome(model, history) == expected


def test_sigterm_writes_a_file_of_weights_too(tmp_path):
    class Kills(Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                os.kill(os.getpid(), signal.SIGTERM)

    path = tmp_path / "{epoch}-{batch}.safetensors"
    model = make()
    with pytest.raises(SystemExit):
        fit(
            model, [Kills(), ModelCheckpoint(path, save_weights_only=True, save_freq=2)]
        )
    assert sorted(os.listdir(tmp_path)) == ["1-2.safetensors", "1-4.safetensors"]


SECOND = """
import os, signal, sys, time
sys.path.insert(0, {root!r})
from exburn.runtime.signals import Termination
with Termination(True) as termination:
    os.kill(os.getpid(), signal.SIGTERM)
    assert termination.requested
    print("first", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)
print("survived")
"""


def test_a_second_sigterm_ends_at_once():
    root = os.path.dirname(os.path.dirname(exburn.__file__))
    done = subprocess.run(
        [sys.executable, "-c", SECOND.format(root=root)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGTERM and done.stdout == "first\n", done
