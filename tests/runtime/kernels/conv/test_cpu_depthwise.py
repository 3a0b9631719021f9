"""Tests of ``exburn.runtime.kernels.conv.cpu_depthwise``."""

import jax
import numpy as np
import pytest
from tests.runtime.kernels.conv.on_cpu import arrays, both

import exburn
from exburn import layers
from exburn.core import forward_context
from exburn.runtime.kernels.conv.cpu_depthwise import _in_fit
from exburn.runtime.kernels.conv.shifted_sum import exburn_depthwise

pytestmark = pytest.mark.skipif(
    jax.default_backend() != "cpu", reason="they are for processors"
)

SHAPE_3 = (1, 1), ((1, 1), (1, 1)), (1, 1)  # strides, padding and dilation


def trained(layer, x):
    """The model's weights after a step of ``fit`` whose gradients reach ``x``, too."""
    before = layers.Dense(x.shape[-1], name="before")
    model = exburn.Sequential([exburn.Input(x.shape[1:]), before, layer])
    model.compile(exburn.optimizers.SGD(0.1), "mse", seed=0)
    targets = np.random.default_rng(1).standard_normal(
        (len(x), *model.output_shape[1:])
    )
    model.fit(x, targets, batch_size=len(x), verbose=0)
    return model.get_weights()


@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.DepthwiseConv2D(3, padding="same"),
        lambda: layers.DepthwiseConv2D(3, 2, depth_multiplier=3),
        lambda: layers.DepthwiseConv2D((5, 4), (1, 2), padding="same"),
        lambda: layers.DepthwiseConv2D((4, 5), 3, depth_multiplier=2),
        lambda: layers.DepthwiseConv2D(4, dilation_rate=2, padding="same"),
        lambda: layers.DepthwiseConv1D(11, 2, padding="same"),
        lambda: layers.SeparableConv2D(2, 5),
    ],
    ids=["3", "3,strides", "5x4", "4x5,strides", "dilated", "1-D", "separable"],
)
def test_depthwise_gradients_in_fit_are_those_of_xla(make):
    x = np.random.default_rng(0).standard_normal((3, 12, 13, 2)).astype(np.float32)
    x = x[:, 0] if "1D" in type(make()).__name__ else x
    ours = trained(make(), x)
    exburn.config.disable_convolution_forms()
    try:
        theirs = trained(make(), x)
    finally:
        exburn.config.enable_convolution_forms()
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_depthwise_gradients_in_fit_sum_over_the_window_in_one_kernel():
    def reduced(training):
        ctx = forward_context.Context()
        ctx.in_fit = training
        x, kernel, given, options = arrays("depthwise")
        ours, _ = both(x, kernel, given, options)
        with forward_context.forward(ctx):
            slopes = jax.make_jaxpr(jax.grad(lambda x, k: ours(x, k).sum(), 1))
            return str(slopes(x, kernel)).count("reduce[")

    assert (reduced(True), reduced(False)) == (1, 0)


def test_depthwise_outputs_in_fit_are_computed_once():
    x, kernel, given, options = arrays("depthwise")
    ours, _ = both(x, kernel, given, options)

    def loss(x, kernel):
        ctx = forward_context.Context()
        ctx.in_fit = True
        with forward_context.forward(ctx):
            y = ours(x, kernel)
        y = (y - y.mean((0, 1, 2))) * jax.lax.rsqrt((y * y).mean((0, 1, 2)))
        return jax.nn.relu(y).sum()

    program = jax.jit(jax.grad(loss, (0, 1))).lower(x, kernel).compile().as_text()
    assert "conditional(" in program
    parts = [part.count(" multiply(") for part in program.split("\n\n")]
    assert sum(count >= 9 for count in parts) == 3  # the outputs, and two gradients
    for bad in (np.nan, -1.0, np.inf):
        spoiled = kernel.at[0, 0, 0, 0].set(bad)
        y, _ = jax.vjp(lambda k: _in_fit(x, k, *SHAPE_3), spoiled)
        np.testing.assert_array_equal(y, exburn_depthwise(x, spoiled, *SHAPE_3))


def test_depthwise_ones_have_derivatives_forward_outside_of_fit():
    x, kernel, given, options = arrays("depthwise")
    ours, theirs = both(x, kernel, given, options)
    for function in (ours, theirs):
        y, t = jax.jvp(lambda k, f=function: f(x, k), (kernel,), (kernel,))
        np.testing.assert_allclose(t, y, rtol=1e-5)
