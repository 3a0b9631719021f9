"""Convolutions on processors equal XLA's own, and so do their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import exburn
from exburn import layers
from exburn.core import forward_context
from exburn.core.batch_independence import mixes_rows
from exburn.kernels.conv.cpu_depthwise import _in_fit
from exburn.kernels.conv.dispatch import convolve
from exburn.kernels.conv.shifted_sum import exburn_depthwise
from exburn.runtime.cost_model import count

pytestmark = pytest.mark.skipif(
    jax.default_backend() != "cpu", reason="they are for processors"
)

# Channels in and out, window, groups, and further arguments.
CASES = {
    "pointwise": (6, 5, (1, 1), 1, {}),
    "pointwise, strides": (6, 5, (1, 1), 1, {"strides": (2, 3)}),
    "pointwise, padded": (6, 5, (1, 1), 1, {"padding": [(1, 0), (0, 2)]}),
    "pointwise, 1-D": (6, 5, (1,), 1, {"strides": (2,)}),
    "pointwise, 3-D": (6, 5, (1, 1, 1), 1, {"strides": (1, 2, 1)}),
    "depthwise": (6, 6, (3, 3), 6, {}),
    "depthwise, multiplied": (4, 12, (3, 2), 4, {"strides": (2, 1)}),
    "depthwise, dilated": (4, 4, (3, 3), 4, {"rhs_dilation": (2, 2)}),
    "depthwise, 1-D": (5, 10, (4,), 5, {"padding": "VALID"}),
    "depthwise, 3-D": (4, 4, (2, 3, 2), 4, {}),
    "grouped": (12, 6, (3, 3), 3, {}),
    "grouped, strides": (8, 16, (3, 2), 2, {"strides": (2, 2)}),
    "grouped, dilated": (8, 8, (2, 2), 4, {"rhs_dilation": (3, 1)}),
    "grouped, 1-D": (8, 4, (3,), 2, {"padding": "VALID"}),
    "grouped, 3-D": (4, 4, (2, 2, 2), 2, {}),
    "in planes": (6, 5, (3, 3, 3), 1, {}),
    "in planes, strides": (6, 5, (3, 2, 3), 1, {"strides": (2, 1, 2)}),
    "in planes, dilated": (6, 5, (2, 2, 2), 1, {"rhs_dilation": (2, 1, 1)}),
    "in planes, one channel": (1, 5, (3, 3, 4), 1, {"padding": "VALID"}),
    "transposed": (6, 5, (3, 3), 1, {"padding": [(1, 2), (2, 1)], "spread": (2, 2)}),
    "transposed, side by side": (
        6,
        5,
        (2, 3),
        1,
        {"padding": [(1, 1), (2, 2)], "spread": (2, 3)},
    ),
    "transposed, cut": (
        6,
        5,
        (3, 3),
        1,
        {"padding": [(-1, 2), (0, 0)], "spread": (2, 3)},
    ),
    "transposed, gaps": (
        6,
        5,
        (2, 1),
        1,
        {"padding": [(1, 4), (0, 3)], "spread": (3, 3)},
    ),
    "transposed, 1-D": (6, 5, (4,), 1, {"padding": [(2, 2)], "spread": (2,)}),
    "transposed, 3-D": (
        3,
        2,
        (2, 2, 2),
        1,
        {"padding": [(1, 1)] * 3, "spread": (2,) * 3},
    ),
}


def arrays(case, kernel="IO", data="last", dtype=np.float32):
    inner, out, window, groups, given = CASES[case]
    given = {"strides": (1,) * len(window), "padding": "SAME", **given}
    rng = np.random.default_rng(0)
    sizes = (7, 8, 6)[: len(window)]
    x = rng.standard_normal((2, *sizes, inner))
    k = rng.standard_normal((*window, inner // groups, out))
    axes = "DHW"[-len(window) :]
    first = data == "first"
    layout = f"NC{axes}" if first else f"N{axes}C"
    options = {
        "lhs_dilation": given.pop("spread", None),
        "rhs_dilation": given.pop("rhs_dilation", None),
        "feature_group_count": groups,
        "dimension_numbers": (layout, axes + kernel, layout),
    }
    x = np.moveaxis(x, -1, 1) if first else x
    k = np.swapaxes(k, -1, -2) if kernel == "OI" else k
    return (*(jnp.asarray(v, dtype) for v in (x, k)), given, options)


def both(x, k, given, options):
    def ours(x, k):
        return convolve(x, k, given["strides"], given["padding"], **options)

    def theirs(x, k):
        return lax.conv_general_dilated(
            x, k, given["strides"], given["padding"], **options
        )

    return ours, theirs


SHAPE_3 = (1, 1), ((1, 1), (1, 1)), (1, 1)  # strides, padding and dilation


def uses_xla(function, *args):
    return "conv_general_dilated" in str(jax.make_jaxpr(function)(*args))


KINDS = "pointwise", "depthwise", "grouped", "in planes", "transposed"


@pytest.mark.parametrize(
    ("case", "data"),
    [*((case, "last") for case in CASES), *((case, "first") for case in KINDS)],
)
def test_values_and_gradients_are_those_of_xla(case, data):
    x, k, given, options = arrays(case, "OI" if "transposed" in case else "IO", data)
    ours, theirs = both(x, k, given, options)
    assert not uses_xla(ours, x, k) or case.startswith("in planes")

    def computed(function):
        """The outputs, and gradients of a sum of their sines."""

        def total(x, k):
            y = function(x, k)
            return jnp.sum(jnp.sin(y)), y

        (_, y), slopes = jax.jit(jax.value_and_grad(total, (0, 1), has_aux=True))(x, k)
        return y, *slopes

    for a, b in zip(computed(ours), computed(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


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


@pytest.mark.parametrize("case", CASES)
def test_operations_are_counted_as_those_of_xla(case):
    x, k, given, options = arrays(case)
    ours, theirs = (count(jax.make_jaxpr(f)(x, k)) for f in both(x, k, given, options))
    assert ours.flops == pytest.approx(theirs.flops)


@pytest.mark.parametrize("case", CASES)
def test_rows_stay_apart(case):
    x, k, given, options = arrays(case)
    ours, _ = both(x, k, given, options)
    assert not mixes_rows(lambda k, x: ours(x, k), x, beside=k)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_sums_of_half_precision_are_taken_in_full(dtype):
    with jax.enable_x64(dtype == "float64"):
        for case in KINDS:
            x, k, given, options = arrays(case, dtype=dtype)
            ours, _ = both(x, k, given, options)
            found = ours(x, k)
            assert found.dtype == dtype
            wide = [
                v.astype("float64" if dtype == "float64" else "float32") for v in (x, k)
            ]
            _, theirs = both(*wide, given, options)
            limit = {"bfloat16": 1e-2, "float16": 1e-3, "float64": 1e-12}[dtype]
            np.testing.assert_allclose(
                found.astype(wide[0].dtype), theirs(*wide), rtol=limit, atol=limit
            )


@pytest.mark.parametrize("case", ["depthwise", "grouped", "in planes", "transposed"])
def test_windows_that_do_not_fit_give_what_xla_gives(case):
    x, k, given, options = arrays(case)
    x = x[(slice(None), *(slice(1) for _ in x.shape[1:-1]))]  # one entry
    given["padding"] = [(0, 0)] * (x.ndim - 2)
    ours, theirs = both(x, k, given, options)
    assert ours(x, k).shape == theirs(x, k).shape
    assert ours(x, k).size == 0
    point = exburn.Input((2, 2, 4))
    with pytest.raises(exburn.errors.ShapeError):
        exburn.layers.DepthwiseConv2D(3)(point)


def test_strides_of_a_transposed_one_may_be_many():
    x, k, given, options = arrays("transposed, 1-D")
    given["padding"], options["lhs_dilation"] = [(2, 90)], (100,)
    ours, theirs = both(x, k, given, options)
    np.testing.assert_allclose(ours(x, k), theirs(x, k), rtol=1e-4, atol=1e-5)


def test_a_program_for_other_platforms_keeps_the_convolutions(tmp_path):
    point = exburn.Input((8, 8, 6))
    model = exburn.Model(point, exburn.layers.DepthwiseConv2D(3)(point))
    texts = []
    for platforms in (["cpu"], ["cpu", "cuda"]):
        path = tmp_path / f"{len(platforms)}.stablehlo"
        model.export(path, platforms=platforms)
        program = jax.export.deserialize(bytearray(path.read_bytes()))
        texts.append(program.mlir_module())
    assert ["stablehlo.convolution" in text for text in texts] == [False, True]


def test_rows_may_be_unknown_in_an_exported_program(tmp_path):
    layers = exburn.layers
    point = exburn.Input((8, 8, 6))
    h = layers.Conv2D(8, 3, groups=2, padding="same")(point)
    h = layers.Conv2D(6, 1)(layers.DepthwiseConv2D(3)(h))
    model = exburn.Model(point, layers.Conv2DTranspose(3, 3, strides=2)(h))
    model.export(tmp_path / "m.stablehlo", platforms=["cpu"])
    program = jax.export.deserialize(bytearray((tmp_path / "m.stablehlo").read_bytes()))
    x = np.random.default_rng(0).standard_normal((5, 8, 8, 6)).astype(np.float32)
    np.testing.assert_allclose(program.call(x), model.predict(x, verbose=0), atol=1e-5)


def test_sizes_may_be_open():
    point = exburn.Input((None, None, 6))
    model = exburn.Model(point, exburn.layers.DepthwiseConv2D(3)(point))
    assert model.predict(np.ones((2, 9, 7, 6)), verbose=0).shape == (2, 7, 5, 6)


def test_the_plan_tells_and_a_switch_turns_it_off():
    x = np.ones((4, 8, 8, 6), np.float32)
    for allowed in (True, False):
        if not allowed:
            exburn.config.disable_convolution_forms()
        try:
            model = exburn.Sequential([exburn.Input(x.shape[1:])])
            model.add(exburn.layers.DepthwiseConv2D(3))
            model.add(exburn.layers.GlobalAveragePooling2D())
            model.compile("sgd", "mse")
            model.fit(x, x[:, 0, 0], verbose=0)
            taken = {d.choice: d.taken for d in model.explain_plan()}["convolutions"]
            assert taken.startswith("forms" if allowed else "XLA's")
            assert uses_xla(model, x) is not allowed
        finally:
            exburn.config.enable_convolution_forms()
