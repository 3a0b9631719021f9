"""What is divided along which axis of a mesh: the batch, weights, their slots."""

from __future__ import annotations

import contextlib
import difflib
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypedDict, Unpack

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from exburn.errors import LayoutError, warn
from exburn.errors.boundary import guard_methods
from exburn.runtime.sharding import current
from exburn.runtime.sharding.layouts import LayoutMap, TensorLayout, axis_names
from exburn.runtime.sharding.mesh import DeviceMesh, list_devices

BATCH = "batch"  # Keras' name of the axis that divides the batch
CONTEXT = "context"  # the axis that divides the positions of sequences
_SHORT = ("data", "fsdp")  # meshes of one axis that have a name


@guard_methods
class Distribution:
    """How a model, its optimizer and its data lie on a mesh.

    Args:
        device_mesh: The mesh.
        batch_dim_name: The axis that divides the batch, or several; none if ``None``.
        auto_shard_dataset: Whether all processes hold the same data, of which each
            takes its part. ``False`` says that each has its own.

    Raises:
        LayoutError: ``device_mesh`` is no mesh, or has no axis of that name.

    Example:
        >>> mesh = DeviceMesh((1,), ["batch"], ["cpu:0"])
        >>> Distribution(mesh, "batch").num_model_replicas
        1
    """

    def __init__(
        self,
        device_mesh: DeviceMesh,
        batch_dim_name: Any = None,
        auto_shard_dataset: bool = True,
    ):
        if not isinstance(device_mesh, DeviceMesh):
            raise LayoutError(
                type(self).__name__,
                f"device_mesh must be a DeviceMesh, received {device_mesh!r}",
            )
        names = () if batch_dim_name is None else batch_dim_name
        names = (names,) if isinstance(names, str) else tuple(names)
        for name in names:
            if name not in device_mesh.axis_names:
                raise LayoutError(
                    type(self).__name__,
                    f"the mesh has no axis {name!r} to divide the batch along",
                    {"axes of the mesh": ", ".join(device_mesh.axis_names)},
                )
        self._device_mesh, self._batch_dim_name = device_mesh, batch_dim_name
        self.batch_axes: tuple[str, ...] = names
        self.auto_shard_dataset = auto_shard_dataset
        self._of_weight: dict[tuple, NamedSharding] = {}

    # ------------------------------------------------------------------ Keras' names
    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return self._device_mesh

    @property
    def batch_dim_name(self) -> Any:
        """The axis that divides the batch."""
        return self._batch_dim_name

    @property
    def num_processes(self) -> int:
        """Processes of the cluster."""
        return jax.process_count()

    @property
    def num_model_replicas(self) -> int:
        """Parts that the batch is divided into."""
        return self.device_mesh.size(self.batch_axes)

    @property
    def sequence_axis(self) -> str:
        """The axis that divides the positions of sequences, where a mesh has it."""
        return CONTEXT

    @property
    def sequence_parts(self) -> int:
        """Parts that the positions of sequences are divided into."""
        has_axis = CONTEXT in self.device_mesh.axis_names
        if not has_axis or CONTEXT in self.batch_axes:
            return 1
        return self.device_mesh.size(CONTEXT)

    @property
    def data_shard_id(self) -> int:
        """The part of the data that this process takes."""
        if self.num_model_replicas >= self.num_processes:
            return jax.process_index()
        return jax.process_index() // (self.num_processes // self.num_model_replicas)

    def get_data_layout(self, data_shape: Sequence[int]) -> TensorLayout:
        """The layout of data of a shape, whose first axis is the batch's."""
        axes = [None] * len(data_shape)
        axes[:1] = [_axis(self.batch_axes)] if axes else []
        return TensorLayout(axes, self.device_mesh)

    def get_variable_layout(self, variable: Any) -> TensorLayout:
        """The layout of a weight."""
        spec = self.weight_spec(variable.path, tuple(variable.shape))
        rest = [None] * (len(variable.shape) - len(spec))
        return TensorLayout((*spec, *rest), self.device_mesh)

    def get_tensor_layout(self, path: str) -> TensorLayout | None:
        """The layout of an intermediate result; ``None``: as XLA chooses."""
        return None

    def distribute_dataset(self, dataset: Any) -> Any:
        """The data set itself: ``fit`` divides what it reads."""
        return dataset

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """In the block this is the distribution in force."""
        before = current.distribution()
        current.set_distribution(self)
        try:
            yield
        finally:
            current.set_distribution(before)

    # ------------------------------------------------------------------ layouts
    def weight_spec(self, path: str, shape: tuple[int, ...]) -> PartitionSpec:
        """The layout of a weight: whole on every device, unless a class divides it."""
        return PartitionSpec()

    def slot_spec(self, path: str, shape: tuple[int, ...]) -> PartitionSpec:
        """The layout of what an optimizer keeps for a weight: as the weight's."""
        return self.weight_spec(path, shape)

    def gradient_spec(self, path: str, shape: tuple[int, ...]) -> PartitionSpec:
        """The layout of a weight's gradient: as the weight's."""
        return self.weight_spec(path, shape)

    @property
    def gathers(self) -> bool:
        """Whether weights are gathered when they are needed, and then dropped."""
        return False

    def compute_spec(self, path: str, shape: tuple[int, ...]) -> PartitionSpec:
        """The layout that a weight is computed with: as it lies, or gathered."""
        return PartitionSpec() if self.gathers else self.weight_spec(path, shape)

    @property
    def divides_weights(self) -> bool:
        """Whether no device has all weights."""
        return self.gathers

    def rule_of(self, path: str, shape: tuple[int, ...]) -> str:
        """Why a weight is laid out so, in a few words."""
        return "whole on every device"

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that lay out weights, and what layers return."""
        return ()

    def check(
        self,
        weights: Iterable[tuple[str, tuple[int, ...]]],
        results: Iterable[str] = (),
    ) -> None:
        """Raises a LayoutError if weights cannot be laid out so.

        Args:
            weights: Paths and shapes.
            results: Paths of what layers return.
        """

    # ------------------------------------------------------------------ JAX's objects
    @property
    def mesh(self) -> Mesh:
        """The mesh as JAX's."""
        return self.device_mesh.backend_mesh

    @property
    def spans_processes(self) -> bool:
        """Whether some of the devices belong to other processes."""
        return self.mesh.is_multi_process

    def sharding(self, spec: PartitionSpec | None = None) -> NamedSharding:
        """A layout on the mesh; whole on every device by default."""
        return NamedSharding(self.mesh, PartitionSpec() if spec is None else spec)

    def weight_sharding(self, path: str, shape: tuple[int, ...]) -> NamedSharding:
        """The layout of a weight on the mesh.

        Raises:
            LayoutError: The weight cannot be laid out so.
        """
        key = path, shape
        if key not in self._of_weight:
            self._check_fit(path, shape)
            self._of_weight[key] = self.sharding(self.weight_spec(path, shape))
        return self._of_weight[key]

    def _check_fit(self, path: str, shape: tuple[int, ...]) -> None:
        """Raises if a weight cannot be laid out as it is to be."""

    def batch_spec(self, rows: int, before: int = 0) -> PartitionSpec:
        """The layout of an axis of rows that comes after so many others.

        Rows that cannot be divided evenly are whole on every device.
        """
        if not self.batch_axes or rows % self.num_model_replicas:
            return PartitionSpec()
        return PartitionSpec(*[None] * before, _axis(self.batch_axes))

    def position_spec(self, shape: Sequence[int]) -> PartitionSpec:
        """The layout of ``[rows, positions, …]``, the second axis along ``context``.

        Positions that do not divide evenly are, too: the last device has fewer. An axis
        of less than two for each device stays whole, it is one of features.
        """
        rows = self.batch_spec(shape[0])
        if len(shape) < 2 or shape[1] < 2 * self.sequence_parts:
            return rows
        return PartitionSpec(rows[0] if len(rows) else None, CONTEXT)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.device_mesh})"


@guard_methods
class DataParallel(Distribution):
    """The batch divided, weights whole on every device, as in ``keras.distribution``.

    Args:
        device_mesh: The mesh; its first axis divides the batch.
        devices: Names as of ``list_devices``, in place of a mesh; all by default.
        auto_shard_dataset: As of ``Distribution``.

    Example:
        >>> DataParallel(devices=["cpu:0"])
        DataParallel(DeviceMesh(batch=1))
    """

    def __init__(
        self,
        device_mesh: DeviceMesh | None = None,
        devices: Any = None,
        auto_shard_dataset: bool = True,
    ):
        mesh = _row_of_devices(device_mesh, devices, BATCH)
        name = getattr(mesh, "axis_names", [BATCH])[0]
        super().__init__(mesh, name, auto_shard_dataset)
        if len(mesh.shape) != 1:
            warn(
                f"DataParallel divides the batch along {name!r} alone, the first of "
                f"the axes of {mesh}"
            )


class MeshOptions(TypedDict, total=False):
    """Options of Keras' code that ``ModelParallel`` takes from its map."""

    device_mesh: Any


@guard_methods
class ModelParallel(Distribution):
    """The batch divided along one axis, weights by rules, as in ``keras.distribution``.

    Args:
        layout_map: Layouts by paths of weights; its mesh is the mesh.
        batch_dim_name: The axis that divides the batch; the mesh's first by default.
        auto_shard_dataset: As of ``Distribution``.

    Raises:
        LayoutError: ``layout_map`` is none, or its mesh has no such axis.
        UnknownNameError: There is no such argument.

    Example:
        >>> mesh = DeviceMesh((1, 1), ["batch", "model"], ["cpu:0"])
        >>> layout = LayoutMap(mesh)
        >>> layout[".*kernel"] = (None, "model")
        >>> tuple(ModelParallel(layout_map=layout).weight_spec("dense/kernel", (4, 8)))
        (None, 'model')
    """

    def __init__(
        self,
        *,
        layout_map: LayoutMap | None = None,
        batch_dim_name: Any = None,
        auto_shard_dataset: bool = True,
        **kwargs: Unpack[MeshOptions],
    ):
        # As in Keras a mesh may be given: it is the map's.
        if set(kwargs) - {"device_mesh"}:
            raise LayoutError(
                "ModelParallel", f"unknown arguments: {', '.join(kwargs)}"
            )
        if not isinstance(layout_map, LayoutMap):
            raise LayoutError(
                "ModelParallel",
                f"layout_map must be a LayoutMap, received {layout_map!r}",
            )
        mesh = layout_map.device_mesh
        if mesh is None:
            raise LayoutError("ModelParallel", "the LayoutMap has no device_mesh")
        if batch_dim_name is None:
            batch_dim_name = mesh.axis_names[0]
        super().__init__(mesh, batch_dim_name, auto_shard_dataset)
        self.layout_map = layout_map

    def weight_spec(self, path: str, shape: tuple[int, ...]) -> PartitionSpec:
        """The layout that a rule gives a weight; whole on every device without one."""
        layout = self.layout_map[path]
        return PartitionSpec() if layout is None else layout.spec

    def get_tensor_layout(self, path: str) -> TensorLayout | None:
        """The layout that a rule gives an intermediate result."""
        return self.layout_map[path]

    def rule_of(self, path: str, shape: tuple[int, ...]) -> str:
        return self.layout_map.reason_of(path) or super().rule_of(path, shape)

    @property
    def divides_weights(self) -> bool:
        """Whether no device has all weights: a rule divides one."""
        return any(any(layout.axes) for layout in self.layout_map.values())

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that lay out weights, and what layers return."""
        return tuple(self.layout_map)

    def check(
        self,
        weights: Iterable[tuple[str, tuple[int, ...]]],
        results: Iterable[str] = (),
    ) -> None:
        """Raises if a rule is not used, or does not fit the weight that it matches."""
        weights = list(weights)
        self.layout_map.check_use([path for path, _ in weights], results)
        for path, shape in weights:
            self._check_fit(path, shape)

    def _check_fit(self, path: str, shape: tuple[int, ...]) -> None:
        layout = self.layout_map[path]
        axes = () if layout is None else layout.axes
        if len(axes) > len(shape):
            raise LayoutError(
                "LayoutMap",
                f"the layout {axes} has more axes than {path!r} of shape {shape}",
                {"rule": self.layout_map.rule_of(path)},
            )
        for size, axis in zip(shape, axes, strict=False):
            parts = self.device_mesh.size(axis)
            if size % parts:
                raise LayoutError(
                    "LayoutMap",
                    f"an axis of {size} cannot be divided evenly by {parts} devices",
                    {
                        "weight": f"{path} {shape}",
                        "rule": f"{self.layout_map.rule_of(path)}: {axes}",
                        "axis of the mesh": f"{axis} of {parts}",
                    },
                )


@guard_methods
class ShardedModelParallel(ModelParallel):
    """Weights divided by rules, and their parts along the axis ``fsdp``.

    What ``compile(mesh={"fsdp": 2, "model": 4}, layout=…)`` makes. A weight is divided
    by its rule, and its part along the longest axis that no rule divides. Along
    ``fsdp`` it is gathered when it is needed.

    Args:
        layout_map: As of ``ModelParallel``.
        batch_dim_name: The axes that divide the batch, ``fsdp`` among them.
        min_size: Weights of fewer elements have the layout of their rule alone.
        auto_shard_dataset: As of ``Distribution``.

    Raises:
        LayoutError: The mesh has no axis ``fsdp``.

    Example:
        >>> mesh = DeviceMesh((1, 1), ["fsdp", "model"], ["cpu:0"])
        >>> layout = LayoutMap(mesh)
        >>> layout[".*kernel"] = (None, "model")
        >>> parallel = ShardedModelParallel(layout_map=layout, batch_dim_name="fsdp")
        >>> tuple(parallel.weight_spec("dense/kernel", (64, 32)))
        ('fsdp', 'model')
    """

    def __init__(
        self,
        *,
        layout_map: LayoutMap | None = None,
        batch_dim_name: Any = None,
        min_size: int = 1024,
        auto_shard_dataset: bool = True,
    ):
        super().__init__(
            layout_map=layout_map,
            batch_dim_name=batch_dim_name,
            auto_shard_dataset=auto_shard_dataset,
        )
        if "fsdp" not in self.device_mesh.axis_names:
            raise LayoutError(
                "ShardedModelParallel",
                "the mesh has no axis 'fsdp'",
                {"axes of the mesh": ", ".join(self.device_mesh.axis_names)},
            )
        self.min_size = _check_size(min_size)

    @property
    def gathers(self) -> bool:
        """Whether weights are gathered when they are needed: along ``fsdp``."""
        return True

    @property
    def divides_weights(self) -> bool:
        """Whether no device has all weights: always."""
        return True

    def compute_spec(self, path: str, shape: tuple[int, ...]) -> PartitionSpec:
        """The layout that a weight is computed with: that of its rule."""
        return super().weight_spec(path, shape)

    def weight_spec(self, path: str, shape: tuple[int, ...]) -> PartitionSpec:
        """The layout of a weight: by its rule, and along ``fsdp``."""
        rule = super().weight_spec(path, shape)
        if "fsdp" in axis_names(rule):
            return rule
        return divide_axis(
            shape, ("fsdp",), self.device_mesh, self.min_size, tuple(rule)
        )

    def rule_of(self, path: str, shape: tuple[int, ...]) -> str:
        if "fsdp" not in self.weight_spec(path, shape):
            return super().rule_of(path, shape)
        rule = self.layout_map.rule_of(path) and super().rule_of(path, shape)
        return f"{rule}, and fsdp" if rule else "fsdp"


@guard_methods
class FSDP(Distribution):
    """The batch, weights and optimizer divided: fully sharded data parallel, ZeRO-3.

    A weight is divided along its longest axis that the devices divide evenly. Each
    layer's weights are gathered when they are needed.

    Args:
        device_mesh: The mesh, whose axes together divide the batch.
        devices: Names as of ``list_devices``, in place of a mesh; all by default.
        min_size: Weights of fewer elements stay whole: to gather them would take
            longer than they are worth.
        auto_shard_dataset: As of ``Distribution``.

    Reference:
        Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion
        Parameter Models, https://arxiv.org/abs/1910.02054

    Example:
        >>> fsdp = FSDP(devices=["cpu:0"], min_size=1)
        >>> tuple(fsdp.weight_spec("dense/kernel", (4, 8)))
        (None, 'fsdp')
    """

    def __init__(
        self,
        device_mesh: DeviceMesh | None = None,
        devices: Any = None,
        *,
        min_size: int = 1024,
        auto_shard_dataset: bool = True,
    ):
        mesh = _row_of_devices(device_mesh, devices, "fsdp")
        names = getattr(mesh, "axis_names", ["fsdp"])
        # Positions are divided along an axis of their own, if there is one beside it.
        rows = tuple(n for n in names if n != CONTEXT) or tuple(names)
        super().__init__(mesh, rows, auto_shard_dataset)
        self.axes: tuple[str, ...] = tuple(n for n in names if n != "data") or ("data",)
        self.min_size = _check_size(min_size)

    @property
    def gathers(self) -> bool:
        """Whether weights are gathered when they are needed: always."""
        return True

    def weight_spec(self, path: str, shape: tuple[int, ...]) -> PartitionSpec:
        """The layout of a weight: along its longest axis that can be divided evenly."""
        return divide_axis(shape, self.axes, self.device_mesh, self.min_size)

    def rule_of(self, path: str, shape: tuple[int, ...]) -> str:
        if len(self.weight_spec(path, shape)):
            return "longest axis that divides evenly"
        small = math.prod(shape) < self.min_size
        return f"fewer than {self.min_size:,} elements" if small else "no even axis"


@guard_methods
class ZeRO(Distribution):
    """The batch divided, and with it the optimizer's state, by ZeRO's stages.

    Args:
        stage: 1 divides what the optimizer keeps, 2 the gradients as well, 3 the
            weights, too, as ``FSDP`` does.
        device_mesh, devices, min_size, auto_shard_dataset: As of ``FSDP``.

    Reference:
        Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion
        Parameter Models, https://arxiv.org/abs/1910.02054

    Raises:
        ArgumentError: ``stage`` is not 1, 2 or 3.
        LayoutError: There are no such devices, or the mesh has more than one axis.

    Example:
        >>> zero = ZeRO(1, devices=["cpu:0"], min_size=1)
        >>> tuple(zero.weight_spec("kernel", (4, 8)))
        ()
        >>> tuple(zero.slot_spec("kernel", (4, 8)))
        (None, 'data')
    """

    def __init__(
        self,
        stage: int = 1,
        device_mesh: DeviceMesh | None = None,
        devices: Any = None,
        *,
        min_size: int = 1024,
        auto_shard_dataset: bool = True,
    ):
        if stage not in (1, 2, 3):
            raise LayoutError("ZeRO", f"stage must be 1, 2 or 3, received {stage!r}")
        mesh = _row_of_devices(device_mesh, devices, "data")
        names = tuple(getattr(mesh, "axis_names", ["data"]))
        super().__init__(mesh, names, auto_shard_dataset)
        self.stage, self.min_size = stage, _check_size(min_size)

    def weight_spec(self, path: str, shape: tuple[int, ...]) -> PartitionSpec:
        """The layout of a weight: whole, unless the stage is 3."""
        return self.slot_spec(path, shape) if self.stage == 3 else PartitionSpec()

    def slot_spec(self, path: str, shape: tuple[int, ...]) -> PartitionSpec:
        """The layout of what an optimizer keeps for a weight: divided."""
        return divide_axis(shape, self.batch_axes, self.device_mesh, self.min_size)

    def gradient_spec(self, path: str, shape: tuple[int, ...]) -> PartitionSpec:
        """The layout of a weight's gradient: divided, from stage 2 on."""
        if self.stage > 1:
            return self.slot_spec(path, shape)
        return self.weight_spec(path, shape)

    @property
    def gathers(self) -> bool:
        """Whether weights are gathered when they are needed: at stage 3."""
        return self.stage == 3

    def rule_of(self, path: str, shape: tuple[int, ...]) -> str:
        return f"stage {self.stage}"


def divide_axis(
    shape: tuple[int, ...],
    axes: tuple[str, ...],
    mesh: DeviceMesh,
    min_size: int,
    present: Sequence[Any] = (),
) -> PartitionSpec:
    """The layout along the longest axis that can be divided evenly.

    Args:
        axes: Axes of the mesh that divide it together.
        min_size: Fewer elements are not divided.
        present: The layout that it has already, whose axes stay as they are.

    Example:
        >>> mesh = DeviceMesh((1, 1), ["data", "model"], ["cpu:0"])
        >>> tuple(divide_axis((3, 5), ("data",), mesh, min_size=1))
        (None, 'data')
        >>> tuple(divide_axis((3, 5), ("data",), mesh, 1, present=(None, "model")))
        ('data', 'model')
    """
    layout = [*present, *[None] * (len(shape) - len(present))]
    parts = mesh.size(axes)
    free = [i for i, axis in enumerate(layout) if axis is None]
    even = [i for i in free if shape[i] and shape[i] % parts == 0]
    if not even or math.prod(shape) < min_size:
        return PartitionSpec(*present)
    longest = max(even, key=lambda i: shape[i])
    layout[longest] = _axis(axes)
    last = max(i for i, axis in enumerate(layout) if axis is not None)
    return PartitionSpec(*layout[: last + 1])


def make_distribution(mesh: Any, layout: Any = None, op: str = "compile") -> Any:
    """The distribution that ``compile(mesh=…, layout=…)`` asks for.

    Args:
        mesh: ``"data"``, ``"fsdp"``, sizes by axis names, a DeviceMesh, or a
            Distribution as it is.
        layout: Rules for weights: a LayoutMap, or a dict.

    Raises:
        LayoutError: It is none of these, or needs other devices than there are.

    Example:
        >>> make_distribution({"data": 1}).batch_axes
        ('data',)
    """
    if layout is not None and not isinstance(layout, LayoutMap):
        if not isinstance(layout, dict):
            raise LayoutError(
                op, f"layout must be a LayoutMap or a dict, received {layout!r}"
            )
        rules, layout = layout, LayoutMap()
        for rule, axes in rules.items():
            layout[rule] = axes
    if mesh is None:
        mesh = getattr(layout, "device_mesh", None)
        if mesh is None and layout is not None:
            raise LayoutError(
                op,
                "layout says along which axes of a mesh weights are divided: it needs "
                "mesh=, too",
                hint='As mesh={"data": 2, "model": 4}.',
            )
    if isinstance(mesh, Distribution):
        if layout is not None:
            raise LayoutError(
                op, "layout belongs to a mesh; a Distribution has layouts of its own"
            )
        return mesh
    if isinstance(mesh, str) and mesh in _SHORT:
        mesh = {mesh: len(list_devices())}
    if isinstance(mesh, dict):
        count = math.prod(n for n in mesh.values() if isinstance(n, int) and n > 0)
        devices = list_devices()
        # Fewer than all is what a part of a machine is asked for.
        some = devices[:count] if jax.process_count() == 1 else devices
        mesh = DeviceMesh(tuple(mesh.values()), list(mesh), some)
    if not isinstance(mesh, DeviceMesh):
        near = difflib.get_close_matches(str(mesh), _SHORT, n=1)
        raise LayoutError(
            op,
            f'mesh must be "data", "fsdp", sizes by axis names, a DeviceMesh or a '
            f"Distribution, received {mesh!r}",
            hint=f"Did you mean {near[0]!r}?" if near else None,
        )
    names = mesh.axis_names
    batch = tuple(n for n in names if n in ("data", "batch", "fsdp"))
    if layout is not None:
        layout = layout if layout.device_mesh is not None else layout.with_mesh(mesh)
        kind = ShardedModelParallel if "fsdp" in names else ModelParallel
        return kind(layout_map=layout, batch_dim_name=batch)
    divided = (*(batch or names[:1]), CONTEXT)
    if rest := [n for n in names if n not in divided and mesh.size(n) > 1]:
        raise LayoutError(
            op,
            f"nothing is divided along the axis {rest[0]!r} of the mesh",
            {"mesh": mesh},
            hint="Pass layout=distribution.tensor_parallel(model), or your own rules.",
        )
    if "fsdp" in names:
        return FSDP(mesh)
    if CONTEXT in names or len(batch) > 1:
        return Distribution(mesh, batch)
    return DataParallel(mesh)


def _row_of_devices(mesh: Any, devices: Any, name: str) -> Any:
    if mesh is not None:
        return mesh
    devices = list_devices() if devices is None else list(np.ravel(np.array(devices)))
    return DeviceMesh((len(devices),), [name], devices)


def _axis(names: tuple[str, ...]) -> Any:
    return names[0] if len(names) == 1 else (names or None)


def _check_size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise LayoutError("FSDP", f"min_size must be at least 1, received {value!r}")
    return value
