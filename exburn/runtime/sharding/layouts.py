"""Which axes of an array are divided along which axes of a mesh."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import Any

from jax.sharding import NamedSharding, PartitionSpec, Sharding

from exburn.errors import LayoutError
from exburn.errors.boundary import guard_methods
from exburn.runtime.sharding.mesh import DeviceMesh

Axis = str | tuple[str, ...] | None


@guard_methods
class TensorLayout:
    """The axis of a mesh that each axis of an array is divided along.

    Args:
        axes: For each axis of the array the name of one of the mesh, a tuple of names,
            or ``None`` for one that is not divided.
        device_mesh: The mesh, if it is known already.

    Raises:
        LayoutError: The mesh has no such axis.

    Example:
        >>> TensorLayout((None, "model")).axes
        (None, 'model')
    """

    def __init__(self, axes: Sequence[Axis], device_mesh: DeviceMesh | None = None):
        self._axes = tuple(tuple(a) if isinstance(a, list) else a for a in axes)
        self._device_mesh = device_mesh
        self._check()

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Axes of the mesh, for each axis of the array."""
        return self._axes

    @property
    def device_mesh(self) -> DeviceMesh | None:
        """The mesh."""
        return self._device_mesh

    @device_mesh.setter
    def device_mesh(self, mesh: DeviceMesh) -> None:
        if self._device_mesh is not None:
            raise LayoutError(
                "TensorLayout", f"the layout belongs to a mesh: {self._device_mesh}"
            )
        self._device_mesh = mesh
        self._check()

    @property
    def spec(self) -> PartitionSpec:
        """The layout as JAX's ``PartitionSpec``."""
        return PartitionSpec(*self._axes)

    @property
    def backend_layout(self) -> NamedSharding:
        """The layout as JAX's sharding.

        Raises:
            LayoutError: The mesh is not known yet.
        """
        if self._device_mesh is None:
            raise LayoutError("TensorLayout", "the layout has no device_mesh yet")
        return NamedSharding(self._device_mesh.backend_mesh, self.spec)

    def _check(self) -> None:
        names = list(axis_names(self._axes))
        if len(set(names)) != len(names):
            raise LayoutError(
                "TensorLayout",
                f"an axis of the mesh can divide one axis only: {self._axes}",
            )
        if self._device_mesh is None:
            return
        axes = self._device_mesh.axis_names
        if unknown := [name for name in names if name not in axes]:
            raise LayoutError(
                "TensorLayout",
                f"the mesh has no axis {unknown[0]!r}",
                {"layout": self._axes, "axes of the mesh": ", ".join(axes)},
            )

    def __repr__(self) -> str:
        return f"TensorLayout(axes={self._axes}, device_mesh={self._device_mesh})"


@guard_methods
class LayoutMap(MutableMapping):
    """Layouts by regular expressions, each of which matches whole paths of weights.

    A rule whose key is the path itself goes first. What a layer returns has the path
    ``<layer>/output``. Where a model is trained with it, a rule that matches nothing is
    an error, and so is a weight that two rules match.

    Args:
        device_mesh: The mesh that tuples of axis names refer to.

    Raises:
        LayoutError: A rule is there already, is no regular expression, or names an
            axis that the mesh does not have.

    Example:
        >>> mesh = DeviceMesh((1, 1), ["batch", "model"], ["cpu:0"])
        >>> layout = LayoutMap(mesh)
        >>> layout[".*dense.*kernel"] = (None, "model")
        >>> layout["block/dense_1/kernel"].axes, layout["block/norm/gamma"]
        ((None, 'model'), None)
    """

    def __init__(self, device_mesh: DeviceMesh | None = None):
        self._rules: dict[str, TensorLayout] = {}
        self._device_mesh = device_mesh

    @property
    def device_mesh(self) -> DeviceMesh | None:
        """The mesh."""
        return self._device_mesh

    def with_mesh(self, mesh: DeviceMesh) -> LayoutMap:
        """A map of these rules for a mesh."""
        new = LayoutMap(mesh)
        for rule, layout in self._rules.items():
            new[rule] = layout.axes
        return new

    def rule_of(self, path: str) -> str | None:
        """The rule that matches a path.

        Raises:
            LayoutError: Several do.
        """
        if path in self._rules:
            return path
        matching = [rule for rule in self._rules if re.fullmatch(rule, path)]
        if len(matching) > 1:
            raise LayoutError(
                "LayoutMap",
                f"{path!r} is matched by {len(matching)} rules",
                {f"rule {i + 1}": rule for i, rule in enumerate(matching)},
                hint="Make them exclude each other, or give the path itself as a rule.",
            )
        return matching[0] if matching else None

    def reason_of(self, path: str) -> str | None:
        """Why a weight lies where it does: the rule that matches it, if one does."""
        return self.rule_of(path)

    def check_use(self, paths: Iterable[str], results: Iterable[str] = ()) -> None:
        """Raises if a rule matches nothing, or two match the path of one weight.

        Args:
            paths: Paths of weights.
            results: Paths of what layers return.
        """
        paths = list(paths)
        used = {self.rule_of(path) for path in [*paths, *results]}
        for rule in self._rules:
            if rule in used:
                continue
            if any(re.fullmatch(rule, path) for path in paths):
                continue  # each of its paths is a rule of its own
            # What contains the rule was meant, before what only looks alike.
            inside = [path for path in paths if rule in path]
            near = difflib.get_close_matches(rule, paths, n=3, cutoff=0.0)
            names = list(dict.fromkeys([*inside[:3], *near]))[:3]
            hint = f"'.*{rule}' would match." if inside else None
            raise LayoutError(
                "LayoutMap",
                f"the rule {rule!r} matches no weight: it must match a whole path",
                {"nearest paths": ", ".join(names)},
                hint=hint,
            )

    def __getitem__(self, key: str) -> Any:
        """The layout for a path; ``None`` if no rule matches it, as in Keras."""
        rule = self.rule_of(key)
        return None if rule is None else self._rules[rule]

    def __setitem__(self, key: str, layout: Any) -> None:
        if key in self._rules:
            raise LayoutError(
                "LayoutMap", f"there is a rule {key!r} already: {self._rules[key]}"
            )
        try:
            re.compile(key)
        except (re.error, TypeError) as error:
            raise LayoutError(
                "LayoutMap", f"a rule must be a regular expression, received {key!r}"
            ) from error
        if isinstance(layout, tuple | list):
            layout = TensorLayout(layout)
        if not isinstance(layout, TensorLayout):
            raise LayoutError(
                "LayoutMap",
                f"a layout must be a TensorLayout or a tuple, received {layout!r}",
            )
        if layout.device_mesh is None and self._device_mesh is not None:
            layout.device_mesh = self._device_mesh
        self._rules[key] = layout

    def __delitem__(self, key: str) -> None:
        del self._rules[key]

    def __len__(self) -> int:
        return len(self._rules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __repr__(self) -> str:
        return f"LayoutMap({ {rule: v.axes for rule, v in self._rules.items()} })"


def fits(sharding: Sharding, shape: Sequence[int]) -> bool:
    """Whether an array of a shape has the axes of a layout, and divides evenly.

    Example:
        >>> mesh = DeviceMesh((1,), ["batch"], ["cpu:0"])
        >>> layout = TensorLayout((None, "batch"), mesh).backend_layout
        >>> fits(layout, (3, 4)), fits(layout, (3,))
        (True, False)
    """
    if isinstance(sharding, NamedSharding) and len(sharding.spec) > len(shape):
        return False
    try:
        sharding.shard_shape(tuple(shape))
    except (ValueError, IndexError):
        return False
    return True


def axis_names(axes: Iterable[Axis]) -> Iterator[str]:
    """Names of mesh axes in a layout, in order.

    Example:
        >>> list(axis_names([None, "model", ("data", "fsdp")]))
        ['model', 'data', 'fsdp']
    """
    for axis in axes:
        if axis is not None:
            yield from (axis,) if isinstance(axis, str) else axis
