"""Numbers that hooks change hold from the next chunk on, in training and evaluation."""

import numpy as np
import pytest
from tests.training.changing import Hook, X, Y, compiled, fit, reasons

import exburn as keras
from exburn import layers, ops
from exburn.errors import ArgumentError


class Scale(layers.Layer):
    def __init__(self):
        super().__init__()
        self.factor = 1.0

    def call(self, x):
        return x * self.factor


def expected(model, factors):
    raw = X @ model.get_weights()[0]
    return [float(np.mean((raw * factor - Y) ** 2)) for factor in factors]


def test_a_layers_number_is_an_argument_once_it_has_changed():
    scale = Scale()
    model = compiled(layers.Dense(1), scale)
    history = fit(
        model,
        lambda epoch: setattr(scale, "factor", 1.0 + epoch),
        validation_data=(X, Y),
    )
    wanted = expected(model, [1, 2, 3, 4])
    assert history["loss"] == pytest.approx(wanted, rel=1e-5)
    assert history["val_loss"] == pytest.approx(wanted, rel=1e-5)
    assert model.trace_counts == {"train": 2, "evaluate": 2}
    (_, reason) = reasons(model)
    assert reason == "scale.factor 1.0 → 2.0; arguments from now on: scale.factor"
    for factor in (7.0, 8.0):  # between runs
        scale.factor = factor
        wanted = expected(model, [factor])
        assert model.evaluate(X, Y, verbose=0) == pytest.approx(wanted[0], rel=1e-5)
        predicted = model.predict(X, verbose=0)
        np.testing.assert_allclose(predicted, np.asarray(model(X)), rtol=1e-5)
        losses = fit(model, lambda epoch: None, epochs=1)["loss"]
        assert losses == pytest.approx(wanted, rel=1e-5)
    # One more for `evaluate`, whose batches are others than the validation's.
    assert model.trace_counts == {"train": 2, "evaluate": 3, "predict": 1}


@pytest.mark.parametrize("hook", ["on_epoch_end", "on_train_batch_end"])
def test_it_holds_from_the_next_chunk_on(hook):
    scale = Scale()
    model = compiled(layers.Dense(1), scale)
    seen = []

    class Step(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(logs["loss"])
            if hook == "on_train_batch_end":
                scale.factor += 1.0

        def on_epoch_end(self, epoch, logs=None):
            if hook == "on_epoch_end":
                scale.factor += 1.0

    options = {"batch_size": 16, "epochs": 2, "shuffle": False, "verbose": 0}
    model.fit(X, Y, callbacks=[Step()], **options)
    kernel = model.get_weights()[0]
    per_batch = hook == "on_train_batch_end"
    factors = np.arange(1.0, 7.0) if per_batch else np.repeat([1.0, 2.0], 3)
    batches = [
        np.mean((X[at : at + 16] @ kernel * factor - Y[at : at + 16]) ** 2)
        for factor, at in zip(factors, [0, 16, 32] * 2, strict=True)
    ]
    means = [np.mean(batches[i - i % 3 : i + 1]) for i in range(6)]
    assert seen == pytest.approx(means, rel=1e-5)
    assert model.trace_counts["train"] == 2


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (layers.Dropout, "rate"),
        (layers.GaussianNoise, "stddev"),
        (layers.GaussianDropout, "rate"),
        (layers.AlphaDropout, "rate"),
    ],
)
def test_rates_of_noise_are_annealed_without_compiling(layer, name):
    noise = layer(0.5)
    model = compiled(noise, layers.Dense(1, kernel_initializer="ones"))
    values = [0.5, 0.3, 0.0, 0.7, 0.0]
    change = lambda epoch: setattr(noise, name, values[epoch])  # noqa: E731
    losses = fit(model, change, epochs=5)["loss"]
    assert model.trace_counts["train"] == 2
    still = model.evaluate(X, Y, verbose=0)
    assert losses[2] == losses[4] == pytest.approx(still, abs=1e-6)
    assert min(losses[0], losses[1], losses[3]) > still + 1e-3
    with pytest.raises(ArgumentError):
        setattr(noise, name, -1.0)
    assert getattr(noise, name) == 0.0


def test_annealed_dropout_drops_at_its_rate():
    drop = layers.Dropout(0.5)
    model = keras.Sequential([keras.Input((100,)), drop])
    model.compile("sgd", lambda y_true, y_pred: ops.mean(y_pred, axis=-1))
    x = np.ones((200, 100), "float32")

    class Kept(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            drop.rate = [0.5, 0.25, 0.8][epoch]

    model.add(layers.Dense(1, use_bias=False, kernel_initializer="ones"))
    model.compile(
        keras.optimizers.SGD(0.0),
        lambda y_true, y_pred: ops.square(y_pred[:, 0] - 100.0),
    )
    losses = model.fit(x, x, epochs=3, callbacks=[Kept()], verbose=0).history["loss"]
    # The variance of a sum of 100 entries that are 0, or 1 / (1 - rate).
    variances = [100 * rate / (1 - rate) for rate in (0.5, 0.25, 0.8)]
    assert losses == pytest.approx(variances, rel=0.3)


def test_regularizers():
    dense = layers.Dense(1, kernel_regularizer=keras.regularizers.L2(0.0))
    model = compiled(dense)
    change = lambda epoch: setattr(dense.kernel_regularizer, "l2", epoch)  # noqa: E731
    losses = fit(model, change)["loss"]
    (base,), square = expected(model, [1]), float((dense.kernel.numpy() ** 2).sum())
    assert losses == pytest.approx([base + e * square for e in range(4)], rel=1e-5)
    assert model.trace_counts["train"] == 2
    dense.kernel_regularizer.l2 = 9.0
    assert model.evaluate(X, Y, verbose=0) == pytest.approx(base + 9 * square)


def test_weights_of_losses():
    x = keras.Input((4,))
    outputs = [layers.Dense(1, name="a")(x), layers.Dense(1, name="b")(x)]
    model = keras.Model(x, outputs)
    with pytest.raises(Exception, match="compiled first"):
        model.loss_weights = [1, 1]
    sgd = keras.optimizers.SGD(0.0, momentum=0.0)
    model.compile(sgd, ["mse", "mse"], loss_weights=[1.0, 1.0])
    model.fit(X, [Y, Y], verbose=0)
    hook = Hook(lambda epoch: setattr(model, "loss_weights", [1.0, float(epoch)]))
    options = {"epochs": 4, "callbacks": [hook], "verbose": 0}
    history = model.fit(X, [Y, Y], **options).history
    first, second = history["a_loss"][0], history["b_loss"][0]
    wanted = [first + epoch * second for epoch in range(4)]
    assert history["loss"] == pytest.approx(wanted, rel=1e-5)
    assert model.trace_counts["train"] == 2
    assert model.loss_weights == [1.0, 3.0]
    with pytest.raises(ArgumentError, match="finite"):
        model.loss_weights = [1.0, float("nan")]
    with pytest.raises(ArgumentError):
        model.loss_weights = [1.0, 2.0, 3.0]
    assert model.loss_weights == [1.0, 3.0]
    assert model.evaluate(X, [Y, Y], verbose=0)[0] == pytest.approx(wanted[-1])


def test_options_of_the_optimizer():
    sgd = keras.optimizers.SGD(0.1, momentum=0.0)
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    model.compile(sgd, "mse")
    start = model.get_weights()
    options = {"batch_size": 48, "epochs": 4, "shuffle": False, "verbose": 0}

    def change(epoch):
        sgd.momentum = 0.9 if epoch >= 2 else 0.0

    losses = model.fit(X, Y, callbacks=[Hook(change)], **options).history["loss"]
    kernel, bias = (np.array(w, "float64") for w in start)
    velocity, wanted = [0.0, 0.0], []
    for epoch in range(4):
        error = X @ kernel + bias - Y
        wanted.append(np.mean(error**2))
        grads = [2 * X.T @ error / len(X), 2 * error.mean(0)]
        momentum = 0.9 if epoch >= 2 else 0.0
        velocity = [
            momentum * v - 0.1 * g for v, g in zip(velocity, grads, strict=True)
        ]
        kernel, bias = kernel + velocity[0], bias + velocity[1]
    assert losses[:3] == pytest.approx(wanted[:3], rel=1e-4)
    assert losses[3] < losses[2]
    assert model.trace_counts["train"] == 2
    sgd.momentum = 0.0
    model.set_weights(start)
    model.compile(sgd, "mse")
    options["epochs"] = 2
    again = model.fit(X, Y, **options).history["loss"]
    sgd.momentum = 0.9  # between fits
    again += model.fit(X, Y, **options).history["loss"]
    assert again == pytest.approx(losses, rel=1e-6)


def test_mixed_precision_stays():
    scale = Scale()
    scale.precision = "mixed_bfloat16"
    model = compiled(layers.Dense(1, dtype="mixed_bfloat16"), scale)
    fit(model, lambda epoch: setattr(scale, "factor", 1.0 + epoch))
    assert model.predict(X, verbose=0).dtype == scale.compute_dtype


def test_a_resumed_run_takes_the_numbers_of_its_own_hooks(tmp_path):
    def run(epochs, name, **options):
        keras.set_random_seed(0)
        scale = Scale()
        model = keras.Sequential([keras.Input((4,)), layers.Dense(1), scale])
        model.compile(keras.optimizers.SGD(0.01), "mse")
        callbacks = [
            Hook(lambda epoch: setattr(scale, "factor", 1.0 + epoch)),
            keras.callbacks.ModelCheckpoint(str(tmp_path / name)),
        ]
        options |= {"batch_size": 16, "verbose": 0, "callbacks": callbacks}
        model.fit(X, Y, epochs=epochs, **options)
        return model.get_weights()

    whole = run(4, "one")
    run(2, "two")
    for one, other in zip(whole, run(4, "two", resume="auto"), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
