"""Kernels of ours on a GPU; here they are interpreted."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import exburn
from exburn import config, layers
from exburn.kernels import (
    attention_softmax,
    biased_gelu,
    dispatch,
    memory_bound,
    one_pass_norm,
    qkv_projection,
    recurrent_loop,
    row_softmax,
)
from exburn.layers.recurrent.cell import RecurrentCell

LONGEST = [pytest.mark.long, pytest.mark.longest]
DTYPES = ["bfloat16", pytest.param("float16", marks=LONGEST)]


@pytest.fixture
def kernels(monkeypatch):
    """Lets the kernels take everything that they can, and counts their calls."""
    calls = []

    def options(warps=4):
        calls.append(warps)
        return {"interpret": True}

    monkeypatch.setattr(memory_bound, "ELEMENTS", 0)
    for module in (
        biased_gelu,
        one_pass_norm,
        qkv_projection,
        row_softmax,
        recurrent_loop,
    ):
        monkeypatch.setattr(module, "runs_kernels", lambda: True)
        monkeypatch.setattr(module, "options", options)
    return calls


def close(found, expected, tolerance):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
        np.testing.assert_allclose(a, b, atol=tolerance * max(1, abs(b).max()))


def losses(model, data):
    """Of two epochs."""
    history = model.fit(data, data[..., :1], batch_size=4, epochs=2, verbose=0)
    return history.history["loss"]


def derivatives(function, *args):
    """The value, the gradients, and gradients of a number made of the gradients."""

    def total(*args):
        return (function(*args).astype(jnp.float32) ** 2).mean()

    def bend(*args):
        grads = jax.grad(total, argnums=range(len(args)))(*args)
        return sum((g.astype(jnp.float32) ** 2).sum() for g in jax.tree.leaves(grads))

    every = tuple(range(len(args)))
    return function(*args), jax.grad(total, every)(*args), jax.grad(bend, every)(*args)


def pure(layer, *shapes):
    """A function of inputs and weights, and random weights."""
    layer.build(*shapes)
    assert layer.weights
    graph, state = nnx.split(layer)
    leaves, treedef = jax.tree.flatten(state)
    rng = np.random.default_rng(1)
    weights = [jnp.asarray(rng.standard_normal(w.shape) / 4, w.dtype) for w in leaves]

    def call(x, *weights):
        return nnx.merge(graph, treedef.unflatten(weights))(*[x] * len(shapes))

    return call, weights


@pytest.mark.parametrize("features", [384, pytest.param(2048, marks=pytest.mark.long)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_normalization_agrees_with_the_plain_form(request, features, dtype):
    rng = np.random.default_rng(0)
    x = jnp.asarray(3 * rng.standard_normal((2, 32, features)) + 1, dtype)
    layer = layers.LayerNormalization(dtype=f"mixed_{dtype}")
    normalize, weights = pure(layer, x.shape)
    plain = derivatives(normalize, x, *weights)
    calls = request.getfixturevalue("kernels")
    found = derivatives(normalize, x, *weights)
    assert len(calls) >= 2, "the kernels were not used"
    assert found[0].dtype == x.dtype
    close(found, plain, 1e-2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu_agrees_with_the_plain_form(request, dtype):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((4, 2, 16)), dtype)
    layer = layers.Dense(768, "gelu", dtype=f"mixed_{dtype}")
    dense, weights = pure(layer, x.shape)
    plain = derivatives(dense, x, *weights)
    calls = request.getfixturevalue("kernels")
    found = derivatives(dense, x, *weights)
    assert 1 in calls, "the kernel was not used"
    assert found[0].dtype == x.dtype
    close(found, plain, 2e-2)
    calls.clear()
    layers.Dense(760, "gelu", dtype=dtype)(x)  # in no equal blocks
    layers.Dense(768, "gelu")(x.astype("float32"))
    layers.Dense(768, "gelu", dtype=dtype, use_bias=False)(x)
    assert not calls


@pytest.mark.parametrize(
    ("shape", "dtype", "runs"),
    [
        ((4, 16, 256), "bfloat16", True),
        ((4, 16, 256), "float32", False),
        ((4, 15, 256), "bfloat16", False),  # no whole number of programs
        ((4, 16, 260), "bfloat16", False),
        ((4, 16, 64), "bfloat16", False),  # fewer groups than threads
        ((1, 32, 8192), "bfloat16", False),  # more than registers hold
    ],
)
def test_arrays_that_layer_normalization_leaves_to_xla(kernels, shape, dtype, runs):
    layer = layers.LayerNormalization(dtype=dtype, center=False, scale=False)
    assert layer(jnp.ones(shape, dtype)).shape == shape
    assert bool(kernels) is runs


def test_other_axes_are_left_to_xla(kernels):
    layers.LayerNormalization(axis=(1, 2), dtype="bfloat16")(jnp.ones((64, 4, 256)))
    assert not kernels


@pytest.mark.long
@pytest.mark.parametrize("bias", [pytest.param(True, marks=pytest.mark.longest), False])
def test_attentions_gradients_are_joined(request, bias):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((2, 32, 16)), "bfloat16")
    heads = layers.GroupQueryAttention(
        256, 2, 1, use_bias=bias, dtype="mixed_bfloat16", flash_attention=False
    )
    attend, weights = pure(heads, x.shape, x.shape)
    plain = derivatives(attend, x, *weights)
    calls = request.getfixturevalue("kernels")
    found = derivatives(attend, x, *weights)
    assert bool(calls) is bias  # without one there is no sum to save
    close(found, plain, 2e-2)


def test_a_transformer_trains_the_same(request):
    def trained():
        x = exburn.Input((16, 256))
        y = layers.MultiHeadAttention(2, 128, dtype="mixed_bfloat16")(x, x)
        y = layers.LayerNormalization(dtype="mixed_bfloat16")(y)
        model = exburn.Model(x, layers.Dense(1)(y))
        model.compile("adam", "mse")
        return losses(model, np.random.default_rng(0).standard_normal((16, 16, 256)))

    plain = trained()
    calls = request.getfixturevalue("kernels")
    np.testing.assert_allclose(trained(), plain, rtol=2e-2)
    assert calls


@pytest.mark.cpu  # a GPU would run them in both
def test_small_arrays_are_normalized_by_kernels_in_fit(request, monkeypatch):
    def model():
        x = exburn.Input((16, 128))
        y = layers.LayerNormalization(name="first")(layers.Dense(128)(x))
        y = layers.LayerNormalization()(y)
        made = exburn.Model(x, layers.Dense(1)(y))
        made.compile("sgd", "mse", seed=0)
        return made

    data = np.random.default_rng(0).standard_normal((24, 16, 128), np.float32)

    large = memory_bound.ELEMENTS
    plain = losses(model(), data)
    calls = request.getfixturevalue("kernels")
    monkeypatch.setattr(memory_bound, "ELEMENTS", large)
    made = model()
    np.testing.assert_allclose(losses(made, data), plain, rtol=1e-5)
    assert len(calls) == 2  # forward and back; each once for both layers
    made.evaluate(data, data[..., :1], 4, verbose=0)
    made.predict(data, 4, verbose=0)
    made(data, training=True)
    layer = made.get_layer("first")
    assert jax.jvp(layer, (data,), (data,))[1].shape == data.shape
    assert len(calls) == 2


def test_softmax_of_rows_agrees_with_the_plain_form(kernels):
    scores = jnp.asarray(np.random.default_rng(0).standard_normal((2, 64, 32)) * 3)
    scores = scores.at[0, 0].set(-1e30).at[0, 1, :20].set(-1e30)
    plain = derivatives(lambda x: jax.nn.softmax(x, -1), scores)
    close(derivatives(row_softmax.softmax, scores), plain, 1e-5)
    assert kernels


@pytest.mark.parametrize(
    ("shape", "dtype", "fits"),
    [
        ((2, 32, 32), "float32", True),
        ((1, 4096), "float32", True),
        ((2, 32, 24), "float32", False),
        ((1, 8192), "float32", False),
        ((3, 5, 32), "float32", False),
        ((2, 32, 32), "bfloat16", False),
    ],
)
def test_rows_that_the_kernels_take(kernels, shape, dtype, fits):
    assert row_softmax.fits(jax.ShapeDtypeStruct(shape, dtype)) is fits


@pytest.mark.cpu  # a GPU would run them in both
def test_attention_takes_them_in_fit(request, monkeypatch):
    def model():
        x = exburn.Input((16, 8))
        y = layers.MultiHeadAttention(2, 4, dropout=0.2)(x, x, use_causal_mask=True)
        made = exburn.Model(x, layers.Dense(1)(y))
        made.compile("sgd", "mse", seed=0)
        return made

    data = np.random.default_rng(0).standard_normal((8, 16, 8), np.float32)

    plain = losses(model(), data)
    calls = request.getfixturevalue("kernels")
    monkeypatch.setattr(memory_bound, "ELEMENTS", 1 << 22)
    monkeypatch.setattr(attention_softmax, "chosen_platform", lambda: "gpu")
    made = model()
    np.testing.assert_allclose(losses(made, data), plain, rtol=1e-5)
    assert len(calls) == 2  # forward and back
    made.evaluate(data, data[..., :1], 4, verbose=0)
    jax.jvp(lambda x: made(x, training=True), (data,), (data,))
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("backend", "capability", "runs"),
    [("gpu", "9.0", 1), ("gpu", "7.5", 0), ("gpu", "gfx942", 0), ("cpu", "9.0", 0)],
)
def test_gpus_that_have_the_kernels(monkeypatch, backend, capability, runs):
    device = types.SimpleNamespace(compute_capability=capability)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert dispatch.runs_kernels() == bool(runs)
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    assert not dispatch.runs_kernels()
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    monkeypatch.setattr(dispatch, "_has_triton", lambda: False)
    assert not dispatch.runs_kernels()
    monkeypatch.setitem(config._settings, "gpu_kernels", False)
    assert not dispatch.runs_kernels()
    assert "disable_gpu_kernels" in str(dispatch.why_not())


RECURRENT = {
    "lstm": lambda **options: layers.LSTM(16, **options),
    "gru": lambda **options: layers.GRU(16, **options),
    "simple": lambda **options: layers.SimpleRNN(16, **options),
}


def looped(name, dtype="float32", steps=3, masked=False, **options):
    """Of a recurrent layer: what gives its value and gradients, and its arguments."""
    layer = RECURRENT[name](dtype=dtype, **options)
    x = np.random.default_rng(0).standard_normal((5, steps, 6)).astype("float32")
    mask = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1], [0, 0, 0]], bool)
    layer(x)
    graph, state = nnx.split(layer)
    factors = np.random.default_rng(1).standard_normal(3)

    def total(x, state):
        kwargs = {"mask": mask} if masked else {}
        y = nnx.merge(graph, state)(x, **kwargs).astype(jnp.float32)
        return (y**2 * factors[:, None]).sum() if y.ndim == 3 else (y**2).sum()

    return total, (jnp.asarray(x), nnx.as_pure(state))


@pytest.fixture
def hoisted(monkeypatch):
    """Inputs are projected before the loop, as on an accelerator."""
    monkeypatch.setattr(RecurrentCell, "hoist", True)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param(
            "lstm", {"return_sequences": True, "masked": True}, marks=pytest.mark.long
        ),
        pytest.param("gru", {"masked": True, "go_backwards": True}, marks=LONGEST),
        pytest.param("gru", {"return_sequences": True}, marks=LONGEST),
        pytest.param("lstm", {"dtype": "mixed_bfloat16"}, marks=LONGEST),
        pytest.param("simple", {"return_sequences": True}, marks=LONGEST),
    ],
)
def test_loops_agree_with_those_of_xla(request, hoisted, name, options):
    total, args = looped(name, **options)
    plain = jax.value_and_grad(total, (0, 1))(*args)
    calls = request.getfixturevalue("kernels")
    found = jax.jit(jax.value_and_grad(total, (0, 1)))(*args)
    assert len(calls) >= 2, "the kernels were not used"
    close(found, plain, 2e-2 if "dtype" in options else 1e-5)


@pytest.mark.long
def test_gradients_of_a_loops_gradients_are_those_of_xla(request, hoisted):
    total, args = looped("gru")

    def bend(x, state):
        return (jax.grad(total)(x, state) ** 2).sum()

    plain = jax.grad(bend)(*args)
    request.getfixturevalue("kernels")
    close(jax.grad(bend)(*args), plain, 1e-4)


def test_loops_that_are_left_to_xla(monkeypatch):
    monkeypatch.setattr(recurrent_loop, "runs_kernels", lambda: True)

    def fits(step, units, dtype="float32"):
        xs = jax.ShapeDtypeStruct((7, 4, step.gates * units), dtype)
        w = {"recurrent_kernel": jax.ShapeDtypeStruct((units, units), dtype)}
        return recurrent_loop.fits(
            step, xs, w, (jax.ShapeDtypeStruct((4, units), dtype),)
        )

    lstm, gru = layers.LSTM(8).cell.step, layers.GRU(8).cell.step
    assert fits(lstm, 64) and fits(gru, 64) and fits(gru, 64, "bfloat16")
    assert not fits(lstm, 128)  # no room for its kernel
    assert not fits(lstm, 48) and not fits(lstm, 8)  # Triton's sizes
    assert not fits(lstm, 64, "float64")
    assert not fits(layers.LSTM(8, activation="relu").cell.step, 64)
    assert not fits(layers.GRU(8, reset_after=False).cell.step, 64)
    with jax.default_matmul_precision("bfloat16"):
        assert not fits(lstm, 64)


@pytest.mark.parametrize(("masked", "runs"), [(False, True), (True, False)])
def test_large_scores_without_a_mask_go_through_the_kernels(kernels, masked, runs):
    mask = jnp.ones((64, 16), bool) if masked else None
    scores = jnp.zeros((64, 16))
    attention_softmax.masked_softmax(scores, mask, "kernels")
    assert memory_bound.memory_bound(scores)
    assert bool(kernels) is runs
