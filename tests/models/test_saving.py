"""Models in files: the settings of ``compile``, and the weights of the moment."""

import jax
import numpy as np
import pytest
from tests.saving.models import LABELS, X, functional, sequential

import exburn as keras
from exburn import layers


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_every_setting_of_compile_comes_back(tmp_path):
    path, data = tmp_path / "m.exburn", (np.ones((32, 4)), np.ones((32, 2)))
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2)], dtype="float16")
    model.compile(
        "sgd",
        "mse",
        warmup=(3, 0.0, 0.2),
        device="cpu",
        auto_scale_loss=False,
        check_numerics=False,
        steps_per_execution=2,
        seed=5,
    )
    model.save(path)
    again = keras.load_model(path)
    config = again.get_compile_config()
    assert config == model.get_compile_config()
    warmup = {"target": 0.2, "steps": None, "epochs": 3, "initial": 0.0, "verbose": 0}
    assert config["warmup"] == warmup
    assert (config["device"], config["auto_scale_loss"]) == ("cpu:0", False)
    for one in (model, again):
        one.fit(*data, batch_size=16, verbose=0)  # the rate rises from nought
    assert all(map(np.array_equal, model.get_weights(), again.get_weights()))
    other = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    with pytest.warns(UserWarning, match="device 'tpu:3', which is not here"):
        other.compile_from_config(config | {"device": "tpu:3"})
    assert other.get_compile_config()["device"] is None
    old = {k: v for k, v in config.items() if k not in ("warmup", "device")}
    other.compile_from_config(old)  # of a file that was written before
    assert other.get_compile_config()["warmup"] is None


def test_losses_and_metrics_of_each_output(tmp_path):
    model, path = functional(), tmp_path / "m.exburn"
    model.compile(
        "sgd",
        {"x": "mse", "y": keras.losses.Huber(2.0)},
        loss_weights={"x": 0.5, "y": 2.0},
        metrics={"x": ["mae"], "y": [keras.metrics.RootMeanSquaredError()]},
    )
    data = {"a": X, "b": X}, {"x": X[:, :1], "y": X[:, :2]}
    model.fit(*data, verbose=0)
    model.save(path)
    loaded = keras.load_model(path)
    both = [m.evaluate(*data, verbose=0, return_dict=True) for m in (model, loaded)]
    assert both[0] == both[1]
    assert set(both[0]) > {"x_mae", "y_root_mean_squared_error"}


def test_saving_in_a_callback_saves_the_weights_of_that_moment(tmp_path):
    model, path = sequential(), tmp_path / "m.exburn"
    model.compile("adam", "sparse_categorical_crossentropy", seed=3)

    class Save(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 0:
                self.model.save(path)
                self.kept = self.model.get_weights()

    callback = Save()
    model.fit(X, LABELS, epochs=2, verbose=0, callbacks=[callback], batch_size=8)
    loaded = keras.load_model(path)
    same(loaded.get_weights(), callback.kept)
    assert loaded.optimizer.iterations == 4
