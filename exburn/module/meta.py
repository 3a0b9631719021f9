"""What a layer remembers that is neither its state nor its graph."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from flax import nnx

from exburn.core.substitution import clone_scope, moment
from exburn.errors.boundary import boundary_itself, leave_boundary
from exburn.module.traversal import iter_modules

if TYPE_CHECKING:  # the type of a call is no base class to every checker
    from flax.nnx.module import ModuleMeta
else:
    ModuleMeta = type(nnx.Module)


class Filled(WeakValueDictionary[str, Any]):
    """Weights as they were first filled, by path, as long as they are weights."""

    def __reduce__(self):
        return type(self), ()  # a copy's weights are others


class LayerMeta:
    """The bookkeeping of a layer, which programs and copies see nothing of.

    Attributes:
        args, kwargs: The constructor's arguments, for ``get_config``.
        given: The same of the outermost class of ours: a user's calls its constructor.
        calls: The symbolic calls, for ``layer.output``.
        initial: Weights as they were first filled, by path, for ``reseed``.
        traced: The last call whose shapes were inferred: how to rebuild its arguments
            from specs, and the specs.
        shapes: Those that ``build`` was given: by position, and by name.
        path: The path below the outermost model so far.
        building: Whether ``build`` is running.
        made: Whether ``__init__`` is done.
        changed: Attributes that were set anew since.
        harmless: Numbers among them that the weights do not depend on.
        made_at: When the layer was made: ``substitution.moment``.
        held_since: When attributes that hold layers or weights were set.
        reached: The originals of what ``_reached`` holds, by their names there.
        clone: The clone that the layer was made for, or ``None``.
    """

    def __init__(self, args: tuple, kwargs: dict):
        self.args, self.kwargs = args, kwargs
        self.given: tuple[type, tuple, dict] | None = None
        self.calls: list[Any] = []
        self.initial = Filled()
        self.traced: tuple[Any, list] | None = None
        self.shapes: tuple[tuple, dict[str, Any]] = (), {}
        self.path = ""
        self.building = self.made = False
        self.changed: frozenset[str] = frozenset()
        self.harmless: frozenset[str] = frozenset()
        self.made_at, self.held_since = moment(), {}
        self.reached: dict[str, Any] = {}
        self.clone = clone_scope()

    def __getstate__(self) -> dict[str, Any]:
        """For pickle, which cannot take what earlier calls left, and for copies."""
        left = {"calls": [], "traced": None, "reached": {}, "clone": None}
        return vars(self) | left | {"held_since": dict(self.held_since)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        moment(after=max([state["made_at"], *state["held_since"].values()]))
        vars(self).update(state)

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """The layer is being built in the block."""
        self.building = True
        try:
            yield
        finally:
            self.building = False


class LayerType(ModuleMeta):
    """Notes that a layer is made: what is set later, its configuration tells."""

    @boundary_itself
    def __call__(cls, *args, **kwargs):
        try:
            layer = super().__call__(*args, **kwargs)
            layer._meta.value.made = True
            spread_freezing(layer)
        except BaseException as error:
            if (refusal := leave_boundary(error, cls, args, kwargs)) is None:
                raise
            try:
                raise refusal from None
            except TypeError:
                leave_boundary(refusal)
                raise
        return layer


def is_layer(part: Any) -> bool:
    """Whether an object is a layer, for modules that ``Layer`` itself is built on."""
    return isinstance(type(part), LayerType)


def spread_freezing(layer: Any) -> None:
    """Freezes the layers inside that nobody froze or thawed, if this one is frozen.

    Those of a layer that was made frozen, and those that its ``build`` makes.
    """
    if layer._trainable:
        return
    for _, module in iter_modules(layer):
        if is_layer(module) and "_trainable" not in vars(module):
            module._trainable = False


def note_arguments(cls: type, init: Callable) -> Callable:
    """A constructor that leaves its arguments in `_meta`, if it is called first."""

    @functools.wraps(init)
    def run(self, *args, **kwargs):
        meta = self._meta.value
        if meta.given is None:
            meta.given = cls, args, kwargs
        init(self, *args, **kwargs)

    return run
