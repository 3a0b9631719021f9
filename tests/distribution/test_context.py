"""Sequences that devices divide give the numbers of one device."""

import functools
import unittest.mock

import numpy as np
import pytest
from tests.distribution.devices import on_devices
from tests.distribution.models import assert_close

import exburn
from exburn import layers
from exburn.data import PackedTokens
from exburn.errors import LayoutError
from exburn.models import compiling, planning

ROWS, WORDS = 6, 40


def decoder(window=None, **options):
    """Llama with grouped queries; its rotary positions are those of the whole row."""
    from exburn.applications import Llama

    sizes = {
        "layers": 1,
        "width": 16,
        "heads": 4,
        "key_value_heads": 2,
        "mlp_width": 24,
    }
    return Llama(WORDS, **sizes | options, sliding_window=window)


def encoder():
    """As BERT: no order, filled-up positions masked, learnt positions."""
    tokens = exburn.Input((None,), dtype="int32")
    x = layers.Embedding(WORDS, 16, mask_zero=True)(tokens)
    x = x + layers.PositionEmbedding(64)(x)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 4)(x, x))
    x = layers.LayerNormalization()(
        x + layers.Dense(16, "gelu")(layers.Dropout(0.2)(x))
    )
    return exburn.Model(tokens, layers.Dense(WORDS)(x))


def classifier():
    """With layers that read neighbours: windows over time, and a mean of all."""
    tokens = exburn.Input((32,), dtype="int32")
    x = layers.Embedding(WORDS, 16)(tokens)
    x = layers.Conv1D(16, 3, padding="same", activation="tanh")(x)
    x = layers.AveragePooling1D(2)(x)
    x = x + layers.MultiHeadAttention(2, 8, sliding_window=3)(x, x)
    return exburn.Model(tokens, layers.Dense(4)(layers.GlobalAveragePooling1D()(x)))


def tokens(length, filled=False):
    rng = np.random.default_rng(0)
    x = rng.integers(1, WORDS, (ROWS, length)).astype("int32")
    if filled:
        for row, count in zip(x, rng.integers(1, length, ROWS), strict=True):
            row[count:] = 0
    return x


MODELS = {
    "decoder": (decoder, 32),
    "uneven": (decoder, 37),
    "window": (lambda: decoder(5), 32),
    "deep": (lambda: decoder(layers=4), 32),
    "encoder": (encoder, 30),
    "classifier": (classifier, 32),
}
CASES = {
    "2 parts": ("decoder", {"context": 2}, {}),
    "beside rows": ("decoder", {"data": 2, "context": 4}, {}),
    "weights divided": ("decoder", {"fsdp": 2, "context": 2}, {}),
    "uneven": ("uneven", {"context": 8}, {}),
    "window": ("window", {"context": 4}, {}),
    "accumulated": (
        "decoder",
        {"data": 2, "context": 2},
        {"accumulate_gradients": 2, "accumulate": "tokens"},
    ),
    "filled up": ("encoder", {"data": 2, "context": 4}, {}),
    "windows over time": ("classifier", {"context": 4}, {}),
}


def compiled(name, mesh=None, **options):
    exburn.set_random_seed(1)
    model = MODELS[name][0]()
    loss = exburn.losses.SparseCategoricalCrossentropy(from_logits=True)
    options = {"metrics": ["accuracy"], "loss": loss} | options
    model.compile(exburn.optimizers.SGD(0.1), mesh=mesh, seed=0, **options)
    return model


def data(name):
    x = tokens(MODELS[name][1], filled=name == "encoder")
    if name == "classifier":
        return x, x[:, 0] % 4, np.linspace(0.5, 2, ROWS)
    weights = np.random.default_rng(1).uniform(0, 2, x.shape).astype("float32")
    return x, np.roll(x, -1, 1), weights


def train(name, mesh=None, **options):
    """Losses, scores and outputs, and the weights."""
    model = compiled(name, mesh, **options)
    x, y, weights = data(name)
    history = model.fit(x, y, 4, epochs=2, sample_weight=weights, verbose=0).history
    scores = model.evaluate(x, y, batch_size=4, verbose=0)
    outputs = model.predict(x, batch_size=4, verbose=0)
    return history, scores, outputs, model.get_weights()


alone = functools.cache(train)


@pytest.mark.parametrize("case", CASES)
@on_devices
def test_the_numbers_of_one_device(case):
    name, mesh, options = CASES[case]
    assert_close(train(name, mesh, **options), alone(name, **options), 2e-5)


@on_devices
def test_what_goes_into_blocks_waits_on_the_host():
    """As a GPU would: a CPU's memory is the host's, where `compile` refuses it."""
    with unittest.mock.patch.object(compiling, "_check_remat"):
        found = train("deep", {"context": 2}, remat="offload")
    assert_close(found, alone("deep"))


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
@on_devices
def test_packed_documents(precision):
    """Some of which are divided, and longer than a part; with adapters."""
    x = tokens(32)
    segments = np.repeat([[1] * 3 + [2] * 17 + [3] * 10 + [0] * 2], ROWS, 0)
    segments[0] = 1
    losses = []
    for mesh in (None, {"data": 2, "context": 4}):
        exburn.set_random_seed(1)
        model = decoder(dtype=precision)
        model.add_lora(2)
        model.compile("sgd", mesh=mesh, seed=0)
        y, weights = np.roll(x, -1, 1), (segments > 0).astype("float32")
        packed = PackedTokens(x, segments.astype("int32"))
        history = model.fit(packed, y, 4, 2, sample_weight=weights, verbose=0)
        losses.append(history.history["loss"])
    tolerance = 1e-5 if precision == "float32" else 1e-3
    np.testing.assert_allclose(*losses, rtol=tolerance)


@on_devices
def test_a_run_goes_on_with_other_parts(tmp_path):
    x, y, _ = data("decoder")
    wanted = compiled("decoder").fit(x, y, 4, epochs=3, verbose=0).history["loss"]
    losses = []
    for mesh, epochs in (({"context": 4}, 2), ({"data": 2, "context": 2}, 3)):
        saving = exburn.callbacks.ModelCheckpoint(tmp_path / "saved")
        options = {"callbacks": [saving], "resume": "auto", "verbose": 0}
        model = compiled("decoder", mesh)
        losses += model.fit(x, y, 4, epochs=epochs, **options).history["loss"]
    np.testing.assert_allclose(losses[-3:], wanted, rtol=1e-5)


@on_devices
def test_keys_go_round_and_are_not_gathered():
    """Each part meets the others by permutations, in training and prediction."""
    model = compiled("decoder", {"context": 4})
    plan = model.plan(4, *data("decoder")[:2], mesh={"context": 4}, largest=False)
    kinds = {one.kind for one in plan.collectives}
    assert "collective-permute" in kinds


@on_devices
def test_a_plan_says_how_long_rows_may_be():
    model, mesh, limit = compiled("decoder"), {"context": 2}, 2 << 20
    with unittest.mock.patch.object(planning, "_available_bytes", lambda *_: limit):
        plan = model.plan(batch_tokens=64, length=64, largest=True, mesh=mesh, rate=1e9)
    longest = plan.longest_context
    assert plan.largest_batch is None and longest > 64
    assert "Longest context" in str(plan)
    np.testing.assert_allclose(plan.step_time.compute, plan.flops / 2 / 1e9)
    exact = model.plan(batch_tokens=longest, length=longest, mesh=mesh)
    assert exact.peak_bytes <= limit


@on_devices
def test_recurrent_layers_are_refused_by_name():
    x = tokens(16)
    model = exburn.Sequential(
        [layers.Embedding(WORDS, 8), layers.LSTM(8, name="memory"), layers.Dense(2)]
    )
    model.compile("sgd", "mse", mesh={"context": 4})
    with pytest.raises(LayoutError, match="memory.*LSTM goes from one to the next"):
        model.fit(x, np.zeros((ROWS, 2)), verbose=0)


@on_devices
def test_scores_and_dropped_weights_are_those_of_one_device():
    """Where keys do not go round, XLA gathers them."""
    x = np.random.default_rng(0).normal(size=(2, 16, 8)).astype("float32")
    found = []
    for mesh in (None, {"context": 4}):
        exburn.set_random_seed(0)
        inputs = exburn.Input((16, 8))
        y = layers.MultiHeadAttention(2, 4, dropout=0.3, flash_attention=False)(
            inputs, inputs, use_causal_mask=True
        )
        model = exburn.Model(inputs, layers.AdditiveAttention()([y, y]))
        model.compile("sgd", "mse", mesh=mesh, seed=0)
        history = model.fit(x, x, 2, 2, verbose=0).history["loss"]
        found.append((history, model.predict(x, verbose=0)))
    assert_close(*found, 2e-5)
