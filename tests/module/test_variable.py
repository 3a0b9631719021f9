"""``exburn.Variable`` makes weights as ``keras.Variable`` does."""

import copy

import numpy as np
import pytest

import exburn as keras
from exburn import layers
from exburn.errors import ArgumentError, DTypeError, ShapeError
from exburn.module import traversal

MADE = {
    "array": ((np.ones((2, 3)),), {}, (2, 3), "float32"),
    "name": (("ones",), {"shape": (2, 3)}, (2, 3), "float32"),
    "one size": (("ones",), {"shape": 3}, (3,), "float32"),
    "initializer": (
        (keras.initializers.Ones(),),
        {"shape": (4,), "dtype": "float16"},
        (4,),
        "float16",
    ),
    "function": ((lambda s, dtype: np.ones(s, dtype),), {"shape": ()}, (), "float32"),
    "float": ((1.0,), {}, (), "float32"),
    "list": (([1, 1],), {"shape": (2,)}, (2,), "int32"),
    "truth": ((True,), {}, (), "bool"),
    "variable": ((keras.Variable([1.0]),), {"dtype": "int8"}, (1,), "int8"),
}


@pytest.mark.parametrize("args, options, shape, dtype", MADE.values(), ids=MADE)
@pytest.mark.parametrize("trainable", [True, False])
def test_a_variable_is_what_was_asked_for(args, options, shape, dtype, trainable):
    made = keras.Variable(*args, **options, trainable=trainable, name="made")
    assert (made.shape, made.dtype, made.ndim) == (shape, dtype, len(shape))
    assert (made.name, made.path, made.trainable) == ("made", "made", trainable)
    assert isinstance(made, keras.Variable)
    np.testing.assert_array_equal(made.numpy(), np.ones(shape))


def test_a_variable_keeps_no_hold_of_the_array():
    array = np.ones(3, np.float32)
    made = keras.Variable(array)
    array[:] = 5
    np.testing.assert_array_equal(made.numpy(), np.ones(3))
    made.assign_add(array).assign_sub([1.0, 1.0, 1.0])
    np.testing.assert_array_equal(made.value, 5 * np.ones(3))


def test_unseeded_values_follow_the_seed_of_the_process():
    def draw():
        keras.set_random_seed(3)
        return keras.Variable("glorot_uniform", shape=(4, 4)).numpy()

    first = draw()
    np.testing.assert_array_equal(first, draw())
    again = keras.Variable("glorot_uniform", shape=(4, 4)).numpy()
    assert np.abs(again - first).max() > 0


@pytest.mark.parametrize(
    "args, options, error",
    [
        (("zeros",), {}, ArgumentError),
        (("zeros",), {"shape": (None, 2)}, ArgumentError),
        ((np.ones(2),), {"name": "a/b"}, ArgumentError),
        ((np.ones(2),), {"shape": (3,)}, ShapeError),
        ((np.ones(2),), {"dtype": "float3"}, DTypeError),
    ],
)
def test_what_makes_no_variable_is_told(args, options, error):
    with pytest.raises(error):
        keras.Variable(*args, **options)
    with pytest.raises(ArgumentError, match="Derive from"):
        type("Mine", (keras.Variable,), {})


class Scaled(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.kernel = keras.Variable("zeros", shape=(4, 1), name="w")
        self.scale = keras.Variable([2.0])
        self.calls = keras.Variable(0, trainable=False, dtype="int32")

    def call(self, x):
        self.calls.assign_add(1)
        return keras.ops.matmul(x, self.kernel) * self.scale


def test_variables_of_a_layer_are_trained_counted_and_frozen():
    model = keras.Sequential([keras.Input((4,)), Scaled()])
    layer = model.layers[0]
    assert [w.name for w in model.trainable_weights] == ["w", "variable"]
    layer.scale.trainable = False
    assert not layer.scale.trainable and len(model.trainable_weights) == 1
    model.compile("sgd", "mse")
    model.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=4, epochs=2, verbose=0)
    assert layer.calls.numpy() == 4 and layer.scale.numpy() == 2
    assert np.all(layer.kernel.numpy() > 0)
    with pytest.raises(ArgumentError, match="never trained"):
        layer.calls.trainable = True


def test_states_are_variables_and_no_weights(tmp_path):
    """Keras' recipe: train a stateful model, use it with another batch size."""

    def stateful(rows):
        model = keras.Sequential(
            [keras.Input(batch_shape=(rows, 3, 2)), keras.layers.GRU(2, stateful=True)]
        )
        model(np.ones((rows, 3, 2)))
        return model

    trained, single = stateful(4), stateful(1)
    assert len(trained.weights) == 3 and len(trained.variables) == 4
    assert trained.count_params() == 36 and len(trained.non_trainable_variables) == 1
    single.set_weights(trained.get_weights())
    for save in (trained.save_weights, trained.save):
        save(tmp_path / "m.safetensors")
        other = stateful(1)
        other.load_weights(tmp_path / "m.safetensors")
        for mine, theirs in zip(other.get_weights(), single.get_weights(), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    again = keras.load_model(tmp_path / "m.safetensors")
    state = trained.layers[0].states[0].numpy()
    np.testing.assert_array_equal(again.layers[0].states[0].numpy(), state)
    assert state.shape == (4, 2) and state.all()


def test_variables_are_compared_as_arrays():
    v = keras.Variable(np.array([1.0, 2.0, 3.0], np.float32))
    n = keras.Variable(2, dtype="int32", trainable=False)
    assert (v > 2).tolist() == (2 < v).tolist() == [False, False, True]
    assert (v < n).tolist() == [True, False, False]
    assert (v >= 2).tolist() == [False, True, True]
    assert (v <= 2).tolist() == [True, True, False]
    assert (v != 2).tolist() == [True, False, True]
    assert n > 1 and not n > 2 and n != 3


def test_a_layer_counts_its_calls():
    class Warm(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.step = self.add_weight((), "zeros", "int32", trainable=False)

        def call(self, x, training=False):
            if training:
                self.step.assign(self.step + 1)
            return keras.ops.where(self.step > 2, x, 0 * x)

    layer = Warm()
    model = keras.Sequential([keras.Input((2,)), layer])
    model.compile("sgd", "mse")
    assert not model.predict(np.ones((2, 2)), verbose=0).any()
    model.fit(np.ones((8, 2)), np.ones((8, 2)), batch_size=2, verbose=0)
    assert model.predict(np.ones((2, 2)), verbose=0).all()


@pytest.mark.parametrize(
    ("given", "name"),
    [(int, "int32"), ("int", "int32"), (float, "float32"), ("float", "float32")],
)
def test_types_of_python_have_32_bits(given, name):  # and JAX warns of nothing
    ops, layer = keras.ops, keras.layers.Dense(2, dtype=given)
    assert layer.dtype == keras.Input((2,), dtype=given).dtype == name
    weight = layer.add_weight(shape=(2,), initializer="ones", dtype=given)
    made = [
        keras.Variable(1, dtype=given),
        keras.Variable("zeros", (2,), dtype=given),
        weight,
        keras.initializers.Ones()((2,), dtype=given),
        keras.metrics.Mean().add_variable((), "zeros", dtype=given),
        ops.cast([1.5], given),
        ops.convert_to_tensor([1], dtype=given),
        ops.zeros((2,), dtype=given),
        ops.full((2,), 1, dtype=given),
        ops.arange(3, dtype=given),
    ]
    assert {str(value.dtype) for value in made} == {name}


def test_what_keras_code_reads_of_a_variable():
    made = keras.backend.Variable([1.0], aggregation="sum", name="made")
    assert isinstance(made, keras.Variable) and keras.backend.Variable is keras.Variable
    assert (made.aggregation, made.synchronization) == ("sum", "auto")
    assert not made.overwrite_with_gradient
    assert layers.Dense(1).add_weight((2,)).aggregation == "none"
    with pytest.raises(DTypeError, match="no truth value"):
        bool(made)


READ = {
    "array": lambda kernel: kernel[...],
    "sum": lambda kernel: kernel + 0,
    "negative": lambda kernel: kernel * -1 * -1,
    "attribute": lambda kernel: kernel.T.T,
    "rows": lambda kernel: np.stack(list(kernel)),
}


@pytest.mark.parametrize("read", READ.values(), ids=READ)
def test_a_weight_of_a_layer_built_by_hand_is_read(read):
    layer = layers.Dense(2)
    layer.build((None, 3))
    assert layer.kernel.shape == (3, 2) and "float32" in repr(layer.kernel)
    assert traversal.is_abstract(layer.kernel)  # a model that gets it may name it anew
    np.testing.assert_array_equal(read(layer.kernel), layer.kernel.numpy())


def test_a_deep_copy_is_a_variable_of_its_own():
    made = keras.Variable([1.0, 2.0], name="made", trainable=False)
    made.regularizer = "l2"
    (other,) = copy.deepcopy([made])
    other.assign_add([1.0, 1.0])
    np.testing.assert_array_equal(other.numpy(), [2, 3])
    np.testing.assert_array_equal(made.numpy(), [1, 2])
    assert (other.name, other.path, other.trainable) == ("made", "made", False)
    assert type(other.regularizer) is type(made.regularizer)


def test_a_gradient_never_becomes_the_value():
    made = keras.Variable([1.0])
    with pytest.raises(ArgumentError, match="assign its value in call"):
        made.overwrite_with_gradient = True
    with pytest.raises(ArgumentError, match="overwrite_with_gradient"):
        layers.Dense(1).add_weight((2,), overwrite_with_gradient=True)
