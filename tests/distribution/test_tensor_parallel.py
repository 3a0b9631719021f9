"""Ready layouts: what is divided, what is whole and why, and that results stay."""

import re

import jax
import numpy as np
import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn import layers
from exburn.distribution import DeviceMesh, tensor_parallel
from exburn.errors import LayoutError, NotBuiltError
from exburn.runtime.kernels import head_loss
from exburn.runtime.sharding.strategies import make_distribution

MESH = {"data": 2, "model": 4}


class Mesh(DeviceMesh):
    """A mesh of sizes alone."""

    def __init__(self, **sizes):
        self._shape, self._axis_names = tuple(sizes.values()), list(sizes)


def rules(model, parts=1):
    layout = tensor_parallel(model)
    layout = layout if parts == 1 else layout.with_mesh(Mesh(data=2, model=parts))
    return {path: layout[path].axes for path in layout}, layout.reason_of


def dense(*units, name=None, **options):
    return [
        layers.Dense(n, name=f"{name or 'dense'}{i}", **options)
        for i, n in enumerate(units)
    ]


UP, BIAS, DOWN = (None, "model"), ("model",), ("model", None)


def test_pairs_of_a_chain():
    first, second, third, last = dense(8, 16, 8, 4, activation="relu")
    parts = [first, layers.Dropout(0.1), second, layers.ReLU(), third, last]
    model = exburn.Sequential([exburn.Input((4,)), *parts])
    found, why = rules(model)
    assert found == {
        "dense0/kernel": UP,
        "dense0/bias": BIAS,
        "dense1/kernel": DOWN,
        "dense2/kernel": UP,
        "dense2/bias": BIAS,
        "dense3/kernel": DOWN,
    }
    assert why("dense1/kernel") == "dense0 by columns, dense1 by rows"
    assert why("dense1/bias") == "added once, to the sum over devices"


@pytest.mark.parametrize(
    "between",
    [
        layers.LayerNormalization(),
        layers.Softmax(),
        layers.Activation("softmax"),
        layers.Reshape((2, 4)),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_features_must_pass_one_by_one(between):
    x = exburn.Input((4,))
    y = layers.Dense(8, name="up")(x)
    y = between(y)
    y = layers.Dense(4, name="down")(y)
    with pytest.raises(LayoutError) as caught:
        tensor_parallel(exburn.Model(x, y))
    assert "no layers that can be divided" in str(caught.value)
    assert "up: no layer reads its outputs by rows" in str(caught.value)


def test_an_activation_of_all_features():
    parts = [layers.Dense(8, "softmax"), layers.Dense(4)]
    with pytest.raises(LayoutError, match="no layers that can be divided"):
        tensor_parallel(exburn.Sequential([exburn.Input((4,)), *parts]))


def test_gates_and_operations():
    x = exburn.Input((6,))
    gate = layers.Dense(16, use_bias=False, name="gate")(x)
    up = layers.Dense(16, name="up")(x)
    y = layers.Dense(6, name="down")(exburn.ops.silu(gate) * up)
    found, why = rules(exburn.Model(x, y))
    assert found == {
        "gate/kernel": UP,
        "up/kernel": UP,
        "up/bias": BIAS,
        "down/kernel": DOWN,
    }
    assert why("up/bias") == "gate, up by columns, down by rows"


def test_outputs_that_others_read_are_whole():
    x = exburn.Input((4,))
    hidden = layers.Dense(8, name="up")(x)
    y = layers.Dense(4, name="down")(hidden)
    with pytest.raises(LayoutError):
        tensor_parallel(exburn.Model(x, [y, hidden]))
    normed = layers.LayerNormalization()(hidden)
    with pytest.raises(LayoutError):
        tensor_parallel(exburn.Model(x, [y, normed]))
    two = [layers.Dense(4, name=f"down{i}")(hidden) for i in range(2)]
    with pytest.raises(LayoutError):
        tensor_parallel(exburn.Model(x, two))


class Block(exburn.Layer):
    def __init__(self, up, down, **kwargs):
        super().__init__(**kwargs)
        self.up = layers.Dense(up)
        self.gate = layers.Dense(up)
        self.down = layers.Dense(down)

    def call(self, x):
        return x + self.down(self.up(x) * self.gate(x))


def test_attributes_of_a_layer():
    model = exburn.Sequential([exburn.Input((4,)), Block(8, 4, name="block")])
    found, _ = rules(model)
    assert found == {
        "block/up/kernel": UP,
        "block/up/bias": BIAS,
        "block/gate/kernel": UP,
        "block/gate/bias": BIAS,
        "block/down/kernel": DOWN,
    }
    layers_ = [exburn.Input((4,)), Block(4, 4, name="square"), Block(8, 4, name="ok")]
    _, why = rules(exburn.Sequential(layers_))
    assert why("square/up/kernel") == "its sizes do not tell which layer reads it"


def test_layers_without_a_rule():
    parts = [layers.LSTM(4, name="lstm"), *dense(8, 4), layers.LayerNormalization()]
    _, why = rules(exburn.Sequential([exburn.Input((5, 3)), *parts]))
    assert why("lstm/cell/kernel") == "no rule for LSTMCell"
    assert why("layer_normalization/gamma") is None


def test_nested_models_and_einsums():
    inner = exburn.Sequential(
        [
            exburn.Input((5, 6)),
            layers.EinsumDense("abc,cnh->abnh", (None, 4, 3), bias_axes="nh", name="a"),
            layers.EinsumDense("abnh,nhd->abd", (None, 6), bias_axes="d", name="b"),
        ],
        name="inner",
    )
    x = exburn.Input((5, 6))
    found, _ = rules(exburn.Model(x, inner(x)))
    assert found == {
        "inner/a/kernel": (None, "model", None),
        "inner/a/bias": ("model", None),
        "inner/b/kernel": ("model", None, None),
    }


def attention(layer):
    x = exburn.Input((5, 16))
    layer.name = "att"
    return exburn.Model(x, layer(x, x))


def test_attention():
    found, why = rules(attention(layers.MultiHeadAttention(4, 6)), 4)
    assert (
        found["att/query/kernel"] == found["att/value/kernel"] == (None, "model", None)
    )
    assert found["att/key/bias"] == ("model", None)
    assert found["att/attention_output/kernel"] == ("model", None, None)
    assert "att/attention_output/bias" not in found and len(found) == 7
    gated = attention(layers.MultiHeadAttention(4, 6, use_gate=True, use_bias=False))
    assert rules(gated, 4)[0]["att/gate/kernel"] == (None, "model", None)
    _, why = rules(attention(layers.MultiHeadAttention(6, 4)), 4)
    said = "by 6 heads: 4 devices cannot divide 6 evenly"
    assert why("att/query/kernel") == why("att/attention_output/kernel") == said


@pytest.mark.parametrize("key_heads, parts, keys", [(4, 4, True), (2, 4, False)])
def test_grouped_queries(key_heads, parts, keys):
    model = attention(layers.GroupedQueryAttention(4, 8, key_heads))
    found, why = rules(model, parts)
    assert found["att/query/kernel"] == (None, "model", None)
    assert ("att/key/kernel" in found, "att/value/bias" in found) == (keys, keys)
    said = "are few" in why("att/key/kernel")
    assert said is not keys
    assert not rules(model, 16)[0]


def test_embeddings_and_heads():
    x = exburn.Input((5,), dtype="int32")
    table = layers.Embedding(12, 8, name="table")
    model = exburn.Model(x, layers.Dense(12, name="head")(table(x)))
    assert rules(model, 4)[0] == {
        "table/embeddings": DOWN,
        "head/kernel": UP,
        "head/bias": BIAS,
    }
    found, why = rules(model, 8)
    assert found == {"table/embeddings": UP} and why("table/embeddings") == "by columns"
    assert "8 devices cannot divide 12" in why("head/kernel")
    untied = layers.ReversibleEmbedding(12, 8, tie_weights=False, name="table")
    model = exburn.Model(x, untied(untied(x), reverse=True))
    assert rules(model, 4)[0] == {
        "table/embeddings": DOWN,
        "table/reverse_embeddings": UP,
    }
    assert rules(model, 8)[0]["table/reverse_embeddings"] == DOWN


def test_adapters_and_packed_weights():
    model = exburn.Sequential([exburn.Input((16,)), *dense(32, 16)])
    model.add_lora(2)
    found, _ = rules(model)
    assert found["dense0/lora_b"] == UP and found["dense1/lora_a"] == DOWN
    assert "dense0/lora_a" not in found and "dense1/lora_b" not in found
    packed = exburn.Sequential([exburn.Input((128,)), *dense(256, 128)])
    packed = packed.quantize("int8")
    with pytest.raises(LayoutError, match="dense0: packed weights"):
        tensor_parallel(packed)


def test_rules_by_hand_stay():
    model = exburn.Sequential([exburn.Input((4,)), *dense(8, 4, 3)])
    layout = tensor_parallel(model)
    del layout["dense0/bias"]
    layout["dense2/kernel"] = ("model", None)
    layout = layout.with_mesh(Mesh(data=2, model=4))
    assert {path: layout[path].axes for path in layout} == {
        "dense0/kernel": UP,
        "dense1/kernel": DOWN,
        "dense2/kernel": DOWN,
    }
    paths = [path for path, _ in [(w.path, w) for w in model.weights]]
    layout.check_use(paths)
    assert layout.reason_of("dense2/kernel") == "dense2/kernel"
    layout["nowhere"] = ("model",)
    with pytest.raises(LayoutError, match="'nowhere' matches no weight"):
        layout.check_use(paths)


def test_what_is_refused():
    with pytest.raises(NotBuiltError):
        tensor_parallel(exburn.Sequential([layers.Dense(4), layers.Dense(4)]))
    model = exburn.Sequential([exburn.Input((4,)), *dense(8, 4)])
    one = DeviceMesh((1,), ["data"], ["cpu:0"])
    with pytest.raises(LayoutError, match="the mesh has no axis 'model'"):
        tensor_parallel(model, device_mesh=one)
    with pytest.raises(LayoutError, match="the mesh has no axis 'tensor'"):
        model.compile(mesh={"data": 1}, layout=tensor_parallel(model, "tensor"))


# ---------------------------------------------------------------------- eight devices
def transformer(attention, tied):
    x = exburn.Input((8,), dtype="int32")
    kind = layers.ReversibleEmbedding if tied else layers.Embedding
    table = kind(32, 16, name="table")
    h = table(x)
    for i in range(1):
        if attention == "grouped":
            mix = layers.GroupedQueryAttention(2, 8, 2, dropout=0.1)
        else:
            mix = layers.MultiHeadAttention(4, 4, dropout=0.1)
        y = layers.LayerNormalization()(h)
        h = h + layers.Dropout(0.1)(mix(y, y, use_causal_mask=True))
        y = layers.Dense(32, "gelu", name=f"up{i}")(layers.LayerNormalization()(h))
        h = h + layers.Dense(16, name=f"down{i}")(layers.Dropout(0.1)(y))
    out = table(h, reverse=True) if tied else layers.Dense(32, name="head")(h)
    return exburn.Model(x, out)


TOKENS = np.random.default_rng(0).integers(0, 32, (42, 8))


def train(kind, tied, layout=True):
    model = transformer(kind, tied)
    keys = {"mesh": MESH, "layout": tensor_parallel(model)} if layout else {}
    loss = exburn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, seed=3, **keys)
    history = model.fit(TOKENS, np.roll(TOKENS, -1, 1), 16, 5, verbose=0)
    return model, history.history["loss"]


@pytest.mark.parametrize("kind, tied", [("all", False), ("grouped", True)])
@on_devices
def test_histories_are_those_of_one_device(kind, tied):
    (one, alone), (eight, together) = (train(kind, tied, on) for on in (False, True))
    np.testing.assert_allclose(together, alone, rtol=1e-5)
    assert alone[-1] < alone[0]
    kernel = eight.get_layer("up0").kernel.value
    assert kernel.sharding.shard_shape(kernel.shape) == (16, 8)
    slots = jax.tree.leaves(eight._training_session.holder.opt_state)
    shards = {v.sharding.shard_shape(v.shape) for v in slots if v.shape == (16, 32)}
    assert (16, 8) in shards
    for x in (TOKENS[:16], TOKENS[:5]):
        pair = [m.predict(x, verbose=0) for m in (one, eight)]
        np.testing.assert_allclose(*pair, rtol=1e-3, atol=1e-4)


@on_devices
def test_a_step_gathers_no_weights():
    model, _ = train("all", False)
    trainer = model._training_session.trainer
    placement, steps = trainer.holder.placement, trainer.preparer.programs.steps
    state = trainer.preparer.initial_state()
    chunk = placement.send((TOKENS[None, :16].astype("int32"),) * 2 + (None,))
    totals, state = state.metrics, state.replace(metrics=None)
    with placement.scope():
        train_ = jax.jit(steps.without_counting().train)
        text = train_.lower(state, totals, chunk, None, None).compile().as_text()
    assert not re.findall(r"all-gather\S*\(|all-to-all\(|collective-permute", text)
    # Two sums of activations forward and two back (Shoeybi et al., figure 4), and
    # that of the lookup.
    sums = re.findall(r"= f32\[(?:64,16|8,8,16)\]\S* all-reduce\(", text)
    assert len(sums) == 5, sums


@on_devices
def test_a_vocabulary_that_does_not_divide_gathers_no_activations():
    """Its table is divided by columns; the loss fills up classes for each device."""
    tokens = np.random.default_rng(0).integers(0, 1_027, (16, 8))

    def made(**options):
        x = exburn.Input((8,), dtype="int32")
        table = layers.ReversibleEmbedding(1_027, 64, name="table")
        h = table(x)
        h = h + layers.Dense(64)(layers.Dense(256, "relu")(h))
        model = exburn.Model(x, table(h, reverse=True))
        if options:
            options["layout"] = tensor_parallel(model)
        loss = exburn.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, metrics=["accuracy"], seed=3, **options)
        return model

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(head_loss.SCORES, "cpu", 0)
        patch.setitem(head_loss.CHUNK, "cpu", 1_024)
        patch.setattr(head_loss, "ROWS", (4, 8))
        alone, spread = made(), made(mesh={"data": 4, "model": 2})
        spread.set_weights(alone.get_weights())
        sent = spread.plan(16, tokens[:1], tokens[:1], largest=False).collectives
        found, expected = (
            model.fit(tokens, np.roll(tokens, -1, 1), 16, 4, verbose=0).history
            for model in (spread, alone)
        )
    table = 1_027 * 64 * 4
    assert max(c.nbytes for c in sent if c.kind != "all-reduce") <= table
    gathered = [c.nbytes for c in sent if c.kind == "all-gather" and c.nbytes >= 2_048]
    assert len(gathered) <= 2, gathered  # the table, and what was looked up
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5)
    for a, b in zip(spread.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@on_devices
def test_quantized_after_training():
    model = exburn.Sequential([exburn.Input((128,)), *dense(256, 128)])
    model.compile("adam", "mse", mesh=MESH, layout=tensor_parallel(model))
    x = np.random.default_rng(0).standard_normal((16, 128)).astype("float32")
    model.fit(x, x, 16, verbose=0)
    before = model.predict(x, verbose=0)
    small = model.quantize("int8")
    np.testing.assert_allclose(small.predict(x, verbose=0), before, atol=0.1)


@on_devices
def test_what_does_not_divide_is_whole():
    model = exburn.Sequential(
        [exburn.Input((4,)), *dense(6, 4), *dense(8, 4, name="b")]
    )
    layout = make_distribution(
        {"data": 2, "model": 4}, tensor_parallel(model)
    ).layout_map
    assert [*layout] == ["b0/kernel", "b0/bias", "b1/kernel"]
    assert "4 devices cannot divide 6 evenly" in layout.reason_of("dense1/kernel")


@on_devices
def test_fsdp_beside_tensor_parallel():
    def make(**keys):
        model = exburn.Sequential(
            [exburn.Input((32,)), *dense(128, 32, activation="relu"), layers.Dense(8)]
        )
        model.compile("adam", "mse", seed=0, **keys)
        return model

    x = np.random.default_rng(0).standard_normal((42, 32)).astype("float32")
    model = make()
    layout = tensor_parallel(model)
    both = make(mesh={"fsdp": 2, "model": 4}, layout=layout)
    histories = [m.fit(x, x[:, :8], 16, 5, verbose=0).history for m in (model, both)]
    np.testing.assert_allclose(histories[1]["loss"], histories[0]["loss"], rtol=1e-5)
    rows = {row.path: row for row in both.sharding_summary()}
    assert rows["dense0/kernel"].layout == ("fsdp", "model")
    assert rows["dense1/kernel"].layout == ("model", "fsdp")
    assert rows["dense1/kernel"].bytes == 128 * 32 * 4 / 8
    assert rows["dense0/kernel"].rule == "dense0 by columns, dense1 by rows, and fsdp"
    assert rows["dense/kernel"].is_whole  # 256 elements
    for weight in both.weights:
        shard = weight.value.sharding.shard_shape(weight.value.shape)
        assert np.prod(shard) * 4 == rows[weight.path].bytes
    plan = both.plan(16, largest=False, rate=1e9)
    assert {"all-gather", "all-reduce"} <= {c.kind for c in plan.collectives}
    kernels = 128 * 32 * 2
    assert plan.step_time.compute == pytest.approx(
        plan.flops / 2 * (kernels / 4 + 256) / (kernels + 256) / 1e9
    )
    wide = make(mesh={"data": 2, "fsdp": 2, "model": 2}, layout=layout)
    assert wide._training_session.distribution.num_model_replicas == 4
    again = wide.fit(x, x[:, :8], 16, 5, verbose=0).history["loss"]
    np.testing.assert_allclose(again, histories[0]["loss"], rtol=1e-5)


def test_experts_are_divided_by_their_number():
    parts = [layers.Embedding(7, 6), layers.MixtureOfExperts(4, 2, 5, name="experts")]
    model = exburn.Sequential([exburn.Input((None,), dtype="int32"), *parts])
    model.add_lora(rank=2, filter="experts")
    found, why = rules(model, 2)
    by_experts = ("model", None, None)
    names = ["gate", "up", "down"]
    assert all(found[f"experts/{name}"] == by_experts for name in names)
    factors = [path for path in found if path.endswith(("lora_a", "lora_b"))]
    assert len(factors) == 6
    assert all(found[path] == by_experts for path in factors)
    assert why("experts/gate") == "by 4 experts"
    assert why("experts/router") == "each device routes its tokens"
    assert "experts/gate" not in rules(model, 3)[0]
