"""Weights: the variables of layers, and what sets them."""

from __future__ import annotations

import abc
import copy
import functools
import reprlib
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.errors import TraceContextError
from flax.nnx import reprlib as flax_repr
from jax.core import Tracer

from exburn import constraints, initializers, regularizers
from exburn.config import floatx
from exburn.core import random_keys, registry, substitution
from exburn.core.precision import standardize_dtype
from exburn.core.symbolic_shapes import describe
from exburn.core.variable_proxy import own_array
from exburn.errors import (
    ArgumentError,
    BusyError,
    DTypeError,
    NotBuiltError,
    ShapeError,
)
from exburn.errors.boundary import api_boundary
from exburn.module import stateless_scope
from exburn.runtime.donation import is_consumed
from exburn.runtime.sharding.arrays import to_host


class Static:
    """Holds any value as a static attribute of a module: compared by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __repr__(self):
        return "…"


class OwnState(Static):
    """A static attribute whose value a copy of the module makes anew."""

    __slots__ = ()

    def renew(self) -> OwnState:
        """What the copy holds."""
        return OwnState(type(self.value)())


class WeightPlace:
    """Where a weight belongs: compared by identity, so that it makes no other program.

    Attributes:
        path: The path below the outermost model so far, or ``None``.
        owner: A weak reference to the layer that made the weight, or ``None``.
        made_at: The moment at which the weight was made: ``substitution.moment``.
    """

    __slots__ = ("made_at", "owner", "path")

    def __init__(self, owner: Any = None):
        self.path: str | None = None
        self.owner = None if owner is None else weakref.ref(owner)
        self.made_at = substitution.moment()

    def __repr__(self) -> str:
        return repr(self.path)

    def __getstate__(self) -> tuple[str | None, int]:
        return self.path, self.made_at  # a copy's weight is another layer's

    def __setstate__(self, state: tuple[str | None, int]) -> None:
        self.path, self.made_at = state
        self.owner = None
        substitution.moment(after=self.made_at)


def assign(variable: nnx.Variable, value: Any, *, fresh: bool = False) -> None:
    """Replaces a variable's value by one of the same shape, in the variable's dtype.

    Args:
        variable: The variable.
        value: Its value, of which it gets a copy.
        fresh: Whether the value is an array that nobody else has, so that it gets that.

    Raises:
        ShapeError: The shape differs.
        DTypeError: The value cannot become an array of numbers.
        ArgumentError: JAX traces a function that the variable comes from outside of.
    """
    value = as_array("assign", "the weight", value)
    if isinstance(variable, Weight):
        variable = _stand_in(variable)
    if tuple(np.shape(value)) != tuple(variable.shape):
        raise ShapeError(
            "assign",
            f"the weight has shape {tuple(variable.shape)}, received {np.shape(value)}",
            hint="A weight keeps its shape: give an array of that one.",
        )
    # A variable made of NumPy's float64 becomes float32, like every array of JAX.
    dtype = jax.dtypes.canonicalize_dtype(variable.get_raw_value().dtype)
    if isinstance(value, jax.Array):
        new = value.astype(dtype) if fresh else own_array(value, dtype)
    else:
        new = jax.device_put(np.array(value, dtype))
    if (scope := stateless_scope.current()) is not None:
        scope.add_update((variable, new))
        return
    try:
        variable.set_raw_value(new)
    except TraceContextError as error:
        raise ArgumentError(
            variable.get_metadata().get("label", "variable"),
            "a weight cannot be set inside a function that JAX traces: jax.jit, "
            "jax.grad, jax.vmap",
            hint="layer.stateless_call(…) returns the new values beside the outputs; "
            "with exburn.StatelessScope(…) keeps them.",
        ) from error


def as_array(op: str, name: str, value: Any) -> Any:
    """A variable's array, or what another library or Python calls one, as NumPy's."""
    if isinstance(value, jax.Array):
        return value
    if isinstance(value, nnx.Variable):
        return value.get_value()
    hint = "Make an array of it: np.array(…); tensor.detach().cpu().numpy()."
    try:
        array = np.asarray(value)
    except Exception as error:  # whatever it refuses with
        received = {"received": reprlib.repr(value), "cause": error}
        raise DTypeError(
            op,
            f"{name} must hold numbers, received {type(value).__name__}",
            received,
            hint=hint,
        ) from error
    if not (jnp.issubdtype(array.dtype, np.number) or array.dtype == np.bool_):
        raise DTypeError(op, f"{name} must hold numbers, received {describe(array)}")
    return array


def alive(array: Any) -> Any:
    """An array that is to be read.

    Raises:
        BusyError: A program has consumed it: its model is being trained, or was when
            the program failed.
    """
    if is_consumed(array):
        raise BusyError(
            "weights",
            "the model is being trained, and a program has its arrays",
            hint="Read them in a hook, of a callback without light = True, or after "
            "fit has returned. If it ended with an error of the device, they are lost: "
            "load what was saved last.",
        )
    return array


def own_copy(value: Any) -> Any:
    """A copy of an array that shares no memory with it; other values as they are."""
    return jnp.array(alive(value), copy=True) if isinstance(value, jax.Array) else value


class Weight(nnx.Variable):
    """What Keras code expects of a variable, on top of ``flax.nnx.Variable``."""

    # Whether it is only an entry of a tree that JAX has put together again.
    __slots__ = ("_is_entry",)

    def __init__(self, value: Any, **metadata: Any):
        # It is there from the start: what is told inside of a trace could not add it.
        metadata.setdefault("place", WeightPlace())
        super().__init__(value, **metadata)

    def __init_subclass__(cls, **kwargs: Any):
        # Not flax' own: JAX's functions flatten a weight that they are given, and must
        # see the array of what stands for it.
        super(nnx.Variable, cls).__init_subclass__(**kwargs)
        jax.tree_util.register_pytree_with_keys(
            cls,
            flatten_with_keys=_flatten_with_keys,
            unflatten_func=functools.partial(_unflatten, cls),
            flatten_func=_flatten,
        )

    def get_value(self, **index: Any) -> Any:
        """The array, of what stands for the weight where a program runs a copy.

        A weight of a layer that was built by hand gets its value when it is asked for.
        """
        stands = _stand_in(self)
        if stands is not self:
            return stands.get_value(**index)
        if isinstance(self.get_raw_value(), jax.ShapeDtypeStruct):
            owner = self.get_metadata()["place"].owner
            if owner is not None and (layer := owner()) is not None:
                layer._require_weights()
            raw = self.get_raw_value()
            if isinstance(raw, jax.ShapeDtypeStruct) and registry.fits_in_file(
                raw.shape
            ):
                return self._first_value(raw)
        return super().get_value(**index)

    def _first_value(self, spec: jax.ShapeDtypeStruct) -> jax.Array:
        """What the initializer gives, for a class whose ``build`` computes with it.

        The weight stays a spec, since its value comes from the file that is being read.
        """
        make = self.get_metadata("initializer")
        rng = random_keys.philox(self.name, 0)
        return jax.numpy.asarray(make(spec.shape, spec.dtype, rng=rng), spec.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, which a weight without a value has, too."""
        return self.get_raw_value().shape

    def __nnx_repr__(self) -> Iterator[Any]:
        """The parts that flax shows; to be shown, a weight needs no value."""
        raw = self.get_raw_value()
        if isinstance(raw, jax.ShapeDtypeStruct):
            yield flax_repr.Object(type=type(self).__name__)
            yield flax_repr.Attr("value", raw)
            yield flax_repr.Attr("label", self.name)
        else:
            yield from super().__nnx_repr__()

    def __getattr__(self, name: str) -> Any:
        """What is known of the weight, else the attribute of its array."""
        # flax reads the array past what stands for it: `weight.T` would be a constant.
        metadata = object.__getattribute__(self, "_var_metadata")
        if name in metadata:
            return metadata[name]
        raw = object.__getattribute__(self, "_raw_value")
        if name[0] != "_":
            raw = _stand_in(self).get_raw_value()
            if isinstance(raw, jax.ShapeDtypeStruct) and not hasattr(raw, name):
                raw = self.get_value()
        return getattr(raw, name)

    @api_boundary
    def assign(self, value) -> Weight:
        """Replaces the value by one of the same shape, in the weight's dtype."""
        assign(self, value)
        return self

    def set_value(self, value: Any, **index: Any) -> None:
        """Replaces the array, or a part; ``weight[...] = value`` calls it, too."""
        if (stands := _stand_in(self)) is not self:
            stands.set_value(value, **index)
            return
        concrete = isinstance(value, jax.Array) and not isinstance(value, Tracer)
        if concrete and value.committed:
            # `jax.device_put(array, device)` may have the memory of another array,
            # which training would consume: it knows of no such relation.
            value = jnp.copy(value)
        if (scope := stateless_scope.current()) is None:
            super().set_value(value, **index)
        elif (place := index.get("index", ...)) is ...:
            scope.add_update((self, value))
        else:
            scope.add_update((self, self.get_value().at[place].set(value)))

    @api_boundary
    def assign_add(self, value) -> Weight:
        assign(self, self.get_value() + jnp.asarray(value), fresh=True)
        return self

    @api_boundary
    def assign_sub(self, value) -> Weight:
        assign(self, self.get_value() - jnp.asarray(value), fresh=True)
        return self

    # flax has no order of variables, and takes `!=` for the opposite of one truth.
    def __ne__(self, other: Any) -> Any:
        return self._require_value() != _plain(other)

    def __lt__(self, other: Any) -> Any:
        return self._require_value() < _plain(other)

    def __le__(self, other: Any) -> Any:
        return self._require_value() <= _plain(other)

    def __gt__(self, other: Any) -> Any:
        return self._require_value() > _plain(other)

    def __ge__(self, other: Any) -> Any:
        return self._require_value() >= _plain(other)

    @property
    def value(self) -> jax.Array:
        """The array, as in Keras."""
        return self._require_value()

    @value.setter
    def value(self, value) -> None:
        self.assign(value)

    def numpy(self) -> np.ndarray:
        return to_host(self._require_value())

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.array(to_host(self._require_value()), dtype=dtype)

    def __jax_array__(self) -> Any:
        return self._require_value()

    def _require_value(self) -> Any:
        value = self.get_value()
        if isinstance(value, jax.ShapeDtypeStruct):
            raise NotBuiltError(
                self.name,
                "it has no value yet",
                hint="Weights get theirs when a model holds their layer, when that is "
                "called on data, or when layer.weights is read.",
            )
        return alive(value)

    @property
    def trainable(self) -> bool:
        """Whether training may change it; its layer may be frozen all the same."""
        frozen = self.get_metadata().get("frozen", False)
        return isinstance(self, nnx.Param) and not frozen

    @trainable.setter
    def trainable(self, value: bool) -> None:
        if not isinstance(self, nnx.Param) and value:
            raise ArgumentError(
                self.name,
                "a weight made with trainable=False is never trained",
                hint="Make it with trainable=True and freeze it while it should rest.",
            )
        if isinstance(self, nnx.Param):
            self.set_metadata("frozen", not value)

    @property
    def name(self) -> str:
        return self.get_metadata().get("label", "variable")

    @property
    def regularizer(self) -> Any:
        """Its term of the loss, or None."""
        return self.get_metadata().get("regularizer")

    @regularizer.setter
    def regularizer(self, value: Any) -> None:
        self.set_metadata("regularizer", regularizers.get(value))

    @property
    def constraint(self) -> Any:
        """What every update is followed by, or None."""
        return self.get_metadata().get("constraint")

    @constraint.setter
    def constraint(self, value: Any) -> None:
        self.set_metadata("constraint", constraints.get(value))

    @property
    def aggregation(self) -> str:
        """How copies on several devices become one; there is one copy."""
        return self.get_metadata().get("aggregation", "none")

    @property
    def synchronization(self) -> str:
        """When they do; see ``aggregation``."""
        return self.get_metadata().get("synchronization", "auto")

    @property
    def overwrite_with_gradient(self) -> bool:
        """Whether its gradient becomes its value: never, it is what the optimizer says.

        Setting it to True is an ArgumentError.
        """
        return False

    @overwrite_with_gradient.setter
    def overwrite_with_gradient(self, value: bool) -> None:
        refuse_overwriting(self.name, value)

    def __bool__(self) -> bool:
        raise DTypeError(
            self.name,
            "a weight is no truth value",
            hint="Ask for its array's: bool(weight.value.any()).",
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Weight:
        result = type(self)(own_copy(self.get_raw_value()), **self.get_metadata())
        result.set_metadata("place", copy.copy(self.get_metadata()["place"]))
        memo[id(self)] = result
        return result

    @property
    def path(self) -> str:
        """The path in the outermost model that holds the weight, or its name.

        It is what ``summary()``, ``OptimizerMap`` and ``freeze`` go by.
        """
        path = self.get_metadata()["place"].path
        return self.name if path is None else path


def _stand_in(weight: Weight) -> Any:
    """The weight that is read and set in this one's place: of a trace, its own."""
    scope = substitution.current()
    if scope is None or isinstance(weight.get_raw_value(), Tracer):
        return weight
    try:
        object.__getattribute__(weight, "_is_entry")
    except AttributeError:
        return scope.stand_in(weight)
    substitute = scope.find(weight)
    return weight if substitute is None else substitute


def _flatten(weight: Weight) -> tuple[tuple, tuple]:
    metadata = tuple(sorted(weight.get_metadata().items()))
    return (_stand_in(weight).get_raw_value(),), metadata


def _flatten_with_keys(weight: Weight) -> tuple[tuple, tuple]:
    (value,), metadata = _flatten(weight)
    return ((jax.tree_util.GetAttrKey("value"), value),), metadata


def _unflatten(cls: type[Weight], metadata: Any, children: Iterable[Any]) -> Any:
    (value,) = children
    weight = cls.from_metadata(value, dict(metadata))
    object.__setattr__(weight, "_is_entry", True)
    return weight


def as_weight(entry: Weight) -> None:
    """Makes a weight of an entry of a tree: a module has it now."""
    if hasattr(entry, "_is_entry"):
        object.__delattr__(entry, "_is_entry")


def refuse_overwriting(op: str, overwrites: Any) -> None:
    """Raises where a weight's gradient shall become its value."""
    if overwrites:
        raise ArgumentError(
            op,
            "overwrite_with_gradient must be False: a gradient goes to the optimizer",
            hint="Make the weight with trainable=False, and assign its value in call.",
        )


class Parameter(Weight, nnx.Param):
    """A weight that the optimizer updates."""


class Buffer(Weight, nnx.Variable):
    """A weight that only the layer itself changes, such as a running mean."""


class Variable(abc.ABC):  # noqa: B024 - abstract for `register`
    """Makes a weight as Keras does: a `Parameter`, or a `Buffer` that is not trained.

    Every weight of a layer is an instance of it. As an attribute of a layer or model,
    a variable is one of its weights.

    Args:
        initializer: An array, or an initializer, its name, or a function of a shape
            and a dtype.
        shape: The shape that an initializer fills; an array has its own.
        dtype: By default that of an array that has one; float32 for an initializer.
        trainable: Whether training changes it.
        autocast, layout: For Keras code; a weight stays in its dtype until a layer's
            ``cast``.
        aggregation, synchronization: For Keras code, which may read them: a weight has
            one copy.
        name: Its name, without a slash; ``"variable"`` by default.

    Raises:
        ArgumentError: An initializer without a shape, or a bad name.
        ShapeError: The array does not have the shape.

    Example:
        >>> weight = Variable("ones", shape=(2,), name="scale")
        >>> weight.assign_add([1.0, 2.0]).numpy().tolist(), weight.path
        ([2.0, 3.0], 'scale')
        >>> Variable(np.arange(3), trainable=False).dtype.name
        'int32'
    """

    @api_boundary
    def __new__(
        cls,
        initializer: Any,
        shape: Any = None,
        dtype: Any = None,
        trainable: bool = True,
        autocast: bool = True,
        aggregation: str | None = "none",
        synchronization: str | None = "auto",
        name: str | None = None,
        layout: Any = None,
    ) -> Weight:
        if name is not None and (not isinstance(name, str) or "/" in name):
            raise ArgumentError(
                "Variable", f"a name is text without a slash, received {name!r}"
            )
        if isinstance(shape, int | np.integer):
            shape = (int(shape),)
        array = isinstance(initializer, nnx.Variable)
        if isinstance(initializer, str) or (callable(initializer) and not array):
            value = cls._draw(initializers.get(initializer), shape, dtype)
        else:
            source = initializer.get_value() if array else initializer
            kind = standardize_dtype(dtype) if dtype is not None else None
            # A copy: what was given must not change with the weight, or be donated.
            value = jnp.array(source, kind or _default_dtype(source))
            if shape is not None and tuple(shape) != value.shape:
                raise ShapeError(
                    "Variable", f"the array has shape {value.shape}, not {tuple(shape)}"
                )
        options = {
            "label": (name, None),
            "aggregation": (aggregation or "none", "none"),
            "synchronization": (synchronization or "auto", "auto"),
        }
        meta = {name: one for name, (one, usual) in options.items() if one != usual}
        return (Parameter if trainable else Buffer)(value, **meta)

    def __init_subclass__(cls, **kwargs: Any):
        raise ArgumentError(
            cls.__name__,
            "Variable only makes weights",
            hint="Derive from exburn.module.variable.Parameter or Buffer.",
        )

    @staticmethod
    def _draw(initializer: Any, shape: Any, dtype: Any) -> jax.Array:
        sizes = tuple(shape) if shape is not None else (None,)
        if any(not isinstance(size, int | np.integer) for size in sizes):
            raise ArgumentError(
                "Variable",
                f"an initializer needs the whole shape, received {shape}",
                hint="Variable(initializer, shape=(2, 3)); () for a scalar.",
            )
        name = standardize_dtype(dtype if dtype is not None else floatx())
        filled = initializer(tuple(int(size or 0) for size in sizes), name)
        return jnp.asarray(filled, name)


Variable.register(Weight)


def _plain(value: Any) -> Any:
    return value._require_value() if isinstance(value, Weight) else value


def _default_dtype(value: Any) -> Any:
    """An array's own dtype; that of floats for Python's, as in Keras."""
    if hasattr(value, "dtype"):
        return jax.dtypes.canonicalize_dtype(value.dtype)
    kind = np.asarray(value).dtype
    return floatx() if kind.kind == "f" else jax.dtypes.canonicalize_dtype(kind)


def exact_weight(weight: Any) -> Any:
    """The variable that is trained, where a layer reads it in another form."""
    if isinstance(weight, nnx.Variable):
        return weight
    return getattr(weight, "exact", weight)


def scalars(weight: Any) -> int:
    """The numbers that a weight or array stands for: a packed one holds more."""
    metadata = weight.get_metadata() if isinstance(weight, nnx.Variable) else {}
    return metadata.get("scalars", int(np.prod(weight.shape)))
