"""What recurrent layers promise beyond Keras' behaviour."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.layers.check_layer import check_layer
from tests.layers.peer import close, data, run

from exburn import errors, layers
from exburn.core import forward_context
from exburn.module.layer import Layer
from exburn.module.symbolic_tensor import Symbol

X = data(4, 5, 3)
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 1, 0, 1], [0] * 5], bool)


def cells(dtype, **options):
    return [
        layers.LSTMCell(4, dtype=dtype, **options),
        layers.GRUCell(3, dtype=dtype, **options),
    ]


CONTRACT = {
    "LSTM": (lambda **k: layers.LSTM(5, return_state=True, **k), X, {}),
    "GRU": (
        lambda **k: layers.GRU(
            5, go_backwards=True, return_sequences=True, dropout=0.2, **k
        ),
        X,
        {"random": True, "free": (1,)},
    ),
    "RNN": (
        lambda dtype=None, **k: layers.RNN(
            cells(dtype, dropout=0.3, recurrent_dropout=0.3), dtype=dtype, **k
        ),
        X,
        {"random": True, "free": (1,)},
    ),
    "Bidirectional": (
        lambda dtype=None, **k: layers.Bidirectional(
            layers.SimpleRNN(3, dtype=dtype), dtype=dtype, **k
        ),
        X,
        {"free": (1,)},
    ),
    "TimeDistributed": (
        lambda dtype=None, **k: layers.TimeDistributed(
            layers.BatchNormalization(dtype=dtype), dtype=dtype, **k
        ),
        X,
        {"free": (1,), "mixes_rows": True},
    ),
    "ConvLSTM1D": (lambda **k: layers.ConvLSTM1D(2, 2, **k), data(4, 3, 4, 2), {}),
}


@pytest.mark.parametrize("name", CONTRACT)
def test_contract(name):
    make, x, options = CONTRACT[name]
    check_layer(make, x, **options)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_fused_gradient_is_that_of_the_plain_loop(dtype):
    options = {"return_sequences": True, "return_state": True, "dtype": dtype}
    fused = layers.LSTM(6, recurrent_dropout=0.2, seed=1, **options)
    plain = layers.LSTM(6, recurrent_dropout=0.2, seed=1, use_cudnn=False, **options)
    for layer in (fused, plain):
        layer(X)
    plain.set_weights(fused.get_weights())
    results = [
        run(layer, (X,), {"mask": MASK}, training=True) for layer in (fused, plain)
    ]
    for a, b in zip(*results, strict=True):
        a, b = jax.tree.map(lambda v: v.astype("float32"), (a, b))
        close(a, b, 1e-5 if dtype == "float32" else 0.05)


def test_plain_loop_has_a_forward_derivative():
    layer = layers.LSTM(3, use_cudnn=False)
    layer(X)
    value, tangent = jax.jvp(layer, (jnp.asarray(X),), (jnp.ones(X.shape),))
    step = 1e-2
    numeric = (layer(X + step) - layer(X - step)) / (2 * step)
    np.testing.assert_allclose(tangent, numeric, rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(value, layer(X), rtol=1e-6, atol=1e-7)


def test_gradients_of_gradients():
    layer = layers.GRU(3)
    layer(X)
    once = jax.grad(lambda x: layer(x).sum())
    twice = jax.jit(jax.grad(lambda x: (once(x) ** 2).sum()))(X)
    assert np.isfinite(twice).all()
    assert np.abs(twice).max() > 0


@pytest.mark.parametrize("kind", ["LSTM", "ConvLSTM1D"])
def test_masked_steps_are_as_if_absent(kind):
    x = X if kind == "LSTM" else data(4, 5, 6, 2)
    sizes = (4,) if kind == "LSTM" else (2, 3)
    layer = getattr(layers, kind)(*sizes, return_sequences=True, return_state=True)
    short = layer(x[:, :2])
    mask = np.arange(5)[None].repeat(4, 0) < 2
    wild = np.where(mask.reshape(4, 5, *(1,) * (x.ndim - 2)), x, 1e4)
    long = layer(wild, mask=mask)
    np.testing.assert_allclose(long[0][:, :2], short[0], rtol=1e-5, atol=1e-6)
    for t in (2, 3, 4):  # masked steps repeat the last output
        np.testing.assert_allclose(long[0][:, t], short[0][:, 1], rtol=1e-5, atol=1e-6)
    close(long[1:], short[1:], 1e-5)


def test_zero_output_for_mask():
    layer = layers.LSTM(4, return_sequences=True, zero_output_for_mask=True)
    y = np.array(layer(X, mask=MASK))
    assert (y[~MASK] == 0).all()
    assert (y[MASK] != 0).all()
    last = layers.LSTM(4, zero_output_for_mask=True)
    y = np.array(last(X, mask=MASK))
    assert [bool(row.any()) for row in y] == [True, False, True, False]


def test_masks_of_the_input_hold_and_are_passed_on():
    class Seen(Layer):
        def call(self, x, mask=None):
            return x if mask is None else x * 0 + mask.sum(axis=1)[:, None, None]

    ids = np.array([[3, 1, 0, 0], [2, 0, 0, 0]])
    embed = layers.Embedding(5, 3, mask_zero=True)
    lstm = layers.Bidirectional(layers.LSTM(2, return_sequences=True))
    with forward_context.forward(forward_context.Context()):
        y = lstm(embed(ids))
        assert np.array(Seen()(y))[:, 0, 0].tolist() == [2, 1]
        assert (np.array(y)[ids == 0] == 0).all()
        last = layers.GRU(2)(embed(ids))
        assert forward_context.current().mask_of(last) is None


def test_dropout_is_one_mask_a_sequence():
    layer = layers.SimpleRNN(
        4, activation=None, dropout=0.5, return_sequences=True, use_bias=False
    )
    ones = np.ones((8, 6, 16), "float32")
    layer(ones)
    layer.cell.recurrent_kernel.assign(np.zeros((4, 4)))
    y = layer(ones, training=True)
    np.testing.assert_allclose(y, np.array(y)[:, :1].repeat(6, 1), rtol=1e-5)
    assert np.abs(np.array(y)[0] - np.array(y)[1]).max() > 0.01
    np.testing.assert_array_equal(layer(ones), layer(ones))


def test_recurrent_dropout_keeps_the_mean():
    layer = layers.SimpleRNN(
        512,
        activation=None,
        recurrent_initializer="identity",
        recurrent_dropout=0.25,
    )
    x = np.ones((64, 2, 1), "float32")
    layer(x)
    layer.cell.kernel.assign(np.ones((1, 512)))
    y = np.array(layer(x, training=True))  # 1 + kept / 0.75
    assert set(np.round(np.unique(y), 3)) == {1.0, np.float32(2.333)}
    assert abs(y.mean() - 2) < 0.02


def test_stateful_ignores_padding_rows():
    layer = layers.LSTM(3, stateful=True)
    layer(X)
    layer.reset_state()
    rows = jnp.array([True, True, True, False])
    with forward_context.forward(forward_context.Context(row_mask=rows)):
        layer(X)
    assert np.array(layer.states[0].get_value())[3].tolist() == [0, 0, 0]
    assert np.array(layer.states[0].get_value())[:3].any(axis=1).all()


def test_states_of_a_stateful_layer_are_no_parameters():
    layer = layers.GRU(3, stateful=True)
    layer(X)
    assert len(layer.trainable_weights) == 3
    assert layer.non_trainable_weights == []  # as in Keras: variables, no weights
    assert [w.shape for w in layer.non_trainable_variables] == [(4, 3)]


class Plus(Layer):
    """A cell of a user's own, with a layer inside."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.state_size = units
        self.dense = layers.Dense(units)
        self.drop = layers.Dropout(0.5)

    def call(self, inputs, states, training=False):
        y = self.drop(self.dense(inputs), training=training) + states[0]
        return y, [y]


def test_own_cell():
    x = jnp.asarray(X)
    rnn = layers.RNN(Plus(4), return_sequences=True)
    y = rnn(x)
    kernel, bias = rnn.get_weights()
    np.testing.assert_allclose(y, np.cumsum(X @ kernel + bias, 1), rtol=1e-4, atol=1e-5)
    assert rnn(Symbol((None, None, 3), "float32")).shape == (None, None, 4)
    dropped = np.diff(np.array(rnn(x, training=True)), axis=1)
    assert ((np.abs(dropped) < 1e-6).all(axis=1)).any()  # the same units at all steps
    both = layers.Bidirectional(rnn)  # copies the cell, which is not registered
    assert both(x).shape == (4, 5, 8)


class Subclass(layers.LSTMCell):
    def call(self, inputs, states, training=False):
        y, states = super().call(inputs, states, training=training)
        return y * 2, states


def test_a_subclass_of_a_cell_that_changes_the_step_is_respected():
    own, plain = layers.RNN(Subclass(4)), layers.LSTM(4)
    own(X)
    plain(X)
    own.set_weights(plain.get_weights())
    np.testing.assert_allclose(own(X), 2 * plain(X), rtol=1e-5, atol=1e-6)


def test_layer_as_activation():
    layer = layers.SimpleRNN(4, activation=layers.PReLU(alpha_initializer="ones"))
    layer(X)
    assert len(layer.trainable_weights) == 4
    _, grads, _, _ = run(layer, (X,), {})
    assert all(np.abs(g).max() > 0 for g in grads)


def test_time_distributed_hides_padding_rows():
    layer = layers.TimeDistributed(layers.BatchNormalization())
    layer(X)
    rows = jnp.array([True, True, False, False])
    graph, state = nnx.split(layer)
    results = []
    for x in (X[:2], np.concatenate([X[:2], X[2:] * 100])):
        module = nnx.merge(graph, state, copy=True)
        with forward_context.forward(
            forward_context.Context(training=True, row_mask=rows[: len(x)])
        ):
            results.append(module(x)[:2])
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)


def test_weights_of_bidirectional():
    first = layers.Bidirectional(layers.GRU(3))
    first(X)
    second = layers.Bidirectional(layers.GRU(3), weights=first.get_weights())
    np.testing.assert_allclose(second(X), first(X), rtol=1e-6)


def test_forget_bias_starts_at_one():
    layer = layers.LSTM(2, bias_initializer="normal")
    layer(X)
    bias = layer.get_weights()[2]
    assert bias[2:4].tolist() == [1, 1]
    assert (np.abs(bias[[0, 1, 4, 5, 6, 7]]) < 0.5).all()


CONFIGS = [
    layers.RNN([layers.LSTMCell(3), layers.SimpleRNNCell(2, name="top")], unroll=2),
    layers.Bidirectional(layers.LSTM(3, unit_forget_bias=False), merge_mode=None),
    layers.Bidirectional(
        layers.GRU(3), backward_layer=layers.GRU(3, go_backwards=True)
    ),
    layers.ConvLSTM2D(2, 3, strides=2, data_format="channels_first", name="c"),
    layers.TimeDistributed(layers.Dense(2, kernel_regularizer="l2")),
]


@pytest.mark.parametrize("layer", CONFIGS, ids=lambda v: type(v).__name__)
def test_config(layer):
    config = layer.get_config()
    assert type(layer).from_config(config).get_config() == config


def test_what_is_set_on_a_cell_is_in_the_configuration():
    layer = layers.Bidirectional(layers.LSTM(3))
    layer.forward_layer.cell.dropout = 0.5
    layer.backward_layer.cell.activation = "relu"
    config = layer.get_config()
    again = layers.Bidirectional.from_config(config)
    assert again.get_config() == config
    parts = [getattr(again, f"{side}_layer") for side in ("forward", "backward")]
    assert [part.name for part in parts] == ["forward_lstm", "backward_lstm"]
    assert [part.cell.dropout for part in parts] == [0.5, 0.0]
    assert [part.get_config()["activation"] for part in parts] == ["tanh", "relu"]
    assert parts[0].recurrent_initializer is parts[0].cell.recurrent_initializer


def test_channels_first():
    x = data(2, 3, 5, 6, 4)
    last = layers.ConvLSTM2D(3, 2, return_sequences=True)
    first = layers.ConvLSTM2D(3, 2, return_sequences=True, data_format="channels_first")
    y = last(x)
    moved = np.moveaxis(x, -1, 2)
    first(moved)
    first.set_weights(last.get_weights())
    np.testing.assert_allclose(
        np.moveaxis(first(moved), 2, -1), y, rtol=1e-4, atol=1e-5
    )


ERRORS = {
    "units": (lambda: layers.LSTM(0), errors.ArgumentError, "units"),
    "dropout": (lambda: layers.GRU(2, dropout=1.0), errors.ArgumentError, "dropout"),
    "cell": (lambda: layers.RNN(layers.Dense(2)), errors.ArgumentError, "state_size"),
    "mode": (
        lambda: layers.Bidirectional(layers.GRU(2), "add"),
        errors.ArgumentError,
        "merge_mode",
    ),
    "same-way": (
        lambda: layers.Bidirectional(layers.GRU(2), backward_layer=layers.GRU(2)),
        errors.ArgumentError,
        "backwards",
    ),
    "rank": (lambda: layers.LSTM(2)(X[0]), errors.ShapeError, "rank 3"),
    "no-batch": (
        lambda: layers.LSTM(2, stateful=True)(Symbol((None, 5, 3), "float32")),
        errors.ArgumentError,
        "batch size",
    ),
    "features": (lambda: _built()(X[..., :2]), errors.ShapeError, "size 3"),
    "batch": (lambda: _stateful()(X[:2]), errors.ShapeError, "batches of 4"),
    "kernel": (
        lambda: layers.ConvLSTM1D(2, 9)(data(2, 3, 4, 2)),
        errors.ShapeError,
        "window",
    ),
    "no-time": (
        lambda: layers.TimeDistributed(layers.Dense(2))(X[0]),
        errors.ShapeError,
        "rank",
    ),
}


def _built():
    layer = layers.SimpleRNN(2)
    layer(X)
    return layer


def _stateful():
    layer = layers.SimpleRNN(2, stateful=True)
    layer(X)
    return layer


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    make, kind, words = ERRORS[case]
    with pytest.raises(kind, match=words):
        make()


def test_calls_outside_of_jit_compile_once():
    layer = layers.LSTM(3, return_sequences=True)
    layer(X, mask=MASK)
    traced = []

    def counted(x):
        traced.append(x)
        return jnp.tanh(x)

    layer.cell.activation = counted
    for scale in (1, 2, 3):
        layer(X * scale, mask=MASK)
    assert len(traced) == 2  # the candidate and the output, in one trace
