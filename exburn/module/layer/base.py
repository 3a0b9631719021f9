"""What a layer is without its weights: name, precision, whether it trains."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from flax import nnx
from flax.errors import TraceContextError

from exburn import regularizers
from exburn.core.batch_independence import is_foreign
from exburn.core.checks import check_flag
from exburn.core.containers import in_order, may_hold_parts
from exburn.core.precision import DTypePolicy, Precision
from exburn.core.substitution import clone_scope, moment
from exburn.core.symbolic_shapes import checked_sizes
from exburn.errors import ArgumentError
from exburn.module import remat
from exburn.module.building import spread_precision
from exburn.module.layer import given_policy
from exburn.module.layer.signature import CallInfo, check_name, init_names, snake_case
from exburn.module.traversal import iter_modules
from exburn.module.variable import Static

__all__ = ["Base"]


class Filled(WeakValueDictionary[str, Any]):
    """Weights as they were first filled, by path, as long as they are weights."""

    def __reduce__(self):
        return type(self), ()  # a copy's weights are others


class LayerMeta:
    """What a layer remembers that is neither its state nor its graph.

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


def _noting(cls: type, init: Callable) -> Callable:
    """A constructor that leaves its arguments in `_meta`, if it is called first."""

    @functools.wraps(init)
    def noting(self, *args, **kwargs):
        meta = self._meta.value
        if meta.given is None:
            meta.given = cls, args, kwargs
        init(self, *args, **kwargs)

    return noting


class _Making(type(nnx.Module)):
    """Notes that a layer is made: what is set later, its configuration tells."""

    def __call__(cls, *args, **kwargs):
        layer = super().__call__(*args, **kwargs)
        layer._meta.value.made = True
        layer._spread_freezing()
        return layer


class Base(nnx.Module, metaclass=_Making):
    """Construction and settings of a ``Layer``."""

    #: What is kept of an attribute, whenever it is set: a function of the value.
    kept_as: ClassVar[dict[str, Callable[[Any], Any]]] = {}
    _meta: Any
    is_model = False
    built = False
    supports_masking = False
    input_spec: Any = None
    _name: str | None = None
    _auto_name = True
    _trainable = True
    _policy: DTypePolicy | None = None
    _given_policy: DTypePolicy | None = None  # if it is more than dtypes
    _own_policy = False
    _policy_was_set = False  # after it was made: no configuration tells
    _remat: remat.Remat | None = None
    _autocast = True
    _taps: Static | None = None
    _given_shape: tuple | None = None
    activity_regularizer: Any = None

    def __new__(cls, *args, **kwargs):
        self = object.__new__(cls)
        object.__setattr__(self, "_meta", Static(LayerMeta(args, kwargs)))
        return self

    def __init__(
        self,
        *,
        activity_regularizer=None,
        trainable: bool = True,
        dtype: Any = None,
        autocast: bool = True,
        name: str | None = None,
        **kwargs,
    ):
        for key in ("input_shape", "batch_input_shape", "input_dim"):
            if (value := kwargs.pop(key, None)) is not None:
                shape = checked_sizes(type(self).__name__, value)
                self._given_shape = shape[1:] if key.startswith("batch") else shape
        if kwargs:
            raise ArgumentError(
                type(self).__name__,
                f"unknown argument {next(iter(kwargs))!r}",
                {"known": ", ".join(init_names(type(self)))},
            )
        if name is not None:
            self._name, self._auto_name = check_name(type(self).__name__, name), False
        if not check_flag(type(self).__name__, "trainable", trainable):
            self._trainable = False
        self._take_policy(Precision.of(dtype))
        if dtype is not None:
            self._own_policy = True
        if (rule := remat.scoped()) is not None:
            self._remat = rule
        if not autocast:
            self._autocast = False
        if activity_regularizer is not None:
            self.activity_regularizer = regularizers.get(activity_regularizer)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        # ``__new__`` takes anything, and would hide what ``__init__`` takes.
        parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
        cls.__signature__ = inspect.Signature(parameters)
        if "__init__" in cls.__dict__ and not is_foreign(cls):
            cls.__init__ = _noting(cls, cls.__init__)
        if (call := cls.__dict__.get("call")) is not None:
            cls._call_info = CallInfo(call)
        if isinstance(name := cls.__dict__.get("name"), str):  # it hides the property
            type.__delattr__(cls, "name")
            cls._name, cls._auto_name = check_name(cls.__name__, name), False

    def __setattr__(self, name: str, value: Any) -> None:
        convert = self.kept_as.get(name)
        value = in_order(value) if convert is None else convert(value)
        descriptor = getattr(type(self), name, None)
        if isinstance(descriptor, property):
            object.__setattr__(self, name, value)
            return
        holds = may_hold_parts(value)
        if vars(self).get(name) is not value and (holds or nnx.is_data(value)):
            self._meta.value.held_since[name] = moment()
        if name in vars(self):
            if self._pytree__nodes.get(name, False) != (holds or nnx.is_data(value)):
                delattr(self, name)  # `self.bias = None` in __init__, a weight in build
            meta = self._meta.value
            if meta.made and not meta.building:
                meta.changed |= {name}
        try:
            super().__setattr__(name, nnx.data(value) if holds else value)
        except TraceContextError:
            if holds or nnx.is_data(value):
                raise
            object.__setattr__(self, name, value)  # no array: it may leave the trace

    @property
    def name(self) -> str:
        return self._name or snake_case(type(self).__name__.lstrip("_"))

    @name.setter
    def name(self, value: str):
        self._name, self._auto_name = check_name(type(self).__name__, value), False

    @property
    def trainable(self) -> bool:
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool):
        self._trainable = bool(value)
        for _, module in iter_modules(self):
            if isinstance(module, Base) and module is not self:
                module._trainable = bool(value)

    def _spread_freezing(self) -> None:
        """Layers inside that nobody froze or thawed are frozen if this one is.

        Those of a layer that was made frozen, and those that its ``build`` makes.
        """
        if self._trainable:
            return
        for _, module in iter_modules(self):
            if isinstance(module, Base) and "_trainable" not in vars(module):
                module._trainable = False

    @property
    def autocast(self) -> bool:
        """Whether floating inputs are cast to the policy's compute dtype."""
        return self._autocast

    @autocast.setter
    def autocast(self, value: bool) -> None:
        self._autocast = bool(value)

    @property
    def rematerialized(self) -> bool:
        """Whether training computes the layer's results again for the gradient."""
        return self._remat is not None

    @rematerialized.setter
    def rematerialized(self, rule: remat.Remat | bool) -> None:
        if isinstance(rule, bool):
            rule = remat.Remat() if rule else None  # type: ignore[assignment]
        self._remat = rule  # type: ignore[assignment]

    @property
    def precision(self) -> DTypePolicy:
        """The dtypes; setting them casts the weights, also in the layers that follow.

        A quantized policy packs the weights, if the layer has any.
        """
        if self._policy is None:  # a subclass that did not call super().__init__()
            self._take_policy(Precision.of(None))
        return self._policy  # type: ignore[return-value]

    @precision.setter
    def precision(self, policy: Any) -> None:
        before = self.precision
        self._take_policy(Precision.of(policy))
        self._own_policy = self._policy_was_set = True
        spread_precision(self, self.precision, before)
        given_policy.follow_map(self)
        given_policy.pack(self)

    @property
    def dtype_policy(self) -> DTypePolicy:
        """The policy as Keras has it: it also says how weights are packed."""
        return given_policy.told(self)

    @dtype_policy.setter
    def dtype_policy(self, policy: Any) -> None:
        given_policy.replace(self, policy)

    def _take_policy(self, policy: DTypePolicy) -> None:
        self._policy = policy.plain
        self._given_policy = None if policy is self._policy else policy

    @property
    def dtype(self) -> str:
        return self.precision.param

    variable_dtype = dtype

    @property
    def compute_dtype(self) -> str:
        return self.precision.compute

    @property
    def quantization_mode(self) -> str | None:
        """How ``quantize`` has stored the layer's own weights: ``"int8"``, or None."""
        for value in vars(self).values():
            scheme = getattr(value, "scheme", None)
            if scheme is not None and not isinstance(value, nnx.Module):
                return getattr(scheme, "mode", None)
        return None

    # By identity, also beside a dataclass among the bases.
    __hash__, __eq__ = object.__hash__, object.__eq__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}, built={self.built}>"

    __str__ = __repr__
