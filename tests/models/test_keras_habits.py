"""What Keras code does with models and optimizers besides training them."""

from __future__ import annotations

import copy
import json
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import exburn
from exburn import layers
from exburn.errors import ArgumentError, MissingFileError, NotBuiltError, ShapeError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((64, 4)).astype(np.float32)
Y = X.sum(1, keepdims=True)
IMAGES = RNG.random((4, 8, 8, 3)).astype(np.float32)


def trained(**settings):
    model = exburn.Sequential(
        [
            exburn.Input((4,)),
            layers.Dense(8, activation=jax.nn.relu, kernel_regularizer="l2"),
            layers.BatchNormalization(),
            layers.Dense(1),
        ]
    )
    model.compile(**{"optimizer": "adam", "loss": "mse", "seed": 0} | settings)
    model.fit(X, Y, epochs=2, verbose=0)
    return model


def test_weights_of_any_dtype_share_programs():
    model = trained()
    weight = np.arange(64) % 3
    results = []
    for dtype in ("float32", "int64", "uint8", "float64"):
        given = weight.astype(dtype)
        model.fit(X, Y, sample_weight=given, verbose=0)
        results.append(model.evaluate(X, Y, sample_weight=given != 1, verbose=0))
    assert model.trace_counts["train"] == 2 and model.trace_counts["evaluate"] == 1


class Activity(layers.Layer):
    def call(self, x):
        self.add_loss(0.1 * jnp.mean(jnp.square(x)))
        return x


def test_losses_are_those_of_the_last_call_and_the_weights():
    model = exburn.Sequential(
        [
            exburn.Input((4,)),
            layers.Dense(3, kernel_regularizer="l2", activity_regularizer="l1"),
            Activity(),
        ]
    )
    kernel = model.layers[0].kernel
    penalty = 0.01 * float(jnp.sum(jnp.square(kernel[...])))
    assert [float(loss) for loss in model.losses] == pytest.approx([penalty])
    out = np.asarray(model(X))
    wanted = [0.01 * np.abs(out).sum() / len(X), 0.1 * np.mean(out**2), penalty]
    assert [float(v) for v in model.losses] == pytest.approx(wanted, rel=1e-5)
    model.layers[0].trainable = False
    assert len(model.losses) == 2

    @nnx.jit
    def added(model, x):
        model(x)
        return sum(model.losses)

    assert float(added(model, X)) == pytest.approx(sum(wanted[:2]), rel=1e-5)
    assert all(not isinstance(v, jax.core.Tracer) for v in model.losses)


def test_numbers_of_an_optimizer_are_read_and_assigned():
    model = trained(optimizer=exburn.optimizers.Adam(0.01))
    optimizer = model.optimizer
    assert (optimizer.iterations, optimizer.learning_rate) == (4, 0.01)
    assert optimizer.iterations.numpy() == 4 and optimizer.learning_rate.value == 0.01
    optimizer.learning_rate.assign(0.5)
    optimizer.iterations.assign(10)
    assert (optimizer.iterations, optimizer.learning_rate) == (10, 0.5)
    model.fit(X, Y, epochs=1, verbose=0)
    assert optimizer.iterations == 12
    assert model.trace_counts == {"train": 1}
    plain = pickle.loads(pickle.dumps(optimizer.learning_rate))
    assert type(plain) is float and json.dumps(optimizer.learning_rate) == "0.5"
    assert type(copy.deepcopy(optimizer.iterations)) is int
    fresh = exburn.optimizers.SGD(0.1)
    fresh.learning_rate.assign(0.2)
    assert fresh.learning_rate == 0.2
    with pytest.raises(NotBuiltError):
        fresh.iterations.assign(1)


def test_variables_of_an_optimizer_are_assigned():
    model = trained()
    optimizer = model.optimizer
    slots = [v for v in optimizer.variables if v.path.startswith("inner/")]
    assert len(slots) == 2 * len(model.trainable_variables)
    assert any(float(np.abs(v.numpy()).sum()) > 0 for v in slots)
    saved = [v.numpy() for v in optimizer.variables]
    for v in slots:
        v.assign(np.zeros(v.shape))
    assert all(not np.any(v.numpy()) for v in slots)
    for v, value in zip(optimizer.variables, saved, strict=True):
        v.assign(value)
    for v, value in zip(optimizer.variables, saved, strict=True):
        np.testing.assert_array_equal(v, value)
    with pytest.raises(exburn.errors.ShapeError):
        slots[0].assign(np.zeros(77))


def test_an_unknown_optimizer_names_where_it_was_looked_for():
    with pytest.raises(exburn.errors.UnknownNameError) as caught:
        exburn.optimizers.get("adm")
    text = str(caught.value)
    assert text.startswith("optimizers.get: unknown optimizer 'adm'")
    assert "Did you mean 'adam'" in text


def test_a_missing_file_is_both_kinds_of_error(tmp_path):
    model = trained()
    for kind in (FileNotFoundError, ArgumentError, ValueError, MissingFileError):
        with pytest.raises(kind, match="there is no file"):
            model.load_weights(tmp_path / "absent.safetensors")
        with pytest.raises(kind, match="there is no file"):
            exburn.load_model(tmp_path / "absent.exburn")


def augmenting(kind):
    if kind == "pipeline":
        return exburn.Sequential([layers.Pipeline([layers.RandomRotation(0.3)])])
    if kind == "subclass":

        class Net(exburn.Model):
            def __init__(self):
                super().__init__()
                self.turn = layers.RandomRotation(0.3)

            def call(self, x):
                return self.turn(x)

        return Net()
    inner = exburn.Sequential([layers.RandomRotation(0.3), layers.Dropout(0.5)])
    return exburn.Sequential([inner]) if kind == "nested" else inner


@pytest.mark.parametrize("kind", ["stack", "nested", "pipeline", "subclass"])
def test_an_eager_call_augments_unless_told_not_to(kind):
    model = augmenting(kind)
    assert not np.allclose(model(IMAGES), IMAGES)
    assert np.mean(np.asarray(model(IMAGES)) == 0) < 0.3  # without the dropout
    assert not np.allclose(model(IMAGES, training=True), IMAGES)
    np.testing.assert_allclose(model(IMAGES, training=False), IMAGES, atol=1e-6)
    shown = model.predict(IMAGES, verbose=0)
    np.testing.assert_allclose(shown, IMAGES, atol=1e-6)


def test_a_given_name_makes_one_by_place_give_way():
    first, second = layers.Dense(3), layers.Dense(5, name="dense")
    model = exburn.Sequential([exburn.Input((4,)), first])
    assert first.name == "dense"
    model.add(second)
    assert [layer.name for layer in model.layers] == ["dense_1", "dense"]
    assert model.get_layer("dense") is second
    assert model.get_layer("dense_1") is first
    assert [w.path for w in model.weights][0] == "dense_1/kernel"


def functional():
    x = exburn.Input((4,))
    return exburn.Model(x, layers.Dense(1, name="out")(layers.Dense(3)(x)))


def stacked():
    return exburn.Sequential([exburn.Input((4,)), layers.Dense(3), layers.Dense(1)])


def unbuilt():
    return exburn.Sequential([layers.Dense(3), layers.Dense(1)])


@pytest.mark.parametrize("make", [functional, stacked, unbuilt])
def test_layers_and_models_are_renamed(make, tmp_path):
    model = make()
    model.name, model.layers[-1].name = "whole", "last"
    model.compile("sgd", "mse")
    model.fit(X, Y, verbose=0)
    assert model.get_layer("last") is model.layers[-1]
    model.save(tmp_path / "model")
    copies = [exburn.load_model(tmp_path / "model"), copy.deepcopy(model)]
    clone = exburn.models.clone_model(model)
    clone.set_weights(model.get_weights())
    for one in [*copies, clone, pickle.loads(pickle.dumps(model))]:
        assert one.name == "whole" and one.layers[-1].name == "last"
        np.testing.assert_array_equal(one.predict(X[:3]), model.predict(X[:3]))
    lines = []
    model.summary(print_fn=lines.append)
    assert "last (Dense)" in "\n".join(lines)
    model.precision = "bfloat16"
    assert model.layers[-1].name == "last" and model(X).dtype == jnp.bfloat16


def test_renaming_makes_room_in_another_model():
    a, b = functional(), functional()
    for layer in b.layers:
        layer.name += "_b"
    joined = exburn.Model([a.input, b.input], [a.output, b.output])
    assert joined.output_names == ["out", "out_b"]


def test_a_loss_may_be_kept_in_the_model_and_is_that_of_compile_after_it():
    class Own(exburn.Model):
        def __init__(self):
            super().__init__()
            self.loss = exburn.losses.MeanAbsoluteError()
            self.out = layers.Dense(1)

        def call(self, x):
            return self.out(x)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            return self.loss(y, y_pred)

    model = Own()
    model.compile("sgd")
    wanted = np.abs(model.predict(X, verbose=0) - Y).mean()
    assert model.evaluate(X, Y, verbose=0) == pytest.approx(wanted, rel=1e-5)
    plain = stacked()
    plain.compile("sgd", "mse")
    with pytest.warns(UserWarning, match="loss it was compiled with") as seen:
        plain.loss = "mae"
    assert plain.loss == "mae" and seen[0].filename == __file__


def test_a_model_of_a_fixed_batch_takes_other_numbers_of_rows():
    inputs = exburn.Input((4,), batch_size=16)
    model = exburn.Model(inputs, layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    np.testing.assert_allclose(model(X[:5]), model.predict(X[:5], verbose=0), 1e-5)
    model.train_on_batch(X[:3], Y[:3])
    with pytest.raises(ShapeError, match="received float32"):
        model(X[:5, :3])


def dropping(kind, package):
    """A model that drops out whatever it is told."""
    drop = package.layers.Dropout(0.25)
    if kind == "functional":
        inputs = package.Input((4,))
        return package.Model(inputs, drop(inputs, training=True))

    class Dropping(package.Model):
        def __init__(self):
            super().__init__()
            self.drop = drop

        def call(self, x):
            return self.drop(x, training=True)

    return Dropping()


@pytest.mark.parametrize("kind", ["functional", "subclass"])
@pytest.mark.parametrize("name", ["exburn", "keras"])
def test_dropout_told_to_train_at_inference(name, kind):
    """What docs/from_keras/ says of both."""
    x = np.random.default_rng(0).random((8, 4), "float32")
    model = dropping(kind, pytest.importorskip(name))
    model.compile("sgd", "mse")
    first, second = (np.asarray(model.predict(x, verbose=0)) for _ in range(2))
    losses = {float(model.evaluate(x, x, verbose=0)) for _ in range(3)}
    off = name == "keras" and kind == "functional"
    assert np.array_equal(first, x) == off
    assert np.array_equal(first, second) == off
    assert (losses == {0.0}) == off
    assert len(losses) == (1 if off or name == "exburn" else 3)
    assert not np.array_equal(model(x), x)
