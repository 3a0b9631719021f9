"""What attention layers promise beyond Keras' behaviour."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from tests.layers.check_layer import check_layer
from tests.layers.peer import data, run

from exburn import config, errors, layers, ops
from exburn.core import forward_context
from exburn.layers.attention import projected
from exburn.layers.attention.scaled_dot_product import attend, why_not_cudnn
from exburn.module.symbolic_tensor import Symbol

X = data(4, 6, 8)
CONTRACT = {
    "MultiHeadAttention": (
        lambda **k: layers.MultiHeadAttention(2, 4, sliding_window=2, **k),
        (X, X),
        {"free": (1,), "call": {"use_causal_mask": True}},
    ),
    "GroupedQueryAttention": (
        lambda **k: layers.GroupedQueryAttention(4, 4, 2, dropout=0.2, **k),
        (X, X[:, :3]),
        {"random": True, "call": {"return_attention_scores": True}},
    ),
    "Attention": (
        lambda **k: layers.Attention(use_scale=True, score_mode="concat", **k),
        ([X, X[:, :3]],),
        {},
    ),
    "AdditiveAttention": (
        lambda **k: layers.AdditiveAttention(dropout=0.2, **k),
        ([X, X],),
        {"free": (1,), "random": True},
    ),
    "RotaryEmbedding": (lambda **k: layers.RotaryEmbedding(**k), (X,), {"free": (1,)}),
}


@pytest.mark.parametrize("name", CONTRACT)
def test_contract(name):
    make, inputs, options = CONTRACT[name]
    check_layer(make, *inputs, **options)


def test_one_product_for_self_attention_is_three_products():
    layer = layers.MultiHeadAttention(2, 4, value_dim=3)
    fused = jax.jit(lambda x: layer(x, x))
    layer(X, X)
    x = jnp.asarray(X)
    apart = layer(x, x + 0, x * 1)
    np.testing.assert_allclose(fused(x), apart, rtol=1e-5, atol=1e-5)
    products = str(jax.make_jaxpr(lambda x: layer(x, x))(x)).count("dot_general")
    assert products == 4  # the projections, scores, values, the output


def test_masks_of_the_inputs_hold_and_are_passed_on():
    ids = np.array([[3, 1, 2, 0], [2, 0, 0, 0]])
    embed = layers.Embedding(5, 8, mask_zero=True)
    layer = layers.MultiHeadAttention(2, 4)
    with forward_context.forward(forward_context.Context()) as ctx:
        x = embed(ids)
        y, scores = layer(x, x, return_attention_scores=True)
        assert ctx.mask_of(y).tolist() == (ids != 0).tolist()
        assert ctx.mask_of(scores) is None
        named = layer(query=x, value=x)
        assert ctx.mask_of(named).tolist() == (ids != 0).tolist()
        cross = layer(jnp.asarray(X[:2]), x)
        assert ctx.mask_of(cross) is None
    assert (np.array(scores)[0, :, :3, 3] == 0).all()
    assert (np.array(scores)[1, :, 0, 1:] == 0).all()
    alone = layer(embed(ids[:, :3])[:1], embed(ids[:, :3])[:1])
    np.testing.assert_allclose(np.array(y)[0, :3], alone[0], rtol=1e-5, atol=1e-5)


def test_masks_of_a_plain_attention():
    ids = np.array([[3, 1, 0], [2, 0, 0]])
    embed = layers.Embedding(5, 8, mask_zero=True)
    with forward_context.forward(forward_context.Context()) as ctx:
        x = embed(ids)
        y = layers.Attention()([x, x])
        assert ctx.mask_of(y).tolist() == (ids != 0).tolist()
    assert (np.array(y)[ids == 0] == 0).all()


def test_positions_that_see_nothing_stay_finite():
    layer = layers.MultiHeadAttention(2, 4)
    layer(X, X)
    nothing = np.zeros((4, 6, 6), bool)
    out, grads, d_inputs, _ = run(layer, (X, X), {"attention_mask": nothing})
    for value in (*out, *grads, *d_inputs):
        assert np.isfinite(value).all()


def test_masks_of_several_axes():
    """Attention over a plane is attention over its flattened positions."""
    plane = data(2, 3, 4, 8)
    flat = plane.reshape(2, 12, 8)
    mask = data(2, 12, 12, seed=1) > 0
    seen = data(2, 12, seed=2) > 0
    seen[:, 0] = True
    layer, over = layers.MultiHeadAttention(2, 4), layers.MultiHeadAttention(2, 4)
    a = layer(flat, flat, attention_mask=mask, value_mask=seen)
    over(plane, plane)
    over.set_weights(layer.get_weights())
    b = over(
        plane,
        plane,
        attention_mask=mask.reshape(2, 3, 4, 3, 4),
        value_mask=seen.reshape(2, 3, 4),
    )
    np.testing.assert_allclose(b.reshape(2, 12, 8), a, rtol=1e-5, atol=1e-5)


def test_mask_a_head():
    layer = layers.MultiHeadAttention(2, 4)
    mask = np.ones((1, 2, 6, 6), bool)
    mask[:, 1, :, 1:] = False
    _, scores = layer(X, X, attention_mask=mask, return_attention_scores=True)
    np.testing.assert_allclose(np.array(scores)[:, 1, :, 0], 1, rtol=1e-6)
    assert (np.array(scores)[:, 0] < 1).all()


def test_dropout_drops_weights_in_training():
    layer = layers.MultiHeadAttention(1, 4, dropout=0.5, seed=3)
    _, scores = layer(X, X, return_attention_scores=True)
    np.testing.assert_allclose(np.array(scores).sum(-1), 1, rtol=1e-5)
    a, b = (np.array(layer(X, X, training=True)) for _ in range(2))
    assert np.abs(a - b).max() > 1e-3
    np.testing.assert_array_equal(layer(X, X), layer(X, X))


def test_rotary_sees_distances():
    rotary = layers.RotaryEmbedding()
    q, k = jnp.ones((1, 6, 1, 8)) * data(8), jnp.ones((1, 6, 1, 8)) * data(8, seed=1)
    scores = jnp.einsum("btnh,bsnh->ts", rotary(q), rotary(k))
    for offset in range(-3, 4):
        diagonal = jnp.diagonal(scores, offset)
        np.testing.assert_allclose(diagonal, diagonal[0], rtol=1e-4, atol=1e-4)
    assert np.ptp(np.array(scores)[0]) > 0.1
    later = rotary(q, start_index=3)
    np.testing.assert_allclose(later[:, :3], rotary(q)[:, 3:], rtol=1e-4, atol=1e-4)
    given = rotary(q, positions=np.arange(3, 9)[None])
    np.testing.assert_allclose(given, later, rtol=1e-5, atol=1e-5)


def test_rotary_is_its_formula():
    x = data(2, 5, 3, 6)
    angle = np.arange(5)[:, None] / 2.0 * 100.0 ** (-np.arange(3) / 3)
    z = (x[..., :3] + 1j * x[..., 3:]) * np.exp(1j * angle)[None, :, None]
    expected = np.concatenate([z.real, z.imag], -1)
    y = layers.RotaryEmbedding(max_wavelength=100, scaling_factor=2.0)(x)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    heads_first = layers.RotaryEmbedding(
        max_wavelength=100, scaling_factor=2.0, sequence_axis=2
    )
    y = heads_first(x.swapaxes(1, 2)).swapaxes(1, 2)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_attention_with_rotary_is_blind_to_a_shift():
    layer = layers.MultiHeadAttention(2, 4, rotary=layers.RotaryEmbedding())
    y = layer(X, X)
    padded = np.concatenate([np.zeros((4, 3, 8), "float32"), X], axis=1)
    seen = (np.arange(9) >= 3)[None].repeat(4, 0)
    z = layer(padded, padded, value_mask=seen)
    np.testing.assert_allclose(np.array(z)[:, 3:], y, rtol=1e-3, atol=1e-4)
    again = layers.MultiHeadAttention.from_config(layer.get_config())
    assert again.rotary.max_wavelength == 10000


def test_the_projections_have_the_names_of_keras():
    layers_of = [m.MultiHeadAttention(2, 4) for m in (layers, keras.layers)]
    for layer in layers_of:
        layer(X, X)
    for name in ("query", "key", "value", "output"):
        ours, theirs = (getattr(layer, f"{name}_dense") for layer in layers_of)
        assert tuple(ours.kernel.shape) == tuple(theirs.kernel.shape)


def test_symbols():
    x = Symbol((None, None, 8), "float32")
    other = Symbol((None, 7, 4), "float32")
    layer = layers.MultiHeadAttention(2, 4)
    y, scores = layer(x, other, return_attention_scores=True)
    assert y.shape == (None, None, 8)
    assert scores.shape == (None, 2, None, 7)
    plane = Symbol((None, None, None, 8), "float32")
    assert layers.MultiHeadAttention(2, 4)(plane, plane).shape == (None, None, None, 8)


def test_grouped_attend_repeats_heads():
    q, k, v = data(2, 5, 4, 3), data(2, 6, 2, 3, seed=1), data(2, 6, 2, 5, seed=2)
    a = attend(q, k, v, scale=0.5, causal=True)
    b = attend(q, k.repeat(2, 2), v.repeat(2, 2), scale=0.5, causal=True)
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("own", "setting", "runs"),
    [
        (None, None, True),
        (None, True, True),
        (None, False, False),
        (True, False, True),
        (False, True, False),
    ],
)
def test_the_setting_of_flash_attention_counts_where_the_layer_has_none(
    own, setting, runs, monkeypatch
):
    monkeypatch.setattr(projected, "why_not_cudnn", lambda *_: None)
    monkeypatch.setitem(config._settings, "flash_attention", setting)
    layer = layers.MultiHeadAttention(2, 8, flash_attention=own)
    assert layer._cudnn(X, X, X, None) is runs


@pytest.mark.cpu
def test_flash_attention_on_a_cpu_says_why_not():
    layer = layers.MultiHeadAttention(2, 8, flash_attention=True)
    with pytest.raises(errors.ArgumentError, match="JAX runs on cpu"):
        layer(X, X)
    assert why_not_cudnn(X, X, X, None) == "JAX runs on cpu"
    assert layers.MultiHeadAttention(2, 8, flash_attention=False)(X, X).shape == X.shape


ERRORS = {
    "heads": (lambda: layers.MultiHeadAttention(0, 4), "num_heads"),
    "dropout": (lambda: layers.MultiHeadAttention(2, 4, dropout=1.5), "dropout"),
    "flash-dropout": (
        lambda: layers.MultiHeadAttention(2, 4, dropout=0.1, flash_attention=True),
        "dropout",
    ),
    "axes": (lambda: layers.MultiHeadAttention(2, 4, attention_axes=3)(X, X), "axes"),
    "ranks": (lambda: layers.MultiHeadAttention(2, 4)(X, X[:, None]), "rank"),
    "positions": (
        lambda: layers.MultiHeadAttention(2, 4)(X, X, X[:, :2]),
        "same positions",
    ),
    "groups": (lambda: layers.GroupedQueryAttention(4, 3, 2), "multiple"),
    "mask-rank": (
        lambda: layers.MultiHeadAttention(2, 4)(X, X, attention_mask=X[0, 0] > 0),
        "targets, sources",
    ),
    "no-list": (lambda: layers.Attention()(X), "list"),
    "mode": (lambda: layers.Attention(score_mode="sum"), "score_mode"),
    "odd": (lambda: layers.RotaryEmbedding()(X[..., :5]), "even"),
    "factor": (lambda: layers.RotaryEmbedding(scaling_factor=0), "positive"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    make, words = ERRORS[case]
    with pytest.raises((errors.ArgumentError, errors.ShapeError), match=words):
        make()


def test_a_subclass_with_a_cache_runs_as_in_keras():
    """By the names that Keras' layer has for its projections and sizes."""

    def subclass_of(base, ops):
        class Cached(base):
            def call(self, query, cache, index):
                heads = self._query_dense(query)
                cache = ops.slice_update(
                    cache, [0, index, 0, 0], self._key_dense(query)
                )
                assert cache.shape[-2:] == (self._num_heads, self._key_dim)
                values = self._value_dense(query)
                out, _ = self._compute_attention(
                    heads, cache[:, : index + 1], values, training=False
                )
                return self._output_dense(out)

        return Cached(2, 4, value_dim=4)

    ours = subclass_of(layers.MultiHeadAttention, ops)
    theirs = subclass_of(keras.layers.MultiHeadAttention, keras.ops)
    x = np.random.default_rng(0).normal(size=(3, 1, 8)).astype("float32")
    for layer in (ours, theirs):
        layer.build((3, 1, 8), (3, 1, 8))
    ours.set_weights([np.array(w.value) for w in theirs.weights])
    cache = np.zeros((3, 5, 2, 4), "float32")
    np.testing.assert_allclose(
        ours(x, cache, index=0), theirs(x, cache, index=0), atol=1e-5
    )


@pytest.mark.parametrize("name", ["MultiHeadAttention", "GroupQueryAttention"])
def test_the_projections_are_called_as_in_keras(name):
    sizes = {"MultiHeadAttention": (2, 4), "GroupQueryAttention": (4, 2, 1)}[name]
    found = []
    for space in (layers, keras.layers):
        layer = getattr(space, name)(*sizes)
        layer.build((None, 5, 8), (None, 5, 8))
        dense = ("query_dense", "key_dense", "value_dense", "output_dense")
        private = [getattr(layer, f"_{attribute}") for attribute in dense]
        found.append([part.name for part in private])
    assert found[0] == found[1] == ["query", "key", "value", "attention_output"]
