"""Tests of ``exburn.runtime.kernels.conv.gpu``."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import exburn
from exburn import layers
from exburn.core.batch_independence import mixes_rows
from exburn.runtime.cost_model import count
from exburn.runtime.kernels.conv import dispatch, gpu
from exburn.runtime.kernels.conv.dispatch import convolve


@pytest.fixture(autouse=True)
def on_gpu(monkeypatch):
    monkeypatch.setattr(dispatch, "chosen_platform", lambda: "gpu")


# Sizes, window, and further arguments.
DILATED = {
    "sequence": ((11,), (3,), {"rhs_dilation": (2,)}),
    "sequence, causal": ((12,), (2,), {"rhs_dilation": (4,), "padding": [(4, 0)]}),
    "sequence, no padding": ((13,), (4,), {"rhs_dilation": (3,), "padding": "VALID"}),
    "sequence, wider than it": (
        (5,),
        (2,),
        {"rhs_dilation": (8,), "padding": [(8, 0)]},
    ),
    "image": ((7, 9), (3, 3), {"rhs_dilation": (2, 3)}),
    "image, one axis": ((8, 6), (3, 2), {"rhs_dilation": (1, 2), "padding": "VALID"}),
    "image, groups": ((7, 6), (2, 3), {"rhs_dilation": (2, 2), "groups": 2}),
    "image, by channel": ((7, 6), (3, 3), {"rhs_dilation": (2, 2), "groups": 4}),
    "volume": ((5, 6, 4), (2, 3, 2), {"rhs_dilation": (2, 2, 1)}),
}

DENSE = {
    "sequence, by channel": ((9,), (3,), {"groups": 4, "padding": [(2, 0)]}),
    "sequence, by channel, strides": ((9,), (4,), {"groups": 4, "strides": (2,)}),
    "sequence, by channel, dilated": ((9,), (3,), {"groups": 4, "rhs_dilation": (2,)}),
    "sequence, by channel, wide": ((21,), (17,), {"groups": 4, "rhs_dilation": (2,)}),
    "sequence, groups": ((9,), (3,), {"groups": 2}),
    "image, by channel": ((9, 8), (7, 6), {"groups": 4}),
    "image, by channel, strides": ((9, 9), (6, 7), {"groups": 4, "strides": (2, 1)}),
    "image, by channel, dilated": (
        (9, 8),
        (2, 6),
        {"groups": 4, "rhs_dilation": (1, 2)},
    ),
    "image, by channel, narrow": ((9, 8), (3, 5), {"groups": 4}),
    "image, by channel, narrow, strides": (
        (9, 8),
        (5, 3),
        {"groups": 4, "strides": (2, 2)},
    ),
    "sequence, pointwise": ((9,), (1,), {}),
    "image, pointwise": ((9, 8), (1, 1), {"strides": (2, 3)}),
    "image, pointwise, padded": ((5, 4), (1, 1), {"padding": [(1, 0), (0, 2)]}),
    "image, patches": ((8, 6), (4, 3), {"strides": (4, 3)}),
    "image, patches, padded": (
        (8, 6),
        (4, 3),
        {"strides": (4, 3), "padding": [(4, 0), (0, 3)]},
    ),
    "volume, pointwise": ((5, 6, 4), (1, 1, 1), {}),
    "volume": ((5, 6, 4), (3, 2, 3), {}),
    "volume, strides": ((6, 5, 6), (2, 3, 3), {"strides": (2, 1, 2)}),
    "volume, planes apart": ((6, 5, 6), (2, 3, 3), {"rhs_dilation": (3, 1, 1)}),
    "volume, groups": ((4, 5, 6), (2, 3, 3), {"groups": 2}),
}

SPREAD = {
    "sequence": ((7,), (4,), {"lhs_dilation": (2,), "padding": [(2, 2)]}),
    "image": ((5, 6), (4, 4), {"lhs_dilation": (2, 2), "padding": [(2, 2), (2, 2)]}),
    "image, odd": ((5, 6), (3, 5), {"lhs_dilation": (2, 3), "padding": [(1, 2)] * 2}),
    "image, all": ((4, 5), (3, 2), {"lhs_dilation": (2, 2), "padding": [(2, 3)] * 2}),
    "image, cut": ((5, 6), (3, 3), {"lhs_dilation": (2, 3), "padding": [(-1, 2)] * 2}),
    "image, side by side": (
        (4, 4),
        (2, 2),
        {"lhs_dilation": (2, 2), "padding": [(1, 1)] * 2},
    ),
    "image, gaps": ((4, 3), (2, 1), {"lhs_dilation": (3, 3), "padding": [(1, 4)] * 2}),
    "volume": (
        (3, 4, 2),
        (2, 3, 2),
        {"lhs_dilation": (2,) * 3, "padding": [(1, 2)] * 3},
    ),
}

CASES = {("dilated", k): v for k, v in DILATED.items()}
CASES |= {("dense", k): v for k, v in DENSE.items()}
CASES |= {("spread", k): v for k, v in SPREAD.items()}


def arrays(case, kernel="IO", data="last", dtype=np.float32):
    sizes, window, given = CASES[case]
    given = {"padding": "SAME", "strides": (1,) * len(window), **given}
    groups = given.pop("groups", 1)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, *sizes, 4))
    k = rng.standard_normal((*window, 4 // groups, 8))
    axes = "DHW"[-len(window) :]
    layout = f"NC{axes}" if data == "first" else f"N{axes}C"
    options = {
        "lhs_dilation": given.pop("lhs_dilation", None),
        "rhs_dilation": given.pop("rhs_dilation", None),
        "feature_group_count": groups,
        "dimension_numbers": (layout, axes + kernel, layout),
    }
    x = np.moveaxis(x, -1, 1) if data == "first" else x
    k = np.swapaxes(k, -1, -2) if kernel == "OI" else k
    return (*(jnp.asarray(v, dtype) for v in (x, k)), given, options)


def both(given, options):
    def ours(x, k):
        return convolve(x, k, given["strides"], given["padding"], **options)

    def theirs(x, k):
        return lax.conv_general_dilated(
            x, k, given["strides"], given["padding"], **options
        )

    return ours, theirs


def computed(function, x, k):
    """The outputs, and gradients of a sum of their sines."""

    def total(x, k):
        y = function(x, k)
        return jnp.sum(jnp.sin(y)), y

    (_, y), slopes = jax.value_and_grad(total, (0, 1), has_aux=True)(x, k)
    return y, *slopes


@functools.cache
def compute_all(how, data):
    """What ours and XLA's give for every case, as one program: compiling takes long."""
    inputs, settings = {}, {}
    for case in CASES:
        kernel = "OI" if case[0] == "spread" and how is computed else "IO"
        *inputs[case], given, options = arrays(case, kernel, data)
        settings[case] = given, options

    @jax.jit
    def run(inputs):
        return {
            case: [how(function, *inputs[case]) for function in both(*settings[case])]
            for case in CASES
        }

    return run(inputs)


def differentiated(function, x, k):
    """The outputs, and derivatives forward along the kernel, and along both."""
    y, along_kernel = jax.jvp(lambda k: function(x, k), (k,), (k,))
    return y, along_kernel, jax.jvp(function, (x, k), (x, k))[1]


def pulled(function, x, k):
    """The outputs, and what comes back for numbers that do not depend on them."""
    y, back = jax.vjp(function, x, k)
    dy = jax.random.randint(jax.random.key(0), y.shape, -4, 5)
    return y, *back(dy.astype(y.dtype))


def strides(function, *args):
    return convolutions(function, *args, names=("window_strides", "lhs_dilation"))


def convolutions(function, *args, names=("lhs_dilation", "rhs_dilation"), of=None):
    """The dilations of a program's convolutions, or what else is asked of them."""
    found = []

    def look(jaxpr):
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == "conv_general_dilated":
                dilations = tuple(max(eqn.params[name]) for name in names)
                found.append(of(eqn.outvars[0].aval) if of else dilations)
            for value in eqn.params.values():
                inner = getattr(value, "jaxpr", value)
                look(inner) if hasattr(inner, "eqns") else None

    look(jax.make_jaxpr(function)(*args).jaxpr)
    return found


def shapes(function, *args):
    """Those of the inputs of a program's convolutions, and its reductions."""
    inputs, reductions = [], 0

    def look(jaxpr):
        nonlocal reductions
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == "conv_general_dilated":
                inputs.append(eqn.invars[0].aval.shape)
            reductions += eqn.primitive.name == "reduce_sum"
            for value in eqn.params.values():
                inner = getattr(value, "jaxpr", value)
                look(inner) if hasattr(inner, "eqns") else None

    look(jax.make_jaxpr(function)(*args).jaxpr)
    return inputs, reductions


def trained(make):
    x = np.random.default_rng(0).standard_normal((8, 12, 12, 3)).astype(np.float32)
    model = exburn.Sequential([exburn.Input(x.shape[1:]), *make()])
    model.compile(exburn.optimizers.SGD(0.1), "mse", seed=0)
    targets = np.random.default_rng(1).standard_normal((8, *model.output_shape[1:]))
    model.fit(x, targets, batch_size=4, epochs=2, verbose=0)
    return [*model.get_weights(), model.predict(x, verbose=0)]


@pytest.mark.parametrize("data", ["last", "first"])
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_values_and_gradients_are_those_of_xla(case, data):
    ours, theirs = compute_all(computed, data)[case]
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "case",
    CASES,
    ids="-".join,
)
def test_halves_are_those_of_xla_in_float32(case, golden):
    """But for what each of them rounds: outputs, and gradients."""
    x, k, given, options = arrays(case, dtype="bfloat16")
    own, xla = both(given, options)
    ours = pulled(own, x, k)
    wide = x.astype("float32"), k.astype("float32")
    theirs = golden(lambda: pulled(xla, *wide))
    for a, b in zip(ours, theirs, strict=True):
        near = 0.02 * float(abs(b).max())
        np.testing.assert_allclose(a.astype("float32"), b, rtol=0, atol=near)


@pytest.mark.parametrize("case", DILATED)
def test_gradients_of_kernels_meet_no_holes(case):
    x, k, given, options = arrays(("dilated", case))
    ours, theirs = both(given, options)
    apart = max(options["rhs_dilation"])

    def convolved(f):
        return {n for n, _ in strides(jax.grad(lambda k: f(x, k).sum()), k)}

    assert convolved(theirs) == {1, apart}  # holes become strides
    assert convolved(ours) == {1}


def test_a_kernels_gradient_is_that_of_strides():
    x, k, given, options = arrays(("spread", "image"), "OI")

    def spread_inputs(f):
        slopes = jax.grad(lambda k: (f(x, k) ** 2).sum())
        return [s for s, _ in convolutions(slopes, k)].count(2)

    ours, theirs = both(given, options)
    assert (spread_inputs(ours), spread_inputs(theirs)) == (1, 2)  # one is the forward


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_derivatives_forward(case):
    for y, along_kernel, along_both in compute_all(differentiated, "last")[case]:
        np.testing.assert_allclose(along_kernel, y, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(along_both, 2 * y, rtol=1e-4, atol=1e-4)


def test_gradients_of_gradients():
    x, k, given, options = arrays(("spread", "image"))

    def curvature(f):
        return jax.jit(
            jax.grad(lambda k: (jax.grad(lambda x: (f(x, k) ** 3).sum())(x) ** 2).sum())
        )(k)

    ours, theirs = map(curvature, both(given, options))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_rows_stay_apart_and_operations_are_counted(case):
    x, k, given, options = arrays(case)
    ours, theirs = both(given, options)
    assert not mixes_rows(lambda k, x: ours(x, k), x, beside=k)
    mine, other = (count(jax.make_jaxpr(f)(x, k)).flops for f in (ours, theirs))
    assert other <= mine <= 2.5 * other  # filled up to whole numbers of holes


@pytest.mark.parametrize(
    ("shape", "window", "dtype", "product"),
    [
        ((2, 8, 6, 3), (4, 3), "float32", True),
        ((2, 9, 6, 3), (4, 3), "float32", False),  # a row is left over
        ((2, 8, 6, 5), (4, 3), "float32", False),  # not measured
        ((2, 8, 6, 3), (4, 3), "bfloat16", False),  # not measured
        ((2, 8, 6, 3), (2, 3), "float32", False),  # gaps between the windows
    ],
)
def test_patches_of_images_are_a_product(shape, window, dtype, product):
    kernel = jnp.ones((*window, shape[-1], 8), dtype)
    layout = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}

    def call(x, kernel):
        return convolve(x, kernel, (4, 3), "VALID", **layout)

    assert (convolutions(call, jnp.ones(shape, dtype), kernel) == []) == product


def test_wide_sequences_by_channel_are_images():
    for case, inputs in (("", []), (", wide", [(4, 1, 27, 4)])):
        x, k, given, options = arrays(("dense", f"sequence, by channel{case}"))
        ours, _ = both(given, options)
        assert shapes(ours, x, k)[0] == inputs


def test_wide_depthwise_kernels_have_a_sum_for_each_tap():
    cases = ("image, by channel", True), ("sequence, by channel, wide", False)
    for case, wide in cases:
        x, k, given, options = arrays(("dense", case))
        ours, _ = both(given, options)
        slopes = jax.grad(lambda k, f=ours, x=x: f(x, k).sum())
        assert (shapes(slopes, k)[1] >= 42) == wide


@pytest.mark.parametrize(("window", "wide"), [((7, 7), False), ((7, 9), True)])
def test_depthwise_kernels_in_halves_are_those_of_cudnn_up_to_seven(window, wide):
    x, k = jnp.ones((2, 9, 9, 4), "bfloat16"), jnp.ones((*window, 1, 4), "bfloat16")

    def total(k):
        turned = jnp.swapaxes(k, -1, -2)
        return exburn.ops.depthwise_conv(x, turned, padding="same").sum()

    assert (shapes(jax.grad(total), k)[1] >= 49) == wide


@pytest.mark.parametrize("apart", [1, 2])
def test_narrow_depthwise_kernels_in_halves_are_those_of_cudnn_in_full(apart):
    x, k = jnp.ones((2, 8, 8, 4), "bfloat16"), jnp.ones((3, 3, 1, 4), "bfloat16")

    def total(x, k):
        turned = jnp.swapaxes(k, -1, -2)
        return exburn.ops.depthwise_conv(x, turned, apart, padding="same").sum()

    def dtypes(argument):
        return convolutions(jax.grad(total, argument), x, k, of=lambda y: y.dtype)

    by_input, by_kernel = dtypes(0), dtypes(1)
    forward = ["bfloat16"] * (apart == 1)  # with strides: by taps
    assert by_input == [*forward, "bfloat16"]
    assert by_kernel == [*forward, "float32"]


@pytest.mark.parametrize("kind", ["sequence", "image", "volume"])
def test_pointwise_ones_in_halves_are_products(kind):
    for dtype, left in (("bfloat16", 0), ("float16", 0), ("float32", 1)):
        x, k, given, options = arrays(("dense", f"{kind}, pointwise"), dtype=dtype)
        ours, _ = both(given, options)
        assert len(convolutions(ours, x, k)) == left


def test_volumes_are_images_while_there_is_room(monkeypatch):
    x, k, given, options = arrays(("dense", "volume"))
    ours, theirs = both(given, options)
    assert shapes(ours, x, k)[0] == [(10, 6, 4, 12)]
    monkeypatch.setattr(gpu, "_STACKED", 2 * 5 * 6 * 4 * 4 * 3 - 1)
    assert shapes(lambda x, k: ours(x, k), x, k)[0] == [(2, 5, 6, 4, 4)]
    np.testing.assert_allclose(ours(x, k), theirs(x, k), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("case", "size"),
    [("image, by channel", (64, 64)), ("sequence, by channel", (512,))],
)
def test_sums_of_halves_are_taken_in_full(case, size):
    _, k, given, options = arrays(("dense", case), dtype="bfloat16")
    x = jnp.ones((2, *size, 4), "bfloat16")
    ours, _ = both(given, options)
    slope = jax.grad(lambda k: ours(x, k).astype("float32").sum())(k)
    assert float(slope.max()) == 2 * math.prod(size)  # bfloat16 counts to 256


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_dtypes_stay(dtype):
    kinds = [("dilated", "image"), ("spread", "image"), ("dense", "volume")]
    for case in [*kinds, ("dense", "image, by channel")]:
        x, k, given, options = arrays(case, dtype=dtype)
        ours, _ = both(given, options)
        found = jax.eval_shape(functools.partial(computed, ours), x, k)
        assert {v.dtype for v in found} == {jnp.dtype(dtype)}


def test_strides_keep_the_form_of_xla():
    x, k, given, options = arrays(("dilated", "image"))
    given["strides"] = (2, 2)
    ours, theirs = both(given, options)
    assert convolutions(ours, x, k) == [(1, 3)]
    np.testing.assert_array_equal(ours(x, k), theirs(x, k))


@pytest.mark.parametrize(
    "make",
    [
        lambda: [layers.Conv2D(4, 3, dilation_rate=2), layers.Conv2D(2, 3)],
        lambda: [layers.SeparableConv2D(4, 3, padding="same", dilation_rate=(1, 3))],
        lambda: [
            layers.Reshape((36, 12)),
            layers.Conv1D(4, 2, padding="causal", dilation_rate=4),
        ],
        lambda: [
            layers.Conv2DTranspose(4, 4, strides=2, padding="same"),
            layers.Conv2DTranspose(2, 3, strides=3, output_padding=1),
        ],
        lambda: [layers.DepthwiseConv2D(7, padding="same"), layers.DepthwiseConv2D(3)],
        lambda: [layers.Reshape((36, 12)), layers.SeparableConv1D(4, 3)],
        lambda: [layers.Reshape((6, 6, 4, 3)), layers.Conv3D(4, 3, padding="same")],
    ],
    ids=[
        "dilated",
        "separable",
        "causal",
        "transposed",
        "depthwise",
        "sequence",
        "volume",
    ],
)
def test_models_train_alike(make, monkeypatch):
    ours = trained(make)
    monkeypatch.setattr(dispatch, "why_not", lambda: "XLA's, to compare")
    for a, b in zip(ours, trained(make), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_the_plan_tells():
    assert dispatch.why_not() is None
    exburn.config.disable_convolution_forms()
    try:
        assert "disable_convolution_forms" in dispatch.why_not()
    finally:
        exburn.config.enable_convolution_forms()
