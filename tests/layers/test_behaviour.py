"""What layers promise beyond the contract: masks, noise, wrapping, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.layers.check_layer import check_layer, pure

from exburn import layers as L
from exburn.core import forward_context, registry
from exburn.errors import ArgumentError
from exburn.models import Sequential
from exburn.training.module import SplitModule

rng = np.random.default_rng(0)
X = rng.normal(size=(4, 6)).astype("float32")
SEQUENCE = rng.normal(size=(2, 3, 4)).astype("float32")
KEY = jax.random.key(0)


# ------------------------------------------------------------------------- inputs
def test_input_is_a_symbol_of_its_layer():
    x = L.Input((28, None), name="image", dtype="uint8")
    assert (x.shape, x.dtype, x.name) == ((None, 28, None), "uint8", "image")
    assert x.call.callee.is_input
    assert L.Input(batch_shape=(8, 3)).shape == (8, 3)
    assert L.Input(3, batch_size=8).shape == (8, 3)
    assert L.Input(()).shape == (None,)


def test_input_layer_survives_its_configuration():
    layer = L.InputLayer((3, None), 8, "int32", name="ids", optional=True)
    copy = L.InputLayer.from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()
    assert (copy.batch_shape, copy.dtype, copy.optional) == (
        (8, 3, None),
        "int32",
        True,
    )


@pytest.mark.parametrize(
    "options", [{}, {"shape": (1,), "batch_shape": (1, 1)}, {"shape": ("a",)}]
)
def test_input_refuses(options):
    with pytest.raises(ArgumentError, match="Input"):
        L.Input(**options)


# -------------------------------------------------------------------------- masks
def masked(layer, inputs, masks):
    """The output's mask for inputs that carry masks."""
    ctx = forward_context.Context(training=False, key=KEY)
    inputs = [jnp.asarray(x) for x in inputs]
    for x, m in zip(inputs, masks, strict=True):
        if m is not None:
            ctx.set_mask(x, jnp.asarray(m))
    with forward_context.forward(ctx):
        given = (
            inputs if isinstance(layer, L.Add | L.Concatenate | L.Dot) else inputs[0]
        )
        return ctx.mask_of(layer(given))


M = np.array([[True, True, False], [True, False, False]])
N = np.array([[True, False, True], [True, False, False]])


@pytest.mark.parametrize(
    "layer",
    [
        L.Dense(3),
        L.Activation("tanh"),
        L.LayerNormalization(),
        L.BatchNormalization(),
        L.Dropout(0.5),
        L.PReLU(),
        L.Rescaling(2.0),
        L.ActivityRegularization(),
    ],
    ids=lambda layer: layer.name,
)
def test_layers_that_keep_positions_hand_the_mask_on(layer):
    np.testing.assert_array_equal(masked(layer, [SEQUENCE], [M]), M)


@pytest.mark.parametrize(
    "layer",
    [L.Flatten(), L.Conv1D(3, 2), L.GlobalAveragePooling1D(), L.Permute((2, 1))],
    ids=lambda layer: layer.name,
)
def test_layers_that_move_positions_drop_the_mask(layer):
    assert masked(layer, [SEQUENCE], [M]) is None


def test_masks_of_merged_inputs():
    two = [SEQUENCE, SEQUENCE + 1]
    np.testing.assert_array_equal(masked(L.Add(), two, [M, N]), M | N)
    assert masked(L.Add(), two, [M, None]) is None
    along_time = masked(L.Concatenate(1), two, [M, None])
    np.testing.assert_array_equal(along_time, np.concatenate([M, M | True], 1))
    np.testing.assert_array_equal(masked(L.Concatenate(), two, [M, N]), M | N)
    assert masked(L.Dot(2), two, [M, N]) is None


def test_a_propagated_mask_reaches_the_average():
    x = jnp.asarray(SEQUENCE)
    ctx = forward_context.Context()
    ctx.set_mask(x, jnp.asarray(M))
    with forward_context.forward(ctx):
        y = L.GlobalAveragePooling1D()(x)
    expected = [SEQUENCE[0, :2].mean(0), SEQUENCE[1, :1].mean(0)]
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_a_mask_that_hides_everything_gives_finite_values_and_gradients():
    hidden = np.zeros((2, 3), bool)
    for layer in (L.GlobalAveragePooling1D(), L.Softmax(), L.BatchNormalization()):
        layer(SEQUENCE)
        function, state = pure(layer, training=True, mask=jnp.asarray(hidden))
        y, after, _ = function(state, KEY, SEQUENCE)
        assert np.isfinite(y).all()
        for old, new in zip(state, after, strict=True):
            np.testing.assert_array_equal(old, new)  # moving statistics stay
        grad = jax.grad(lambda x, f=function, s=state: f(s, KEY, x)[0].sum())(SEQUENCE)
        assert np.isfinite(grad).all()


# ---------------------------------------------------------------- normalization
def test_batch_statistics_are_exact_far_from_zero():
    x = (rng.normal(size=(256, 3)) * 0.1 + 5000).astype("float32")
    layer = L.BatchNormalization(momentum=0.0, epsilon=0.0)
    y = np.asarray(layer(x, training=True))
    exact = x.astype("float64")
    np.testing.assert_allclose(layer.moving_variance.numpy(), exact.var(0), rtol=1e-3)
    np.testing.assert_allclose(
        y, (exact - exact.mean(0)) / exact.std(0), rtol=1e-2, atol=1e-2
    )


def test_batch_normalization_keeps_gradients_exact_far_from_zero():
    x = rng.normal(size=(64, 5, 3)).astype("float32") + 1000
    slope = rng.normal(size=x.shape).astype("float32")
    layer = L.BatchNormalization()
    layer(x)
    split = SplitModule(layer)
    params, *rest = split.read()

    def loss(params):
        return (split.forward((params, *rest), x, training=True)[0] * slope).sum()

    grads = jax.grad(loss)(params)
    exact = x.astype("float64")
    unit = (exact - exact.mean((0, 1))) / np.sqrt(exact.var((0, 1)) + 1e-3)
    np.testing.assert_allclose(grads["gamma"], (unit * slope).sum((0, 1)), rtol=1e-5)


def test_padding_rows_may_be_nan():
    layer = L.BatchNormalization()
    layer(X)
    padded = np.concatenate([X, np.full((2, 6), np.nan, "float32")])
    rows = jnp.arange(6) < 4
    function, state = pure(layer, training=True)

    def loss(leaves, x, rows):
        y, after, _ = function(leaves, KEY, x, rows=rows)
        return jnp.sum(jnp.where(jnp.arange(len(y)) < 4, y.T, 0) ** 3), after

    grad = jax.grad(loss, (0, 1), has_aux=True)
    expected, after = grad(state, X, None)
    result, padded_after = grad(state, padded, rows)
    for a, b in zip(padded_after + result[0], after + expected[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(result[1][:4], expected[1], rtol=1e-5, atol=1e-5)


def test_statistics_stay_in_float32():
    layer = L.BatchNormalization(dtype="bfloat16")
    layer(X)
    assert {w.name: str(w.dtype) for w in layer.weights} == {
        "gamma": "bfloat16",
        "beta": "bfloat16",
        "moving_mean": "float32",
        "moving_variance": "float32",
    }


def test_rms_over_another_axis():  # Keras 3.15 cannot broadcast its scale there
    layer = L.RMSNormalization(axis=1, epsilon=0)
    expected = SEQUENCE / np.sqrt((SEQUENCE**2).mean(1, keepdims=True))
    np.testing.assert_allclose(layer(SEQUENCE), expected, rtol=1e-5)
    assert layer.scale.shape == (3,)


def test_spectral_norm_becomes_one_in_inference_too():
    layer = L.SpectralNormalization(L.Dense(5, use_bias=False), 1)
    layer(np.eye(6, dtype="float32"))
    before = layer.layer.kernel.numpy()
    for _ in range(60):
        layer(np.eye(6, dtype="float32"), training=True)
    y = layer(np.eye(6, dtype="float32"))
    assert abs(np.linalg.norm(y, 2) - 1) < 1e-3
    np.testing.assert_array_equal(layer.layer.kernel.numpy(), before)


# ------------------------------------------------------------------------ noise
NOISE = {
    "dropout": (L.Dropout(0.3), 1, 3 / 7),
    "gaussian_dropout": (L.GaussianDropout(0.3), 1, 3 / 7),
    "gaussian_noise": (L.GaussianNoise(0.5), 1, 0.25),
}


@pytest.mark.parametrize("name", NOISE)
def test_noise_has_the_right_mean_and_variance(name):
    layer, mean, variance = NOISE[name]
    with forward_context.key_scope(KEY):
        y = np.asarray(layer(np.ones((300, 300), "float32"), training=True))
    assert abs(y.mean() - mean) < 0.01
    assert abs(y.var() - variance) < 0.01


def test_alpha_dropout_keeps_mean_and_variance():
    x = rng.normal(size=(300, 300)).astype("float32")
    with forward_context.key_scope(KEY):
        y = np.asarray(L.AlphaDropout(0.4)(x, training=True))
    assert abs(y.mean()) < 0.02 and abs(y.var() - 1) < 0.03
    values, counts = np.unique(y, return_counts=True)
    assert abs(counts.max() / y.size - 0.4) < 0.01  # the dropped entries are equal


def test_noise_is_a_function_of_key_and_seed():
    layer, other = L.Dropout(0.5), L.Dropout(0.5, seed=3)
    function, _ = pure(layer, training=True)
    seeded, _ = pure(other, training=True)
    x, second = np.ones((8, 8), "float32"), jax.random.key(1)
    first = function([], KEY, x)[0]
    np.testing.assert_array_equal(first, function([], KEY, x)[0])
    assert np.any(first != function([], second, x)[0])
    assert np.any(first != seeded([], KEY, x)[0])


@pytest.mark.parametrize(
    ("layer", "shape", "axes"),
    [
        (L.SpatialDropout1D(0.5), (8, 5, 6), (1,)),
        (L.SpatialDropout2D(0.5), (8, 5, 4, 6), (1, 2)),
        (L.SpatialDropout2D(0.5, data_format="channels_first"), (8, 6, 5, 4), (2, 3)),
        (L.SpatialDropout3D(0.5), (8, 3, 4, 5, 6), (1, 2, 3)),
        (L.Dropout(0.5, noise_shape=(None, 1)), (8, 6), (1,)),
        (L.Dropout(0.5, noise_shape=(6,)), (8, 6), (0,)),
    ],
    ids=lambda v: v.name if hasattr(v, "name") else None,
)
def test_dropout_is_shared_along_axes(layer, shape, axes):
    with forward_context.key_scope(KEY):
        y = np.asarray(layer(np.ones(shape, "float32"), training=True))
    assert (y.min(axes) == y.max(axes)).all()
    assert set(np.unique(y)) == {0.0, 2.0}


def test_dropout_of_nothing_and_of_everything():
    np.testing.assert_array_equal(L.Dropout(0.0)(X, training=True), X)
    np.testing.assert_array_equal(L.Dropout(1.0)(X, training=True), 0 * X)


# ---------------------------------------------------------------------- pooling
TIES = np.array([[1, 2, 2, 0], [2, 1, 0, 2]], "float32")[None, :, :, None]


@pytest.mark.parametrize("strides", [2, 1])
def test_the_gradient_of_a_maximum_goes_to_the_first_of_equals(strides):
    layer = L.MaxPooling2D(2, strides)
    expected = [[0, 1, 1, 0], [0, 0, 0, 0]]
    if strides == 1:  # the middle window holds 2, 2, 1, 0
        expected = [[0, 2, 1, 0], [0, 0, 0, 0]]
    layer(TIES)
    grad = jax.grad(lambda x: layer(x).sum())(jnp.asarray(TIES))
    np.testing.assert_array_equal(grad[0, :, :, 0], expected)
    _, tangent = jax.jvp(layer, (TIES,), (jnp.arange(8.0).reshape(TIES.shape),))
    np.testing.assert_array_equal(
        tangent.ravel(), [1, 2] if strides == 2 else [1, 1, 2]
    )


@pytest.mark.parametrize("pool", [(1, None), (2, None), (2, 1), (6, 1), (9, None)])
@pytest.mark.parametrize("cls", [L.MaxPooling2D, L.AveragePooling2D])
def test_every_way_of_pooling_keeps_nan_and_agrees(cls, pool):
    x = rng.normal(size=(2, 12, 13, 3)).astype("float32")
    x[0, 7, 7, 1] = np.nan
    size, strides = pool
    reducer = np.max if cls is L.MaxPooling2D else np.mean
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (1, 2))
    windows = windows[:, :: strides or size, :: strides or size]
    layer = cls(size, strides)
    y = layer(x)
    grad = jax.grad(lambda x: layer(x).sum())(np.nan_to_num(x))
    np.testing.assert_allclose(grad.sum(), y.size, rtol=1e-4)
    np.testing.assert_allclose(y, reducer(windows, (-1, -2)), rtol=1e-4, atol=1e-5)
    assert np.isnan(y).any()


def test_maximum_of_integers():
    x = np.arange(16, dtype="uint8").reshape(1, 4, 4, 1)
    y = L.MaxPooling2D(2, padding="same")(x)
    assert y.dtype == "uint8"
    np.testing.assert_array_equal(y.ravel(), [5, 7, 13, 15])
    assert L.MaxPooling2D(3, 1)(x).ravel().tolist() == [10, 11, 14, 15]


# --------------------------------------------------------------------- wrapping
class Block(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(6, 5, rngs=rngs)
        self.norm = nnx.BatchNorm(5, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.dropout(self.norm(self.linear(x)))


def test_a_module_is_a_layer():
    def make(**options):
        return L.ModuleLayer(Block(nnx.Rngs(0)), **options)

    check_layer(make, X, config=False, half=False, random=True, learns=True)


def test_a_module_is_told_about_training_and_left_as_it_was():
    block = Block(nnx.Rngs(0))
    layer = L.ModuleLayer(block)
    idle = layer(X)
    mean = block.norm.mean.get_value()
    with forward_context.key_scope(KEY):
        busy = layer(X, training=True)
    assert np.sum(np.asarray(busy) == 0) > 0 and np.all(np.asarray(idle) != 0)
    assert np.any(block.norm.mean.get_value() != mean)
    assert block.dropout.deterministic is False  # as nnx made it
    assert int(block.dropout.rngs.count.get_value()) == 0


def test_a_module_can_be_copied_but_not_described():
    layer = L.ModuleLayer(Block(nnx.Rngs(0)), name="block")
    copy = layer.clone()
    np.testing.assert_array_equal(layer(X), copy(X))
    assert copy.module is not layer.module and copy.name == "block"
    with pytest.raises(ArgumentError, match="registered Layer"):
        layer.get_config()


def test_randomness_of_a_module_follows_the_key_of_the_pass():
    layer = L.ModuleLayer(Block(nnx.Rngs(0)))
    function, state = pure(layer, training=True)
    first = function(state, KEY, X)[0]
    np.testing.assert_array_equal(first, function(state, KEY, X)[0])
    assert np.any(first != function(state, jax.random.key(1), X)[0])


def test_lambda_passes_what_the_function_takes():
    def f(x, training, mask, scale=1.0):
        return x * scale if training else x + jnp.where(mask, 10.0, 0.0)[..., None]

    layer = L.Lambda(f, arguments={"scale": 3.0})
    np.testing.assert_allclose(layer(SEQUENCE, training=True, mask=M), SEQUENCE * 3)
    np.testing.assert_allclose(layer(SEQUENCE, mask=M), SEQUENCE + 10 * M[..., None])
    assert L.Function is L.Lambda


def test_lambda_sets_the_mask():
    layer = L.Lambda(
        lambda x: x[:, :2], mask=lambda x, m: None if m is None else m[:, :2]
    )
    np.testing.assert_array_equal(masked(layer, [SEQUENCE], [M]), M[:, :2])


@registry.register
def double_it(x):
    return 2 * x


def test_lambda_of_a_registered_function_has_a_configuration():
    layer = L.Lambda.from_config(L.Lambda(double_it).get_config())
    np.testing.assert_array_equal(layer(X), 2 * X)
    model = Sequential([L.Input((2,)), L.Lambda(lambda x: x)])
    with pytest.raises(ArgumentError, match="Register"):
        model.to_json()


def test_an_activation_may_be_a_layer():
    dense = L.Dense(3, activation=L.PReLU())
    assert dense(X).shape == (4, 3)
    assert {w.name for w in dense.weights} == {"kernel", "bias", "alpha"}
