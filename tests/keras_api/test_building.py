"""``build`` by hand, ``path`` and ``stateless_call``, as Keras code uses them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn as keras
from exburn import errors, layers
from exburn.saving import load_model

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
WEIGHTS = [np.full(2, 1.0), np.full((4, 3), 2.0), np.full(3, 3.0)]
OUTPUTS = X.sum(1, keepdims=True) * 2 + np.full(3, 3.0)


@keras.register
class Parts(layers.Layer):
    """Builds a layer in its ``build``, as Keras code does."""

    def build(self, input_shape):
        self.inner = layers.Dense(3)
        self.inner.build(input_shape)
        super().build(input_shape)
        self.gain = self.add_weight((2,), name="gain")

    def call(self, x):
        return self.inner(x) * self.gain[0]


class Model(keras.Model):
    """Calls ``super().build`` before its weights are there."""

    def __init__(self):
        super().__init__()
        self.inner = layers.Dense(3)

    def build(self, input_shape):
        super().build(input_shape)
        self.inner.build(input_shape)
        self.gain = self.add_weight((2,), name="gain")

    def call(self, x):
        return self.inner(x) * self.gain[0]


@pytest.mark.parametrize("make", [Parts, Model])
@pytest.mark.parametrize("first", [lambda m: m.build((None, 4)), lambda m: m(X)])
def test_weights_set_after_a_build_by_hand_stay(make, first):
    module = make()
    first(module)
    assert module.built and module.inner.built and module.count_params() == 17
    gain = module.gain
    module.set_weights(WEIGHTS)
    np.testing.assert_allclose(module(X), OUTPUTS, rtol=1e-5)
    assert module.gain is gain
    np.testing.assert_allclose(module.clone()(X), OUTPUTS, rtol=1e-5)


def test_a_model_built_by_hand_is_saved(tmp_path):
    model = Model()
    model.build((None, 4))
    model.set_weights(WEIGHTS)
    model.save(tmp_path / "m.exburn")
    again = load_model(tmp_path / "m.exburn", custom_objects={"Model": Model})
    np.testing.assert_allclose(again(X), OUTPUTS, rtol=1e-5)


def test_what_a_build_by_hand_was_changed_by_stays():
    layer = layers.Dense(64)
    layer.build((None, 64))
    layer.quantize("int8")
    layer(np.ones((1, 64), np.float32))
    assert layer.kernel.nbytes < 64 * 64 + 200
    half = Parts(dtype="bfloat16")
    half.build((None, 4))
    assert half.inner.kernel.dtype == "bfloat16"


class Block(layers.Layer):
    """No ``build``: its layers are known, their inputs are not."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first, self.second = layers.Dense(5), layers.Dense(3)

    def call(self, x):
        return self.second(self.first(x))


class Scaled(layers.Wrapper):
    """Needs the inner layer's weights in its ``build``, as Keras code does."""

    def build(self, input_shape):
        super().build(input_shape)
        self.gain = self.add_weight(self.layer.weights[0].shape[-1:], "ones")

    def call(self, x):
        return self.layer(x)


class ScaledSteps(layers.TimeDistributed):
    def build(self, input_shape):
        super().build(input_shape)
        self.gain = self.add_weight(self.layer.kernel.shape[-1:], "ones")


class Held(layers.Layer):
    """Builds layers in its ``build`` that have none of their own."""

    def build(self, input_shape):
        self.inner = layers.TimeDistributed(Block())
        self.inner.build(input_shape)
        self.drop = layers.Dropout(0.5)
        self.drop.build(input_shape)
        self.gain = self.add_weight(self.inner.layer.second.kernel.shape[-1:], "ones")

    def call(self, x):
        return self.inner(x) * self.gain


class Cell(layers.Layer):
    """A cell whose weights are in layers inside."""

    state_size = 2

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.enter, self.stay = layers.Dense(2), layers.Dense(2, use_bias=False)

    def call(self, x, states):
        h = self.enter(x) + self.stay(states[0])
        return h, [h]


class Half(Block):
    """Builds a part of itself, and leaves the layers to their first call."""

    def build(self, input_shape):
        self.gain = self.add_weight((3,), "ones")

    def call(self, x):
        return super().call(x) * self.gain


FIVE = [(4, 5), (5,), (5, 3), (3,)]  # weights of a Block
UNITS = [(4, 8), (2, 8), (8,)]  # of an LSTM
CELL = [(4, 2), (2,), (2, 2)]
STEPS = (None, 7, 4)


@pytest.mark.parametrize(
    ("make", "shape", "weights"),
    [
        (lambda: layers.TimeDistributed(layers.Dense(3)), STEPS, [(4, 3), (3,)]),
        (
            lambda: layers.TimeDistributed(layers.Embedding(9, 3)),
            (None, 7, 4),
            [(9, 3)],
        ),
        (lambda: layers.TimeDistributed(Block()), STEPS, FIVE),
        (lambda: layers.Bidirectional(layers.LSTM(2)), STEPS, UNITS * 2),
        (
            lambda: layers.TimeDistributed(layers.Bidirectional(layers.LSTM(2))),
            (None, 2, 7, 4),
            UNITS * 2,
        ),
        (lambda: layers.SpectralNormalization(layers.Dense(3)), STEPS, None),
        (lambda: layers.Wrapper(layers.Wrapper(Block())), STEPS, FIVE),
        (lambda: layers.Wrapper(keras.Sequential([Block()])), (None, 4), FIVE),
        (Block, STEPS, FIVE),
        (lambda: Scaled(Block()), STEPS, [(5,), *FIVE]),
        (lambda: ScaledSteps(layers.Dense(3)), STEPS, [(3,), (4, 3), (3,)]),
        (Held, STEPS, [*FIVE, (3,)]),
        (Half, STEPS, [*FIVE, (3,)]),
        (lambda: layers.RNN(Cell()), STEPS, CELL),
        (lambda: layers.RNN([Cell(), Cell()]), STEPS, [*CELL, (2, 2), (2,), (2, 2)]),
        (lambda: layers.Bidirectional(layers.RNN(Cell())), STEPS, CELL * 2),
    ],
)
def test_a_build_by_hand_makes_the_weights_a_call_makes(make, shape, weights):
    by_hand, by_call = make(), make()
    by_hand.build(shape)
    by_call(np.ones([n or 2 for n in shape], np.float32))
    shapes = [w.shape for w in by_call.weights]
    assert by_hand.built and [w.shape for w in by_hand.weights] == shapes
    assert weights is None or sorted(shapes) == sorted(weights)
    for a, b in zip(by_hand.get_weights(), by_call.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    symbolic = make()
    symbolic(keras.Input(shape[1:]))
    assert [w.shape for w in symbolic.weights] == shapes


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: layers.Dense(3), (4, 4)),
        (lambda: layers.BatchNormalization(), (4, 4)),
        (lambda: layers.Bidirectional(layers.LSTM(2)), (4, 7, 4)),
        (Half, (4, 7, 4)),
        (lambda: keras.Sequential([layers.Dense(3), Block()]), (4, 4)),
    ],
)
def test_a_traced_function_may_be_the_first_to_use_a_built_layer(make, shape):
    x = np.ones(shape, np.float32)
    by_call = make()
    expected = np.asarray(by_call(x))
    for transform in (jax.jit, jax.vmap, lambda f: jax.grad(lambda x: f(x).sum())):
        layer = make()
        layer.build(shape)
        transform(layer)(x[None] if transform is jax.vmap else x)
        assert [w.path for w in layer.weights] == [w.path for w in by_call.weights]
        np.testing.assert_array_equal(layer(x), expected)  # no tracer stayed in it
        layer.weights[0].assign(np.zeros(layer.weights[0].shape))
        unbuilt = make()
        with pytest.raises(errors.NotBuiltError, match=r"jax.vmap\n.*build\(shape\)"):
            transform(unbuilt)(x[None] if transform is jax.vmap else x)
        assert not unbuilt.built


def test_a_weight_that_a_traced_function_would_set_is_an_error():
    for layer, options in (
        (layers.BatchNormalization(), {"training": True}),
        (layers.GRU(2, stateful=True), {}),
        (layers.SpectralNormalization(layers.Dense(3)), {}),
    ):
        x = np.ones((4, 7, 4), np.float32)
        expected = np.asarray(layer(x))
        with pytest.raises(errors.ArgumentError, match="stateless_call"):
            jax.jit(lambda x, f=layer, o=options: f(x, **o))(x)
        if not getattr(layer, "stateful", False):
            np.testing.assert_array_equal(layer(x), expected)


def test_a_build_by_hand_that_cannot_be_leaves_the_layer_unbuilt():
    for layer, shapes, reason in (
        (layers.TimeDistributed(layers.Dense(3)), [(None, 4)], "rank >= 3"),
        (Block(), [], "shape of the input is needed"),
        (Block(), [None], "shape of the input is needed"),
    ):
        with pytest.raises(errors.ExBurnError, match=reason):
            layer.build(*shapes)
        assert not layer.built
    half = Half()
    with pytest.raises(ValueError):
        half.build((None, 7, None))  # the inputs of its layers are not known
    assert not half.built and not hasattr(half, "gain")
    dropout = layers.Dropout(0.5)
    dropout.build(None)  # nothing depends on it
    assert dropout.built


def test_a_build_that_fails_leaves_the_model_unbuilt():
    class Failing(Model):
        fails = True

        def build(self, input_shape):
            super().build(input_shape)
            if self.fails:
                raise ValueError("not yet")

    model = Failing()
    with pytest.raises(ValueError, match="not yet"):
        model.build((None, 4))
    assert not model.built and not hasattr(model, "gain")
    model.fails = False
    model.build((None, 4))
    assert model.count_params() == 17


def test_paths_are_those_of_the_outermost_model():
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(4)], name="inner")
    alone = layers.Dense(2, name="alone")
    assert (inner.layers[0].path, alone.path) == ("dense", "alone")
    model = keras.Sequential([keras.Input((4,)), inner, Parts(), alone], name="outer")
    paths = [layer.path for layer in (*model.layers, *inner.layers)]
    assert paths == ["inner", "parts", "alone", "inner/dense"]
    assert model.path == "outer" and model.layers[1].inner.path == "parts/inner"
    for layer in (*inner.layers, alone):
        assert layer.kernel.path == f"{layer.path}/kernel"
    assert [layer.path for layer in model.clone().layers] == paths[:3]


# ---------------------------------------------------------------------- stateless_call
def values(weights):
    return [w.get_value() for w in weights]


def test_a_stateless_call_of_a_layer_changes_nothing():
    layer = layers.BatchNormalization(gamma_regularizer="l2")
    layer(X)
    before = layer.get_weights()
    ones = jnp.ones(4)

    @jax.jit
    def run(learned, rest):
        return layer.stateless_call(learned, rest, X, training=True, return_losses=True)

    out, rest, losses = run([2 * ones, ones], [0 * ones, ones])
    np.testing.assert_allclose(out.mean(0), 1, atol=1e-5)
    np.testing.assert_allclose(rest[0], 0.01 * X.mean(0), rtol=1e-4)
    assert [float(v) for v in losses] == pytest.approx([0.01 * 4 * 4])
    for a, b in zip(layer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)
    same, _ = layer.stateless_call(
        layer.trainable_variables, values(layer.non_trainable_variables), X
    )
    np.testing.assert_array_equal(same, layer(X))


def test_gradients_of_a_layer_within_a_frozen_model():
    model = keras.Sequential([keras.Input((4,)), Parts()])
    (parts,) = model.layers
    model.trainable = False
    with pytest.raises(errors.ShapeError, match="must hold 0 arrays"):
        parts.stateless_call(values(parts.weights), [], X)
    model.trainable = True

    def loss(learned):
        return parts.stateless_call(learned, [], X)[0].sum()

    grads = jax.jit(jax.grad(loss))([jnp.asarray(w) for w in WEIGHTS])
    np.testing.assert_allclose(grads[0], [OUTPUTS.sum(), 0], rtol=1e-5)


def test_randomness_of_a_stateless_call_is_that_of_the_scope():
    layer = layers.Dropout(0.5)
    layer(X)
    rest, x = layer.non_trainable_variables, jnp.ones((50, 10))

    @jax.jit
    def run(key):
        with keras.key_scope(key):
            return layer.stateless_call([], rest, x, training=True)[0]

    first, again, other = (run(jax.random.key(n)) for n in (0, 0, 1))
    assert set(np.unique(first)) == {0.0, 2.0}
    assert (first == again).all() and (first != other).any()


def test_bad_stateless_calls():
    layer = layers.Dense(3)
    with pytest.raises(errors.NotBuiltError, match="stateless_call"):
        layer.stateless_call([], [], X)
    layer(X)
    kernel, bias = values(layer.weights)
    for learned, rest, reason in (
        ([kernel], [], "trainable_variables must hold 2 arrays, received 1"),
        ([kernel, bias], [bias], "non_trainable_variables must hold 0"),
        ([bias, kernel], [], r"kernel has shape \(4, 3\), received \(3,\)"),
    ):
        with pytest.raises(errors.ShapeError, match=reason):
            layer.stateless_call(learned, rest, X)


TRACES = {
    "scan": lambda f, x: jax.lax.scan(lambda c, t: (f(c) + t, None), x[0], x)[0],
    "fori_loop": lambda f, x: jax.lax.fori_loop(0, 2, lambda _, c: f(c), x)[0],
    "map": lambda f, x: jax.lax.map(f, x)[0],
    "cond": lambda f, x: jax.lax.cond(x.sum() > 0, f, lambda x: x, x)[0],
    "vmap": lambda f, x: jax.vmap(f)(x)[0],
    "checkpoint": lambda f, x: jax.checkpoint(f)(x)[0],
    "jit": lambda f, x: jax.jit(f)(x)[0],
    "grad": lambda f, x: jax.grad(lambda x: (f(x) ** 2).sum())(x)[0],
}


@pytest.mark.parametrize("name", TRACES)
def test_a_layer_may_be_met_first_within_a_trace(name):
    trace, nested = TRACES[name], name in ("scan", "vmap")

    class Inner(layers.Layer):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(4)

        def call(self, x):
            return self.dense(x)

    class Outer(layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = Inner() if nested else layers.Dense(4)

        def call(self, x):
            return trace(self.inner, jnp.swapaxes(x, 0, 1))

    first = [keras.Input((3, 4))] if name in ("scan", "grad") else []
    model = keras.Sequential([*first, Outer()])
    model.compile("sgd", "mse")
    x = np.stack([X, X, X], 1)
    model.fit(x, X, verbose=0)
    assert [w.shape for w in model.get_weights()] == [(4, 4), (4,)]
    dense = model.layers[0].inner.dense if nested else model.layers[0].inner
    expected = trace(lambda x: x @ dense.kernel + dense.bias, jnp.swapaxes(x, 0, 1))
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, rtol=1e-4)


def test_a_layer_made_within_a_trace_is_refused():
    class Makes(layers.Layer):
        def call(self, x):
            return jax.lax.map(lambda row: layers.Dense(2)(row[None]), x)

    with pytest.raises(errors.NotBuiltError, match="must be built before"):
        Makes()(X)
