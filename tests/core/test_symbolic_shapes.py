"""Layers that compute with a size that is not known while shapes are inferred."""

import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import errors, layers

X = np.random.default_rng(0).standard_normal((24, 4)).astype(np.float32)
CALLS = {
    "its root": lambda x: x / np.sqrt(x.shape[0]),
    "its logarithm": lambda x: x + np.log(x.shape[0]),
    "a float": lambda x: x * float(x.shape[0]),
    "a loop": lambda x: jnp.stack([x[i] for i in range(x.shape[0])]),
    "zeros of NumPy": lambda x: x + np.zeros(x.shape, np.float32),
    "two halves": lambda x: jnp.concatenate(jnp.split(x, 2)),
    "rounded": lambda x: x[: round(x.shape[0] * 0.5) * 2],
    "even or odd": lambda x: x * 2 if x.shape[0] % 2 == 0 else x,
    "in two": lambda x: x.reshape(2, -1, 4).reshape(-1, 4),
}


def model(call, *first):
    class Sized(layers.Layer):
        def call(self, x):
            return call(x)

    made = exburn.Sequential([*first, layers.Dense(4), Sized()])
    made.compile("sgd", "mse")
    return made


@pytest.mark.parametrize("name", CALLS)
def test_they_build_train_and_predict(name):
    call = CALLS[name]
    made = model(call, *() if name == "a loop" else (exburn.Input((4,)),))
    made.fit(X, X, batch_size=8, verbose=0)
    made.summary(print_fn=lambda text: None)
    assert name == "a loop" or made.output_shape == (None, 4)
    hidden = made.layers[0](X)
    found = made.predict(X, batch_size=24, verbose=0)
    np.testing.assert_allclose(found, call(hidden), rtol=1e-5, atol=1e-6)


def holds_even(x):
    assert x.shape[0] % 2 == 0
    return x


def test_a_model_without_input_may_ask_for_even_batches():
    made = model(holds_even)
    made.fit(X, X, batch_size=8, verbose=0)
    with pytest.raises(AssertionError):
        made(X[:7])


@pytest.mark.parametrize("before", [np.sqrt, int, range, lambda n: n > 5])
@pytest.mark.parametrize(
    ("mistake", "error", "says"),
    [
        (lambda x: layers.Conv2D(2, 3)(x), errors.ShapeError, "rank 4"),
        (lambda x: x @ np.ones((5, 2)), TypeError, "contracting dimensions"),
    ],
)
def test_what_is_wrong_is_named_and_not_what_is_right(before, mistake, error, says):
    def call(x):
        before(x.shape[0])
        return mistake(x)

    with pytest.raises(error, match=says):
        model(call, exburn.Input((4,)))


def test_layers_inside_are_built_for_unknown_sizes():
    class Inner(layers.Layer):
        def build(self, input_shape):
            self.told = input_shape

        def call(self, x):
            return x

    class Positions(layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = Inner()
            self.part = exburn.Sequential([layers.Dense(3)])

        def call(self, x):
            places = jnp.arange(x.shape[1], dtype=x.dtype)
            return self.part(self.inner(x + places[:, None]))

    x = exburn.Input((None, 8))
    layer = Positions()
    made = exburn.Model(x, layer(x))
    assert layer.inner.told == layer.part.input_shape == (None, None, 8)
    assert made.predict(np.ones((2, 5, 8)), verbose=0).shape == (2, 5, 3)


def test_loops_over_sizes_are_short():
    turns = []

    def call(x):
        turns.append(x.shape[1])
        return sum(x[:, i] for i in range(x.shape[1]))

    model(call, exburn.Input((None, 4)))
    assert max(n for n in turns if isinstance(n, int)) < 100


def test_mistakes_keep_their_own_words(tmp_path):
    with pytest.raises(TypeError, match="frexp") as caught:
        model(lambda x: x * np.frexp(x.shape[0]).real, exburn.Input((4,)))
    assert "float32[None, 4]" in str(caught.value)
    made = model(CALLS["its root"], exburn.Input((4,)))
    pytest.importorskip("flatbuffers")
    with pytest.raises(errors.ArgumentError, match="unknown number of rows"):
        made.export(tmp_path / "model.stablehlo")
    made.export(tmp_path / "model.stablehlo", batch_size=8)
