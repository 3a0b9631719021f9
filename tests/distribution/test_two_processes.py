"""Two processes of two devices train like one: hooks, decisions, prints and files."""

import signal

import numpy as np
import pytest
from tests.distribution.processes import DATA, Processes, run

BEGIN = (
    DATA
    + """
import time
from exburn.callbacks import Callback


def make(mesh):
    layers = [
        keras.Input((8,)),
        keras.layers.Dense(64, "relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(2),
    ]
    model = keras.Sequential(layers)
    model.compile("adam", "cross_entropy", metrics=["accuracy"], mesh=mesh)
    return model


def steps(model):
    return int(model.optimizer.iterations)
"""
)


def alone():
    """What one process on one device makes of it."""
    space = {"np": np}
    exec(BEGIN, space)
    model = space["make"](None)
    x, y = space["x"], space["y"]
    history = model.fit(x, y, batch_size=60, epochs=3, validation_split=0.1, verbose=0)
    found = {"history": history.history, "evaluated": model.evaluate(x, y, verbose=0)}
    found["predicted"] = model.predict(x[:101], verbose=0).tolist()
    found["weights"] = [w.tolist() for w in model.get_weights()]
    return found


@pytest.mark.parametrize("mesh", ["data", "fsdp"])
def test_the_history_is_that_of_one_process(mesh):
    script = f"""
    model = make({mesh!r})
    options = dict(batch_size=60, validation_split=0.1)
    history = model.fit(x, y, epochs=2, verbose=2, resident=True, **options)
    history = history.history
    more = model.fit(x, y, epochs=3, initial_epoch=2, verbose=2, **options)
    history = {{name: values + more.history[name] for name, values in history.items()}}
    report(history=history, evaluated=model.evaluate(x, y, verbose=0))
    report(predicted=model.predict(x[:101], verbose=0).tolist())
    report(weights=[w.tolist() for w in model.get_weights()])
    """
    with Processes(BEGIN + _plain(script)) as started:
        first, second = started.wait()
    assert first.code == second.code == 0, first.errors + second.errors
    assert first.values == second.values
    expected, found = alone(), first.values
    for name, values in expected["history"].items():
        np.testing.assert_allclose(found["history"][name], values, rtol=1e-5)
    np.testing.assert_allclose(found["evaluated"], expected["evaluated"], rtol=1e-5)
    np.testing.assert_allclose(
        found["predicted"], expected["predicted"], rtol=1e-4, atol=1e-5
    )
    for ours, other in zip(found["weights"], expected["weights"], strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-4, atol=1e-5)
    assert first.output.count("Epoch ") == 3 and "Epoch " not in second.output


def test_what_one_process_decides_holds_for_all():
    first, second = run(
        BEGIN
        + """
class Distorts(Callback):
    def on_epoch_end(self, epoch, logs=None):
        if NUMBER == 1:
            logs["val_loss"] = 1.0 + epoch
            logs["odd"] = 1


class Stops(Callback):
    def on_train_batch_end(self, batch, logs=None):
        if NUMBER == 1 and batch == 7:
            self.model.stop_training = True


class Sleeps(Callback):
    def on_chunk_end(self, step, logs=None):
        time.sleep(0.3 * NUMBER)

    def on_epoch_end(self, epoch, logs=None):
        if NUMBER == 1 and epoch == 1:
            self.model.stop_training = True


class Rates(Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.model.optimizer.learning_rate = 0.05 if NUMBER else 0.01


model = make("data")
stopping = keras.callbacks.EarlyStopping(patience=1, restore_best_weights=True)
options = dict(batch_size=60, verbose=0)
history = model.fit(
    x, y, epochs=4, validation_split=0.1, callbacks=[Distorts(), stopping], **options
)
report(distorted=history.history, best=stopping.best_epoch)
report(weights=[float(abs(w).sum()) for w in model.get_weights()])

before = steps(model)
model.fit(x, y, epochs=2, callbacks=[Stops()], **options)
report(stopped=steps(model) - before)

before = steps(model)
model.fit(x, y, epochs=5, callbacks=[Sleeps()], **options)
report(slept=steps(model) - before)

history = model.fit(x, y, epochs=2, callbacks=[Rates()], **options)
report(rate=float(model.optimizer.learning_rate), rates=history.history)
report(end=[float(abs(w).sum()) for w in model.get_weights()])
"""
    )
    assert first == second
    assert list(first["distorted"]) == ["loss", "accuracy", "val_loss", "val_accuracy"]
    assert len(first["distorted"]["loss"]) == 4 and first["best"] == 3
    assert first["stopped"] == 8 and first["slept"] == 2 * 17
    assert first["rate"] == pytest.approx(0.01)


DIFFERS = {  # what processes do, and what is said of it
    "data": (
        "lambda m: m.fit(x[NUMBER:], y[NUMBER:], verbose=0)",
        "fit: the processes run with different values of data",
    ),
    "seed": ("fit()", "fit: the processes run with different values of seed"),
    "weights": (
        "fit(Sets())",
        "fit: the processes differ in weights that hooks have set",
    ),
    "freezing": ("fit(Freezes())", "fit: the processes differ in what is trained"),
    "numbers": ("fit(Drops())", "fit: the processes differ in what is trained"),
    "batches": (
        "lambda m: m.evaluate(Loader(10 - 4 * NUMBER), verbose=0)",
        "evaluate: the processes differ in the next batches",
    ),
}
HOOKS = """
class Fails(Callback):
    def on_epoch_end(self, epoch, logs=None):
        if NUMBER == 1:
            raise ValueError("mine")


class Sets(Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.set_weights([w + NUMBER for w in self.model.get_weights()])


class Freezes(Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.layers[-1].trainable = NUMBER == 0


class Drops(Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.layers[2].rate = 0.1 * (1 + NUMBER)


class Loader:
    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        for _ in range(self.batches):
            yield x[:40], y[:40]


def attempt(name, act):
    keras.utils.set_random_seed(NUMBER if name == "seed" else 1)
    try:
        act(make("data"))
    except Exception as error:
        report(**{name: f"{type(error).__name__}: {error}"})


def fit(*callbacks):
    return lambda m: m.fit(x, y, verbose=0, epochs=3, callbacks=list(callbacks))
"""


@pytest.fixture(scope="module")
def attempts():
    """What the two processes report of each attempt; the last one ends all others."""
    calls = [f"attempt({kind!r}, {call})" for kind, (call, _) in DIFFERS.items()]
    return run("\n".join([BEGIN, HOOKS, *calls, 'attempt("hook", fit(Fails()))']))


def test_what_differs_is_an_error_in_all(attempts):
    first, second = attempts
    for kind, (_, text) in DIFFERS.items():
        assert first[kind] == second[kind]
        assert first[kind].startswith("ProcessError") and text in first[kind]


def test_what_fails_in_a_hook_of_one_is_an_error_in_all(attempts):
    first, second = attempts
    assert "process 1 of 2 failed" in first["hook"]
    assert "there: ValueError: in callback 'Fails'" in first["hook"]
    assert "(on_epoch_end, epoch 0): mine" in first["hook"]
    assert second["hook"].startswith("ValueError: in callback 'Fails'")


def test_an_interrupted_process_ends_the_others():
    """As Ctrl-C does to one of them, and a SIGTERM that no checkpoint waits for."""
    script = """
model = make("data")
report(ready=True)
model.fit(x, y, epochs=10_000, verbose=0)
"""
    with Processes(BEGIN + script) as started:
        started.wait_for(1, "ready")
        started.send(1, signal.SIGINT)
        first, second = started.wait()
    assert "process 1 of 2 failed" in first.errors
    assert "KeyboardInterrupt" in second.errors and first.code and second.code


def _plain(script):
    import textwrap

    return textwrap.dedent(script)
