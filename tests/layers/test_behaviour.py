"""What layers promise beyond the contract: masks, noise, wrapping, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.layers.check_layer import check_layer, pure

import exburn
from exburn import context, registry
from exburn import layers as L
from exburn.errors import ArgumentError, ShapeError

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
    pass_ = context.Context(training=False, key=KEY)
    inputs = [jnp.asarray(x) for x in inputs]
    for x, m in zip(inputs, masks, strict=True):
        if m is not None:
            pass_.set_mask(x, jnp.asarray(m))
    with context.forward(pass_):
        given = (
            inputs if isinstance(layer, L.Add | L.Concatenate | L.Dot) else inputs[0]
        )
        return pass_.mask_of(layer(given))


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
    pass_ = context.Context()
    pass_.set_mask(x, jnp.asarray(M))
    with context.forward(pass_):
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
    with context.key_scope(KEY):
        y = np.asarray(layer(np.ones((300, 300), "float32"), training=True))
    assert abs(y.mean() - mean) < 0.01
    assert abs(y.var() - variance) < 0.01


def test_alpha_dropout_keeps_mean_and_variance():
    x = rng.normal(size=(300, 300)).astype("float32")
    with context.key_scope(KEY):
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
    with context.key_scope(KEY):
        y = np.asarray(layer(np.ones(shape, "float32"), training=True))
    assert (y.min(axes) == y.max(axes)).all()
    assert set(np.unique(y)) == {0.0, 2.0}


def test_dropout_of_nothing_and_of_everything():
    np.testing.assert_array_equal(L.Dropout(0.0)(X, training=True), X)
    np.testing.assert_array_equal(L.Dropout(1.0)(X, training=True), 0 * X)


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
    with context.key_scope(KEY):
        busy = layer(X, training=True)
    assert np.sum(np.asarray(busy) == 0) > 0 and np.all(np.asarray(idle) != 0)
    assert np.any(block.norm.mean.get_value() != mean)
    assert block.dropout.deterministic is False  # as nnx made it
    assert int(block.dropout.rngs.count.get_value()) == 0


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
    with pytest.raises(ArgumentError, match="Register"):
        L.Lambda(lambda x: x).get_config()


def test_an_activation_may_be_a_layer():
    dense = L.Dense(3, activation=L.PReLU())
    assert dense(X).shape == (4, 3)
    assert {w.name for w in dense.weights} == {"kernel", "bias", "alpha"}


# ------------------------------------------------------------------------ names
def test_functional_forms():
    two = [X, X + 1]
    for name in ("add", "subtract", "multiply", "average", "maximum", "minimum"):
        result = getattr(L, name)(two)
        np.testing.assert_array_equal(result, getattr(L, name.capitalize())()(two))
    assert L.concatenate(two, axis=0).shape == (8, 6)
    assert L.dot(two, axes=1, normalize=True).shape == (4, 1)
    symbol = L.add([L.Input(3), L.Input(3)])
    assert symbol.shape == (None, 3)


def test_serialize_and_deserialize():
    layer = L.deserialize(L.serialize(L.Dense(3, "relu", name="head")))
    assert (layer.units, layer.name) == (3, "head")

    class Odd(L.Dense):
        pass

    config = L.serialize(Odd(2))
    assert isinstance(L.deserialize(config, {"Odd": Odd}), Odd)


def test_image_data_format_is_the_default():
    from exburn.layers import layout

    assert layout.image_data_format() == "channels_last"
    layout.set_image_data_format("channels_first")
    try:
        assert L.MaxPooling2D()(np.ones((1, 3, 8, 8))).shape == (1, 3, 4, 4)
    finally:
        layout.set_image_data_format("channels_last")


# ----------------------------------------------------------------------- errors
BAD_ARGUMENTS = [
    (lambda: L.Dense(0), "units is an integer >= 1"),
    (lambda: L.Dense(2.5), "units is an integer"),
    (lambda: L.Dense(3, kernel_size=2), "unknown argument 'kernel_size'"),
    (lambda: L.Conv2D(3, (1, 2, 3)), "kernel_size is an integer or 2 of them"),
    (lambda: L.Conv2D(3, 3, padding="causal"), "padding is one of valid, same"),
    (lambda: L.Conv2D(3, 3, groups=2), "groups=2 does not divide filters=3"),
    (lambda: L.Conv2D(3, 3, 2, dilation_rate=2), "exclude each other"),
    (lambda: L.Conv2DTranspose(3, 3, 2, output_padding=2), "smaller than strides"),
    (lambda: L.MaxPooling2D(0), "pool_size is an integer >= 1"),
    (lambda: L.Flatten("last"), "data_format is one of"),
    (lambda: L.Dropout(1.5), "0 <= rate <= 1"),
    (lambda: L.Dropout(0.5, noise_shape=(0,)), "noise_shape"),
    (lambda: L.GaussianNoise(-1), "stddev is >= 0"),
    (lambda: L.AlphaDropout(1), "0 <= rate < 1"),
    (lambda: L.ReLU(max_value=-1), "max_value is >= 0"),
    (lambda: L.LeakyReLU(None), "negative_slope"),
    (lambda: L.Permute((0, 1)), "dims holds 1 to 2"),
    (lambda: L.Reshape((-1, -1)), "one -1 at most"),
    (lambda: L.Dot(0), "not the batch's"),
    (lambda: L.EinsumDense("ab->b", 3), "not an equation"),
    (lambda: L.EinsumDense("ab,bc->ad", 3), "not an equation"),
    (lambda: L.EinsumDense("ab,bc->ac", 3, bias_axes="x"), "bias_axes"),
    (lambda: L.GroupNormalization(0), "groups is an integer >= 1"),
    (lambda: L.BatchNormalization(renorm_clipping={"rmax": 1, "rmin": 2}), "rmin <="),
    (lambda: L.Wrapper(3), "a layer is needed"),
    (lambda: L.ModuleLayer(3), "an nnx.Module is needed"),
    (lambda: L.Lambda(3), "a function is needed"),
    (lambda: L.ZeroPadding2D((1, 2, 3)), "padding has 2 entries"),
    (lambda: L.UpSampling2D(interpolation="cubic"), "interpolation is one of"),
    (lambda: L.Add()(X), "a list of inputs is needed"),
    (lambda: L.Subtract()([X, X, X]), "two inputs are needed"),
    (lambda: L.SpectralNormalization(L.Flatten())(X), "neither a kernel"),
]


@pytest.mark.parametrize(
    ("make", "text"), BAD_ARGUMENTS, ids=[t for _, t in BAD_ARGUMENTS]
)
def test_arguments_that_cannot_work(make, text):
    with pytest.raises(ArgumentError) as caught:
        make()
    assert text in str(caught.value)


IMAGE = np.ones((2, 4, 4, 3), "float32")
BAD_SHAPES = [
    (L.Conv2D(3, 5), IMAGE, "window is larger than the input"),
    (L.MaxPooling2D(5), IMAGE, "window is larger than the input"),
    (L.Conv2D(3, 3), X, "an input of rank 4"),
    (L.Conv2D(4, 3, groups=2), IMAGE, "does not divide the 3 input channels"),
    (L.Cropping2D(2), IMAGE, "leaves nothing of axis 1"),
    (L.Reshape((5, 5)), X, "6 entries a sample"),
    (L.Reshape((-1, 4)), X, "6 entries a sample"),
    (L.Add(), [X, X[:, :4]], "the inputs do not broadcast"),
    (L.Concatenate(1), [X, X[:2]], "may differ on axis 1 only"),
    (L.Dot(1), [X, X[:, :4]], "differ"),
    (L.GroupNormalization(4), X, "must divide the number of channels"),
    (L.EinsumDense("abc,cd->abd", (None, 3)), X, "must have the axes 'abc'"),
    (L.EinsumDense("ab,bc->ac", (3, 3)), X, "one entry for each"),
    (L.RepeatVector(3), IMAGE, "rank 2"),
]


@pytest.mark.parametrize(
    ("layer", "x", "text"), BAD_SHAPES, ids=[b[2] for b in BAD_SHAPES]
)
def test_shapes_that_do_not_fit(layer, x, text):
    with pytest.raises(ShapeError) as caught:
        layer(x)
    assert text in str(caught.value)
    assert any("in layer" in note for note in caught.value.__notes__)


def test_a_layer_keeps_to_the_size_it_was_built_for():
    layer = L.Dense(3)
    layer(X)
    with pytest.raises(ShapeError, match="size 6 on axis -1"):
        layer(X[:, :5])


def test_public_names_are_classes_and_functions_of_keras():
    keras_layers = pytest.importorskip("keras").layers
    ours = set(L.__all__)
    own = {"Function", "InputSpec", "ModuleLayer"}
    assert own <= ours
    unknown = {n for n in ours - own if not hasattr(keras_layers, n)}
    assert unknown == set() and exburn.layers is L
