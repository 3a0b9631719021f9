"""Weights of Keras' own files: the same model there and here predicts the same."""

import keras
import numpy as np
import pytest

import exburn
from exburn import layers as exburn_layers
from exburn.errors import FileFormatError

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras


def stack(k, shape, *layers):
    return k.Sequential([k.Input(shape), *layers])


def dense(k, L):
    return stack(
        k,
        (8,),
        L.Dense(4, name="foo"),
        L.BatchNormalization(),
        L.Dropout(0.2),
        L.PReLU(),
        L.Dense(3),
    )


def recurrent(k, L):
    i = k.Input((5, 6))
    x = L.Bidirectional(L.LSTM(4, return_sequences=True))(i)
    x = L.MultiHeadAttention(2, 3)(x, x)
    x = L.GRU(3)(x)
    return k.Model(i, L.Dense(2, name="a")(L.Dense(2, name="z")(x)))


def nested(k, L):
    inner = stack(k, (4,), L.Dense(5), L.Dense(4))
    i = k.Input((4,))
    other = k.Model(i, L.LayerNormalization()(L.Dense(3)(i)))
    i = k.Input((4,))
    return k.Model(i, other(inner(inner(i))))


def subclass(k, L):
    class Net(k.Model):
        def __init__(self):
            super().__init__()
            self.many = [L.Dense(3), L.Dense(4)]
            self.before = L.Dense(2)
            self.dict = {"x": L.Dense(2)}
            self.rnn = L.RNN([L.LSTMCell(3), L.GRUCell(2)])
            self.z = L.Dense(2)

        def call(self, x):
            x = self.before(self.many[1](self.many[0](x)))
            return self.z(self.rnn(self.dict["x"](x)[:, None]))

    net = Net()
    net(np.ones((2, 4), np.float32))
    return net


def convolutions(k, L):
    return stack(
        k,
        (8, 8, 3),
        L.Conv2D(4, 3),
        L.SeparableConv2D(3, 3),
        L.DepthwiseConv2D(2),
        L.Conv2DTranspose(2, 2),
        L.GroupNormalization(1),
        L.Flatten(),
        L.Dense(2),
    )


def embedding(k, L):
    i = k.Input((5,))
    x = L.TimeDistributed(L.Dense(4))(L.Embedding(10, 4)(i))
    return k.Model(i, L.GroupQueryAttention(4, 2, 1)(x, x))


def branches(k, L):
    """Layers of one class, made in another order than they are called in."""
    i = k.Input((4,))
    b, a = L.Dense(4)(i), L.Dense(4)(i)
    c = L.Dense(4)(L.Dense(4)(b))
    x = L.Dense(4)(k.ops.tanh(L.Add()([a, c])) * 2)
    return k.Model(i, [L.Concatenate()([x, L.Dense(4)(a)]), L.Dense(1)(b)])


MODELS = {
    f.__name__: f
    for f in (dense, recurrent, nested, subclass, convolutions, embedding, branches)
}


def pair(make):
    """The model in Keras, with weights of its own, and in ExBurn."""
    theirs, ours = make(keras, keras.layers), make(exburn, exburn_layers)
    rng = np.random.default_rng(0)
    fresh = [
        w if "uint" in str(w.dtype) else rng.random(w.shape).astype(w.dtype)
        for w in theirs.get_weights()
    ]
    theirs.set_weights(fresh)
    return theirs, ours


@pytest.mark.parametrize(
    "name",
    MODELS,
)
def test_weights_of_keras_predict_the_same(name, tmp_path):
    theirs, ours = pair(MODELS[name])
    shape = theirs.input_shape[1:] if name != "subclass" else (4,)
    x = np.random.default_rng(1).integers(0, 10, (3, *shape))
    x = x if name == "embedding" else (x / 10).astype(np.float32)
    expected = theirs.predict(x, verbose=0)
    empty = ours.get_weights()
    for path in (tmp_path / "m.weights.h5", tmp_path / "m.keras"):
        theirs.save_weights(path) if path.suffix == ".h5" else theirs.save(path)
        ours.set_weights(empty)
        report = ours.load_weights(path)
        assert report.complete, report
        outputs = ours.predict(x, verbose=0)
        for a, b in zip(listed(expected), listed(outputs), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5)


def listed(value):
    return value if isinstance(value, list | tuple) else [value]


def test_weights_of_a_trained_model_and_of_another_dtype(tmp_path):
    theirs, ours = pair(dense)
    theirs.compile("adam", "mse")
    theirs.fit(np.ones((4, 8)), np.ones((4, 3)), verbose=0)
    theirs.save_weights(tmp_path / "m.weights.h5")
    assert ours.load_weights(tmp_path / "m.weights.h5").complete
    half = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(2, dtype="bfloat16")]
    )
    half.save_weights(tmp_path / "h.weights.h5")
    ours = exburn.Sequential([exburn.Input((4,)), exburn_layers.Dense(2)])
    ours.load_weights(tmp_path / "h.weights.h5")
    np.testing.assert_array_equal(
        ours.get_weights()[0], np.asarray(half.get_weights()[0], np.float32)
    )


def test_the_report_names_what_is_not_there(tmp_path):
    theirs, _ = pair(dense)
    theirs.save_weights(tmp_path / "m.weights.h5")
    ours = stack(exburn, (8,), exburn_layers.Dense(4), exburn_layers.Dense(7))
    with pytest.raises(FileFormatError, match="another model"):
        ours.load_weights(tmp_path / "m.weights.h5")
    report = ours.load_weights(tmp_path / "m.weights.h5", skip_mismatch=True)
    assert report.loaded == ["dense/kernel", "dense/bias"]
    assert report.mismatched["dense_1/bias"] == ((7,), (3,))
    assert "layers/batch_normalization/vars/0" in report.unexpected
