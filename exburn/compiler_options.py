"""What XLA is told when it compiles programs for a GPU."""

from __future__ import annotations

import functools
import os
from typing import Any

import jax

from exburn.device import host

__all__ = ["FEWER_PRODUCTS", "SCHEDULER", "compiler_options", "known_options"]

FEWER_PRODUCTS = "xla_gpu_blas_max_algorithms"
SCHEDULER = "xla_gpu_enable_latency_hiding_scheduler"

_ALWAYS: dict[str, Any] = {
    # While XLA tries kernels, it puts 8 MiB before and behind each of their operands,
    # to see whether they write there: most of the peak of memory of small models.
    "xla_gpu_redzone_padding_bytes": 1 << 20,
    # Two compilers to choose from for each elementwise kernel: a sixth of the time that
    # many small layers take to compile, for 1 % of their steps' at most.
    "xla_gpu_experimental_enable_fusion_autotuner": False,
    # For each of thousands of kernels that it tries, XLA would read a table of how long
    # the sums of several GPUs take, to schedule them beside other work: half of the
    # processor time that convolutions take to compile. There is one GPU.
    "xla_gpu_enable_analytical_sol_latency_estimator": False,
    SCHEDULER: False,
}
# cuBLAS offers six to eight ways to multiply two matrices, the likeliest first. For 214
# products of small models the best of the first two and of Triton's took 0.13 % longer
# than the best of all; to try all was a sixth of the time that 50 layers compiled.
_SMALL: dict[str, Any] = {FEWER_PRODUCTS: 2}
_SMALL_FLOPS = 3e10  # of a forward pass: about 0.3 ms of a step


def compiler_options(flops: float | None, platform: str) -> dict[str, Any] | None:
    """Options for the programs of a model.

    Args:
        flops: Operations of the forward pass of one batch, if that is known.
        platform: ``"cpu"``, ``"gpu"`` …

    Returns:
        Those of them that this version of XLA knows, and ``XLA_FLAGS`` does not set.

    Example:
        >>> print(compiler_options(None, "cpu"))
        None
    """
    if platform != "gpu":
        return None
    small = flops is not None and flops < _SMALL_FLOPS
    options = {**_ALWAYS, **(_SMALL if small else {})}
    given = os.environ.get("XLA_FLAGS", "")
    free = known_options() - {name for name in options if f"--{name}" in given}
    return {name: value for name, value in options.items() if name in free}


@functools.cache
def known_options() -> set[str]:
    """Those of our options that this version of XLA has: else nothing would compile.

    The host's compiler is asked: it is of the same version, and need not be waited for.
    """
    options = {**_ALWAYS, **_SMALL}
    while True:
        try:
            with jax.default_device(host()):
                jax.jit(lambda: ()).lower().compile(options)
        except jax.errors.JaxRuntimeError as error:
            strange = [name for name in options if f"'{name}'" in str(error)]
            if not strange:
                raise
            del options[strange[0]]
        else:
            return set(options)
