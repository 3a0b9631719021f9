"""Convolutions on a processor, beside those of XLA."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from exburn.runtime.kernels.conv.dispatch import convolve

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
    "few channels": (2, 5, (3, 3), 1, {}),
    "few channels, strides": (1, 8, (5, 3), 1, {"strides": (2, 3)}),
    "few channels, dilated": (3, 4, (2, 2), 1, {"rhs_dilation": (2, 1)}),
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


def uses_xla(function, *args):
    return "conv_general_dilated" in str(jax.make_jaxpr(function)(*args))
