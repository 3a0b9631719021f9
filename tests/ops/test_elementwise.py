"""Tests of ``exburn.ops.elementwise``, beside Keras' and on symbols."""

import jax
import numpy as np
import pytest
from tests.ops.cases import B, C, J, K, N, S, X, Y, case
from tests.ops.check import Cases
from tests.ops.small import ROWS

from exburn import ops
from exburn.layers import Dense

CASES = Cases(
    {
        **{
            name: [case(np.concatenate([X, S]))]
            for name in (
                "abs absolute angle arccos arcsin arcsinh arctan arctanh cbrt ceil"
                " conj conjugate cos cosh deg2rad erf erfc erfinv exp exp2 expm1"
                " fabs floor i0 imag isfinite isinf isnan isneginf isposinf isreal"
                " log log10 log1p log2 negative rad2deg real reciprocal round rsqrt"
                " sign signbit sin sinc sinh sqrt square tan tanh trunc"
            ).split()
        },
        **{
            name: [case(X, Y), case(S, 0.5), case(J, K)]
            for name in (
                "add arctan2 divide divide_no_nan equal floor_divide fmax fmin fmod"
                " greater greater_equal heaviside hypot isclose less less_equal"
                " logaddexp logaddexp2 maximum minimum mod multiply nextafter"
                " not_equal power subtract true_divide allclose"
            ).split()
        },
        **{
            name: [case(K, J)]
            for name in (
                "bitwise_and bitwise_or bitwise_xor left_shift right_shift"
                " bitwise_left_shift bitwise_right_shift gcd lcm"
            ).split()
        },
        "logical_and": [case(B, C), case(K, X)],
        "logical_or": [case(B, C), case(K, X)],
        "logical_xor": [case(B, C), case(K, X)],
        "arccosh": [case(X + 1)],
        "bitwise_invert": [case(K)],
        "bitwise_not": [case(K)],
        "logical_not": [case(B), case(K)],
        "nan_to_num": [case(N), case(N, nan=7.0, posinf=1.0)],
        "ldexp": [case(X, K)],
        "clip": [case(S, -1, 1), case(K, 1, 3)],
        "where": [case(B, X, Y), case(B, 1.0, X)],
    }
)


UNKNOWN_BATCH = ["add", "clip", "where"]


UNKNOWN_FIRST = (
    "abs absolute angle arccos arcsin arcsinh arctan arctanh cbrt ceil"
    " conj conjugate cos cosh deg2rad erf erfc erfinv exp exp2 expm1"
    " fabs floor i0 imag isfinite isinf isnan isneginf isposinf isreal"
    " log log10 log1p log2 negative rad2deg real reciprocal round rsqrt"
    " sign signbit sin sinc sinh sqrt square tan tanh trunc"
).split()


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
    layer(ROWS)
    assert float(log1pexp(layer.bias)[0]) == pytest.approx(np.log(2), rel=1e-6)


@pytest.mark.parametrize("values", [[123, 235, -15], [1, 2, 3]])
def test_whole_numbers_are_rounded_to_tens(values):
    rounded = ops.round(np.array(values, "int32"), -1)
    assert rounded.dtype == "int32"
    assert rounded.tolist() == np.round(values, -1).tolist()


def test_bounds_of_truth_values_are_floats():
    for op in (ops.floor, ops.ceil, ops.rsqrt):
        assert op(np.array([True])).dtype == "float32"
