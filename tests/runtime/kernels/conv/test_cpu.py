"""Tests of ``exburn.runtime.kernels.conv.cpu``."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.runtime.kernels.conv.on_cpu import CASES, arrays, both, uses_xla

import exburn
from exburn.core.batch_independence import mixes_rows
from exburn.runtime.cost_model import count

pytestmark = pytest.mark.skipif(
    jax.default_backend() != "cpu", reason="they are for processors"
)

KINDS = (
    "pointwise",
    "depthwise",
    "grouped",
    "few channels",
    "in planes",
    "transposed",
)


def computed(function, x, k):
    """The outputs, and gradients of a sum of their sines."""

    def total(x, k):
        y = function(x, k)
        return jnp.sum(jnp.sin(y)), y

    (_, y), slopes = jax.value_and_grad(total, (0, 1), has_aux=True)(x, k)
    return y, *slopes


@functools.cache
def compute_all(data):
    """What ours and XLA's give for every case, as one program: compiling takes long."""
    inputs, functions = {}, {}
    for case in CASES if data == "last" else KINDS:
        kernel = "OI" if "transposed" in case else "IO"
        *inputs[case], given, options = arrays(case, kernel, data)
        functions[case] = both(*inputs[case], given, options)
    return jax.jit(
        lambda inputs: {
            case: [computed(function, *inputs[case]) for function in functions[case]]
            for case in inputs
        }
    )(inputs)


@pytest.mark.parametrize(
    ("case", "data"),
    [*((case, "last") for case in CASES), *((case, "first") for case in KINDS)],
)
def test_values_and_gradients_are_those_of_xla(case, data):
    x, k, given, options = arrays(case, "OI" if "transposed" in case else "IO", data)
    ours, _ = both(x, k, given, options)
    assert not uses_xla(ours, x, k) or case.startswith("in planes")
    for a, b in zip(*compute_all(data)[case], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


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
