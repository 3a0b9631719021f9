"""keras-tuner 1.4: searches of three kinds, which try the same values."""

import sys
import tempfile

import keras
import keras_tuner
import numpy as np

rng = np.random.default_rng(0)
x = rng.normal(size=(64, 4)).astype("float32")
y = x @ np.array([[1.0], [2.0], [-1.0], [0.5]], "float32")


def build(hp):
    model = keras.Sequential([keras.Input((4,))])
    for _ in range(hp.Int("layers", 1, 2)):
        units = hp.Choice("units", [4, 8, 16])
        model.add(keras.layers.Dense(units, activation=hp.Choice("a", ["relu", "elu"])))
    model.add(keras.layers.Dense(1))
    rate = hp.Float("rate", 1e-3, 1e-1, sampling="log")
    model.compile(keras.optimizers.Adam(rate), "mse", metrics=["mae"])
    return model


found = {}
kinds = {
    "random": (keras_tuner.RandomSearch, {"max_trials": 4}),
    "bayesian": (keras_tuner.BayesianOptimization, {"max_trials": 4}),
    "hyperband": (keras_tuner.Hyperband, {"max_epochs": 3}),
}
for name, (kind, options) in kinds.items():
    tuner = kind(
        build,
        objective="val_loss",
        seed=7,
        directory=tempfile.mkdtemp(),
        project_name=name,
        **options,
    )
    tuner.search(x[:48], y[:48], validation_data=(x[48:], y[48:]), epochs=3, verbose=0)
    trials = tuner.oracle.get_best_trials(100)
    first = sorted(trials, key=lambda trial: trial.trial_id)[:2]  # before any score
    rates = [trial.hyperparameters.get("rate") for trial in first]
    best = tuner.get_best_models()[0]
    loss, _ = best.evaluate(x[48:], y[48:], verbose=0)
    found |= {
        f"{name} trials": np.array(len(trials)),
        f"{name} rates": np.array(rates),
        f"{name} reload": np.array(abs(loss - trials[0].score) / loss),
    }


class Noted(keras.callbacks.Callback):
    losses: list[float] = []

    def on_train_end(self, logs=None):
        self.losses.append(logs["loss"])


twice = keras_tuner.RandomSearch(
    build,
    objective="val_loss",
    max_trials=1,
    executions_per_trial=2,
    seed=7,
    directory=tempfile.mkdtemp(),
)
data = {"validation_data": (x[48:], y[48:]), "verbose": 0}
twice.search(x[:48], y[:48], callbacks=[Noted()], **data)
first, second = Noted.losses  # each of them begins with weights of its own
found["executions differ"] = np.array(float(first != second))
np.savez(sys.argv[1], **found)
