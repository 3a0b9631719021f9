"""Device buffers, named kernels, pipelines and commands: a thin layer over JAX.

A buffer is a ``jax.Array``, a kernel a function of arrays, a pipeline one compiled
program, and a command what JAX dispatched and has not finished yet.

Example:
    >>> from exburn import compute
    >>> a = compute.buffer([1.0, -2.0, 3.0])
    >>> compute.read(compute.run_kernel("relu", a)).tolist()
    [1.0, 0.0, 3.0]
"""

from typing import TYPE_CHECKING

from jax import vmap as vectorize

from exburn.compute.buffers import *
from exburn.compute.kernels import *
from exburn.core.missing_names import refuser

__all__ = [
    "Command",
    "ComputePipeline",
    "Slot",
    "buffer",
    "compile_kernel",
    "device_count",
    "dtype",
    "dtypes",
    "free",
    "kernel",
    "kernels",
    "memory_info",
    "poll",
    "read",
    "register_kernel",
    "run_kernel",
    "shape",
    "size",
    "submit",
    "synchronize",
    "to_binary",
    "vectorize",
    "wait",
]

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
