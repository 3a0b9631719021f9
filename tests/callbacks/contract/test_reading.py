"""Tests of ``exburn.callbacks.contract.reading``."""

import functools

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.callbacks.contract.reading import reads_logs
from exburn.training.objective.readings import Readings

seen = []


class Hooks(exburn.callbacks.Callback):
    def counted(self, batch, logs=None):
        seen.append(batch)

    def asked(self, batch, logs=None):
        seen.append(logs["loss"])

    def inherited(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)

    def nested(self, batch, logs=None):
        seen.append(lambda: logs)

    def around(self, batch, logs=None):
        seen.append(locals())

    def renamed(self, batch, values=None):
        seen.append((self.counted, values))

    def everything(self, *args):
        seen.append(args)

    def further(self, batch, **more):
        seen.append(more)


def trained(callbacks, run="fit"):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((32, 4)).astype(np.float32), rng.integers(0, 3, 32)
    model = exburn.Sequential([exburn.Input((4,)), layers.Dense(3)])
    loss = exburn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], seed=0)
    given = {"batch_size": 8, "verbose": 0, "callbacks": callbacks}
    options = {"epochs": 2} if run == "fit" else {}
    return getattr(model, run)(x, y, **given, **options)


class Looking(exburn.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.logs = []

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append((batch, logs))

    on_test_batch_end = on_train_batch_end


class Asking(Looking):
    """Asks the model, and never looks at its logs."""

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append((batch, self.model.get_metrics_result()))

    on_test_batch_end = on_train_batch_end


class Stepping(Looking):
    def on_train_batch_end(self, batch, logs=None):
        weights = [np.array(w) for w in self.model.get_weights()]
        self.logs.append((batch, weights))

    def on_test_batch_end(self, batch, logs=None):
        self.logs.append(batch)


@pytest.mark.parametrize("name", [n for n in vars(Hooks) if not n.startswith("_")])
def test_whether_a_hook_may_look(name):
    assert reads_logs(getattr(Hooks(), name)) == (name != "counted")


def test_whether_a_function_may_look():
    assert not reads_logs(lambda batch, logs: seen.append(batch))
    assert reads_logs(lambda batch, logs: seen.append(logs))
    assert reads_logs(functools.partial(Hooks().counted))
    assert reads_logs(seen.append)


@pytest.mark.parametrize("run", ["fit", "evaluate"])
def test_the_model_knows_each_step_whoever_looks(run):
    looking, asking = Looking(), Asking()
    trained([looking], run)
    trained([asking], run)
    assert asking.logs == looking.logs
    assert {k for _, logs in asking.logs for k in logs} == {"loss", "accuracy"}


def test_nobody_waits_for_logs_that_nobody_looks_at(monkeypatch):
    reads, read = [], Readings.read
    monkeypatch.setattr(Readings, "read", lambda self: reads.append(1) or read(self))
    stepping, looking = Stepping(), Looking()
    history = trained([stepping])
    assert len(reads) == 2  # at the ends of epochs
    assert [batch for batch, _ in stepping.logs] == [*range(4)] * 2
    first, *_, last = (weights for _, weights in stepping.logs)
    assert not np.array_equal(first[0], last[0])
    assert trained([stepping, looking]).history == history.history
    assert len(reads) == 2 + 8 + 2
