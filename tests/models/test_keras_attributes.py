"""Attributes of Keras' objects that plain code reads."""

import functools

import keras as peer
import numpy as np
import pytest

import exburn as keras
from exburn import callbacks, layers
from exburn.errors import ArgumentError, ShapeError

X, Y = np.ones((8, 4), "float32"), np.ones((8, 3), "float32")


def trained(package):
    inputs = package.layers.Input((4,), name="i")
    outputs = package.layers.ReLU(name="r")(package.layers.Dense(3)(inputs) + 1.0)
    model = package.Model(inputs, outputs)
    model.compile("adam", "mse")
    model.fit(X, Y, verbose=0)
    return model


def test_operations_are_layers_and_what_is_between_them():
    peer.utils.clear_session()  # it numbers names through the process
    ours, theirs = trained(keras), trained(peer)
    assert ours.operations[0] is ours.layers[0]
    names = [[op.name for op in model.operations] for model in (ours, theirs)]
    assert names[0] == names[1]
    with pytest.raises(keras.errors.UncalledLayerError):
        _ = keras.Sequential([layers.Dense(2)]).operations


def test_the_weights_of_an_optimizer_are_set_at_once():
    model = trained(keras)
    values = [2 * np.asarray(v) for v in model.optimizer.variables]
    model.optimizer.set_weights(values)
    for variable, value in zip(model.optimizer.variables, values, strict=True):
        np.testing.assert_array_equal(variable, value)
    assert model.optimizer.iterations == 2
    with pytest.raises(ArgumentError, match=f"{len(values)} values are needed"):
        model.optimizer.set_weights(values[1:])


MONITORS = [
    callbacks.EarlyStopping,
    callbacks.ReduceLROnPlateau,
    functools.partial(callbacks.ModelCheckpoint, "m.keras", save_best_only=True),
]


@pytest.mark.parametrize("make", MONITORS)
def test_monitors_tell_how_they_compare(make):
    assert make(monitor="a", mode="min").monitor_op is np.less
    assert make(monitor="a", mode="max").monitor_op is np.greater
    assert make(monitor="val_accuracy").monitor_op is np.greater
    assert make(monitor="of_no_kind").monitor_op is None


def scaled(x, by=1):
    return x * by


def test_arguments_of_a_lambda():
    layer = layers.Lambda(scaled, arguments={"by": 2})
    assert layer.arguments == {"by": 2} and layers.Lambda(scaled).arguments == {}
    assert layer(np.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(TypeError):
        layer.arguments["by"] = 3  # it would not be computed with


OPS = {
    "cast": {"dtype": "float16"},
    "reshape": {"newshape": (-1, 2)},
    "squeeze": {"axis": -1},
    "get_item": {"key": 1},
}


@pytest.mark.parametrize("name", OPS)
def test_ops_as_functions_of_a_lambda_are_saved(name, tmp_path):
    x = np.arange(8, dtype="float32").reshape(2, 4, 1)
    layer = layers.Lambda(getattr(keras.ops, name), arguments=OPS[name])
    model = keras.Sequential([keras.Input((4, 1)), layer])
    model.save(tmp_path / "m.exburn")
    loaded = keras.load_model(tmp_path / "m.exburn")
    np.testing.assert_array_equal(loaded(x), model(x))
    np.testing.assert_array_equal(
        model(x), getattr(peer.ops, name)(x, *OPS[name].values())
    )


def test_a_single_row_is_told_of_the_batch_axis():
    with pytest.raises(ShapeError, match=r"pass one row as x\[None\]"):
        layers.Dense(2)(np.ones(4, "float32"))


def test_users_attributes_do_not_hide_ours():
    class Own(layers.Dense):
        def __init__(self, units, **options):
            super().__init__(units, **options)
            self._settings, self._arguments = {"a": 1}, (1,)

        def get_config(self):
            return super().get_config()

    assert Own.from_config(Own(3).get_config()).units == 3


class Standardized(layers.Conv2D):
    """With kernels of mean 0, as Keras' documentation shows it."""

    def convolution_op(self, inputs, kernel):
        kernel = kernel - keras.ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
        return super().convolution_op(inputs, kernel)


def test_a_convolutions_operation_may_be_another():
    layer = Standardized(2, 3)
    assert np.abs(layer(np.ones((1, 5, 5, 2), "float32"))).max() < 1e-5  # was ignored
    model = keras.Sequential([keras.Input((5, 5, 2)), layer])
    assert np.abs(model.predict(np.ones((1, 5, 5, 2)), verbose=0)).max() < 1e-5


def test_an_optimizer_with_a_state_is_built():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    assert model.metrics_names == []
    model.compile("adam", "mse", metrics=["mae"])
    assert not model.optimizer.built
    model.fit(X, Y, verbose=0)
    assert model.optimizer.built
    model.fit(X, Y, verbose=0)
    assert model.optimizer.iterations == 2
    assert model.metrics_names == ["loss", "mae"]


def test_a_layer_that_casts_nothing():
    class Own(layers.Layer):
        def __init__(self):
            super().__init__(dtype="mixed_float16")
            self.autocast = False

        def call(self, x):
            return x

    assert Own()(np.ones(3, "float32")).dtype == "float32"  # was float16
    assert not Own().autocast and layers.Dense(1).autocast


def test_weights_have_their_regularizer_and_constraint():
    layer = layers.Dense(3, kernel_regularizer="l2", kernel_constraint="non_neg")
    model = keras.Sequential([keras.Input((4,)), layer])
    assert layer.kernel.regularizer is layer.kernel_regularizer
    assert layer.kernel.constraint is layer.kernel_constraint
    assert layer.bias.regularizer is None is layer.bias.constraint
    model.compile("sgd", "mse")
    layer.set_weights([np.ones((4, 3)), np.ones(3)])
    model.fit(X, Y, verbose=0)
    before = model.evaluate(X, Y, verbose=0)
    layer.bias.regularizer = "l1"
    penalty = 0.01 * np.abs(layer.bias.numpy()).sum()
    assert model.evaluate(X, Y, verbose=0) == pytest.approx(before + penalty)


def test_shapes_in_configurations_are_tuples():
    assert layers.Reshape([2, 2]).get_config()["target_shape"] == (2, 2)
    assert layers.Permute([2, 1]).get_config()["dims"] == (2, 1)
    pytest.importorskip("tensorboardX")
    assert callbacks.TensorBoard("logs").log_dir + "/run" == "logs/run"
    assert keras.layers.InputLayer((3,)).get_config()["optional"] is False


class Sharper(layers.Attention):
    def _calculate_scores(self, query, key):
        return 0.0 * super()._calculate_scores(query, key)


def test_the_scores_of_attention_may_be_others():
    x = np.arange(6, dtype="float32").reshape(1, 3, 2)
    mean = np.broadcast_to(x.mean(1, keepdims=True), x.shape)
    np.testing.assert_allclose(Sharper()([x, x]), mean, rtol=1e-6)  # was ignored


class Doubling(keras.optimizers.SGD):
    def apply(self, grads, trainable_variables=None):
        super().apply([2 * grad for grad in grads], trainable_variables)


def test_an_apply_that_fit_would_not_call_is_refused():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    with pytest.raises(ArgumentError, match=r"fit would not call Doubling\.apply"):
        model.compile(Doubling(), "mse")
    weight = keras.Variable(np.ones(1, "float32"))
    Doubling(0.25, momentum=0.0).apply([np.ones(1, "float32")], [weight])
    assert float(weight.numpy()[0]) == 0.5
