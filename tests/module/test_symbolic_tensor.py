"""``KerasTensor`` by hand, and what layers say of shapes and masks without data."""

import functools

import jax
import jax.numpy as jnp
import keras as peer
import numpy as np
import pytest

import exburn as keras
from exburn import layers
from exburn.errors import ArgumentError, DTypeError
from exburn.module.symbolic_tensor import Symbol


def test_a_tensor_is_made_of_its_shape():
    x = keras.KerasTensor((None, 3))
    assert (x.shape, x.dtype, x.ndim) == ((None, 3), "float32", 2)
    assert isinstance(x, keras.KerasTensor)
    assert layers.Dense(2)(x).shape == (None, 2)
    y = keras.KerasTensor(shape=[2, np.int64(3)], dtype="int32", name="ids")
    assert (y.shape, y.dtype, y.name) == ((2, 3), "int32", "ids")
    assert keras.ops.add(x, x).shape == (None, 3)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"shape": (2, -1)}, ArgumentError),
        ({"shape": (2, "3")}, ArgumentError),
        ({"shape": (2,), "sparse": True}, ArgumentError),
        ({"shape": (2,), "dtype": "text"}, DTypeError),
    ],
)
def test_what_is_no_tensor(arguments, error):
    with pytest.raises(error):
        keras.KerasTensor(**arguments)


def test_rescaling_by_channels_that_come_first():
    x = np.random.default_rng(0).random((2, 3, 4, 5)).astype("float32")
    peer.config.set_image_data_format("channels_first")
    keras.config.set_image_data_format("channels_first")
    try:
        layer = keras.layers.Rescaling([1.0, 2.0, 3.0], offset=[0.5, 1.0, 1.5])
        expected = x * np.array([1, 2, 3]).reshape(3, 1, 1) + [[[0.5]], [[1]], [[1.5]]]
        np.testing.assert_allclose(layer(x), expected, rtol=1e-6)
        theirs = peer.layers.Rescaling([1.0, 2.0, 3.0], offset=0.5)(x)
        ours = keras.layers.Rescaling([1.0, 2.0, 3.0], offset=0.5)(x)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    finally:
        peer.config.set_image_data_format("channels_last")
        keras.config.set_image_data_format("channels_last")


def test_adapt_takes_the_inputs_of_a_list_of_batches():
    x = np.random.default_rng(0).random((24, 3)).astype("float32")
    layer = keras.layers.Normalization()
    layer.adapt([(x[i : i + 8], np.zeros(8)) for i in range(0, 24, 8)])
    np.testing.assert_allclose(np.ravel(layer.mean), x.mean(0), rtol=1e-6)
    np.testing.assert_allclose(np.ravel(layer.variance), x.var(0), rtol=1e-5)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((None, 3), (2, None)),
        ((None, 3, 4), (2, 3, 4)),
        ((None, None, 8), (None, 16, 8)),
        ((None, None, 8), (16, 8)),
    ],
)
def test_an_unknown_size_is_the_one_that_it_meets(first, second):
    found = keras.KerasTensor(first) * keras.KerasTensor(second)
    expected = peer.KerasTensor(first) * peer.KerasTensor(second)
    assert found.shape == tuple(expected.shape)


def test_sizes_that_meet_are_compared_when_data_come():
    x, y = keras.Input((None, 8)), keras.Input((16, 8))
    model = keras.Model([x, y], keras.ops.maximum(x, y))
    ones = np.ones((2, 16, 8), "float32")
    assert model([ones, ones]).shape == (2, 16, 8)
    with pytest.raises(TypeError, match="incompatible shapes"):
        model([ones[:, 1:], ones])
    with pytest.raises(ValueError, match="do not fit together"):
        keras.ops.maximum(keras.KerasTensor((None, 3)), keras.KerasTensor((2, 4)))


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (layers.Add, (None, 16, 8)),
        (layers.Multiply, (None, 16, 8)),
        (layers.Concatenate, (None, 16, 16)),
    ],
)
def test_an_unknown_size_meets_a_known_one_in_a_layer(make, shape):
    x, y = keras.Input((None, 8)), keras.Input((16, 8))
    outputs = make()([x, y])
    assert outputs.shape == shape
    model = keras.Model([x, y], outputs)
    ones = np.ones((2, 16, 8), "float32")
    assert model.predict([ones, ones], verbose=0).shape == (2, *shape[1:])
    with pytest.raises(ValueError):
        model.predict([ones[:, 1:], ones], verbose=0)


def test_two_unknown_sizes_that_JAX_cannot_compare_meet_in_a_layer():
    """⌈n/2⌉ steps and ⌊n/2⌋, which are as many where n is even."""
    x = keras.Input((None, 8))
    strided = layers.Conv1D(8, 3, strides=2, padding="same")(x)
    pooled = layers.AveragePooling1D(2)(x)
    model = keras.Model(x, layers.Add()([strided, pooled]))
    assert model.predict(np.ones((2, 6, 8)), verbose=0).shape == (2, 3, 8)
    with pytest.raises(ValueError, match="do not broadcast"):
        model.predict(np.ones((2, 7, 8)), verbose=0)


def test_any_two_unknown_sizes_may_be_one():
    """The nodes and edges of a batch of graphs, say."""
    nodes, edges = keras.Input(batch_shape=(None, 8)), keras.Input((None, 8))
    flat = keras.ops.reshape(edges, (-1, 8))
    joined = layers.Concatenate()([nodes, flat])
    assert joined.shape == (None, 16)
    assert (nodes * flat).shape == (None, 8)
    model = keras.Model([nodes, edges], layers.Add()([layers.Dense(8)(nodes), flat]))
    given = [np.ones((2, 8), "float32"), np.ones((2, 1, 8), "float32")]
    assert model(given).shape == (2, 8)
    with pytest.raises(ValueError, match="do not broadcast"):
        model([given[0], np.ones((2, 3, 8), "float32")])
    with pytest.raises(ValueError, match="may differ on axis -1 only"):
        layers.Concatenate()([nodes, layers.Reshape((4, 2))(nodes)[:, :3]])


class Positions(layers.Layer):
    """A row of a table of 12 for each step, as many as there are."""

    def build(self, input_shape):
        self.table = self.add_weight(shape=(12, input_shape[-1]), name="table")

    def call(self, x):
        steps = keras.ops.shape(x)[1]
        rows = keras.ops.slice(self.table, (0, 0), (steps, x.shape[-1]))
        return keras.ops.broadcast_to(rows, keras.ops.shape(x))


def test_a_table_of_positions_takes_as_many_steps_as_it_has():
    x = keras.Input((None, 8))
    model = keras.Model(x, x + Positions()(x))
    assert model.predict(np.ones((2, 12, 8)), verbose=0).shape == (2, 12, 8)
    with pytest.raises(TypeError, match="slice_sizes"):
        model.predict(np.ones((2, 13, 8)), verbose=0)


def test_an_unknown_size_that_follows_an_input_is_its_size():
    """What is inferred by two sizes still fits what it came from."""
    x = keras.Input((None, 8))
    halved = layers.Conv1D(8, 3, strides=2, padding="same")(x)
    positions = Positions()(halved)
    assert positions.shape == halved.shape == (None, None, 8)
    model = keras.Model(x, layers.Add()([halved, positions]))
    assert model.predict(np.ones((2, 7, 8)), verbose=0).shape == (2, 4, 8)


def test_a_function_on_symbols_may_draw():
    seed, x = keras.random.SeedGenerator(3), layers.Input((3,))
    for given in (None, seed):

        def noisy(value, given=given):
            return value + keras.random.normal(keras.ops.shape(value), seed=given)

        model = keras.Model(x, keras.fn(noisy)(x))
        first = model.predict(np.zeros((2, 3)), verbose=0)
        assert first.shape == (2, 3)
        assert first.any()


A, B = (Symbol((None, 4), "float32", name=name) for name in "ab")
TRUE, FALSE = (Symbol((None, 4), "bool", name=name) for name in "tf")
N, M = (Symbol((None, 4), "int32", name=name) for name in "nm")


class Scale:
    def __call__(self, x):
        return x * 2


# What is written, and the name of its node, which is that of Keras' function.
NODES = {
    "A - B": (lambda: A - B, "subtract"),
    "1 - A": (lambda: 1 - A, "subtract"),
    "A + B": (lambda: A + B, "add"),
    "A * B": (lambda: A * B, "multiply"),
    "A / B": (lambda: A / B, "divide"),
    "1 / A": (lambda: 1 / A, "divide"),
    "A // B": (lambda: A // B, "floor_divide"),
    "A % B": (lambda: A % B, "mod"),
    "A ** 2": (lambda: A**2, "power"),
    "A @ w": (lambda: A @ np.ones((4, 2), "float32"), "matmul"),
    "-A": (lambda: -A, "negative"),
    "abs(A)": (lambda: abs(A), "absolute"),
    "A < B": (lambda: A < B, "less"),
    "A <= B": (lambda: A <= B, "less_equal"),
    "A > B": (lambda: A > B, "greater"),
    "A >= B": (lambda: A >= B, "greater_equal"),
    "A != B": (lambda: A != B, "not_equal"),
    "TRUE & FALSE": (lambda: TRUE & FALSE, "logical_and"),
    "TRUE | FALSE": (lambda: TRUE | FALSE, "logical_or"),
    "TRUE ^ True": (lambda: TRUE ^ True, "logical_xor"),
    "~TRUE": (lambda: ~TRUE, "logical_not"),
    "N & M": (lambda: N & M, "bitwise_and"),
    "1 | N": (lambda: 1 | N, "bitwise_or"),
    "A[:, 0]": (lambda: A[:, 0], "get_item"),
    "A.T": (lambda: A.T, "transpose"),
    "A.astype": (lambda: A.astype("int32"), "cast"),
    "jnp.divide": (lambda: jnp.divide(A, B), "divide"),
    "jnp.tanh": (lambda: jnp.tanh(A), "tanh"),
    "np.subtract": (lambda: np.subtract(A, B), "subtract"),
    "np.mod": (lambda: np.mod(A, B), "mod"),
    "jax.nn.relu": (lambda: jax.nn.relu(A), "relu"),
    "ops.divide": (lambda: keras.ops.divide(A, B), "divide"),
    "ops.true_divide": (lambda: keras.ops.true_divide(A, B), "true_divide"),
    "image": (
        lambda: keras.ops.image.rgb_to_grayscale(Symbol((None, 4, 4, 3), "float32")),
        "rgb_to_grayscale",
    ),
    "partial": (
        lambda: keras.fn(functools.partial(jnp.sum, axis=-1))(A),
        "sum",
    ),
    "object": (lambda: keras.fn(Scale())(A), "scale"),
    "lambda": (lambda: keras.fn(lambda x: x * 2)(A), "lambda"),
}


@pytest.mark.parametrize("written", NODES)
def test_a_node_has_the_name_of_its_function(written):
    make, name = NODES[written]
    result = make()
    assert result.call.callee.name == name
    assert all(v.call is None for v in jax.tree.leaves(result.call.args)
               if isinstance(v, Symbol))  # fmt: skip


def test_numbers_of_equal_functions_count_up_as_in_keras():
    x, y = keras.Input((4,)), keras.Input((4,))
    model = keras.Model([x, y], (x - y) / (x + y) / (x - y))
    names = [node.name for node in model.graph.nodes]
    assert names == ["subtract", "add", "divide", "subtract_1", "divide_1"]


def test_a_symbol_is_an_array_already():
    assert jnp.asarray(A) is A and jnp.asarray(A, jnp.float32) is A
    whole = jnp.asarray(A, dtype="int32")
    assert (whole.dtype, whole.call.callee.name) == ("int32", "cast")
    assert jnp.asarray([A, B]).shape == (2, None, 4)
