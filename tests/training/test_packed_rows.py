"""Documents of one row never see each other, whatever the model is trained with."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn import config, layers
from exburn.applications import GPT2, Decoder, Llama
from exburn.data import PackedTokens
from exburn.errors import DataError, ShapeError
from exburn.training import block_stacks

VOCABULARY, LENGTH = 19, 20
FAMILIES = Path(__file__).parents[1] / "applications/families"
SIZES = [(7, 9, 3), (5, 14), (20,), (4, 4, 4, 4)]
RNG = np.random.default_rng(0)


def rows_of(sizes, length=LENGTH):
    """Packed rows, their targets and weights."""
    tokens = RNG.integers(1, VOCABULARY, (len(sizes), length))
    segments = np.zeros_like(tokens)
    for row, parts in enumerate(sizes):
        ends = np.cumsum(parts)
        for number, (end, size) in enumerate(zip(ends, parts, strict=True), 1):
            segments[row, end - size : end] = number
    after = np.pad(segments[:, 1:], ((0, 0), (0, 1)))
    weights = ((segments > 0) & (segments == after)).astype(np.float32)
    return PackedTokens(tokens, segments), np.roll(tokens, -1, axis=1), weights


X, Y, WEIGHTS = rows_of(SIZES)
LOSS = functools.partial(exburn.losses.SparseCategoricalCrossentropy, from_logits=True)


def llama(**options):
    sizes: Any = {"layers": 1, "width": 8, "heads": 4, "key_value_heads": 2}
    return Llama(VOCABULARY, mlp_width=16, **sizes | options)


def gpt2(**options):
    return GPT2(VOCABULARY, layers=1, width=8, heads=2, positions=LENGTH, **options)


def bidirectional():
    inputs = exburn.Input((None,), dtype="int32")
    h = layers.Embedding(VOCABULARY, 8)(inputs)
    h = layers.Add()([h, layers.PositionEmbedding(LENGTH)(h)])
    h = layers.Add()([h, layers.MultiHeadAttention(2, 4, sliding_window=3)(h, h)])
    return exburn.Model(inputs, layers.Dense(VOCABULARY)(h))


def gated():
    """With scores that are asked for, and gates."""
    inputs = exburn.Input((None,), dtype="int32")
    h = layers.Embedding(VOCABULARY, 8)(inputs)
    attention = layers.MultiHeadAttention(2, 4, use_gate=True)
    y, _ = attention(h, h, use_causal_mask=True, return_attention_scores=True)
    return exburn.Model(inputs, layers.Dense(VOCABULARY)(layers.Add()([h, y])))


MODELS = {
    "llama": llama,
    "windows": lambda: llama(sliding_window=3),
    "gpt2": gpt2,
    "bidirectional": bidirectional,
    "gated": gated,
}


def documents(x=X):
    for row in range(len(x.tokens)):
        for number in range(1, x.segments[row].max() + 1):
            yield row, x.segments[row] == number


def check_alone(model, causal=True, tolerance=1e-6, filled=True):
    """Compares documents of packed rows with the same as plain rows.

    Args:
        filled: Whether the plain rows may be filled up, which some positions count.
    """
    outputs = model.predict(X, verbose=0)
    places = list(documents())
    if not causal:  # which sees what a plain row is filled up with
        places = [(row, at) for row, at in places if row == 3]
    sizes = [at.sum() for _, at in places]
    width = LENGTH if causal else sizes[0]
    rows = [
        np.pad(X.tokens[row, at], (0, width - size))
        for (row, at), size in zip(places, sizes, strict=True)
    ]
    if filled:
        alone = model.predict(np.array(rows), verbose=0)
    else:
        pairs = zip(rows, sizes, strict=True)
        alone = [np.asarray(model(row[None, :size]))[0] for row, size in pairs]
    for (row, at), size, one in zip(places, sizes, alone, strict=True):
        np.testing.assert_allclose(outputs[row, at], one[:size], atol=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_a_document_has_the_outputs_that_it_has_alone(name):
    check_alone(MODELS[name](), causal=name != "bidirectional")


@pytest.mark.parametrize("family", ["gemma2", "mixtral", "qwen3", "phi3"])
@pytest.mark.parametrize("blocks", [False, True])
def test_families(family, blocks, monkeypatch):
    """Windows by layer, soft caps, norms of heads, experts, scaled positions."""
    if blocks:
        module = "exburn.layers.attention.segment_blocks"
        monkeypatch.setattr(f"{module}._SHORT", {"cpu": 8})
        monkeypatch.setattr(f"{module}.BLOCK", 8)
    model = Decoder.from_pretrained(FAMILIES / family)
    filled = family != "phi3"  # whose positions depend on the length of a row
    check_alone(model, tolerance=1e-4, filled=filled)  # of scores up to 10


def test_long_rows_go_by_blocks(monkeypatch):
    module = "exburn.layers.attention.segment_blocks"
    monkeypatch.setattr(f"{module}._SHORT", {"cpu": 8})
    monkeypatch.setattr(f"{module}.BLOCK", 8)
    check_alone(llama(sliding_window=5))


@pytest.mark.parametrize("name", ["llama", "gpt2", "bidirectional"])
def test_no_bit_of_another_document_moves(name):
    model = MODELS[name]()
    row, places = 0, X.segments[0] == 2
    tokens = X.tokens.copy()
    tokens[row, places] = (tokens[row, places] + 5) % VOCABULARY
    changed = PackedTokens(tokens, X.segments)
    others = np.ones_like(places)[None].repeat(len(tokens), 0)
    others[row] = ~places
    each = LOSS(reduction="none")

    @jax.jit
    def gradient_of_others(values, x):
        def loss(values):
            logits, _ = model.stateless_call(values, rest, x)
            losses = each(Y, logits) * WEIGHTS
            return jnp.where(others, losses, 0).sum(), (logits, losses)

        return jax.grad(loss, has_aux=True)(values)

    values = [v.value for v in model.trainable_variables]
    rest = [v.value for v in model.non_trainable_variables]
    gradients, before = gradient_of_others(values, X)
    gradients_now, now = gradient_of_others(values, changed)
    for one, other in zip(before, now, strict=True):
        assert not np.array_equal(one, other)
        np.testing.assert_array_equal(*(np.asarray(v)[others] for v in (one, other)))
    for one, other in zip(gradients, gradients_now, strict=True):
        np.testing.assert_array_equal(one, other)


def train(make, x=X, y=Y, weights=WEIGHTS, **options):
    """The losses of two epochs, what an evaluation tells, and the weights."""
    exburn.utils.set_random_seed(1)
    model = make()
    model.compile(exburn.optimizers.SGD(0.5), LOSS(), **options)
    history = model.fit(
        x, y, sample_weight=weights, batch_size=4, epochs=2, verbose=0, shuffle=False
    )
    score = model.evaluate(x, y, sample_weight=weights, verbose=0)
    return [*history.history["loss"], score], model.get_weights()


@functools.cache
def trained(make):
    return train(make)


def one_by_one(make):
    """The training on the same documents, each a row of its own."""
    sizes, tokens, targets, weights = [], [], [], []
    for row, places in documents():
        size = places.sum()
        sizes.append(size)
        for whole, parts in ((X.tokens, tokens), (Y, targets), (WEIGHTS, weights)):
            parts.append(np.pad(whole[row, places], (0, LENGTH - size)))
    scale = len(sizes) / len(SIZES)  # the mean is over rows · positions
    exburn.utils.set_random_seed(1)
    model = make()
    model.compile(exburn.optimizers.SGD(0.5), LOSS())
    history = model.fit(
        np.array(tokens),
        np.array(targets),
        sample_weight=np.array(weights) * scale,
        batch_size=len(sizes),
        epochs=2,
        verbose=0,
        shuffle=False,
    )
    return history.history["loss"]


def test_training_is_that_of_documents_one_by_one():
    np.testing.assert_allclose(one_by_one(llama), trained(llama)[0][:2], rtol=1e-5)


def rematerialized():
    model = llama()
    model.remat()
    return model


@pytest.mark.parametrize("mesh", ["data", "fsdp"])
@on_devices
def test_on_meshes(mesh):
    np.testing.assert_allclose(train(llama, mesh=mesh)[0], trained(llama)[0], rtol=1e-5)


def test_rematerialized():
    np.testing.assert_allclose(train(rematerialized)[0], trained(llama)[0], rtol=1e-6)


def test_as_a_loop_of_blocks(monkeypatch):
    def deep():
        return llama(layers=5)

    plain = train(deep)
    monkeypatch.setattr(block_stacks, "LEAST_OPERATIONS", 40)
    monkeypatch.setattr(block_stacks, "LEAST_OF_BLOCK", 1)
    monkeypatch.setattr(block_stacks, "ELEMENTS", (0, 10**9))
    config.enable_block_loops()
    try:
        looped = train(deep)
    finally:
        config.disable_block_loops()
    np.testing.assert_allclose(looped[0], plain[0], rtol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_in_half_precision(policy):
    losses, _ = train(lambda: llama(dtype=policy))
    np.testing.assert_allclose(losses, trained(llama)[0], rtol=2e-3)


def test_with_adapters():
    def adapted():
        model = llama()
        model.add_lora(rank=2)
        return model

    losses, _ = train(adapted)
    assert losses[1] < losses[0]
    check_alone(adapted())


def test_no_weight_is_copied_for_it():
    model = llama()
    model.add_lora(rank=2)
    model.compile("sgd", LOSS())
    places = []
    for _ in range(3):
        model.fit(X, Y, sample_weight=WEIGHTS, batch_size=4, verbose=0)
        frozen = [w.value for w in model.weights if not w.trainable]
        places.append([array.unsafe_buffer_pointer() for array in frozen])
        del frozen
    assert places[0] == places[1] == places[2]


def body(*parts):
    inputs = exburn.Input((LENGTH,), dtype="int32")
    h = layers.Embedding(VOCABULARY, 8)(inputs)
    for part in parts:
        h = part(h)
    return exburn.Model(inputs, layers.Dense(VOCABULARY)(h))


def refused(text, *parts, error: Any = ShapeError):
    def fit():
        model = body(*parts)
        model.compile("sgd", LOSS())
        try:
            model.fit(X, Y, sample_weight=WEIGHTS, verbose=0)
        finally:
            assert not model.trace_counts  # nothing was compiled

    return fit, error, text


class Averaged(layers.Layer):
    """Code of a user's that mixes the tokens of a row."""

    def call(self, x):
        return x + x.mean(axis=1, keepdims=True)


class Counted(layers.Layer):
    """Code of a user's that counts the positions of a row."""

    def call(self, x):
        return x + jnp.arange(x.shape[1], dtype=x.dtype)[:, None]


class Doubled(layers.Layer):
    def call(self, x):
        return 2 * x


REFUSALS = [
    refused("a GRU cannot take packed rows", layers.GRU(4, return_sequences=True)),
    refused("its windows reach", layers.Conv1D(4, 3, padding="same")),
    refused("its windows reach", layers.MaxPooling1D(2, 1, padding="same")),
    refused("it pools over all", layers.GlobalAveragePooling1D()),
    refused("its statistics would be", layers.BatchNormalization()),
    refused("its axis is that of time", layers.LayerNormalization(axis=1)),
    refused("its axis is that of time", layers.Softmax(axis=1)),
    refused("counts what fills", layers.Dense(4, activity_regularizer="l2")),
    refused("it knows of no mask", layers.Flatten()),
    refused("it knows of no documents", lambda h: layers.Attention()([h, h])),
    refused("other outputs than alone", Averaged()),
    refused("other outputs than alone", Counted()),
    refused("other outputs than alone", lambda h: h - h[:, :1]),
]  # fmt: skip


def test_code_of_users_that_computes_each_token_is_taken():
    losses, _ = train(lambda: body(Doubled()))
    assert losses[1] < losses[0]


def test_each_token_needs_an_output():
    with pytest.raises(ShapeError, match="an output for each token"):
        body(lambda h: layers.Dense(4)(h)[:, -1:]).predict(X, verbose=0)


def test_packed_rows_are_the_only_input():
    inputs = [exburn.Input((LENGTH,), dtype="int32") for _ in range(2)]
    parts = [layers.Embedding(VOCABULARY, 4)(one) for one in inputs]
    model = exburn.Model(inputs, layers.Dense(VOCABULARY)(layers.Add()(parts)))
    with pytest.raises((ShapeError, DataError), match="only input"):
        model.predict([X, X.tokens], verbose=0)


def test_calls_refuse_as_fit_does():
    with pytest.raises(ShapeError, match="a GRU cannot take packed rows"):
        body(layers.GRU(4, return_sequences=True))(X)


def test_steps_of_a_users_own_are_refused():
    class Own(exburn.Model):
        def train_step(self, data):
            return super().train_step(data)

    inputs = exburn.Input((LENGTH,), dtype="int32")
    model = Own(inputs, layers.Dense(2)(layers.Embedding(VOCABULARY, 4)(inputs)))
    model.compile("sgd", LOSS())
    with pytest.raises(ShapeError, match="of its own cannot take packed rows"):
        model.fit(X, Y, verbose=0)


def test_a_model_is_looked_at_once(monkeypatch):
    from exburn.applications import Llama
    from exburn.text import Document, PackedDocuments
    from exburn.training import packed_rows

    seen, forward = [], packed_rows._forward
    monkeypatch.setattr(
        packed_rows, "_forward", lambda *args: (seen.append(1), forward(*args))[1]
    )
    model = Llama(16, layers=1, width=8, heads=2, mlp_width=8)
    model.compile("sgd")
    documents = PackedDocuments([Document(np.arange(1, 8, dtype=np.int32))] * 2)
    for _ in range(2):
        model.fit(documents, batch_tokens=16, length=16, verbose=0)
    assert len(seen) == 1
