"""Low-rank adapters: what they compute, train, freeze, merge and store."""

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits
from tests.models.adapted import make, same, weights

import exburn
from exburn import errors, layers
from exburn.module.traversal import iter_weights
from exburn.saving import load_model


def shared(model, paths):
    found = weights(model)
    return {path: found[path] for path in paths}


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    return (data.data[:600] / 16).astype(np.float32), data.target[:600]


@pytest.fixture(scope="module")
def trained(digits):
    model = make()
    model.fit(*digits, epochs=3, verbose=0)
    return model


def every_layer():
    x = layers.Input((6, 16), name="x")
    ids = layers.Input((7,), dtype="int32", name="ids")
    parts = [
        layers.Dense(40, name="dense")(x),
        layers.EinsumDense("...x,xy->...y", 20, bias_axes="y", name="einsum")(x),
        layers.EinsumDense("ab...,bc->ac...", (20,), name="tail")(x),
        layers.EinsumDense("bnd,nde->bne", (6, 24), name="batch")(x),
        layers.MultiHeadAttention(2, 16, name="mha")(x, x),
        layers.Conv1D(24, 3, name="conv")(x),
        layers.Conv1DTranspose(24, 3, 2, name="transposed")(x),
        layers.Embedding(50, 32, name="embedding")(ids),
    ]
    pooled = [layers.GlobalAveragePooling1D()(part) for part in parts]
    return exburn.Model(
        [x, ids], layers.Dense(3, name="top")(layers.Concatenate()(pooled))
    )


@pytest.mark.parametrize("stored", [None, "int4"])
def test_every_layer_adapts_and_merges(stored, tmp_path):
    rng = np.random.default_rng(0)
    x = [rng.standard_normal((64, 6, 16)).astype(np.float32)]
    x.append(rng.integers(0, 50, (64, 7)).astype(np.int32))
    y = rng.integers(0, 3, 64)
    model = every_layer()
    exact = model
    if stored:
        model = model.quantize(stored)
    outputs, before = model.predict(x, verbose=0), weights(model)
    adapted = model.add_lora(rank=2)
    assert adapted == [
        "dense", "einsum", "tail", "batch", "mha/query", "mha/key", "mha/value",
        "mha/attention_output", "conv", "transposed", "embedding", "top",
    ]  # fmt: skip
    started = model.predict(x, verbose=0)
    np.testing.assert_allclose(started, outputs, atol=1e-5)  # B is zero
    model.compile("adam", "cross_entropy")
    model.fit(x, y, epochs=3, verbose=0)
    moved = [
        p for p, w, _ in iter_weights(model) if p.endswith("lora_b") and w.numpy().any()
    ]
    assert len(moved) == len(adapted)  # a gradient reached each of them
    assert same(before, model)
    final = model.predict(x, verbose=0)
    assert np.abs(final - outputs).max() > 1e-3
    model.save(tmp_path / "m.exburn")
    loaded = load_model(tmp_path / "m.exburn")
    assert (loaded.predict(x, verbose=0) == final).all()
    if stored:
        with pytest.raises(errors.ArgumentError, match="quantized"):
            model.merge_lora()
        return
    model.merge_lora()
    assert not exact.changes and set(weights(model)) == set(before)
    np.testing.assert_allclose(model.predict(x, verbose=0), final, atol=1e-5)
    assert all(learns for _, w, learns in iter_weights(model) if w.trainable)


def test_few_parameters_learn_beside_frozen_ones(trained, digits):
    model = trained.clone()
    model.compile("adamw", "cross_entropy", metrics=["accuracy"], seed=0)
    x, y = digits[0], (digits[1] + 1) % 10  # another task on the same images
    before = weights(model)
    model.add_lora(rank=1, filter=["a", "b"])
    learned = sum(w.numpy().size for w in model.trainable_weights)
    assert learned / model.count_params() < 0.02
    first = model.evaluate(x, y, verbose=0, return_dict=True)["loss"]
    model.fit(x, y, epochs=6, verbose=0)
    assert model.evaluate(x, y, verbose=0, return_dict=True)["loss"] < 0.8 * first
    assert same(before, model)  # the statistics of BatchNormalization as well
    slots = jax.tree_util.tree_leaves_with_path(
        model._training_session.holder.opt_state
    )
    names = {str(key.key) for path, _ in slots for key in path if hasattr(key, "key")}
    assert {"a/lora_a", "b/lora_b"} <= names
    assert not {path for path in before} & names


def test_adapters_added_after_training_keep_it_going(trained, digits):
    model = trained.clone()
    model.compile("adam", "cross_entropy", seed=0)
    model.fit(*digits, epochs=1, verbose=0)
    before = weights(model)
    model.add_lora(4)
    model.fit(*digits, epochs=1, verbose=0)
    assert same(before, model)
    outputs = model.predict(digits[0], verbose=0)
    model.merge_lora()
    np.testing.assert_allclose(
        model.predict(digits[0], verbose=0), outputs, atol=1e-5, rtol=1e-5
    )
    merged = weights(model)
    model.fit(*digits, epochs=1, verbose=0)  # everything learns again
    assert not any((weights(model)[path] == v).all() for path, v in merged.items())


def test_layers_frozen_before_stay_frozen_after(trained):
    model = trained.clone()
    model.freeze("a")
    model.add_lora(2, filter="b")
    model.merge_lora()
    assert model.frozen_layers == ["a"]


def test_a_head_may_learn_beside_adapters(trained, digits):
    model = trained.clone()
    model.compile("adam", "cross_entropy")
    model.add_lora(2, filter=["a", "b"])
    model.unfreeze("head")
    before = weights(model)
    model.fit(*digits, epochs=1, verbose=0)
    changed = {path for path, v in before.items() if (weights(model)[path] != v).any()}
    adapters = {f"{layer}/lora_{part}" for layer in "ab" for part in "ab"}
    assert changed == {"head/kernel", "head/bias"} | adapters


def test_alpha_scales_the_term(trained, digits):
    models = [trained.clone() for _ in range(2)]
    for model, alpha in zip(models, (None, 8.0), strict=True):
        model.add_lora(2, alpha)
        layer = model.get_layer("b")
        layer.lora_b.assign(np.ones(layer.lora_b.shape))
        layer.lora_a.assign(np.full(layer.lora_a.shape, 1e-3))
    exact = trained.get_layer("b").kernel.numpy()
    changes = []
    for model in models:
        model.merge_lora()
        changes.append(model.get_layer("b").kernel.numpy() - exact)
    np.testing.assert_allclose(changes[0], 2e-3, atol=1e-6)
    np.testing.assert_allclose(changes[1], 8e-3, atol=1e-6)


def test_layers_get_adapters_one_by_one(digits, tmp_path):
    x, y = digits
    model = make()
    before = model.predict(x, verbose=0)
    model.get_layer("a").enable_lora(2, lora_alpha=4)
    model.get_layer("head").enable_lora(5, b_initializer="zeros")
    assert model.get_layer("a").lora_enabled
    assert not model.get_layer("b").lora_enabled
    np.testing.assert_allclose(model.predict(x, verbose=0), before, atol=1e-6)
    kernels = shared(model, ["a/kernel", "head/kernel"])
    model.fit(x, y, verbose=0)
    assert same(kernels, model)  # and all else has learned
    learns = {"a/bias", "a/lora_a", "a/lora_b", "b/kernel", "head/lora_b"}
    assert learns <= {w.path for w in model.trainable_weights}
    outputs = model.predict(x, verbose=0)
    model.save(tmp_path / "m.exburn")
    loaded = load_model(tmp_path / "m.exburn")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), outputs)
    paths = [w.path for w in model.trainable_weights]
    assert [w.path for w in loaded.trainable_weights] == paths
    with pytest.raises(errors.ArgumentError, match="several ways"):
        model.save_lora(tmp_path / "lora")
    model.merge_lora()
    np.testing.assert_allclose(model.predict(x, verbose=0), outputs, atol=1e-5)
    assert model.changes == [] and "a/kernel" in {
        w.path for w in model.trainable_weights
    }


class Subclass(exburn.Model):
    def __init__(self):
        super().__init__()
        self.inner = layers.Dense(64, name="a")

    def call(self, x):
        return self.inner(x)


def nested():
    inner = exburn.Sequential([exburn.Input((64,)), layers.Dense(64)], name="inner")
    return exburn.Sequential([exburn.Input((64,)), inner, layers.Dense(10)])


@pytest.mark.parametrize("build", [make, nested, Subclass])
@pytest.mark.parametrize("dtype", [None, "int8"])
def test_a_clone_with_fresh_weights_has_the_adapters(build, dtype):
    model = build()
    model(np.ones((1, 64), np.float32))
    model = model.quantize(dtype) if dtype else model
    model.add_lora(3)
    clones = [exburn.models.clone_model(model)]
    if model.graph is not None:
        x = exburn.Input((64,))
        clones += [exburn.models.clone_model(model, x, recursive=r) for r in (0, 1)]
    for clone in clones:
        assert clone.changes == model.changes
        assert list(weights(clone)) == list(weights(model))
        learns = [w.path for w in model.trainable_weights]
        assert [w.path for w in clone.trainable_weights] == learns


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"rank": 0}, errors.ArgumentError),
        ({"rank": 257}, errors.ArgumentError),
        ({"rank": 2, "lora_alpha": -1.0}, errors.ArgumentError),
    ],
)
def test_bad_adapters_of_one_layer_are_refused(trained, options, error):
    before = weights(trained)
    with pytest.raises(error):
        trained.get_layer("b").enable_lora(**options)
    assert same(before, trained) and trained.changes == []
    with pytest.raises(errors.NotBuiltError):
        layers.Dense(3).enable_lora(2)
    with pytest.raises(errors.ArgumentError, match="no adapter for"):
        exburn.Sequential([exburn.Input((8, 8, 3)), layers.DepthwiseConv2D(3)]).layers[
            0
        ].enable_lora(2)
