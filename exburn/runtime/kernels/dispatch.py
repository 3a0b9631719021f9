"""The decision whether kernels of Triton run, in place of XLA's own for large arrays.

Computes nothing: `why_not` gives the reason against, `options` how Pallas compiles one,
`by_rows` where one runs.

Replaces: nothing.

Runs: at each trace of a module that has a kernel. Kernels run on NVIDIA's GPUs, Ampere
or later, unless ``config.disable_gpu_kernels()`` was called or JAX has no Triton: on
one, whatever else the host has, and on all of a mesh that divides the batch and nothing
else, where each has whole rows. Where a mesh divides features, too, those run whose
rows are whole on every device, or are of heads (``beside_features``). Each kernel's own
condition asks for dtype and size.

Gain: not measured on its own; each kernel's module has its figures. Values and times
were compared once in each process, too: that cost a first start 2 to 5 s for each
width, more than it could save.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import PartitionSpec

from exburn.config import is_gpu_kernels_enabled
from exburn.runtime import portable
from exburn.runtime.device import chosen_platform
from exburn.runtime.sharding.current import (
    feature_division,
    feature_parts,
    is_spread,
    row_division,
    row_parts,
    sequence_division,
)


@dataclasses.dataclass(frozen=True)
class OfHeads:
    """The axis of rows, and that of heads, which devices may divide, too."""

    rows: int = 0
    heads: int = 1


#: The axis of rows, or that and the one of heads; ``None`` for an array that is whole.
Axes = int | OfHeads | None


def runs_kernels(beside_features: bool = False, by_device: bool = False) -> bool:
    """True if kernels of Triton run here; else `why_not` has the reason.

    Args:
        beside_features: Whether the kernel runs on a mesh that divides features, too.
        by_device: Whether each device calls the kernel by itself, with its own arrays.

    Example:
        >>> runs_kernels() and jax.default_backend() != "gpu"
        False
    """
    return why_not(beside_features, by_device) is None


def why_not(beside_features: bool = False, by_device: bool = False) -> str | None:
    """The reason why kernels of Triton do not run here; ``None`` if they do.

    Where several devices share a row, XLA must be able to split the work. Triton
    compiles for NVIDIA's GPUs from Ampere (2020) on.

    Args:
        beside_features: As of `runs_kernels`.
        by_device: As of `runs_kernels`.
    """
    if not is_gpu_kernels_enabled():
        return "config.disable_gpu_kernels() was called"
    if portable.current() is not None:
        return "the program is traced to run elsewhere"
    platform = chosen_platform()
    if platform != "gpu":
        return f"the device is a {platform}"
    if not by_device and is_spread() and _division(beside_features) is None:
        return "the arrays lie on several devices, which divide more than the batch"
    if not is_ampere():
        return "the GPU is none of NVIDIA's, or older than Ampere"
    return None if _has_triton() else "this version of JAX has no Triton kernels"


def is_ampere() -> bool:
    """Whether the first device is a GPU of NVIDIA's, from Ampere (2020) on."""
    capability = getattr(jax.devices()[0], "compute_capability", "")
    return capability.replace(".", "", 1).isdigit() and float(capability) >= 8


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("jax.experimental.pallas.triton") is not None


def _division(beside_features: bool) -> tuple[Any, tuple, tuple] | None:
    """The mesh, the axes that divide the batch, and those that divide heads."""
    if (division := row_division()) is not None:
        return *division, ()
    return feature_division() if beside_features else None


def device_part(x: Any, axis: int = 0, heads: int | None = None) -> Any:
    """What one device has of an array whose rows the devices divide.

    Args:
        x: The array; of one device all of it.
        axis: Its axis of rows.
        heads: Its axis of heads, if it has one.

    Returns:
        The array, or the spec of the part; ``None`` where devices cannot divide it
        evenly into whole rows, so that no kernel runs: also where they divide the
        positions of ``[rows, positions, …]``, which would have to change places.
    """
    if len(x.shape) > 2 and sequence_division() is not None:
        return None
    parts = {axis: row_parts()}
    if heads is not None:
        parts[heads] = feature_parts()
    if all(n == 1 for n in parts.values()):
        return x
    if any(a >= len(x.shape) - 1 or x.shape[a] % n for a, n in parts.items()):
        return None
    shape = [n // parts.get(a, 1) for a, n in enumerate(x.shape)]
    return jax.ShapeDtypeStruct(tuple(shape), x.dtype)


def by_rows(
    function: Callable[..., Any],
    rows: tuple[Axes, ...],
    results: Any,
    beside_features: bool = False,
    **static: Any,
) -> Callable[..., Any]:
    """A function of arrays, which each device of a mesh calls with the rows it has.

    What it gives for a row must depend on this row alone, and on arrays that all
    devices have whole. A derivative of it must be given: there is none of this.

    Args:
        function: It, called with arrays, of which each is whole or a part.
        rows: The axis of rows of each argument, or ``OfHeads``; ``None`` for an array
            that is whole.
        results: The same of its result, or of each: ``None`` for a sum over rows, which
            is added up over the devices.
        beside_features: Whether it does so, too, on a mesh that divides features: all
            devices that have a row compute the same of it, or have some of its heads.
        **static: Further arguments.

    Example:
        >>> import jax.numpy as jnp
        >>> double = by_rows(lambda x, times: times * x, (0,), 0, times=2)
        >>> double(jnp.ones(3)).tolist()
        [2.0, 2.0, 2.0]
    """
    call = functools.partial(function, **static)
    division = _division(beside_features)
    if division is None:
        return call
    mesh, names, across = division

    def run(*parts: Any) -> Any:
        return _map(
            lambda axis, v: jax.lax.psum(v, names) if axis is None else v,
            results,
            call(*parts),
        )

    def spec(axes: Axes) -> PartitionSpec:
        if axes is None:
            return PartitionSpec()
        if isinstance(axes, int):
            return PartitionSpec(*[None] * axes, names)
        places = {axes.rows: names, axes.heads: across}
        return PartitionSpec(*map(places.get, range(max(places) + 1)))

    # That results of a sum are equal everywhere cannot be checked through a kernel.
    return jax.shard_map(
        run,
        mesh=mesh,
        in_specs=_map(spec, rows),
        out_specs=_map(spec, results),
        check_vma=False,
    )


def _map(function: Callable[..., Any], axes: Any, *others: Any) -> Any:
    """The function of each axis, or of each and what it is of; ``None`` is one."""
    return jax.tree.map(function, axes, *others, is_leaf=lambda v: v is None)


def options(warps: int = 4, stages: int = 2) -> dict[str, Any]:
    """Arguments of ``pallas_call``, for so many warps in each program."""
    from jax.experimental.pallas import triton

    # Where it is removed, `why_not` notices.
    warnings.filterwarnings(
        "ignore", "The Pallas Triton backend is deprecated", DeprecationWarning
    )
    params = triton.CompilerParams(num_warps=warps, num_stages=stages)
    return {"compiler_params": params}
