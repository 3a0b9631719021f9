"""The next release's ops on symbols, inside compiled code, and with bad arguments."""

import jax
import numpy as np
import pytest
from tests.keras_api.next_release.cases import IMAGES, POSITIVE, X, Y

import exburn as keras
from exburn import errors, ops

WINDOWS = np.asarray(ops.image.extract_patches(IMAGES, (2, 3), padding="same"))
CALLS = {
    "column_stack": (lambda x, y: ops.column_stack([x, y]), X, Y),
    "copysign": (ops.copysign, X, Y),
    "cov": (lambda x: ops.cov(x[0]), X[None]),
    "float_power": (ops.float_power, POSITIVE, Y),
    "gammainc": (ops.gammainc, POSITIVE, POSITIVE[::-1]),
    "lgamma": (ops.lgamma, POSITIVE),
    "matrix_power": (lambda x: ops.matrix_power(x, 3), X[:, :2, None] * np.eye(2)),
    "reconstruct_patches": (
        lambda x: ops.image.reconstruct_patches(x, (2, 3), (5, 7), padding="same"),
        WINDOWS,
    ),
    "amax": (lambda x: ops.amax(x, -1, initial=1.0), X),
    "amin": (lambda x: ops.amin(x, -1, initial=-1.0), X),
    "top_k": (lambda x: ops.top_k(x, 2, is_stable=False)[0], X),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_model_computes_what_arrays_give_and_is_saved(name, tmp_path):
    call, *arrays = CALLS[name]
    arrays = [np.float32(array) for array in arrays]
    inputs = [keras.Input(array.shape[1:]) for array in arrays]
    outputs = call(*inputs)
    expected = call(*arrays)
    assert outputs.shape[1:] == expected.shape[1:] or name == "cov"
    keras.Model(inputs, outputs).save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    given = arrays if len(arrays) > 1 else arrays[0]
    np.testing.assert_allclose(again(given), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(call)(*arrays), expected, rtol=1e-5)


def test_windows_of_open_sizes_become_images():
    windows = keras.Input((None, None, 18))
    whole = ops.image.reconstruct_patches(windows, (2, 3), (5, 7), padding="same")
    assert whole.shape == (None, 5, 7, 3)
    np.testing.assert_array_equal(keras.Model(windows, whole)(WINDOWS), IMAGES)
    assert ops.image.reconstruct_patches(windows, (2, 3)).shape[-1] == 3


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"size": (2, 3, 4, 5)}, errors.ArgumentError, "2 or 3 numbers"),
        ({"size": (2, 2, 2)}, errors.ShapeError, "18"),
        ({"size": 2.5}, errors.ArgumentError, "size"),
        ({"size": (2, 5)}, errors.ShapeError, "multiple"),
        ({"strides": 1}, errors.ArgumentError, "side by side"),
        ({"padding": "same"}, errors.ArgumentError, "output_size"),
        ({"padding": "full"}, errors.ArgumentError, "padding"),
        ({"output_size": (5, 7)}, errors.ShapeError, "output_size"),
        ({"output_size": (4, 9), "padding": "same"}, errors.ShapeError, "output_size"),
        ({"output_size": 6}, errors.ShapeError, "output_size"),
    ],
)
def test_windows_that_make_no_image_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        ops.image.reconstruct_patches(WINDOWS[..., :18], **{"size": (2, 3), **options})


REFUSALS = [
    (lambda: ops.matrix_power(np.eye(2), 1.5), errors.ArgumentError),
    (lambda: ops.matrix_power(np.ones((2, 3)), 2), errors.ShapeError),
    (lambda: ops.matrix_power(np.ones(3), 2), errors.ShapeError),
    (lambda: ops.cov(np.ones((2, 2, 2))), errors.ShapeError),
    (lambda: ops.grad(ops.sin, 0.5), errors.ArgumentError),
    (lambda: ops.grad(ops.sin, 1)(1.0), errors.ArgumentError),
    (lambda: ops.grad(ops.add, (0, -2))(1.0, 2.0), errors.ArgumentError),
    (lambda: ops.grad(ops.sin)(keras.Input((3,))), errors.GraphError),
]


def test_a_layer_may_take_a_gradient_in_its_call():
    class Slope(keras.layers.Layer):
        def call(self, x):
            return ops.grad(lambda y: ops.sum(y**3))(x)

    model = keras.Sequential([keras.Input((4,)), Slope(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(X, X[:, :1], verbose=0)
    np.testing.assert_allclose(Slope()(X), 3 * X**2, rtol=1e-5)
