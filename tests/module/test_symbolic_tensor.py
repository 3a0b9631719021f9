"""``KerasTensor`` by hand, and what layers say of shapes and masks without data."""

import keras as peer
import numpy as np
import pytest

import exburn as keras
from exburn import layers
from exburn.errors import ArgumentError, DTypeError


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


@pytest.mark.long
def test_a_function_on_symbols_may_draw():
    seed, x = keras.random.SeedGenerator(3), layers.Input((3,))
    for given in (None, seed):

        def noisy(value, given=given):
            return value + keras.random.normal(keras.ops.shape(value), seed=given)

        model = keras.Model(x, keras.fn(noisy)(x))
        first = model.predict(np.zeros((2, 3)), verbose=0)
        assert first.shape == (2, 3)
        assert first.any()
