"""``compile(remat="blocks")``: equal blocks are computed again for the gradient."""

import jax
import numpy as np
import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn import layers
from exburn.applications import Llama
from exburn.data.packed import PackedTokens
from exburn.distribution import FSDP
from exburn.errors import ArgumentError, UnknownNameError
from exburn.module.traversal import iter_weights
from exburn.runtime.kernels import head_loss

SIZES = dict(layers=4, width=32, heads=4, key_value_heads=2, mlp_width=48)


def data(rows=8, length=16):
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 60, (rows, length)).astype(np.int32)
    segments = np.repeat([[1, 2]], length // 2, axis=1).repeat(rows, 0)
    weights = np.ones((rows, length), np.float32)
    return PackedTokens(tokens, segments), np.roll(tokens, -1, 1), weights


def trained(lora=False, words=60, **options):
    model = Llama(words, **SIZES)
    if lora:
        model.add_lora(4, filter=["block_*"])
    loss = exburn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(exburn.optimizers.AdamW(1e-3), loss, seed=0, **options)
    x, y, weights = data()
    history = model.fit(x, y, sample_weight=weights, batch_size=4, epochs=2, verbose=0)
    values = {path: np.asarray(w.get_value()) for path, w, _ in iter_weights(model)}
    return history.history["loss"], values


def check_alike(ours, theirs):
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)
    for name in theirs[1]:
        np.testing.assert_allclose(ours[1][name], theirs[1][name], atol=2e-5)


@pytest.mark.parametrize("kind", ["blocks", "activations"])
@pytest.mark.parametrize("lora", [False, True])
def test_a_decoder_trains_the_same(lora, kind):
    check_alike(trained(lora, remat=kind), trained(lora))


def test_large_losses_are_computed_in_chunks_as_before(monkeypatch):
    monkeypatch.setitem(head_loss.SCORES, "cpu", 1)
    monkeypatch.setitem(head_loss.CHUNK, "cpu", 2**13)
    check_alike(trained(words=1100, remat="blocks"), trained(words=1100))


@pytest.mark.parametrize("kind", ["data", "fsdp"])
@on_devices
def test_a_mesh_trains_the_same(kind):
    mesh = FSDP(min_size=1) if kind == "fsdp" else "data"
    check_alike(trained(remat="blocks", mesh=mesh), trained(mesh=mesh))


def test_a_model_of_the_users_own_class():
    class Own(exburn.Model):
        def __init__(self):
            super().__init__()
            self.parts = [layers.Dense(8, "tanh") for _ in range(5)]
            self.drop = layers.Dropout(0.3)

        def call(self, x, training=False):
            for part in self.parts:
                x = x + self.drop(part(x), training=training)
            return x

    x = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
    ends = []
    for remat in (None, "blocks"):
        model = Own()
        model.compile("sgd", "mse", seed=1, remat=remat)
        model.fit(x, x[:, ::-1], epochs=2, verbose=0)
        ends.append(model.get_weights())
    for ours, theirs in zip(*ends, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def dense():
    return exburn.Sequential([exburn.Input((4,)), layers.Dense(4), layers.Dense(4)])


def test_a_copy_is_compiled_alike():
    model = dense()
    model.compile("sgd", "mse", remat="blocks")
    assert model.get_compile_config()["remat"] == "blocks"


def test_a_model_without_equal_blocks_is_refused_before_it_is_compiled():
    model = exburn.Sequential([exburn.Input((4,)), layers.Dense(3), layers.Dense(2)])
    model.compile("sgd", "mse", remat="blocks")
    with pytest.raises(ArgumentError, match="equal blocks"):
        model.fit(np.ones((8, 4)), np.ones((8, 2)), verbose=0)


def test_what_remat_cannot_do_is_refused():
    with pytest.raises(UnknownNameError, match="remat"):
        dense().compile("sgd", "mse", remat="all")
    with pytest.raises(ArgumentError, match="operation by operation"):
        dense().compile("sgd", "mse", remat="blocks", run_eagerly=True)
    if jax.default_backend() != "gpu":
        with pytest.raises(ArgumentError, match="no GPU"):
            dense().compile("sgd", "mse", remat="offload")
