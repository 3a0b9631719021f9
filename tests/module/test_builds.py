"""``build`` by hand, ``path`` and ``stateless_call``, as Keras code uses them."""

import numpy as np
import pytest
from tests.module.parts import OUTPUTS, WEIGHTS, Block, Half, Parts, X

import exburn as keras
from exburn import errors, layers
from exburn.saving import load_model


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
