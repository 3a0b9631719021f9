"""Training over several devices and hosts, with the names of ``keras.distribution``.

Example:
    >>> mesh = DeviceMesh((1,), ["batch"], list_devices()[:1])
    >>> with DataParallel(mesh).scope():
    ...     distribution()
    DataParallel(DeviceMesh(batch=1))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.core import Tracer

from exburn.core.missing_names import refuser
from exburn.distribution import ray, step_time
from exburn.distribution.tensor_parallel import tensor_parallel
from exburn.errors import LayoutError
from exburn.errors.boundary import api_boundary
from exburn.module.symbolic_tensor import Symbol
from exburn.runtime.sharding.arrays import put
from exburn.runtime.sharding.current import distribution, set_distribution
from exburn.runtime.sharding.joining import initialize
from exburn.runtime.sharding.layouts import LayoutMap, TensorLayout, fits
from exburn.runtime.sharding.mesh import DeviceMesh, get_device_count, list_devices
from exburn.runtime.sharding.strategies import (
    FSDP,
    DataParallel,
    Distribution,
    ModelParallel,
    ShardedModelParallel,
    ZeRO,
)

__all__ = [
    "FSDP",
    "DataParallel",
    "DeviceMesh",
    "Distribution",
    "LayoutMap",
    "ModelParallel",
    "ShardedModelParallel",
    "TensorLayout",
    "ZeRO",
    "distribute_tensor",
    "distribution",
    "get_device_count",
    "initialize",
    "list_devices",
    "ray",
    "set_distribution",
    "step_time",
    "tensor_parallel",
]

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)


@api_boundary
def distribute_tensor(tensor: Any, layout: Any) -> Any:
    """Lays an array out over the devices of a mesh.

    In a function that JAX traces, such as a layer's call, it tells XLA where the value
    is to lie.

    Args:
        tensor: An array, a tracer, or a symbol, which stays as it is.
        layout: A ``TensorLayout``, or one of JAX's shardings.

    Raises:
        LayoutError: The array has fewer axes, or one that cannot be divided evenly.

    Example:
        >>> from exburn.distribution import DeviceMesh
        >>> mesh = DeviceMesh((1,), ["batch"], ["cpu:0"])
        >>> layout = TensorLayout(("batch", None), mesh)
        >>> array = distribute_tensor(np.ones((4, 2)), layout)
        >>> array.sharding.spec[0]
        'batch'
    """
    if isinstance(tensor, Symbol):
        return tensor
    sharding = layout
    if isinstance(layout, TensorLayout):
        sharding = layout.backend_layout
    if not isinstance(sharding, jax.sharding.Sharding):
        raise LayoutError(
            "distribute_tensor", f"layout must be a TensorLayout, received {layout!r}"
        )
    if not fits(sharding, np.shape(tensor)):
        raise LayoutError(
            "distribute_tensor",
            "the layout does not fit the array",
            {"shape": np.shape(tensor), "layout": getattr(layout, "axes", layout)},
        )
    if isinstance(tensor, Tracer):
        return jax.lax.with_sharding_constraint(tensor, sharding)
    return put(tensor, sharding)
