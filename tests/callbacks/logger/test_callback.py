"""``Logger``: what its receivers get, and what becomes of slow and failing ones."""

import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import exburn
from exburn.callbacks import Callback, Every, Logger
from exburn.callbacks.logger import callback as logger_module
from exburn.callbacks.logger import queue as log_queue
from exburn.callbacks.logger.queue import LogQueue, Record
from exburn.errors import (
    CallbackError,
    MissingDependencyError,
    SaveError,
    UnknownNameError,
)

ROWS = [{"loss": 1.0, "val_loss": 2.0}, {"loss": 0.5, "val_loss": 1.5}]


class Receiver:
    def __init__(self, sleep=0.0):
        self.sleep, self.got, self.threads = sleep, [], set()

    def log(self, values, step):
        time.sleep(self.sleep)
        self.threads.add(threading.current_thread().name)
        self.got.append((step, values))


@pytest.mark.parametrize(
    ("every", "steps", "prefix"),
    [
        ("chunk", [1, 2, 3, 4, 5, 6, 7, 8], "chunk/"),
        ("epoch", [], ""),
        (2, [2, 4, 6, 8], "step/"),
    ],
)
def test_what_is_sent(every, steps, prefix, drive, model, monkeypatch):
    monkeypatch.setattr(logger_module, "_GAP", 0.0)
    receiver = Receiver()
    logger = Logger(receiver, every=every)
    drive([logger], model, ROWS, steps=4)
    assert logger.flush(5) and logger.dropped == 0
    epochs = [(s, v) for s, v in receiver.got if "epoch" in v]
    assert epochs == [(4, ROWS[0] | {"epoch": 1.0}), (8, ROWS[1] | {"epoch": 2.0})]
    within = [(s, v) for s, v in receiver.got if "epoch" not in v]
    assert [s for s, _ in within] == steps
    assert all(set(v) == {f"{prefix}loss"} for _, v in within)
    assert receiver.threads == {"exburn-logger"}


def test_every_other_epoch_is_sent_and_steps_go_on(drive, model):
    receiver = Receiver()
    logger = Logger(receiver, every=Every(epochs=2))
    drive([logger], model, ROWS * 2, steps=4)
    assert logger.flush(5) and [step for step, _ in receiver.got] == [8, 16]


def test_an_object_that_takes_no_step_finds_it_among_the_values(drive, model):
    got = []
    logger = Logger(SimpleNamespace(log=got.append), every="epoch")
    drive([logger], model, ROWS, steps=4)
    assert logger.flush(5) and [values["step"] for values in got] == [4, 8]


def test_a_slow_receiver_costs_nothing_and_what_it_misses_is_told(
    drive, model, monkeypatch
):
    monkeypatch.setattr(logger_module, "_GAP", 0.0)
    receiver = Receiver(0.2)
    logger = Logger(receiver, limit=8)
    began = time.perf_counter()
    with pytest.warns(RuntimeWarning, match=r"Logger: \d+ of 66 records were left out"):
        drive([logger], model, [{"loss": 1.0}] * 6, steps=10)
    assert time.perf_counter() - began < 1.2  # it waits a tenth of a second at the end
    queue = logger._queue
    assert logger.sent + logger.dropped + queue.waiting == 66
    # Of the epochs, which count most, as many are left as there is room for.
    left = [record for record in queue._records if record.epoch]
    assert len(left) >= 4
    queue._records.clear()


def test_a_receiver_that_fails_costs_a_warning(drive, model):
    def refuse(values, step):
        raise ConnectionError("no network")

    logger = Logger(SimpleNamespace(log=refuse), every="epoch")
    with pytest.warns(RuntimeWarning) as warned:
        drive([logger], model, ROWS * 10, steps=2)
    assert "ConnectionError: no network; the training goes on" in str(warned[0].message)
    assert logger.failed == 10 and logger.failed + logger.dropped == 20


def test_the_end_of_the_interpreter_tells_what_is_lost(monkeypatch, capsys):
    gate = threading.Event()
    queue = LogQueue(lambda record: gate.wait(5))
    for step in range(3):
        queue.put(Record({"loss": 1.0}, step, 0.0, False))
    monkeypatch.setattr(log_queue, "_AT_EXIT", 0.01)
    monkeypatch.setattr(log_queue, "_waited_for", {queue})
    log_queue._finish_all()
    assert "3 records are lost, the receiver took 0 in time" in capsys.readouterr().out
    gate.set()
    assert queue.close(wait=5)


def test_thinning_keeps_the_shape_of_a_curve():
    gate = threading.Event()
    queue = LogQueue(lambda record: gate.wait(5), limit=8)
    for step in range(100):
        queue.put(Record({}, step, 0.0, step % 25 == 0))
    steps = [record.step for record in queue._records]
    assert steps == sorted(steps) and {25, 50, 75} <= {*steps} and len(steps) <= 8
    gate.set()
    assert queue.close(wait=5.0) and queue.sent + queue.dropped == 100


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"target": "wanndb"}, UnknownNameError),
        ({"target": 3}, CallbackError),
        ({"target": __import__("logging").getLogger("x")}, CallbackError),
        ({"target": Receiver(), "every": "minute"}, CallbackError),
        ({"target": Receiver(), "every": 0}, CallbackError),
        ({"target": Receiver(), "limit": 0}, CallbackError),
        ({"target": Receiver(), "project": "p"}, CallbackError),
    ],
)
def test_what_can_never_work_is_refused(arguments, error):
    with pytest.raises(error):
        Logger(**arguments)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'exburn\[wandb\]'"):
        Logger("wandb")


class Calls:
    """A package that notes how it is called."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.calls.append((name, args, kwargs))
            return self

        return call


def test_wandb_gets_the_open_run_or_one_of_its_own(monkeypatch, drive, model):
    run, package = Calls(), Calls()
    package.run = None
    package.init = lambda **options: package.calls.append(options) or run
    monkeypatch.setitem(sys.modules, "wandb", package)
    logger = Logger("wandb", every="epoch", project="digits")
    drive([logger], model, ROWS, steps=4)
    assert package.calls[0]["project"] == "digits"
    assert package.calls[0]["config"]["batch_size"] == 8
    assert [call[0] for call in run.calls] == ["log", "log", "finish"]
    assert run.calls[0][2] == {"step": 4} and run.calls[2][2] == {"exit_code": 0}
    package.run = open_run = Calls()
    drive([Logger("wandb", every="epoch")], model, ROWS, steps=4)
    assert [call[0] for call in open_run.calls] == ["log", "log"]  # left open


class Falling:
    """A run that leaves out what comes with a step that falls, as W&B's do."""

    id = "a"

    def __init__(self, sleep=0.0):
        self.step, self.rows, self.lost, self.sleep = 0, {}, [], sleep

    def log(self, values, step=None):
        time.sleep(self.sleep)
        if step is None:
            self.rows.setdefault(self.step, {}).update(values)
            self.step += 1
        elif step < self.step:
            self.lost.append(values)
        else:
            self.step = step
            self.rows.setdefault(step, {}).update(values)

    def finish(self, exit_code=0):
        self.finished = True

    @property
    def epochs(self):
        return [row["epoch"] for _, row in sorted(self.rows.items()) if "epoch" in row]


@pytest.fixture(params=["wandb", "an object", "an object that tells no step"])
def falling(request, monkeypatch):
    """A run, and what makes a logger into it."""
    run = Falling()
    if request.param == "wandb":
        package = SimpleNamespace(run=run)
        monkeypatch.setitem(sys.modules, "wandb", package)
        return run, lambda: Logger("wandb")
    if request.param == "an object":
        return run, lambda: Logger(run)
    only = type("Only", (), {"log": lambda self, values, step: run.log(values, step)})()
    return run, lambda: Logger(only)


@pytest.fixture(scope="module")
def fit():
    """A training of four steps an epoch, of a model that each call makes anew."""
    x = np.random.default_rng(0).normal(size=(32, 3))

    def train(logger, *, epochs, **options):
        model = exburn.Sequential([exburn.Input((3,)), exburn.layers.Dense(1)])
        model.compile("sgd", "mse", seed=0)
        callbacks = [logger, *options.pop("callbacks", [])]
        options |= {"batch_size": 8, "epochs": epochs, "verbose": 0}
        model.fit(x, x[:, 0], callbacks=callbacks, **options)
        assert logger.flush(5)

    return train


def test_several_fits_of_one_run_lose_no_epoch(falling, fit, tmp_path, monkeypatch):
    monkeypatch.setattr(logger_module, "_GAP", 0.0)
    run, make = falling
    logger = make()
    for _ in range(2):
        fit(logger, epochs=2)
    fit(make(), epochs=4, initial_epoch=2)
    assert run.epochs == [1, 2, 1, 2, 3, 4] and not run.lost
    assert [step for step, row in run.rows.items() if "epoch" in row] == [
        *(4, 8, 12, 16, 20, 24)
    ]
    saves = exburn.callbacks.StateCheckpoint(tmp_path, keep=9)
    fit(make(), epochs=3, callbacks=[saves])
    place = saves.writer.directory.checkpoints()[1].path  # before the last epoch
    fit(make(), epochs=4, resume=place)
    assert run.epochs[6:] == [1, 2, 3, 3, 4] and not run.lost
    assert max(run.rows) == 24 + 12 + 8


def test_what_others_log_into_the_run_costs_no_row(drive, model, monkeypatch):
    run = Falling()
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=run))

    class Own(Callback):
        def on_epoch_end(self, epoch, logs=None):
            for number in range(9):
                run.log({"own": number})
            logger.flush(5)

    logger = Logger("wandb")
    drive([Own(), logger], model, ROWS * 3, steps=4)
    assert logger.flush(5) and not run.lost and len(run.epochs) == 6


def test_a_slow_receiver_gets_one_fit_after_the_other(drive, model, monkeypatch):
    run = Falling(sleep=0.05)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=run))
    loggers = [Logger("wandb", every="epoch") for _ in range(3)]
    for logger in loggers:
        drive([logger], model, ROWS * 3, steps=4)
    assert all(logger.flush(9) for logger in loggers)
    assert run.epochs == [1, 2, 3, 4, 5, 6] * 3 and not run.lost


def test_a_run_of_ones_own_ends_before_the_next_one(drive, model, monkeypatch):
    runs, package = [], SimpleNamespace(run=None)

    class Own(Falling):
        def finish(self, exit_code=0):
            package.run = None
            super().finish()

    def init(**options):
        package.run = Own(sleep=0.03)
        runs.append(package.run)
        return package.run

    package.init = init
    monkeypatch.setitem(sys.modules, "wandb", package)
    for _ in range(2):
        drive([Logger("wandb", every="epoch")], model, ROWS * 3, steps=4)
    deadline = time.monotonic() + 9
    while not hasattr(runs[-1], "finished") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [run.epochs for run in runs] == [[1, 2, 3, 4, 5, 6]] * 2


def test_tensorboard_files_hold_the_values(tmp_path, drive, model):
    pytest.importorskip("tensorboardX")
    drive([Logger("tensorboard", logdir=str(tmp_path))], model, ROWS, steps=4)
    (file,) = tmp_path.glob("events.*")
    data = file.read_bytes()
    assert b"val_loss" in data and b"chunk/loss" in data


def test_files_that_cannot_be_written_are_named(drive, model):
    pytest.importorskip("tensorboardX")
    with pytest.raises(SaveError, match="Logger(.|\n)*/proc/board"):
        drive([Logger("tensorboard", logdir="/proc/board")], model, ROWS, steps=4)
    board = exburn.callbacks.TensorBoard("/proc/board", write_graph=False)
    with pytest.raises(SaveError, match="TensorBoard(.|\n)*/proc/board"):
        drive([board], model, ROWS, steps=4)


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_the_packages_themselves(name, tmp_path, monkeypatch, drive, model):
    package = pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    options = {"wandb": {"mode": "offline"}, "trackio": {"project": "p"}, "mlflow": {}}
    if name == "mlflow":
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        package.set_tracking_uri(f"file://{tmp_path}/mlruns")
    if name == "trackio":
        monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    logger = Logger(name, **options[name])
    drive([logger], model, ROWS, steps=4)
    logger._queue._thread.join(60)
    assert (logger.failed, logger.dropped) == (0, 0) and logger.sent >= 3
    if name == "mlflow":
        client = package.MlflowClient()
        (run,) = client.search_runs(["0"])
        values = client.get_metric_history(run.info.run_id, "val_loss")
        assert [(v.step, v.value) for v in values] == [(4, 2.0), (8, 1.5)]
        assert run.info.status == "FINISHED"
