"""What a program was made of: functions, closures and attributes."""

import numpy as np
import pytest
from tests.training.changing import X, Y, compiled, fit, reasons

import exburn as keras
from exburn import layers, ops


class Branch(layers.Layer):
    """Its number decides in Python what is computed: no program can take it."""

    def __init__(self):
        super().__init__()
        self.factor = 1.0

    def call(self, x):
        return x * self.factor if self.factor > 0.5 else 0 * x


def expected(model, factors):
    raw = X @ model.get_weights()[0]
    return [float(np.mean((raw * factor - Y) ** 2)) for factor in factors]


def test_a_number_that_decides_is_compiled_in_anew():
    branch = Branch()
    model = compiled(layers.Dense(1), branch)
    factors = [1.0, 0.25, 2.0, 3.0]
    losses = fit(model, lambda epoch: setattr(branch, "factor", factors[epoch]))["loss"]
    assert losses == pytest.approx(expected(model, [1, 0, 2, 3]), rel=1e-5)
    assert model.trace_counts["train"] == 4
    assert reasons(model)[-1] == "branch.factor 2.0 → 3.0"


def test_losses_and_what_they_close_over():
    huber = keras.losses.Huber(delta=1.0)
    model = compiled(layers.Dense(1), loss=huber)
    losses = fit(model, lambda epoch: setattr(huber, "delta", 1.0 + epoch))["loss"]
    wanted = [float(keras.losses.Huber(delta=1.0 + e)(Y, model(X))) for e in range(4)]
    assert losses == pytest.approx(wanted, rel=1e-5)
    assert model.trace_counts["train"] == 2


GLOBAL = 0.0


class Annealer(keras.callbacks.Callback):
    """The loss is its method, and sees its attributes."""

    def __init__(self):
        super().__init__()
        self.weight, self.calls = 0.0, 0

    def loss(self, y_true, y_pred):
        return 0 * ops.mean(y_pred, axis=-1) + self.weight

    def on_epoch_begin(self, epoch, logs=None):
        self.weight = float(epoch)

    def on_train_batch_end(self, batch, logs=None):
        self.calls += 1  # nothing that the loss reads


def closures():
    cell, entry, item = 0.0, {"beta": 0.0}, [0.0]
    variable = keras.Variable(0.0)
    box = type("Box", (), {"__init__": lambda self: setattr(self, "value", 0.0)})()

    def set_cell(value):
        nonlocal cell
        cell = value

    def set_global(value):
        global GLOBAL
        GLOBAL = value

    return {
        "cell": (lambda: cell, set_cell),
        "global": (lambda: GLOBAL, set_global),
        "entry": (lambda: entry["beta"], lambda v: entry.update(beta=v)),
        "item": (lambda: item[0], lambda v: item.__setitem__(0, v)),
        "attribute": (lambda: box.value, lambda v: setattr(box, "value", v)),
        "variable": (lambda: variable, variable.assign),
    }


@pytest.mark.parametrize("kind", list(closures()))
def test_a_value_that_a_loss_closes_over(kind):
    read, write = closures()[kind]
    write(0.0)
    model = compiled(
        layers.Dense(1),
        loss=lambda y_true, y_pred: 0 * ops.mean(y_pred, axis=-1) + read(),
    )
    losses = fit(model, lambda epoch: write(float(epoch)), validation_data=(X, Y))
    assert losses["loss"] == losses["val_loss"] == [0, 1, 2, 3]
    most = 1 if kind == "variable" else 2
    assert model.trace_counts == {"train": most, "evaluate": most}


def test_a_loss_that_is_a_callbacks_method():
    annealer = Annealer()
    model = compiled(layers.Dense(1), loss=annealer.loss)
    options = {"epochs": 4, "batch_size": 16, "verbose": 0}
    losses = model.fit(X, Y, callbacks=[annealer], **options).history["loss"]
    assert losses == [0, 1, 2, 3]
    assert model.trace_counts["train"] == 2
    assert annealer.calls == 12


@pytest.mark.filterwarnings("ignore::exburn.errors.ConstantLossWarning")
def test_attributes_that_no_code_reads_compile_nothing():
    model = compiled(layers.Dense(1))

    class Best(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.best = logs["loss"]
            self.model.seen = [*getattr(self.model, "seen", []), epoch]

    model.fit(X, Y, epochs=3, callbacks=[Best()], verbose=0)
    assert model.trace_counts["train"] == 1
    assert model.seen == [0, 1, 2]


def test_a_function_that_a_hook_replaces():
    dense = layers.Dense(1, activation="linear")
    model = compiled(dense)

    def change(epoch):
        if epoch == 1:
            dense.activation = ops.tanh

    losses = fit(model, change, epochs=2)["loss"]
    wanted = np.mean((np.tanh(X @ dense.kernel.numpy()) - Y) ** 2)
    assert losses == pytest.approx([expected(model, [1])[0], wanted], rel=1e-5)
