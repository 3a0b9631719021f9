"""Training over several devices and hosts, with the names of ``keras.distribution``.

Example:
    >>> mesh = DeviceMesh((1,), ["batch"], list_devices()[:1])
    >>> with DataParallel(mesh).scope():
    ...     distribution()
    DataParallel(DeviceMesh(batch=1))
"""

from typing import TYPE_CHECKING

from exburn.core.missing_names import refuser
from exburn.distribution import ray, step_time
from exburn.distribution.tensor_parallel import tensor_parallel
from exburn.distribution.tensors import distribute_tensor
from exburn.runtime.sharding.current import distribution, set_distribution
from exburn.runtime.sharding.joining import initialize
from exburn.runtime.sharding.layouts import LayoutMap, TensorLayout
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
