"""Classes that tell the shapes of their outputs: symbols ask those, as Keras' do."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ShapeError

X = np.arange(24, dtype="float32").reshape(4, 6)


class Halves(layers.Layer):
    """Counts its calls, and computes with arrays only."""

    calls = 0

    def build(self, input_shape):
        self.scale = self.add_weight((input_shape[-1],), "ones")

    def call(self, x):
        Halves.calls += 1
        assert isinstance(x.shape[0], int), "no symbol"
        return (x * self.scale).reshape(x.shape[0], 2, -1)

    def compute_output_shape(self, input_shape):
        return [input_shape[0], 2, np.int64(input_shape[1] // 2)]


class Twice(layers.Layer):
    """Two outputs, of a layer inside that its first call builds."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = layers.Dense(3)

    def call(self, x):
        return {"a": self.inner(x), "b": x}

    def compute_output_shape(self, input_shape):
        return {"a": (*input_shape[:-1], 3), "b": input_shape}


class Wider(layers.Dense):
    def compute_output_shape(self, input_shape):
        return super().compute_output_shape(input_shape)


def test_a_call_does_not_run_on_symbols():
    before = Halves.calls
    x = exburn.Input((6,))
    y = Halves(name="halves")(x)
    assert y.shape == (None, 2, 3) and Halves.calls == before
    model = exburn.Model(x, layers.Flatten()(y))
    np.testing.assert_array_equal(model.predict(X, verbose=0), X)
    model.compile("sgd", "mse")
    assert np.isfinite(model.fit(X, X, verbose=0).history["loss"]).all()


def test_files_and_copies(tmp_path):
    x = exburn.Input((6,))
    model = exburn.Model(x, Halves()(x))
    model.save(tmp_path / "model.exburn")
    loaded = exburn.load_model(tmp_path / "model.exburn", {"Halves": Halves})
    for one in (loaded, model.clone()):
        assert one.predict(X, verbose=0).shape == (4, 2, 3)


def test_layers_inside_and_nested_outputs():
    x = exburn.Input((6,))
    y = Twice()(x)
    assert y["a"].shape == (None, 3) and y["b"].shape == (None, 6)
    model = exburn.Model(x, y)
    assert len(model.weights) == 2
    assert model.predict(X, verbose=0)["a"].shape == (4, 3)


def test_a_class_may_ask_the_one_above():
    assert Wider(5)(exburn.Input((6,))).shape == (None, 5)
    assert Wider(5).compute_output_shape((None, 6)) == (None, 5)


def test_masks_go_on():
    class Keeps(layers.Layer):
        supports_masking = True

        def call(self, x):
            return x + 1

        def compute_output_shape(self, input_shape):
            return input_shape

    words = exburn.Input((None,), dtype="int32")
    y = layers.LSTM(2)(Keeps()(layers.Embedding(5, 3, mask_zero=True)(words)))
    model = exburn.Model(words, y)
    rows = np.array([[1, 2, 0, 0], [3, 0, 0, 0]])
    np.testing.assert_allclose(
        model.predict(rows, verbose=0)[1],
        model.predict(rows[1:, :1], verbose=0)[0],
        rtol=1e-6,
    )


def test_what_is_no_shape_is_refused():
    class Odd(Halves):
        def compute_output_shape(self, input_shape):
            return "wide"

    with pytest.raises(ShapeError, match=r"must return shapes, and returned 'wide'"):
        Odd()(exburn.Input((6,)))
