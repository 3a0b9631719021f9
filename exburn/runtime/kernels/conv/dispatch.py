"""The choice of a convolution's form: XLA's own, or one that is quicker here.

Computes `convolve`: ``lax.conv_general_dilated`` for the layouts that layers have.

Replaces: that function, which is called here where no form suits.

Runs: for every convolution of layers and `exburn.ops`. A form is taken for floating
inputs of known, positive sizes on a CPU (`cpu.cpu_form`) or a GPU (`gpu.gpu_form`),
unless ``config.disable_convolution_forms()`` was called, or the program is traced to
run elsewhere (`exburn.runtime.portable`).

Gain: that of the forms, in `cpu`, `cpu_depthwise` and `gpu`. `pointwise_products`, with
Triton's products left out: on an H200 ResNet-50 on 64 × 64 images compiles in 7.1 s
instead of 11.6, an epoch takes 94 ms instead of 100.
"""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from exburn.config import is_convolution_forms_enabled
from exburn.core.scoped import value_scope
from exburn.runtime import portable
from exburn.runtime.device import chosen_platform
from exburn.runtime.kernels.conv.cpu import cpu_form
from exburn.runtime.kernels.conv.gpu import gpu_form

_products: contextvars.ContextVar[bool | None] = contextvars.ContextVar(
    "exburn_pointwise_products", default=None
)


def convolve(
    x: Any,
    kernel: Any,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    *,
    dimension_numbers: tuple[str, str, str],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    feature_group_count: int = 1,
) -> Any:
    """As ``jax.lax.conv_general_dilated``, for the layouts that layers have.

    Args:
        x: ``[batch, *sizes, in]``, or channels first.
        kernel: ``[*window, in // groups, out]``, or the last two in turn.
        strides, padding, lhs_dilation, rhs_dilation, feature_group_count: As there.
        dimension_numbers: Of the input, the kernel and the output, which is laid out
            as the input is.
    """
    rank, layout = x.ndim - 2, dimension_numbers
    spread, dilation = (tuple(d or (1,) * rank) for d in (lhs_dilation, rhs_dilation))
    last, turned = layout[0][-1] == "C", layout[1].endswith("OI")
    window = kernel.shape[:rank]
    sizes = x.shape[1:-1] if last else x.shape[2:]
    form, pads = None, ()
    if _suits(x, sizes):
        channels = x.shape[-1 if last else 1]
        steps = tuple(strides), spread, dilation
        if chosen_platform() == "gpu":
            shape = x.shape[0], *sizes, channels
            groups, products = feature_group_count, _products.get()
            form = gpu_form(shape, x.dtype, window, groups, *steps, products)
        else:
            out = kernel.shape[-2 if turned else -1]
            form = cpu_form(window, channels, out, feature_group_count, *steps)
        reach = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
        pads = padding
        if isinstance(padding, str):
            pads = lax.padtype_to_pads(sizes, reach, strides, padding)
        pads = tuple((int(low), int(high)) for low, high in pads)
        room = zip(sizes, spread, pads, reach, strict=True)
        if any((n - 1) * s + 1 + sum(pad) < k for n, s, pad, k in room):
            form = None  # nothing comes of it, which XLA knows how to say
    if form is None:
        return lax.conv_general_dilated(
            x,
            kernel,
            strides,
            padding,
            lhs_dilation=lhs_dilation,
            rhs_dilation=rhs_dilation,
            dimension_numbers=dimension_numbers,
            feature_group_count=feature_group_count,
        )
    y = form(
        x if last else jnp.moveaxis(x, 1, -1),
        jnp.swapaxes(kernel, -1, -2) if turned else kernel,
        tuple(strides),
        pads,
        spread if max(spread) > 1 else dilation,
    )
    return y if last else jnp.moveaxis(y, -1, 1)


def pointwise_products(enabled: bool | None) -> AbstractContextManager[Any]:
    """Within the block pointwise convolutions on a GPU are products, or none of them.

    With ``None``, and elsewhere, those in halves are. In float32 XLA takes longer to
    try kernels for them than for convolutions, unless it leaves Triton's out.
    """
    return value_scope(_products, enabled)


def runs_on_cpu() -> bool:
    """Whether what is traced now is to run on a CPU, and nowhere else."""
    return chosen_platform() == "cpu" and portable.current() is None


def _suits(x: Any, sizes: Sequence[Any]) -> bool:
    fixed = all(isinstance(n, int) and n > 0 for n in sizes)
    here = why_not() is None and portable.current() is None
    return here and fixed and jnp.issubdtype(x.dtype, np.floating)


def why_not() -> str | None:
    """Why convolutions are XLA's; ``None`` where some take other forms."""
    if not is_convolution_forms_enabled():
        return "config.disable_convolution_forms() was called"
    platform = chosen_platform()
    return None if platform in ("cpu", "gpu") else f"the device is a {platform}"
