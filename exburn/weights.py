"""Weights: the variables of layers, and what sets them."""

from __future__ import annotations

import abc
import reprlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.errors import TraceContextError
from jax.core import Tracer

from exburn import constraints, initializers, regularizers, stateless_scope
from exburn.config import floatx
from exburn.dtypes import standardize_dtype
from exburn.errors import (
    ArgumentError,
    BusyError,
    DTypeError,
    NotBuiltError,
    ShapeError,
)
from exburn.handle import own_array
from exburn.shapes import describe

__all__ = [
    "Buffer",
    "Parameter",
    "Static",
    "Variable",
    "Weight",
    "alive",
    "as_array",
    "assign",
    "own_copy",
    "scalars",
]


class Static:
    """Holds any value as a static attribute of a module: compared by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __repr__(self):
        return "…"


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
    """A variable's array, or what another library or Python calls one, as NumPy's.

    Args:
        op: The operation named in the error.
        name: What is set to it.
        value: An array, a variable, a number, a list, a tensor of another library.

    Raises:
        DTypeError: It cannot become an array of numbers.
    """
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
        BusyError: A program has consumed it: its model is being trained.
    """
    concrete = isinstance(array, jax.Array) and not isinstance(array, Tracer)
    if concrete and array.is_deleted():
        raise BusyError(
            "weights",
            "the model is being trained, and a program has its arrays",
            hint="Read them in a hook, of a callback without light = True, or after "
            "fit has returned.",
        )
    return array


def own_copy(value: Any) -> Any:
    """A copy of an array that shares no memory with it; other values as they are.

    Raises:
        BusyError: As of ``alive``.
    """
    return jnp.array(alive(value), copy=True) if isinstance(value, jax.Array) else value


class Weight(nnx.Variable):
    """What Keras code expects of a variable, on top of ``flax.nnx.Variable``."""

    def __init__(self, value: Any, **metadata: Any):
        # A holder, compared by identity: another path makes no other program. It is
        # there from the start: what is told inside of a trace could not add it.
        metadata.setdefault("place", Static(None))
        super().__init__(value, **metadata)

    def assign(self, value) -> Weight:
        """Replaces the value by one of the same shape, in the weight's dtype."""
        assign(self, value)
        return self

    def set_value(self, value: Any, **index: Any) -> None:
        """As in flax; ``weight[...] = value`` calls it, too."""
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

    def assign_add(self, value) -> Weight:
        assign(self, self.get_value() + jnp.asarray(value), fresh=True)
        return self

    def assign_sub(self, value) -> Weight:
        assign(self, self.get_value() - jnp.asarray(value), fresh=True)
        return self

    # flax has no order of variables, and takes `!=` for the opposite of one truth.
    def __ne__(self, other: Any) -> Any:
        return self._filled() != _plain(other)

    def __lt__(self, other: Any) -> Any:
        return self._filled() < _plain(other)

    def __le__(self, other: Any) -> Any:
        return self._filled() <= _plain(other)

    def __gt__(self, other: Any) -> Any:
        return self._filled() > _plain(other)

    def __ge__(self, other: Any) -> Any:
        return self._filled() >= _plain(other)

    @property
    def value(self) -> jax.Array:
        """The array, as in Keras."""
        return alive(self.get_value())

    @value.setter
    def value(self, value) -> None:
        self.assign(value)

    def numpy(self) -> np.ndarray:
        return np.asarray(self._filled())

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.array(self._filled(), dtype=dtype)

    def _filled(self) -> Any:
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

    #: As of Keras' distributed variables: here each has one copy.
    aggregation, synchronization = "none", "auto"
    overwrite_with_gradient = False

    @property
    def path(self) -> str:
        """The path in the outermost model that holds the weight, or its name.

        It is what ``summary()``, ``OptimizerMap`` and ``freeze`` go by.
        """
        place = self.get_metadata()["place"].value
        return self.name if place is None else place


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
        autocast, aggregation, synchronization, layout: For Keras code; a weight stays
            in its dtype until a layer's ``cast``, and has one copy.
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
            value = cls._filled(initializers.get(initializer), shape, dtype)
        else:
            given = initializer.get_value() if array else initializer
            kind = standardize_dtype(dtype) if dtype is not None else None
            # A copy: what was given must not change with the weight, or be donated.
            value = jnp.array(given, kind or _default_dtype(given))
            if shape is not None and tuple(shape) != value.shape:
                raise ShapeError(
                    "Variable", f"the array has shape {value.shape}, not {tuple(shape)}"
                )
        label: dict[str, Any] = {} if name is None else {"label": name}
        return (Parameter if trainable else Buffer)(value, **label)

    def __init_subclass__(cls, **kwargs: Any):
        raise ArgumentError(
            cls.__name__,
            "Variable only makes weights",
            hint="Derive from exburn.weights.Parameter or Buffer.",
        )

    @staticmethod
    def _filled(initializer: Any, shape: Any, dtype: Any) -> jax.Array:
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
    return value._filled() if isinstance(value, Weight) else value


def _default_dtype(value: Any) -> Any:
    """An array's own dtype; that of floats for Python's, as in Keras."""
    if hasattr(value, "dtype"):
        return jax.dtypes.canonicalize_dtype(value.dtype)
    kind = np.asarray(value).dtype
    return floatx() if kind.kind == "f" else jax.dtypes.canonicalize_dtype(kind)


def scalars(weight: Any) -> int:
    """The numbers that a weight or array stands for: a packed one holds more."""
    metadata = weight.get_metadata() if isinstance(weight, nnx.Variable) else {}
    return metadata.get("scalars", int(np.prod(weight.shape)))
