"""What a layer is told when it is called: whether it is training, and the mask."""

import inspect

import jax
import keras as peer
import numpy as np
import pytest

import exburn
from exburn import layers as L
from exburn import ops

X = np.ones((2, 1), "float32")


class Doubling(L.Layer):
    """Twice its input in training, which it takes a call for."""

    def call(self, x, training=True):
        return x * (2.0 if training else 1.0)


class Plain(L.Layer):
    def call(self, x, training=None):
        return x * (2.0 if training else 1.0)


class Needing(L.Layer):
    def call(self, x, training):
        return x * (2.0 if training else 1.0) + (training is None)


class Around(exburn.Model):
    """Ten times what a layer makes of the input in training."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, x, training=None):
        return self.layer(x) * (10.0 if training else 1.0)


class AroundInTraining(Around):
    def call(self, x, training=True):
        return super().call(x, training)


class AroundInInference(Around):
    def call(self, x, training=False):
        return super().call(x, training)


def functional(layer):
    inputs = exburn.Input((1,))
    return exburn.Model(inputs, layer(inputs))


# ----------------------------------------------------------------- the training flag
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (Doubling, 2),
        (lambda: exburn.Sequential([Doubling()]), 2),
        (lambda: functional(Doubling()), 2),
        (lambda: L.TimeDistributed(Doubling()), 2),
        (lambda: Around(Doubling()), 2),
        (lambda: AroundInTraining(Plain()), 20),  # the inner layer is told
        (lambda: AroundInInference(Doubling()), 1),
        (Plain, 1),
        (Needing, 1),
        (lambda: Around(Plain()), 1),
        (lambda: functional(AroundInTraining(Plain())), 20),
    ],
)
def test_the_default_of_the_signature_is_what_no_caller_said(make, expected):
    x = X[:, None] if isinstance(layer := make(), L.TimeDistributed) else X
    assert float(np.ravel(layer(x))[0]) == expected
    assert float(np.ravel(layer(x, training=False))[0]) == 1


def test_what_one_layer_resolved_is_not_told_to_the_next():
    model = exburn.Sequential([AroundInInference(Plain()), Doubling()])
    assert float(np.ravel(model(X))[0]) == 2


@pytest.mark.parametrize("layer", [Doubling, Plain])
def test_fit_trains_and_predict_does_not_whatever_the_default(layer):
    model = AroundInTraining(layer())
    model.compile("sgd", "mse")
    assert model.fit(X, X, verbose=0).history["loss"] == [19.0**2]
    assert model.evaluate(X, X, verbose=0) == 0
    assert model.predict(X, verbose=0).tolist() == X.tolist()


def test_a_stateless_call_takes_the_default():
    layer = Doubling()
    layer(X)
    assert layer.stateless_call([], [], X)[0].tolist() == (2 * X).tolist()
    out, _ = layer.stateless_call([], [], X, training=False)
    assert out.tolist() == X.tolist()


# ------------------------------------------------------------------------- the mask
@exburn.register
class TemporalSoftmax(L.Layer):
    """Of Keras' guide to masking; it cannot be called without a mask."""

    supports_masking = True

    def call(self, inputs, mask=None):
        assert mask is not None
        weights = ops.exp(inputs) * ops.cast(mask, "float32")[..., None]
        return weights / ops.sum(weights, axis=1, keepdims=True)


class Masked(exburn.Model):
    def __init__(self):
        super().__init__()
        self.parts = [L.Embedding(10, 4, mask_zero=True), L.Dense(1), TemporalSoftmax()]

    def call(self, x):
        for part in self.parts:
            x = part(x)
        return x


def masked_graph():
    x = exburn.Input((None,), dtype="int32")
    h = L.Dense(1)(L.Embedding(10, 4, mask_zero=True)(x))
    return exburn.Model(x, TemporalSoftmax()(h))


def masked_stack():
    layers = [L.Embedding(10, 4, mask_zero=True), L.Dense(1), TemporalSoftmax()]
    return exburn.Sequential([exburn.Input((None,), dtype="int32"), *layers])


def masked_model_in_a_graph():
    x = exburn.Input((None,), dtype="int32")
    inner = exburn.Sequential([L.Embedding(10, 4, mask_zero=True), L.Dense(1)])
    return exburn.Model(x, TemporalSoftmax()(inner(x)))


@pytest.mark.parametrize(
    "make", [masked_graph, masked_stack, Masked, masked_model_in_a_graph]
)
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_layer_that_needs_its_mask_is_built(make, policy):
    exburn.config.set_dtype_policy(policy)
    try:
        model = make()
    finally:
        exburn.config.set_dtype_policy("float32")
    ids = np.array([[1, 2, 0], [3, 0, 0]])
    out = np.asarray(model(ids), np.float32)[..., 0]
    assert (out[ids == 0] == 0).all() and (out[ids != 0] > 0).all()
    np.testing.assert_allclose(model.predict(ids, verbose=0)[..., 0], out, rtol=1e-2)


def test_a_model_with_such_a_layer_is_saved_and_cloned(tmp_path):
    model, ids = masked_graph(), np.array([[1, 2, 0]])
    model.save(tmp_path / "m.exburn")
    for other in (exburn.load_model(tmp_path / "m.exburn"), model.clone()):
        np.testing.assert_array_equal(other(ids), model(ids))


def test_masks_reach_symbols_through_several_outputs():
    class Split(L.Layer):
        def call(self, x):
            return ops.split(x, 2, axis=1)

        def compute_mask(self, x, mask=None):
            return ops.split(mask, 2, axis=1)

    x = exburn.Input((4,), dtype="int32")
    _, second = Split()(L.Embedding(10, 1, mask_zero=True)(x))
    model = exburn.Model(x, TemporalSoftmax()(second))
    y = np.asarray(model(np.array([[1, 2, 3, 0]])))
    np.testing.assert_allclose(y, [[[1.0], [0.0]]], rtol=1e-6)


# ------------------------------------------------------------------------- masks
AFTER = {
    "LSTM": lambda L: [L.LSTM(3)],
    "dropout, GRU": lambda L: [L.Dropout(0.5), L.GRU(3, return_sequences=True)],
    "dense, pooling": lambda L: [L.Dense(2), L.GlobalAveragePooling1D()],
    "both ways": lambda L: [L.Bidirectional(L.SimpleRNN(2))],
    "sequential": lambda L: [L.Masking(), L.TimeDistributed(L.Dense(2)), L.LSTM(2)],
}


@pytest.mark.parametrize("name", AFTER)
def test_masks_go_with_arrays_from_layer_to_layer(name):
    ids = np.array([[1, 2, 0, 0], [3, 0, 0, 0], [1, 4, 2, 3]])
    results = []
    for keras in (exburn, peer):
        table = keras.layers.Embedding(5, 3, mask_zero=True)
        layers = [table, *AFTER[name](keras.layers)]
        rng, x = np.random.default_rng(0), ids
        for layer in layers:
            layer(x)
            layer.set_weights([rng.normal(size=tuple(w.shape)) for w in layer.weights])
            x = layer(x)
        results.append((x, getattr(x, "_keras_mask", None), table(ids)._keras_mask))
    (ours, *masks), (theirs, *expected) = results
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    for mask, other in zip(masks, expected, strict=True):
        assert (mask is None) == (other is None)
        assert mask is None or np.array_equal(mask, other)


def test_masks_hang_on_no_tracer():
    table, total = L.Embedding(5, 3, mask_zero=True), L.GlobalAveragePooling1D()
    ids = np.array([[1, 2, 0, 0]])
    expected = total(table(ids))
    mean = jax.jit(lambda ids: total(table(ids), mask=table.compute_mask(ids)))
    np.testing.assert_allclose(mean(ids), expected, rtol=1e-6)
    assert not hasattr(table(ids) * 1, "_keras_mask")


def test_the_first_argument_may_go_by_its_name():
    ids = np.array([[1, 2, 0, 0], [3, 0, 0, 0]])
    results = []
    for keras in (exburn, peer):
        x = keras.Input((4,), dtype="int32")
        table = keras.layers.Embedding(5, 3, "ones", mask_zero=True)
        h = keras.layers.Dense(2, None, False, "ones")(inputs=table(inputs=x))
        rnn = keras.layers.SimpleRNN(2, None, True, "ones", "ones")
        model = keras.Model(inputs=x, outputs=rnn(sequences=h))
        results += [model.predict(ids, verbose=0), model(inputs=ids)]
        config = model.get_config()
        again = keras.Model.from_config(config=config)
        assert again.count_params() == model.count_params()
    for result in results:
        np.testing.assert_allclose(result, results[-1], rtol=1e-5)
    image = np.ones((1, 4, 4, 2), np.float32)
    for layer in (L.Conv2D(2, 3), L.Conv2DTranspose(2, 3), L.SeparableConv2D(2, 3)):
        assert np.array_equal(layer(inputs=image), layer(image))


def test_a_layer_adds_two_frames_to_a_call_within_a_pass():
    names = []

    class Probe(L.Layer):
        def call(self, x):
            names.extend(frame.function for frame in inspect.stack(0))
            return x

    class Outer(L.Layer):
        def __init__(self):
            super().__init__()
            self.probe = Probe()

        def call(self, x):
            return self.probe(x)

    layer = Outer()
    layer.build((None, 1))
    names.clear()
    jax.jit(layer).trace(X)
    assert names[:4] == ["call", "call_arrays", "__call__", "call"]


def test_layers_and_optimizers_have_no_bases_of_their_own():
    for cls in (L.Layer, exburn.optimizers.Optimizer):
        own = [base for base in cls.__mro__ if base.__module__.startswith("exburn")]
        assert own == [cls]
