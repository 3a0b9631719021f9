"""Lanes over several devices, each of which trains its own."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec

from exburn.errors import LayoutError
from exburn.runtime.placement import bound_to, is_bound
from exburn.runtime.sharding import current
from exburn.runtime.sharding.arrays import put
from exburn.training.placement import Bound, OneDevice
from exburn.training.state import TrainState

_AXIS = "lanes"


class LanesOnDevices(OneDevice):
    """The axis of lanes is divided over devices; the data are on each of them.

    In a step no device needs anything of another one.
    """

    def __init__(self, devices: Any):
        self.local_devices = tuple(devices)
        self.devices = len(self.local_devices)
        kind = (jax.sharding.AxisType.Auto,)
        mesh = jax.sharding.Mesh(np.array(self.local_devices), (_AXIS,), kind)
        self._whole = NamedSharding(mesh, PartitionSpec())
        self._lanes = NamedSharding(mesh, PartitionSpec(_AXIS))
        self._steps = NamedSharding(mesh, PartitionSpec(None, _AXIS))

    def scope(self) -> contextlib.AbstractContextManager[None]:
        return current.in_force(None)

    def state(self, state: TrainState, beside: Any = ()) -> TrainState:
        return jax.tree.map(lambda v: put(v, self._lanes), state)

    def send(self, tree: Any) -> Any:
        return self.send_whole(tree)

    def send_whole(self, tree: Any) -> Any:
        return jax.tree.map(lambda v: put(v, self._whole), tree)

    def bind(self, args: tuple, data: int) -> Bound:
        def place(at: int, arg: Any) -> Any:
            layout = self._lanes if at < data else self._whole
            return jax.tree.map(lambda v: self._place(v, layout), arg)

        placed = tuple(place(at, arg) for at, arg in enumerate(args))
        return placed, (bound_to(placed[0]), bound_to(placed[1:]))

    def _place(self, value: Any, layout: Any) -> Any:
        """An array in a layout, unless it lies on all of the devices already."""
        here = is_bound(value) and len(value.sharding.device_set) == self.devices
        return value if here else put(value, layout)

    def send_own(self, tree: Any) -> Any:
        """Rows of each lane's own, ``[steps, lanes, …]``, on their way."""
        return jax.tree.map(lambda v: put(v, self._steps), tree)

    # ------------------------------------------------------------------ in a trace
    def next_state(self, state: TrainState) -> TrainState:
        return jax.tree.map(self.divide, state)

    def totals(self, totals: Any) -> Any:
        return jax.tree.map(self.divide, totals)

    def divide(self, value: Any, axis: int = 0) -> Any:
        """An array in a program, whose axis of lanes is divided."""
        if not isinstance(value, Tracer):
            return value
        layout = self._steps if axis else self._lanes
        return jax.lax.with_sharding_constraint(value, layout)


def placement_of(mesh: Any) -> LanesOnDevices | None:
    """The placement of what ``sweep(mesh=…)`` is given; ``None`` for one device.

    Args:
        mesh: A number of devices, a list of them, ``"all"``, or ``None``.
    """
    if mesh is None:
        return None
    here = jax.local_devices()
    if mesh == "all":
        mesh = here
    if isinstance(mesh, int) and not isinstance(mesh, bool):
        if not 1 <= mesh <= len(here):
            raise LayoutError(
                "sweep",
                f"mesh={mesh} asks for {mesh} devices, there are {len(here)}",
            )
        mesh = here[:mesh]
    devices = list(mesh) if isinstance(mesh, list | tuple) else []
    ours = all(device in here for device in devices)
    if not devices or not ours or len(set(devices)) < len(devices):
        raise LayoutError(
            "sweep",
            f"mesh must be a number of devices, a list of them or 'all', received "
            f"{mesh!r}",
        )
    return LanesOnDevices(devices) if len(devices) > 1 else None
