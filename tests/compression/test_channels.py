"""Narrower models: units are followed through the graph, or the layer is named."""

import numpy as np
import pytest

import exburn
from exburn import ops
from exburn.errors import ArgumentError
from exburn.layers import (
    GRU,
    LSTM,
    RNN,
    Add,
    Attention,
    BatchNormalization,
    Bidirectional,
    Concatenate,
    Conv2D,
    Conv2DTranspose,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Embedding,
    Flatten,
    GlobalAveragePooling2D,
    GroupNormalization,
    GroupQueryAttention,
    GRUCell,
    Lambda,
    LayerNormalization,
    MaxPooling2D,
    MultiHeadAttention,
    Multiply,
    PositionEmbedding,
    PReLU,
    ReLU,
    Reshape,
    RMSNormalization,
    SeparableConv2D,
    SimpleRNN,
    Softmax,
    TimeDistributed,
)

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(3, 8, 8, 3)).astype(np.float32)


def draw(model):
    """Weights of which every one matters."""
    for weight in model.weights:
        value = RNG.normal(size=weight.shape)
        weight.assign(np.abs(value) + 0.5 if "variance" in weight.path else value)
    return model


def silence(model, gone):
    """Sets to zero what makes some units, by the layers' names, and their shifts."""
    for name, units in gone.items():
        layer = model.get_layer(name)
        for weight in layer.weights:
            label = weight.path.rpartition("/")[2]
            if label in ("depthwise_kernel", "moving_variance"):
                continue
            axis = -2 if isinstance(layer, DepthwiseConv2D | Conv2DTranspose) else -1
            value = np.moveaxis(
                weight.numpy().copy(), axis if weight.ndim > 1 else -1, 0
            )
            value[units] = 0
            weight.assign(np.moveaxis(value, 0, axis if weight.ndim > 1 else -1))


def same(one, other, x):
    outputs = [model.predict(x, verbose=0) for model in (one, other)]
    np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-5)


def shapes(model):
    return {weight.path: tuple(weight.shape) for weight in model.weights}


def residual():
    """Additions, a join, an operation, a product with gates, and depthwise layers."""
    image = exburn.Input((8, 8, 3))
    a = ReLU()(
        BatchNormalization(name="norm")(Conv2D(8, 3, padding="same", name="a")(image))
    )
    b = DepthwiseConv2D(3, padding="same", name="each")(
        Conv2D(8, 3, padding="same", name="b", use_bias=False)(a)
    )
    sum_ = PReLU(shared_axes=(1, 2), name="slopes")(Add()([a, b]))
    c = Conv2D(6, 1, activation="relu", name="c")(sum_)
    both = Concatenate()([sum_, c]) * 0.5
    gate = Dense(4, "relu", name="squeeze")(GlobalAveragePooling2D()(both))
    gate = Reshape((1, 1, 14))(Dense(14, name="excite")(gate))
    y = Multiply()([both, gate])
    y = SeparableConv2D(8, 3, strides=2, depth_multiplier=2, name="s")(y)
    y = Conv2DTranspose(4, 2, name="t")(MaxPooling2D(padding="same")(y))
    return draw(exburn.Model(image, Dense(5, "softmax", name="head")(Flatten()(y))))


def test_a_narrow_model_is_the_wide_one_without_its_silent_units():
    model = residual()
    half = [0, 2, 5, 7]
    gone = {"a": half, "norm": half, "b": half, "each": half, "c": [1, 3, 4]}
    gone |= {"excite": [*half, 9, 11, 12], "squeeze": [0, 3], "s": half, "t": [1, 2]}
    silence(model, gone)
    # Of `excite`, units are tied to those of `a`, `b` and `c`.
    made = exburn.prune(model, 0.5, pattern="channels", scope="layer")
    found = shapes(made)
    assert found["a/kernel"] == (3, 3, 3, 4) and found["b/kernel"] == (3, 3, 4, 4)
    assert found["c/kernel"] == (1, 1, 4, 3) and found["excite/kernel"] == (2, 7)
    assert found["s/pointwise_kernel"] == (1, 1, 14, 4)
    assert found["t/kernel"] == (2, 2, 2, 4) and found["head/kernel"][1] == 5
    same(made, model, IMAGES)
    config = made.get_layer("a").get_config()
    assert config["filters"] == 4 and made.get_layer("squeeze").units == 2


def test_channels_may_come_first_and_layers_may_be_called_again():
    image = exburn.Input((3, 8, 8))
    first = {"data_format": "channels_first"}
    y = BatchNormalization(axis=1, name="norm")(Conv2D(6, 3, name="a", **first)(image))
    y = MaxPooling2D(3, **first)(y)
    model = draw(exburn.Model(image, Dense(2, name="head")(Flatten(**first)(y))))
    gone = [1, 2, 4]
    silence(model, {"a": gone, "norm": gone})
    made = exburn.prune(model, 0.5, pattern="channels")
    x = np.moveaxis(IMAGES, -1, 1)
    assert shapes(made)["head/kernel"] == (12, 2)
    same(made, model, x)

    one, two = exburn.Input((4,)), exburn.Input((4,))
    shared, again = Dense(6, "relu", name="shared"), Dense(6, name="again")
    inner = exburn.Sequential([exburn.Input((6,)), again, ReLU()], name="inner")
    joined = Concatenate()([inner(shared(one)), inner(shared(two))])
    model = draw(exburn.Model([one, two], Dense(2, name="head")(joined)))
    silence(model, {"shared": [0, 1, 5]})
    silence(model.get_layer("inner"), {"again": [2, 3, 4]})
    made = exburn.prune(model, 0.5, pattern="channels", scope="layer")
    pair = [RNG.normal(size=(3, 4)).astype(np.float32) for _ in range(2)]
    assert shapes(made)["inner/again/kernel"] == (3, 3)
    assert shapes(made)["head/kernel"] == (6, 2)
    same(made, model, pair)


def test_the_scope_says_among_which_units_the_least_are():
    model = draw(exburn.Sequential([exburn.Input((4,)), Dense(8), Dense(8), Dense(2)]))
    kernels = [layer.kernel for layer in model.layers]
    size = np.array([1, 1, 1, 1, 1, 1, 0.1, 0.1])  # of the first layer two are small
    kernels[0].assign(np.ones((4, 8)) * size)
    kernels[1].assign(np.ones((8, 8)) * np.linspace(0.1, 1, 8))
    every = exburn.prune(model, 0.5, pattern="channels", scope="layer")
    assert [layer.units for layer in every.layers] == [4, 4, 2]
    among = exburn.prune(model, 0.5, pattern="channels")
    assert [layer.units for layer in among.layers] == [5, 3, 2]
    most = exburn.prune(model, 0.99, pattern="channels")
    assert [layer.units for layer in most.layers] == [1, 1, 2]
    some = exburn.prune(model, 0.5, pattern="channels", filters="dense_1")
    assert [layer.units for layer in some.layers] == [8, 4, 2]


def test_a_narrow_model_trains_saves_and_is_compiled_as_before(tmp_path):
    model = residual()
    model.compile(exburn.optimizers.Adam(0.01), "cross_entropy", metrics=["accuracy"])
    model.freeze("head")
    made = exburn.prune(model, 0.5, pattern="channels")
    assert made.optimizer is not model.optimizer and made.frozen_layers == ["head"]
    made.fit(IMAGES, np.arange(3), epochs=2, verbose=0)
    made.save(tmp_path / "narrow.exburn")
    loaded = exburn.load_model(tmp_path / "narrow.exburn")
    np.testing.assert_array_equal(loaded(IMAGES), made(IMAGES))
    assert made.count_params() < 0.5 * model.count_params()


@pytest.mark.parametrize(
    "name", ["VGG16", "ResNet50V2", "MobileNetV2", "MobileNetV3Small", "DenseNet121"]
)
def test_applications_become_narrower(name):
    maker = getattr(exburn.applications, name)
    model = maker(input_shape=(32, 32, 3), weights=None, classes=10)
    made = exburn.prune(model, 0.5, pattern="channels", scope="layer")
    assert made.predict(np.zeros((1, 32, 32, 3)), verbose=0).shape == (1, 10)
    assert made.count_params() < 0.35 * model.count_params()


def text_model():
    """Tokens in, attention of both kinds, recurrent layers of every kind."""
    tokens = exburn.Input((6,), dtype="int32")
    x = Embedding(12, 8, name="table")(tokens)
    x = x + PositionEmbedding(6, name="places")(x)
    x = x + MultiHeadAttention(4, 3, use_gate=True, name="heads")(x, x)
    x = x + Dense(8, name="down")(Dense(16, "relu", name="up")(x))
    x = x + GroupQueryAttention(4, 4, 2, name="grouped")(x, x, use_causal_mask=True)
    long = LSTM(6, return_sequences=True, return_state=True, name="long")
    steps, state, _ = long(x)
    last = GRU(6, name="last")(steps, initial_state=state)
    both = Bidirectional(SimpleRNN(4, return_sequences=True), name="both")(steps)
    each = TimeDistributed(Dense(4, "relu"), name="each")(both)
    sums = Bidirectional(LSTM(4), merge_mode="sum", name="sums")(each)
    found = Attention()([steps, steps])
    parts = [last, sums, found[:, -1], ops.mean(each, axis=1), Flatten()(both)]
    joined = ops.concatenate([Concatenate()(parts[:3]), *parts[3:]], -1)
    return draw(exburn.Model(tokens, Dense(3, name="head")(joined)))


TOKENS = RNG.integers(0, 12, (5, 6))


def silence_in(model, gone):
    """Sets to zero what lies along some units, by the weights' paths and their axis."""
    weights = {weight.path: weight for weight in model.weights}
    for (path, axis, copies), units in gone.items():
        value = np.moveaxis(weights[path].numpy().copy(), axis, 0)
        size = len(value) // copies
        value[[unit + size * copy for copy in range(copies) for unit in units]] = 0
        weights[path].assign(np.moveaxis(value, 0, axis))


def test_heads_and_states_that_are_silent_go():
    model = text_model()
    half = {"heads": [1, 2], "grouped": [1], "up": [0, 3, 5, 6, 9, 10, 12, 15]}
    gone = {("up/kernel", 1, 1): half["up"], ("up/bias", 0, 1): half["up"]}
    for name in ("heads", "grouped"):
        heads = half[name]
        gone[f"{name}/value/kernel", 1, 1] = gone[f"{name}/value/bias", 0, 1] = heads
    for cell, gates, units in (
        ("long/cell", 4, [0, 2, 5]),
        ("last/cell", 3, [0, 2, 5]),  # its first states are those of `long`
        ("both/forward_layer/cell", 1, [1, 3]),
        ("both/backward_layer/cell", 1, [0, 3]),
        ("sums/forward_layer/cell", 4, [1, 2]),
        ("sums/backward_layer/cell", 4, [1, 2]),
    ):
        for weight in ("kernel", "recurrent_kernel", "bias"):
            gone[f"{cell}/{weight}", -1, gates] = units
    gone["each/layer/kernel", 1, 1] = gone["each/layer/bias", 0, 1] = [0, 1]
    silence_in(model, gone)
    made = exburn.prune(model, 0.5, pattern="channels", scope="layer")
    found = shapes(made)
    assert found["table/embeddings"] == (12, 8)  # only where it is named
    assert found["heads/query/kernel"] == (8, 2, 3)
    assert found["heads/attention_output/kernel"] == (2, 3, 8)
    assert found["grouped/query/kernel"] == (8, 2, 4)
    assert found["grouped/key/kernel"] == (8, 1, 4)
    assert found["long/cell/recurrent_kernel"] == (3, 12)
    assert found["last/cell/bias"] == (2, 9)
    assert found["both/backward_layer/cell/kernel"] == (3, 2)
    assert found["each/layer/kernel"] == (4, 2)
    assert found["sums/forward_layer/cell/kernel"] == (2, 8)
    same(made, model, TOKENS)


def test_what_flows_along_a_residual_connection_goes_where_its_embedding_is_named():
    model = text_model()
    gone = {("table/embeddings", 1, 1): [1, 2, 4, 7]}
    for path in ("places/embeddings", "down/kernel", "down/bias"):
        gone[path, -1, 1] = [1, 2, 4, 7]
    for name in ("heads", "grouped"):
        for weight in ("kernel", "bias"):
            gone[f"{name}/attention_output/{weight}", -1, 1] = [1, 2, 4, 7]
    silence_in(model, gone)
    made = exburn.prune(model, 0.5, pattern="channels", filters=["table", "down"])
    found = shapes(made)
    assert found["table/embeddings"] == (12, 4) and found["places/embeddings"] == (6, 4)
    assert found["heads/query/kernel"] == (4, 4, 3) and found["up/kernel"] == (4, 16)
    assert found["grouped/attention_output/kernel"] == (4, 4, 4)
    assert found["long/cell/kernel"] == (4, 24)
    same(made, model, TOKENS)
    made.compile("adam", "cross_entropy")
    made.fit(TOKENS, np.zeros(5), epochs=1, verbose=0)


def _blocked(layer):
    x = exburn.Input(batch_shape=(2 if isinstance(layer, LSTM) else None, 6, 8))
    y = Dense(8, name="before")(x)
    if isinstance(layer, MultiHeadAttention):
        return exburn.Model(x, Dense(2, name="after")(layer(y, y)))
    return exburn.Model(x, Dense(2, name="after")(layer(y)))


class MeanOfHeads(MultiHeadAttention):
    def _compute_attention(self, query, key, value, *args, **kwargs):
        return value.mean(2, keepdims=True) + query, None


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (Lambda(lambda x: x[..., ::-1], name="turn"), "'turn' .Lambda."),
        (Softmax(name="share"), "'share' .Softmax."),
        (LayerNormalization(axis=(1, 2), name="norm"), "'norm' .*other axes"),
        (Reshape((8, 6), name="fold"), "'fold' .*moves units"),
        (Dropout(0.5, noise_shape=(None, 1, 8), name="drop"), "'drop' .*noise_shape"),
        (GroupNormalization(2, name="group"), "'group' .*is a layer that is not"),
        (lambda y: y[..., ::2], "'get_item' takes some of the units"),
        (lambda y: y[..., None, 0], "'get_item' takes some of the units"),
        (lambda y: ops.max(y, -1, keepdims=True), "'max' computes with all"),
        (lambda y: ops.sum(y) + y, "'sum' reduces all axes"),
        (LSTM(3, stateful=True, name="keep"), "'keep' .LSTM. carries its states"),
        (TimeDistributed(Softmax(), name="each"), "'each' .*around a Softmax"),
        (Bidirectional(RNN(GRUCell(3)), name="pair"), "'pair' .*around a RNN, which"),
        (MeanOfHeads(2, 4, name="own"), "'own' .*in a way of its own"),
        (
            lambda y: MultiHeadAttention(2, 4, key_norm=RMSNormalization(), name="h")(
                y, y
            ),
            "'h' .*normalizes the heads",
        ),
    ],
)
def test_a_layer_that_cannot_be_followed_is_named(layer, words):
    with pytest.raises(ArgumentError, match=f"units of 'before' .*{words}"):
        exburn.prune(_blocked(layer), 0.5, pattern="channels")


def test_the_hint_names_the_layers_that_can_be_followed():
    x = exburn.Input((6, 8))
    y = TimeDistributed(Dense(4, "softmax"), name="each")(x)
    model = exburn.Model(x, Dense(2, name="after")(Dense(6, name="wide")(y)))
    words = "of 'each/layer' .*: 'each/layer' .Dense.*filters=.'wide', 'after'. names"
    with pytest.raises(ArgumentError, match=f"(?s){words}"):
        exburn.prune(model, 0.5, pattern="channels")
    rest = ["wide", "after"]
    made = exburn.prune(model, 0.5, pattern="channels", filters=rest)
    assert made.get_layer("wide").units == 3 and made.get_layer("after").units == 2


def test_units_that_are_needed_stay():
    x = exburn.Input((8,))
    outputs = exburn.Model(x, Dense(4, "softmax")(x))
    added = exburn.Model(x, Dense(2)(Add()([x, Dense(8, name="added")(x)])))
    for model in (outputs, added):
        with pytest.raises(ArgumentError, match="no unit can go"):
            exburn.prune(model, 0.5, pattern="channels")

    class Own(exburn.Model):
        def __init__(self):
            super().__init__()
            self.inner = Dense(2)

        def call(self, x):
            return self.inner(x)

    own = Own()
    own(np.zeros((1, 3), np.float32))
    with pytest.raises(ArgumentError, match="Sequential or functional"):
        exburn.prune(own, 0.5, pattern="channels")
    masked = exburn.prune(_blocked(ReLU()))
    with pytest.raises(ArgumentError, match="strip"):
        exburn.prune(masked, 0.5, pattern="channels")
