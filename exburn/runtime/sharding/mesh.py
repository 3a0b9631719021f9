"""Devices in a grid whose axes have names."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from exburn.errors import LayoutError
from exburn.errors.boundary import api_boundary, guard_methods


@api_boundary
def list_devices(device_type: str | None = None) -> list[str]:
    """Names the devices of all processes, as ``keras.distribution`` does.

    Args:
        device_type: ``"cpu"``, ``"gpu"`` or ``"tpu"``; JAX's default if ``None``.

    Returns:
        Names such as ``"gpu:1"``, of one kind.

    Raises:
        LayoutError: There is no such device.

    Example:
        >>> list_devices("cpu")[0]
        'cpu:0'
    """
    return list(_devices_by_name(None if device_type is None else device_type.lower()))


@api_boundary
def get_device_count(device_type: str | None = None) -> int:
    """Counts the devices that ``list_devices`` names.

    Args:
        device_type: ``"cpu"``, ``"gpu"`` or ``"tpu"``; all of the default kind if
            ``None``.

    Example:
        >>> get_device_count() == len(list_devices())
        True
    """
    return len(list_devices(device_type))


@guard_methods
class DeviceMesh:
    """Devices in a grid whose axes have names, as in ``keras.distribution``.

    Args:
        shape: Devices along each axis.
        axis_names: Names of the axes.
        devices: Names as of ``list_devices``, or JAX devices, in order; all by default.

    Raises:
        LayoutError: The shape is empty, has another number of axes than there are
            names, or needs another number of devices; a device is unknown or there
            twice.

    Example:
        >>> DeviceMesh((1,), ["batch"], list_devices()[:1])
        DeviceMesh(batch=1)
    """

    def __init__(
        self,
        shape: Sequence[int],
        axis_names: Sequence[str],
        devices: Any = None,
    ):
        if not shape or not axis_names or len(shape) != len(axis_names):
            raise LayoutError(
                "DeviceMesh",
                "each axis needs a size and a name",
                {"shape": shape, "axis_names": axis_names},
            )
        if len(set(axis_names)) != len(axis_names):
            raise LayoutError(
                "DeviceMesh", f"two axes have one name: {list(axis_names)}"
            )
        wrong = [n for n in shape if not isinstance(n, int | np.integer) or n < 1]
        if wrong:
            raise LayoutError(
                "DeviceMesh", f"sizes must be positive integers, received {shape}"
            )
        values = list_devices() if devices is None else np.ravel(np.array(devices))
        own = [_device(one) for one in values]
        count = math.prod(shape)
        if count != len(own):
            raise LayoutError(
                "DeviceMesh",
                f"a mesh of {tuple(shape)} needs {count} devices, not {len(own)}",
                {"devices": ", ".join(map(device_label, own))},
                hint=_few_devices_hint(count, own),
            )
        if len(set(own)) != len(own):
            raise LayoutError(
                "DeviceMesh", "a device is there twice", {"devices": values}
            )
        self._shape, self._axis_names = tuple(map(int, shape)), list(axis_names)
        self._devices = np.array(own, object).reshape(shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Devices along each axis."""
        return self._shape

    @property
    def axis_names(self) -> list[str]:
        """Names of the axes."""
        return self._axis_names

    @property
    def devices(self) -> np.ndarray:
        """Names of the devices, in the mesh's shape."""
        names = [device_label(one) for one in self._devices.flat]
        return np.array(names).reshape(self._shape)

    @functools.cached_property
    def backend_mesh(self) -> Mesh:
        """The mesh as JAX's.

        Its axes are ``Auto``, so that XLA divides what a program computes. A loop whose
        carry is laid out explicitly must say so at each of its operations.
        """
        kinds = (AxisType.Auto,) * len(self._shape)
        return Mesh(self._devices, tuple(self._axis_names), axis_types=kinds)

    def size(self, axes: str | Iterable[str] | None) -> int:
        """The number of devices along an axis, or along several."""
        names = (axes,) if isinstance(axes, str) else tuple(axes or ())
        sizes = dict(zip(self._axis_names, self._shape, strict=True))
        return math.prod(sizes[name] for name in names)

    def __repr__(self) -> str:
        sizes = zip(self._axis_names, self._shape, strict=True)
        return f"DeviceMesh({', '.join(f'{name}={size}' for name, size in sizes)})"


def device_label(device: Any) -> str:
    """The name of a device as ``list_devices`` gives it."""
    return f"{device.platform}:{device.id}"


def _devices_by_name(kind: str | None) -> dict[str, Any]:
    try:
        devices = jax.devices(kind)
    except RuntimeError as error:
        raise LayoutError(
            "list_devices",
            f"there is no device of type {kind!r} here",
            {"devices": ", ".join(map(device_label, jax.devices()))},
        ) from error
    return {device_label(device): device for device in devices}


def _device(device: Any) -> Any:
    if isinstance(device, jax.Device):
        return device
    name = str(device).lower()
    kind, _, _ = name.partition(":")
    devices = _devices_by_name(kind or None)
    if name not in devices:
        raise LayoutError(
            "DeviceMesh",
            f"there is no device {name!r}",
            {"devices": ", ".join(devices)},
        )
    return devices[name]


def _few_devices_hint(count: int, devices: list[Any]) -> str:
    if count > len(devices) and all(device.platform == "cpu" for device in devices):
        flag = f"--xla_force_host_platform_device_count={count}"
        return f"XLA_FLAGS={flag} divides a CPU, before JAX is started."
    return "Pass devices=distribution.list_devices()[:n], or another shape."
