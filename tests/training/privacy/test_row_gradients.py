"""Clipped sums without gradients of rows, beside those with them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import exburn
from exburn import layers, losses, optimizers
from exburn.training.privacy import clipping, ghost_norms
from exburn.training.privacy.clipping import clipped_sum
from exburn.training.privacy.row_gradients import RowLosses

RNG = np.random.default_rng(0)
ROWS = 7


def normal(*shape):
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def convolve(x, w, **options):
    layout = options.pop("layout", ("NHWC", "HWIO", "NHWC"))
    options = {"window_strides": (1, 1), "padding": "SAME", **options}
    return lax.conv_general_dilated(x, w, dimension_numbers=layout, **options)


def lookup(table, x, mode):
    return jnp.take(table, x, 0, mode=mode)


PLACES = jnp.asarray(RNG.integers(-2, 12, (ROWS, 6)))
IMAGES = normal(ROWS, 6, 5, 4)
LAST = ("NCHW", "OIHW", "NCHW")

# The function of a row and its weights, its weights, rows, and those with a ghost norm.
CASES = {
    "dense": (
        lambda p, x: jnp.tanh(x @ p["w"] + p["b"]),
        {"w": (5, 4), "b": (4,)},
        normal(ROWS, 1, 5),
        "w",
    ),
    "positions": (lambda p, x: x @ p["w"], {"w": (2, 30)}, normal(ROWS, 9, 2), "w"),
    "few positions": (
        lambda p, x: x @ p["w"],
        {"w": (12, 8)},
        normal(ROWS, 3, 12),
        "w",
    ),
    "weight first": (
        lambda p, x: jnp.einsum("ij,tj->it", p["w"], x),
        {"w": (4, 5)},
        normal(ROWS, 6, 5),
        "w",
    ),
    "heads": (
        lambda p, x: jnp.einsum("thc,hcd->thd", x, p["w"]),
        {"w": (3, 4, 2)},
        normal(ROWS, 6, 3, 4),
        "w",
    ),
    "heads first": (
        lambda p, x: jnp.einsum("hcd,thc->htd", p["w"], x),
        {"w": (3, 4, 2)},
        normal(ROWS, 6, 3, 4),
        "w",
    ),
    "joined": (
        lambda p, x: jnp.sin(x @ jnp.concatenate([p["q"].reshape(5, 4), p["k"].T], 1)),
        {"q": (5, 2, 2), "k": (3, 5)},
        normal(ROWS, 4, 5),
        "kq",
    ),
    "in a call": (
        lambda p, x: jax.jit(lambda w, x: jnp.cos(x @ w.T))(p["w"], x),
        {"w": (4, 5)},
        normal(ROWS, 3, 5),
        "w",
    ),
    "convolution": (
        lambda p, x: convolve(x[None], p["w"], window_strides=(2, 1)),
        {"w": (3, 2, 4, 3)},
        IMAGES,
        "w",
    ),
    "dilated": (
        lambda p, x: convolve(x[None], p["w"], rhs_dilation=(2, 1), padding="VALID"),
        {"w": (2, 3, 4, 3)},
        IMAGES,
        "w",
    ),
    "transposed": (
        lambda p, x: convolve(
            x[None], p["w"], lhs_dilation=(2, 2), padding=[(2, 1), (1, 2)]
        ),
        {"w": (3, 3, 4, 2)},
        IMAGES,
        "w",
    ),
    "cut": (
        lambda p, x: convolve(x[None], p["w"], padding=[(-1, 2), (1, -2)]),
        {"w": (2, 2, 4, 2)},
        IMAGES,
        "w",
    ),
    "wide": (
        lambda p, x: convolve(
            x[None], p["w"], window_strides=(2, 1), rhs_dilation=(1, 2)
        ),
        {"w": (4, 3, 4, 3)},
        IMAGES,
        "w",
    ),
    "wide of groups": (
        lambda p, x: convolve(x, p["w"], feature_group_count=2),
        {"w": (4, 3, 2, 6)},
        normal(ROWS, 2, 5, 4, 4),
        "w",
    ),
    "patches": (
        lambda p, x: convolve(x[None], p["w"], window_strides=(4, 3), padding="VALID"),
        {"w": (4, 3, 2, 8)},
        normal(ROWS, 8, 6, 2),
        "w",
    ),
    "reversed": (
        lambda p, x: convolve(x[None], p["w"][::-1, ::-1]),
        {"w": (3, 2, 4, 3)},
        IMAGES,
        "w",
    ),
    "groups": (
        lambda p, x: convolve(x[None], p["w"], feature_group_count=2),
        {"w": (3, 3, 2, 6)},
        IMAGES,
        "w",
    ),
    "depthwise": (
        lambda p, x: convolve(x[None], p["w"], feature_group_count=4),
        {"w": (3, 3, 1, 8)},
        IMAGES,
        "w",
    ),
    "few windows": (
        lambda p, x: convolve(x, p["w"]),
        {"w": (3, 3, 16, 16)},
        normal(ROWS, 1, 3, 3, 16),
        "w",
    ),
    "few windows of groups": (
        lambda p, x: convolve(x, p["w"], feature_group_count=2, padding="VALID"),
        {"w": (2, 2, 12, 28)},
        normal(ROWS, 1, 4, 4, 24),
        "w",
    ),
    "few windows of several images": (
        lambda p, x: convolve(x, p["w"], layout=LAST),
        {"w": (26, 26, 3, 3)},
        normal(ROWS, 2, 26, 3, 3),
        "w",
    ),
    "few windows in steps": (
        lambda p, x: convolve(
            x, p["w"], window_strides=(2, 1), padding=[(2, 2), (0, 0)]
        ),
        {"w": (5, 1, 20, 20)},
        normal(ROWS, 1, 25, 1, 20),
        "w",
    ),
    "channels first": (
        lambda p, x: convolve(x[None], p["w"], layout=LAST),
        {"w": (3, 6, 2, 3)},
        IMAGES,
        "w",
    ),
    "table": (lambda p, x: lookup(p["w"], x, "clip"), {"w": (9, 3)}, PLACES, "w"),
    "table with holes": (
        lambda p, x: jnp.nan_to_num(lookup(p["w"], x, "fill")),
        {"w": (9, 3)},
        PLACES,
        "w",
    ),
    "known places": (
        lambda p, x: lookup(p["w"], x, "wrap"),
        {"w": (9, 3)},
        PLACES,
        "w",
    ),
    "tied": (
        lambda p, x: lookup(p["w"], x, "clip") @ p["w"].T,
        {"w": (9, 3)},
        PLACES,
        "",
    ),
    "penalty": (
        lambda p, x: jnp.sum(x @ p["w"]) + jnp.sum(p["w"] ** 2),
        {"w": (5, 4)},
        normal(ROWS, 2, 5),
        "",
    ),
    "by itself": (
        lambda p, x: x @ (p["a"] @ p["b"]),
        {"a": (5, 2), "b": (2, 4)},
        normal(ROWS, 2, 5),
        "",
    ),
    "repeated": (
        lambda p, x: lax.fori_loop(0, 3, lambda i, x: jnp.tanh(x @ p["w"]), x),
        {"w": (5, 5)},
        normal(ROWS, 2, 5),
        "",
    ),
    "broadcast": (
        lambda p, x: x @ jnp.broadcast_to(p["w"], (5, 4)),
        {"w": (1, 4)},
        normal(ROWS, 2, 5),
        "",
    ),
    "stopped": (
        lambda p, x: x @ p["w"] + x @ lax.stop_gradient(p["v"]),
        {"v": (5, 4), "w": (5, 4)},
        normal(ROWS, 2, 5),
        "w",
    ),
    "rounded": (
        lambda p, x: x @ p["w"] + x @ p["v"].astype(jnp.int8).astype(jnp.float32),
        {"v": (5, 4), "w": (5, 4)},
        normal(ROWS, 2, 5),
        "w",
    ),
    "halves": (
        lambda p, x: x.astype(jnp.bfloat16) @ p["w"].astype(jnp.bfloat16),
        {"w": (5, 4)},
        normal(ROWS, 2, 5),
        "w",
    ),
    "halves of images": (
        lambda p, x: convolve(x.astype(jnp.bfloat16), p["w"].astype(jnp.bfloat16)),
        {"w": (3, 3, 16, 16)},
        normal(ROWS, 1, 3, 3, 16),
        "w",
    ),
}


def case(name):
    """The loss of a row, and weights."""
    function, shapes, *_ = CASES[name]
    rng = np.random.default_rng(1)
    params = {
        n: jnp.asarray(rng.normal(size=s), jnp.float32) for n, s in shapes.items()
    }

    def loss(params, row, number):
        value = jnp.mean(jnp.square(function(params, row).astype(jnp.float32) + 0.1))
        return value * (1 + number), number

    return loss, params


def sums_by_hand(name, clip=0.7):
    """The clipped sum of what JAX makes of each row."""
    loss, params = case(name)
    rows = jax.vmap(jax.grad(loss, has_aux=True), (None, 0, 0))
    gradients, _ = jax.jit(rows)(params, CASES[name][2], jnp.arange(ROWS))
    return clipped_sum(gradients, clip)


def sums_of(name, norms, clip=0.7, x=None, counts=None):
    loss, params = case(name)
    data = CASES[name][2] if x is None else x
    rows = RowLosses(loss, params, data, norms)
    counts = jnp.ones(ROWS, bool) if counts is None else counts
    sums, seen = jax.jit(rows.clipped_sums)(params, data, counts, clip)
    np.testing.assert_array_equal(seen, np.arange(ROWS))
    return sums, rows.kinds


@pytest.mark.parametrize("name", CASES)
def test_sums_are_those_of_gradients_by_rows(name):
    ghost, kinds = sums_of(name, "ghost")
    rows, by_rows = sums_of(name, "rows")
    assert set(by_rows.values()) == {"rows"}
    assert (
        "".join(n for n, kind in sorted(kinds.items()) if kind == "ghost")
        == CASES[name][3]
    )
    # In bfloat16 JAX rounds the gradient of each row.
    near = {"atol": 1e-2 if name.startswith("halves") else 1e-5}
    for weight, values in sums_by_hand(name).items():
        assert np.abs(values).max() > 1e-3 or weight == "v"
        np.testing.assert_allclose(ghost[weight], values, **near)
        np.testing.assert_allclose(rows[weight], values, **near)


@pytest.mark.parametrize("norms", ["ghost", "rows"])
@pytest.mark.parametrize("name", ["halves", "halves of images"])
def test_a_row_in_bfloat16_counts_for_no_more_than_the_clip(name, norms):
    sums, _ = sums_of(name, norms, clip=0.01, counts=jnp.arange(ROWS) == 2)
    assert np.linalg.norm(np.ravel(sums["w"])) == pytest.approx(0.01, rel=1e-5)


def test_products_of_few_windows_are_computed_once_for_all(monkeypatch):
    """The sum of products of each window would be the same, after nine times more."""

    def none(windows):
        raise AssertionError("windows were taken one by one")

    monkeypatch.setattr(ghost_norms.Windows, "parts", none)
    for name in CASES:
        if name.startswith("few windows"):
            sums_of(name, "ghost")


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_a_row_without_a_norm_counts_for_nothing(bad):
    x = CASES["dense"][2]
    counts = jnp.arange(ROWS) != 5
    ghost, _ = sums_of("dense", "ghost", x=x.at[2].set(bad), counts=counts)
    without, _ = sums_of("dense", "rows", counts=counts & (jnp.arange(ROWS) != 2))
    np.testing.assert_allclose(ghost["w"], without["w"], atol=1e-5)
    np.testing.assert_allclose(ghost["b"], without["b"], atol=1e-5)


def test_rows_in_turns_are_those_at_once(monkeypatch):
    whole, _ = sums_of("dense", "ghost")
    monkeypatch.setattr(clipping, "_BYTES", 50)
    turns, _ = sums_of("dense", "ghost")
    np.testing.assert_allclose(turns["w"], whole["w"], rtol=1e-5)


def test_patches_have_ghost_norms_by_themselves():
    assert sums_of("patches", "auto")[1] == {"w": "ghost"}
    assert sums_of("wide", "auto")[1] == {"w": "rows"}


def test_by_itself_what_is_smaller_has_ghost_norms():
    kinds = [
        sums_of(name, "auto")[1] for name in ("few positions", "dense", "positions")
    ]
    assert kinds[0] == {"w": "ghost"} and kinds[2] == {"w": "rows"}
    assert kinds[1] == {"w": "ghost", "b": "rows"}


class Attends(layers.Layer):
    """A block of attention, with its residual."""

    def __init__(self):
        super().__init__()
        self.attention = layers.MultiHeadAttention(2, 3, dropout=0.3)
        self.norm = layers.LayerNormalization()

    def call(self, x):
        return self.norm(x + self.attention(x, x))


def body_of(name):
    if name == "images":
        return [
            exburn.Input((8, 8, 4)),
            layers.Conv2D(6, 3, strides=2, padding="same", activation="relu"),
            layers.SeparableConv2D(6, 3),
            layers.GroupNormalization(2),
            layers.Flatten(),
        ]
    first = exburn.Input((6,), dtype="int32"), layers.Embedding(9, 4, name="table")
    return [*first, Attends(), layers.GRU(5)]


@pytest.mark.parametrize("name", ["images", "tokens"])
def test_a_fit_is_that_of_gradients_by_rows(name):
    pytest.importorskip("dp_accounting")
    rng, y = np.random.default_rng(0), np.arange(12) % 3
    x = rng.integers(0, 9, (12, 6))
    x = rng.normal(size=(12, 8, 8, 4)).astype(np.float32) if name == "images" else x
    steps = []
    for norms in ("ghost", "rows"):
        exburn.utils.set_random_seed(3)
        model = exburn.Sequential([*body_of(name), layers.Dense(3, name="out")])
        privacy = exburn.Privacy(noise=1e-6, delta=1e-5, clip=0.3, norms=norms)
        loss = losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizers.SGD(1.0), loss, seed=1, privacy=privacy)
        assert model.privacy.norms == {}
        before = model.get_weights()
        model.fit(x, y, batch_size=12, epochs=1, verbose=0)
        kinds = model.privacy.norms
        steps.append([a - b for a, b in zip(model.get_weights(), before, strict=True)])
        asked = {"out/kernel": norms, "out/bias": "rows"}
        if name == "tokens":
            asked |= {"table/embeddings": norms, "gru/cell/kernel": "rows"}
            asked["attends/attention/query/kernel"] = norms
        else:
            asked |= {"conv2d/kernel": norms, "group_normalization/gamma": "rows"}
        assert asked.items() <= kinds.items()
    assert sum(np.square(rows).sum() for rows in steps[1]) > 1e-3
    for ghost, rows in zip(*steps, strict=True):
        np.testing.assert_allclose(ghost, rows, atol=1e-5)
