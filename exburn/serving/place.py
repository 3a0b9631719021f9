"""The places where partitions compute: a device, or the devices of a mesh."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

from exburn.errors import LayoutError
from exburn.runtime.sharding import current
from exburn.runtime.sharding.arrays import put
from exburn.runtime.sharding.strategies import Distribution


class DevicePlace:
    """A device with a copy of all weights.

    Attributes:
        platform: ``"cpu"``, ``"gpu"`` …
        devices: All devices of the place.
    """

    def __init__(self, device: Any):
        self.device, self.platform, self.devices = device, device.platform, [device]

    def put(self, weights: Any) -> Any:
        """Copies of weights, there."""
        copy = jax.device_put(weights, self.device, may_alias=False)
        return jax.block_until_ready(copy)

    def layout(self, rows: int) -> Any:
        """The layout of an input of so many rows."""
        return SingleDeviceSharding(self.device)

    def scope(self) -> contextlib.AbstractContextManager[None]:
        """In the block, programs are traced for this place."""
        return current.in_force(None)

    def __str__(self) -> str:
        return str(self.device)


class MeshPlace(DevicePlace):
    """The devices of a mesh, which divide the weights and the rows of a batch.

    Raises:
        LayoutError: Some of the devices are those of other processes.
    """

    def __init__(self, distribution: Distribution):
        if distribution.spans_processes:
            raise LayoutError(
                "Serving",
                "a serving runs in one process: its mesh has devices of others",
                {"mesh": distribution},
                hint="distribution.list_devices() names all; pass this process' own.",
            )
        super().__init__(distribution.mesh.devices.flat[0])
        self.devices = list(distribution.mesh.devices.flat)
        self.distribution = distribution

    def put(self, weights: Any) -> Any:
        whole = self.distribution.sharding()
        if not isinstance(weights, dict):  # of a function: they have no names
            placed = jax.tree.map(lambda v: put(v, whole), weights)
        else:
            shapes = [(n, v.shape) for n, v in weights.items() if hasattr(v, "shape")]
            self.distribution.check(shapes)
            of = self.distribution.weight_sharding
            placed = {
                n: put(v, of(n, v.shape)) if hasattr(v, "shape") else v
                for n, v in weights.items()
            }
        # What was there already is the model's own, which training consumes.
        return jax.block_until_ready(_copy(placed))

    def layout(self, rows: int) -> Any:
        return self.distribution.sharding(self.distribution.batch_spec(rows))

    def scope(self) -> contextlib.AbstractContextManager[None]:
        return current.in_force(self.distribution)

    def __str__(self) -> str:
        return str(self.distribution)


def _copy(tree: Any) -> Any:
    """Arrays of their own, laid out as the given ones."""
    return jax.tree.map(lambda v: jax.device_put(v, v.sharding, may_alias=False), tree)
