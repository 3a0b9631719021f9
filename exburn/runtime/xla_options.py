"""What XLA is told when it compiles programs."""

from __future__ import annotations

import functools
import os
from typing import Any

import jax

from exburn.runtime.cost_model import Cost
from exburn.runtime.device import host

FEWER_PRODUCTS = "xla_gpu_blas_max_algorithms"
LATENCIES = "xla_gpu_enable_analytical_sol_latency_estimator"
SCHEDULER = "xla_gpu_enable_latency_hiding_scheduler"
TRITON = "xla_gpu_enable_triton_gemm"
YNNPACK = "xla_cpu_experimental_ynn_fusion_type"

_KIND = "LIBRARY_FUSION_TYPE_"
_CPU: dict[str, Any] = {
    # XLA leaves to YNNPACK what this lists, and convolutions, in whose gradients it is
    # slow: with XLA's own a small convnet trains 2.7 times as fast, one of dilated
    # images 5.9 times, and both compile sooner.
    YNNPACK: f"{_KIND}DOT,{_KIND}REDUCE,{_KIND}INDIVIDUAL_DOT",
}
_GPU: dict[str, Any] = {
    # While XLA tries kernels, it puts 8 MiB before and behind each of their operands,
    # to see whether they write there: most of the peak of memory of small models.
    "xla_gpu_redzone_padding_bytes": 1 << 20,
    # Two compilers to choose from for each elementwise kernel: a sixth of the time that
    # many small layers take to compile, for 1 % of their steps' at most.
    "xla_gpu_experimental_enable_fusion_autotuner": False,
    # For each of thousands of kernels that it tries, XLA would read a table of how long
    # the sums of several GPUs take, to schedule them beside other work: half of the
    # processor time that convolutions take to compile. For one GPU they are off.
    LATENCIES: False,
    SCHEDULER: False,
    # For small models. cuBLAS offers six to eight ways to multiply two matrices, the
    # likeliest first. For 214 products of such models the best of the first two and of
    # Triton's took 0.13 % longer than the best of all; to try all was a sixth of the
    # time that 50 layers compiled.
    FEWER_PRODUCTS: 2,
    # Where all products but a few are pointwise convolutions. cuBLAS' kernels are as
    # quick as Triton's there, each of which XLA compiles to try it: a third of the time
    # that the step of a ResNet-50 in halves compiled. Models of few operations keep
    # Triton's, which compute what is around a product, too: without them a small
    # convnet took 1.09 times as long.
    TRITON: False,
}
# For several GPUs. Sums over them (of gradients) begin as soon as they can, and are
# waited for as late as they can: computation hides them. How long each takes on an
# NVIDIA H100 or later the model of latencies knows; elsewhere XLA has rough classes. On
# two H200s a step of GPT-2 took 32.8 ms so, 33.1 with the rough classes, 34.4 without
# the scheduler, and 34.8 with sums joined up to 1 GiB.
# Not told, since XLA's own suit: sums of most models are joined up to 30 MiB, about
# what a link between GPUs needs to run at its full speed; sums and gathers of loops are
# not pipelined over their turns, since all of a step depends on the step before; loops
# are not unrolled to have two sets of buffers.
_SEVERAL_GPUS: dict[str, Any] = {LATENCIES: True, SCHEDULER: True}
# For several GPUs whose sums are long beside the rest of a step. XLA copies the arrays
# that it joins into one, and parts them again after the sum, unless a pass is left out:
# in a BERT of 6 blocks 80 copies a step, 181 of 2,595 µs. NCCL takes the arrays where
# they are as well. Sums of 1 MiB begin sooner. With both, each of two H200s has 0.87 to
# 0.92 of the speed of one in a U-Net for diffusion (0.86 to 0.90 without), 0.87 to 0.97
# in a seq2seq of GRUs (0.79 to 0.89), 0.83 to 0.85 in that BERT (0.82 to 0.83), and
# 0.959 in a U-Net of more work for its bytes (0.969), which is not told.
COPIES = "xla_disable_hlo_passes"
JOINED_BYTES = "xla_gpu_all_reduce_combine_threshold_bytes"
_LONG_SUMS: dict[str, Any] = {COPIES: "all-reduce-contiguous", JOINED_BYTES: 1 << 20}
# Bytes of all gradients, for an operation of a forward pass and in all. Measured were,
# for 1,000 operations, 0.07 (faster without) and 0.27 to 2, and 2 to 44 MB in all.
_LONG, _MOST_BYTES = 0.15e-3, 64 << 20
_SMALL_FLOPS = 3e10  # of a forward pass: about 0.3 ms of a step
_FEW_PRODUCTS, _FEW_EQUATIONS = 0.1, 32  # of all operations, and of a forward pass


def convolutional(cost: Cost | None) -> bool:
    """Whether a model's products are pointwise convolutions, but for a few.

    Args:
        cost: Of a forward pass, if that is known, in which these are convolutions.
    """
    if cost is None or not cost.convolutions or cost.equations <= _FEW_EQUATIONS:
        return False
    return cost.products <= _FEW_PRODUCTS * cost.flops


def has_long_sums(cost: Cost, gradients: int) -> bool:
    """Whether sums of gradients are long beside the other work of a step.

    Args:
        cost: Of a forward pass on each device.
        gradients: Bytes of all gradients.

    Example:
        >>> has_long_sums(Cost(1e9), 1 << 20), has_long_sums(Cost(1e10), 1 << 20)
        (True, False)
    """
    return _LONG * cost.flops <= gradients <= _MOST_BYTES


def compiler_options(
    cost: Cost | None,
    platform: str,
    training: bool = True,
    devices: int = 1,
    gradients: int = 0,
) -> dict[str, Any] | None:
    """Options for the programs of a model.

    Args:
        cost: Cost of the forward pass of one batch on a device, if that is known.
        platform: ``"cpu"``, ``"gpu"`` …
        training: Whether they are those that train. In halves the others are a tenth
            slower without Triton's kernels, of which they try a third as many.
        devices: How many a program runs on.
        gradients: Their bytes, which several devices add up.

    Returns:
        Those of them that this version of XLA knows, and ``XLA_FLAGS`` does not set.

    Example:
        >>> print(compiler_options(Cost(1e9), "cpu"))
        None
    """
    if platform == "cpu" and (cost is None or cost.convolutions):
        options = _CPU
    elif platform == "gpu":
        halves = cost is not None and cost.halves > 0
        fitting = {
            FEWER_PRODUCTS: cost is not None and cost.flops < _SMALL_FLOPS,
            TRITON: convolutional(cost) and (training or not halves),
        }
        options = {k: value for k, value in _GPU.items() if fitting.get(k, True)}
        options |= _SEVERAL_GPUS if devices > 1 else {}
        long = training and cost is not None and has_long_sums(cost, gradients)
        options |= _LONG_SUMS if devices > 1 and long else {}
    else:
        return None
    flags, supported = os.environ.get("XLA_FLAGS", ""), known_options(platform)
    free = supported - {name for name in options if f"--{name}" in flags}
    return {name: value for name, value in options.items() if name in free}


@functools.cache
def known_options(platform: str) -> set[str]:
    """The options of ours that this version of XLA has: else nothing would compile.

    The host's compiler is asked: it is of the same version, and need not be waited for.
    """
    options = dict(_CPU if platform == "cpu" else _GPU | _LONG_SUMS)
    while True:
        try:
            with jax.default_device(host()):
                jax.jit(lambda: ()).lower().compile(options)
        except jax.errors.JaxRuntimeError as error:
            strange = [name for name in options if name in str(error)]
            if not strange:
                raise
            del options[strange[0]]
        else:
            return set(options)
