"""What ops do beyond Keras' numbers: control flow, weights, graphs and refusals."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn import Input, Model, errors, layers, ops
from exburn.core.jax_dispatch import original
from exburn.layers import Dense
from exburn.module.layer import Layer
from exburn.module.symbolic_tensor import OPERATIONS

X = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")
RGB = np.ones((1, 4, 4, 3), "float32")


# ---------------------------------------------------------------------- arguments
def test_lists_scalars_and_wide_numbers_are_converted():
    assert ops.sum([1.0, 2.5]).dtype == "float32"
    assert ops.add([[1, 2]], (3, 4)).tolist() == [[4, 6]]
    assert ops.multiply(np.ones(2), np.array([1, 2])).dtype == "float32"
    assert ops.array(np.arange(3)).dtype == "int32"
    assert ops.add(jnp.ones(2, "bfloat16"), 1.5).dtype == "bfloat16"
    assert ops.stack([1, 2, 3]).tolist() == [1, 2, 3]
    assert ops.concatenate([[1, 2], [3]]).tolist() == [1, 2, 3]
    assert ops.einsum("i,i", [1, 2], [3, 4]).tolist() == 11
    assert ops.reshape([1, 2], (None, 1)).shape == (2, 1)


def test_arguments_may_be_named_as_in_keras():
    assert ops.sum(x=X, axis=0, keepdims=True).shape == (1, 6)
    assert ops.sum(X, 0, True).shape == (1, 6)
    assert ops.where(condition=X > 0, x1=1, x2=0).sum() == (X > 0).sum()
    with pytest.raises(TypeError, match="takes 3 arguments"):
        ops.sum(X, 0, True, None)
    with pytest.raises(TypeError, match="two values for argument 'x'"):
        ops.sum(X, x=X)
    with pytest.raises(TypeError):
        ops.sum(X, axes=0)


def test_weights_are_arguments():
    layer = Dense(3)
    y = layer(X)
    same = ops.add(ops.matmul(X, layer.kernel), layer.bias)
    np.testing.assert_allclose(same, y, rtol=1e-6)
    both = ops.concatenate([layer.kernel, ops.zeros((1, 3))])
    assert both.shape == (7, 3)
    assert ops.shape(layer.kernel) == (6, 3)
    assert ops.convert_to_numpy(layer.bias).tolist() == [0, 0, 0]
    assert ops.sum([layer.bias, layer.bias]) == 0


def test_ops_run_in_compiled_code_and_have_gradients():
    def f(x):
        return ops.sum(ops.square(ops.tanh(ops.reshape(x, (-1,)))))

    gradient = jax.jit(jax.grad(f))(X)
    np.testing.assert_allclose(gradient, 2 * np.tanh(X) / np.cosh(X) ** 2, rtol=1e-4)
    quotient = jax.grad(lambda x: ops.sum(ops.divide_no_nan(X, x)))(jnp.zeros(6))
    assert np.isfinite(quotient).all()
    assert np.isfinite(jax.grad(lambda x: ops.cdist(x, x).sum())(X)).all()


# ---------------------------------------------------------------------- control flow
def test_control_flow():
    carry, ys = ops.scan(lambda c, x: (c + x, c * x), 0.0, np.arange(3.0))
    assert (float(carry), ys.tolist()) == (3.0, [0.0, 0.0, 2.0])
    assert ops.associative_scan(ops.add, np.array([1, 2, 3])).tolist() == [1, 3, 6]
    assert ops.while_loop(lambda i: i < 9, lambda i: i + 2, 0, 3).tolist() == 6
    got = ops.while_loop(lambda i, s: i < 4, lambda i, s: [i + 1, s * 2], [0, 1])
    assert [int(v) for v in got] == [4, 16]
    assert int(ops.fori_loop(0, 3, lambda i, v: v + i, 4)) == 7
    assert ops.map(lambda x: x * 2, np.arange(3)).tolist() == [0, 2, 4]
    assert ops.vectorized_map(ops.sum, X).shape == (4,)
    a, b = ops.vectorized_map(lambda xy: (xy[0] + xy[1], xy[0]), (X, X))
    np.testing.assert_allclose(a, 2 * b)
    assert int(ops.switch(1, [lambda x: x, lambda x: x * 10], 4)) == 40
    assert ops.cond(True, lambda: "yes", lambda: "no") == "yes"
    assert int(jax.jit(lambda p: ops.cond(p, lambda: 1, lambda: 2))(False)) == 2
    primal, tangent = ops.jvp(ops.square, (3.0,), (1.0,))
    assert (float(primal), float(tangent)) == (9.0, 6.0)
    assert ops.vectorize(lambda a, b: a + b)(np.arange(2), 1).tolist() == [1, 2]


def test_custom_gradient_with_keras_upstream_argument():
    @ops.custom_gradient
    def log1pexp(x):
        e = ops.exp(x)

        def grad(*args, upstream=None):
            (upstream,) = args if upstream is None else (upstream,)
            return upstream * (1 - 1 / (1 + e))

        return ops.log(1 + e), grad

    assert float(jax.grad(log1pexp)(100.0)) == 1.0
    layer = Dense(1)
    layer(X)
    assert float(log1pexp(layer.bias)[0]) == pytest.approx(np.log(2), rel=1e-6)


def test_branches_on_symbols_select():
    x = Input((6,), name="x")
    total = ops.sum(x)
    model = Model(x, ops.cond(total > 0, lambda: x * 2, lambda: -x))
    np.testing.assert_allclose(model(np.abs(X)), 2 * np.abs(X))
    np.testing.assert_allclose(model(-np.abs(X)), np.abs(X))
    with pytest.raises(errors.GraphError):
        ops.cond(total > 0, lambda: x, lambda: (x, x))


# ---------------------------------------------------------------------- own numbers
def test_sparsemax_is_a_distribution():
    rows = ops.sparsemax(X)
    np.testing.assert_allclose(rows.sum(-1), 1, rtol=1e-6)
    assert (rows == 0).any() and (rows >= 0).all()


def test_eig():
    matrix = X[:, :4]
    values, vectors = ops.eig(matrix)
    np.testing.assert_allclose(matrix @ vectors, values * vectors, atol=1e-4)


@pytest.mark.parametrize("window", ["hann", None])
def test_istft_inverts_stft(window):
    signal = np.random.default_rng(1).normal(size=(2, 64)).astype("float32")
    parts = ops.stft(signal, 16, 4, 32, window)
    back = ops.istft(parts, 16, 4, 32, length=64, window=window)
    np.testing.assert_allclose(back, signal, atol=1e-5)


def test_pools_step_by_their_size():
    image = np.arange(16.0, dtype="float32").reshape(1, 4, 4, 1)
    assert ops.max_pool(image, 2).ravel().tolist() == [5, 7, 13, 15]
    assert ops.average_pool(image, (2, 4)).ravel().tolist() == [3.5, 11.5]


def test_elastic_transform_moves_pixels_both_ways():
    image = np.random.default_rng(0).uniform(size=(1, 24, 24, 1)).astype("float32")
    rows = np.broadcast_to(np.arange(24.0)[:, None, None], (24, 24, 1))
    both = np.stack([rows, rows.swapaxes(0, 1)]).astype("float32")
    moved = ops.image.elastic_transform(both, 10.0, 3.0, seed=1)
    apart = np.asarray(moved) - both
    assert np.abs(apart).mean() > 0.3
    down, right = apart[0, 4:-4, 4:-4, 0].ravel(), apart[1, 4:-4, 4:-4, 0].ravel()
    assert abs(np.corrcoef(down, right)[0, 1]) < 0.5
    again = ops.image.elastic_transform(image[0], 10.0, 3.0, seed=2)
    assert again.shape == (24, 24, 1)
    assert not np.allclose(again, image[0])


def test_affine_transform_divides_by_the_projective_row():
    image = np.arange(6.0, dtype="float32").reshape(1, 6, 1)
    moved = ops.image.affine_transform(image, [1.0, 0, 0, 0, 1.0, 0, 1.0, 0])
    x = np.arange(6.0)
    np.testing.assert_allclose(moved.ravel(), x / (x + 1), rtol=1e-6)


def test_attention_with_capped_logits():
    q = np.random.default_rng(0).normal(size=(2, 5, 4, 8)).astype("float32") * 5
    free = ops.dot_product_attention(q, q, q, is_causal=True)
    loose = ops.dot_product_attention(q, q, q, is_causal=True, attn_logits_soft_cap=1e9)
    capped = ops.dot_product_attention(
        q, q, q, is_causal=True, attn_logits_soft_cap=1.0
    )
    np.testing.assert_allclose(loose, free, rtol=1e-4, atol=1e-4)
    assert not np.allclose(capped, free, atol=0.1)


# ---------------------------------------------------------------------- graphs
def build():
    x, y = Input((6,), name="x"), Input((6,), name="y")
    z = ops.concatenate([ops.tanh(x), y + 1], axis=-1)
    z = ops.stack([z, ops.clip(z, -0.5, 0.5)], axis=1)
    z = ops.einsum("bij,jk->bk", z, np.ones((12, 3), "float32"))
    z = ops.where(z > 0, z, ops.multiply(z, 0.1))
    a, b, c = ops.split(Dense(6)(z), 3, axis=-1)
    z = ops.reshape(ops.expand_dims(a, 1), (-1, 2)) * ops.softmax(b) + c[:, :2]
    z = ops.cast(ops.one_hot(ops.argmax(z, -1), 4), "float32") + ops.mean(
        z, axis=-1, keepdims=True
    )
    return Model({"x": x, "y": y}, ops.squeeze(ops.unstack(z[:, None], axis=1)[0]))


def test_models_of_ops_are_described_and_rebuilt():
    model = build()
    config = json.loads(json.dumps(model.get_config()))
    again = Model.from_config(config)
    again.set_weights(model.get_weights())
    data = {"x": X, "y": X[::-1].copy()}
    np.testing.assert_array_equal(model(data), again(data))
    assert model.output_shape == (None, 4)


def test_ops_and_operators_of_symbols_share_names():
    assert OPERATIONS["add"] is original(jnp.add)
    assert OPERATIONS["abs"] is original(jnp.abs)
    assert OPERATIONS["cast"] is original(jnp.astype)
    x = Input((6,))
    model = Model(x, abs(ops.abs(x) + x) - ops.subtract(x, 1))
    again = Model.from_config(model.get_config())
    np.testing.assert_array_equal(model(X), again(X))


class Tokens(Layer):
    """Asks for the batch size in ``call``, as much Keras code does."""

    def build(self, input_shape):
        self.token = self.add_weight((1, 1, input_shape[-1]), "ones", name="token")

    def call(self, x):
        batch = ops.shape(x)[0]
        token = ops.broadcast_to(self.token, (batch, 1, ops.shape(x)[-1]))
        steps = ops.arange(ops.shape(x)[1])
        x = x + ops.cast(steps, x.dtype)[None, :, None]
        return ops.concatenate([token, x, ops.zeros((batch, 1, x.shape[-1]))], axis=1)


def test_sizes_are_usable_inside_a_layer():
    x = Input((5, 3))
    model = Model(x, Tokens()(x))
    assert model.output_shape == (None, 7, 3)
    assert model(np.zeros((2, 5, 3), "float32")).shape == (2, 7, 3)


def test_shape_of_a_symbol_goes_into_reshape():
    x = Input((4, 3))
    assert ops.shape(x) == (None, 4, 3)
    assert ops.reshape(x, (ops.shape(x)[0], 12)).shape == (None, 12)
    assert ops.size(x).shape == ()
    assert (ops.ndim(x), ops.dtype(x), ops.is_tensor(x)) == (3, "float32", False)
    assert ops.convert_to_tensor(x) is x
    assert ops.convert_to_tensor(x, "int32").dtype == "int32"


def test_numbers_taken_out_may_be_changed():
    x = ops.ones(3)
    numbers = ops.convert_to_numpy(x)
    numbers[0] = 5
    assert x.tolist() == [1, 1, 1]


def test_all_that_follows_a_place():
    assert ops.slice(Input((5,)), (2, 1), (-1, -1)).shape == (None, 4)
    rest = ops.slice(X, jnp.array([1, 2]), (-1, 3))
    np.testing.assert_array_equal(rest, X[1:, 2:5])
    with pytest.raises(errors.ArgumentError, match="-1 needs a beginning"):
        jax.jit(lambda begin: ops.slice(X, begin, (-1, 3)))(jnp.array([1, 2]))


@pytest.mark.parametrize("values", [[123, 235, -15], [1, 2, 3]])
def test_whole_numbers_are_rounded_to_tens(values):
    rounded = ops.round(np.array(values, "int32"), -1)
    assert rounded.dtype == "int32"
    assert rounded.tolist() == np.round(values, -1).tolist()


def test_bounds_of_truth_values_are_floats():
    for op in (ops.floor, ops.ceil, ops.rsqrt):
        assert op(np.array([True])).dtype == "float32"


def test_parts_of_whole_numbers_are_transformed():
    real, imag = ops.fft((np.array([1, 0]), np.array([0, 0])))
    assert (real.tolist(), imag.tolist()) == ([1, 1], [0, 0])


def test_a_softmax_of_one_value_warns():
    for softmax in (ops.softmax, layers.Softmax()):
        with pytest.warns(UserWarning, match="Is sigmoid meant"):
            assert softmax(X[:, :1]).tolist() == [[1], [1], [1], [1]]


def test_an_axis_that_stays_as_it_is():
    factor, shape = np.array([2.0, 2.0], "float32"), (None, 8, 8, 3)
    moved = (factor, 0 * factor, (1, 2), "linear")
    assert ops.image.scale_and_translate(RGB, shape, *moved).shape == (1, 8, 8, 3)
    symbol = ops.image.scale_and_translate(Input((4, 4, 3)), shape, *moved)
    assert symbol.shape == shape


# ---------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: ops.one_hot([1], 3, sparse=True), errors.ArgumentError),
        (lambda: ops.convert_to_tensor([1], sparse=True), errors.ArgumentError),
        (lambda: ops.conv(RGB, RGB[..., :2]), errors.ShapeError),
        (lambda: ops.conv(RGB, RGB[0]), errors.ShapeError),
        (lambda: ops.max_pool(X, 2), errors.ShapeError),
        (lambda: ops.max_pool(X[..., None], 2, padding="causal"), errors.ArgumentError),
        (lambda: ops.binary_crossentropy(X, X[:, :1]), errors.ShapeError),
        (lambda: ops.sparse_categorical_crossentropy([1], X), errors.ShapeError),
        (lambda: ops.reshape(X, (None, -1)), errors.ShapeError),
        (lambda: ops.unstack(X, num=3), errors.ShapeError),
        (lambda: ops.scatter_update(X, [[0]], X, "mean"), errors.UnknownNameError),
        (lambda: ops.cholesky([[1.0, 2.0], [2.0, 1.0]]), errors.DataError),
        (lambda: ops.stft(X, 4, 2, 2), errors.ArgumentError),
        (lambda: ops.stft(X, 4, 2, 4, "han"), errors.UnknownNameError),
        (lambda: ops.stft(X, 4, 0, 4), errors.ArgumentError),
        (lambda: ops.istft((X, X), 4, 2.0, 10), errors.ArgumentError),
        (lambda: ops.extract_sequences(X, 0, 1), errors.ArgumentError),
        (lambda: ops.fft((X, X[0])), errors.ShapeError),
        (lambda: ops.view_as_complex(X), errors.ShapeError),
        (lambda: ops.segment_sum(X, [0, 1]), errors.ShapeError),
        (lambda: ops.histogram(X, 0), errors.ArgumentError),
        (lambda: ops.histogram(X, range=(2, 1)), errors.ArgumentError),
        (lambda: ops.depth_to_space(RGB, 0), errors.ArgumentError),
        (lambda: ops.depth_to_space(RGB, 2), errors.ShapeError),
        (lambda: ops.space_to_depth(RGB, 3), errors.ShapeError),
        (lambda: ops.rearrange(X, "a b -> a"), errors.ArgumentError),
        (lambda: ops.rearrange(X, "a (b c) -> a b c"), errors.ArgumentError),
        (lambda: ops.rearrange(X, "a (b c) -> a b c", b=4), errors.ArgumentError),
        (lambda: ops.image.resize(X[..., None], (2, 2), "area"), errors.ArgumentError),
        (lambda: ops.image.resize(X, (2, 2)), errors.ShapeError),
        (lambda: ops.image.crop_images(X[..., None], 1), errors.ArgumentError),
        (lambda: ops.image.rgb_to_hsv(np.ones((2, 2, 3), int)), errors.ArgumentError),
        (lambda: ops.ctc_decode(X[None], [4], "best"), errors.UnknownNameError),
        (lambda: ops.conv_transpose(RGB, RGB, 2, "same", 2), errors.ArgumentError),
    ],
)  # fmt: skip
def test_refusals(call, error):
    with pytest.raises(error):
        call()


def test_bincount_in_compiled_code_needs_a_length():
    with pytest.raises(errors.ArgumentError, match="minlength"):
        jax.jit(ops.bincount)(jnp.arange(3))
    counts = jax.jit(lambda x: ops.bincount(x, minlength=4))(jnp.arange(3))
    assert counts.tolist() == [1, 1, 1, 0]
