"""Tensors that do not exist yet.

A :class:`Symbol` is a ``jax.ShapeDtypeStruct``, whose unknown dimensions are symbolic,
together with the call that makes it. Shapes come from JAX itself: every call is traced
abstractly, so no layer writes a shape rule, and a wrong shape fails at once.
"""

from __future__ import annotations

import abc
import functools
import inspect
import itertools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn.core import forward_context, jax_dispatch, registry
from exburn.core.precision import standardize_dtype
from exburn.core.random_keys import is_seed, key_scope
from exburn.core.registry import check_name, snake_case
from exburn.core.substitution import Substitution, substituting
from exburn.core.symbolic_shapes import (
    TEXT,
    checked_sizes,
    describe,
    is_text,
    meeting,
    public_shape,
    spec_of,
    trace_shapes,
)
from exburn.errors import (
    ArgumentError,
    DTypeError,
    ExBurnError,
    FileFormatError,
    GraphError,
    ShapeError,
    printable,
)
from exburn.errors.boundary import api_boundary, guard_methods
from exburn.runtime.kernels.int8_matmul import matmul

_MOST_AXES, _LARGEST_AXIS = 12, 2**26  # of tensors in a model from a file

# Functions that change where a tensor's entries are, and none of them: what there is to
# do with strings before a lookup.
_MOVES = frozenset(
    "get_item reshape ravel squeeze expand_dims concatenate stack transpose swapaxes "
    "moveaxis flip tile repeat broadcast_to".split()
)
_UNSET, _REMOVED = object(), object()  # in the place of a mask that a user sets
_PLACES = np.dtype(np.int32)  # dtype of the places that stand for strings in a trace

_ids = itertools.count()


class Call:
    """One call of a layer or operation on symbols (and constants)."""

    __slots__ = ("args", "callee", "kwargs", "order", "outputs")

    def __init__(self, callee: Any, args: tuple, kwargs: dict):
        self.callee, self.args, self.kwargs = callee, args, kwargs
        self.order = next(_ids)
        self.outputs: Any = None


@guard_methods
class Symbol:
    """A tensor of a model under construction; ``exburn.KerasTensor``.

    Arithmetic, comparisons, indexing, ``exburn.ops``, the functions of ``jax.numpy``,
    ``jax.nn`` and ``jax.lax``, and NumPy's, work on it. ``Input`` makes those that a
    model begins with; one made by hand stands for a shape and dtype alone, which layers
    and operations infer theirs from.

    Args:
        shape: Sizes of all axes, the batch's too; ``None`` where one is not known.
        dtype: Dtype of the values; ``"string"`` for strings.
        sparse, ragged: For Keras code, which passes ``False``: tensors are dense.
        record_history: For Keras code; calls are always noted.
        name: Name of the tensor.

    Raises:
        ArgumentError: A size is neither an integer ≥ 0 nor ``None``, or a sparse or
            ragged tensor is asked for.

    Example:
        >>> x = Symbol((None, 4))
        >>> (x * 2 + 1)[:, :3].shape
        (None, 3)
    """

    __slots__ = (
        "__weakref__",
        "_given_mask",
        "_mask_symbol",
        "_masked",
        "call",
        "index",
        "mask",
        "name",
        "spec",
    )
    __array_priority__ = 1000

    def __init__(
        self,
        shape,
        dtype="float32",
        sparse=False,
        ragged=False,
        record_history=True,
        name=None,
    ):
        if sparse or ragged:
            raise ArgumentError(
                "KerasTensor", "tensors are dense, received sparse or ragged=True"
            )
        sizes = checked_sizes("KerasTensor", shape)
        dtype = dtype if dtype == TEXT else standardize_dtype(dtype)
        self._take(spec_of(sizes, dtype), None, 0, name)

    @classmethod
    def of(cls, spec, call: Call, index: int, name: str | None) -> Symbol:
        """The output of a call at a place among its outputs."""
        symbol = cls.__new__(cls)
        symbol._take(spec, call, index, name)
        return symbol

    @classmethod
    def unmade(cls, spec) -> Symbol:
        """A symbol that no call has made."""
        symbol = cls.__new__(cls)
        symbol._take(spec, None, 0, None)
        return symbol

    def _take(self, spec, call: Call | None, index: int, name: str | None) -> None:
        if not jax_dispatch.is_extended():
            jax_dispatch.extend(Symbol, lift, _ANSWERS)
        self.spec, self.call, self.index, self.name = spec, call, index, name
        self.mask: Any = None  # the spec of the mask that comes with the values
        self._given_mask: Any = _UNSET
        self._mask_symbol: Symbol | None = None
        self._masked: Symbol | None = None

    @property
    def shape(self) -> tuple[int | None, ...]:
        return public_shape(self.spec.shape)

    @property
    def dtype(self) -> str:
        return TEXT if is_text(self.spec) else np.dtype(self.spec.dtype).name

    @property
    def ndim(self) -> int:
        return len(self.spec.shape)

    @property
    def _keras_mask(self) -> Any:
        """The mask that comes with the values, as a symbol; Keras' name of it.

        It may be set, to a symbol or to ``None``: layers that are called on this symbol
        afterwards go by it. An AttributeError where there is none, as in Keras.
        """
        if self._given_mask is not _UNSET and self._given_mask is not _REMOVED:
            return self._given_mask
        if self.mask is None:
            raise AttributeError(f"{self!r} has no mask")
        if self._mask_symbol is None:
            self._mask_symbol = record(
                Lifted(mask_of, "mask_of"), (self,), {}, self.mask
            )
        return self._mask_symbol

    @_keras_mask.setter
    def _keras_mask(self, mask: Any) -> None:
        if mask is not None and not hasattr(mask, "shape"):
            raise DTypeError(
                "_keras_mask",
                f"a mask is a symbol, an array or None, received {type(mask).__name__}",
            )
        self._give_mask(mask)

    @_keras_mask.deleter
    def _keras_mask(self) -> None:
        self._give_mask(_REMOVED)

    def _give_mask(self, mask: Any) -> None:
        self._given_mask, self._masked = mask, None
        there = mask is not None and mask is not _REMOVED
        self.mask = _spec_of_mask(mask) if there else None

    def __repr__(self) -> str:
        text = f"<Symbol shape={self.shape} dtype={self.dtype} name={self.name}>"
        return printable(text)

    def __len__(self):
        size = self.shape[0] if self.ndim else None
        if size is None:
            raise DTypeError(
                "len",
                f"the length of {self!r} is not known before data comes",
                hint="Give the size: Input(shape, batch_size=32).",
            )
        return size

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __bool__(self):
        raise DTypeError(
            "bool",
            f"Python cannot branch on {self!r}: it has no value yet",
            hint="Choose by value: exburn.fn(jnp.where)(condition, a, b).",
        )

    def __array__(self, *_, **__):
        raise DTypeError(
            "numpy",
            f"{self!r} is no array: it has no value yet",
            hint="Make a model of it, Model(inputs, outputs), and call that on data.",
        )

    @property
    def __jax_array__(self):
        # not a TypeError: jax.jit would replace it by its own
        raise GraphError(
            "jax.numpy",
            f"it cannot compute with {self!r}, which has no value yet",
            hint="Wrap any function, exburn.fn(function)(x), and an nnx.Module, "
            "layers.ModuleLayer(module)(x). Call JAX's as jnp.tanh(x): one imported by "
            "name before the first Input takes arrays only.",
        )

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        target = getattr(jnp, ufunc.__name__, None)
        if method != "__call__" or target is None:
            return NotImplemented
        name = _UFUNCS.get(ufunc.__name__)
        return lift(target, name)(*inputs, **kwargs)

    def __array_function__(self, func, types, args, kwargs):
        target = getattr(jnp, func.__name__, None)
        if target is None:
            return NotImplemented
        return lift(target)(*args, **kwargs)

    def __getitem__(self, index):
        _check_index(self, index)
        return lift(operator.getitem, name="get_item")(self, index)

    def astype(self, dtype):
        return lift(jnp.astype, name="cast")(self, dtype)

    #: Of all tensors here, which are dense, and know the call that makes them.
    sparse = ragged = False
    ragged_rank = row_splits_dtype = None
    record_history = True

    def reshape(self, *shape, newshape=None):
        shape = shape if newshape is None else (newshape,)
        shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return lift(jnp.reshape)(self, shape)

    def squeeze(self, axis=None):
        return lift(jnp.squeeze)(self, axis)

    # Nodes have the names of Keras' functions.
    def __truediv__(self, other):
        return lift(jnp.true_divide, "divide")(self, other)

    def __rtruediv__(self, other):
        return lift(jnp.true_divide, "divide")(other, self)

    def __neg__(self):
        return lift(jnp.negative)(self)

    def __abs__(self):
        return lift(jnp.abs, "absolute")(self)

    def __invert__(self):
        return lift(jnp.logical_not if self.dtype == "bool" else jnp.invert)(self)

    @property
    def T(self):
        return lift(jnp.transpose)(self)


def _check_index(symbol: Symbol, index: Any) -> None:
    """Whole numbers beyond an axis are errors: JAX would take the last entry."""
    entries = index if isinstance(index, tuple) else (index,)
    if any(hasattr(e, "shape") or isinstance(e, list | bool) for e in entries):
        return  # indexing by arrays is JAX's own
    taken = [e for e in entries if e is not None]
    rest = symbol.ndim - sum(e is not Ellipsis for e in taken)
    sizes = iter(symbol.shape)
    fits = rest >= 0
    for entry in taken if fits else ():
        if entry is Ellipsis:
            for _ in range(rest):
                next(sizes)
            continue
        size = next(sizes)
        if size is not None and isinstance(entry, int | np.integer):
            fits &= -size <= entry < size
    if not fits:
        raise ShapeError(
            "get_item",
            f"the index must lie within {describe(symbol)}, received {index!r}",
            hint="Axes and entries count from 0; the first axis is the batch.",
        )


def _method(fn: Callable, reflected: bool = False):
    @api_boundary
    def method(self, other):
        args = (other, self) if reflected else (self, other)
        return lift(fn)(*args)

    return method


def _logical(bitwise: Callable, logical: Callable, reflected: bool = False):
    """An operator on bits, and between truth values one of logic."""

    @api_boundary
    def method(self, other):
        args = (other, self) if reflected else (self, other)
        kinds = {jnp.result_type(getattr(v, "dtype", v)) for v in args}
        truth = kinds == {jnp.dtype(bool)}
        return lift(logical if truth else bitwise)(*args)

    return method


for _name, _fn in {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "floordiv": jnp.floor_divide,
    "mod": jnp.mod,
    "pow": jnp.power,
    "matmul": matmul,
}.items():
    setattr(Symbol, f"__{_name}__", _method(_fn))
    setattr(Symbol, f"__r{_name}__", _method(_fn, reflected=True))
for _name, _fn, _of_truth in (
    ("and", jnp.bitwise_and, jnp.logical_and),
    ("or", jnp.bitwise_or, jnp.logical_or),
    ("xor", jnp.bitwise_xor, jnp.logical_xor),
):
    setattr(Symbol, f"__{_name}__", _logical(_fn, _of_truth))
    setattr(Symbol, f"__r{_name}__", _logical(_fn, _of_truth, reflected=True))
for _name, _fn in {
    "lt": jnp.less,
    "le": jnp.less_equal,
    "ne": jnp.not_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
}.items():
    setattr(Symbol, f"__{_name}__", _method(_fn))


# Functions that a saved graph may name. ``exburn.ops`` adds its own.
OPERATIONS: dict[str, Callable] = {
    "get_item": operator.getitem,
    "cast": jnp.astype,
    **{
        fn.__name__: fn  # pyright: ignore[reportAttributeAccessIssue]
        for fn in (
            jnp.add, jnp.subtract, jnp.multiply, jnp.true_divide, jnp.floor_divide,
            jnp.mod, jnp.power, matmul, jnp.bitwise_and, jnp.bitwise_or,
            jnp.bitwise_xor, jnp.logical_and, jnp.logical_or, jnp.logical_xor,
            jnp.logical_not, jnp.less, jnp.less_equal, jnp.greater, jnp.greater_equal,
            jnp.not_equal,
            jnp.negative, jnp.abs, jnp.invert, jnp.reshape, jnp.squeeze, jnp.transpose,
        )
    },
}  # fmt: skip


class Operation(metaclass=abc.ABCMeta):
    """A computation without weights, as a node of functional models.

    Subclass it and write ``call``. On arrays an operation computes; on symbols it notes
    the call and returns symbols, whose shapes and dtypes come from tracing ``call``, or
    from ``compute_output_spec`` where a class says them itself. Layers are operations,
    too, for ``isinstance``; what has weights is a :class:`~exburn.Layer`.

    Args:
        name: Name of the node in summaries; by default the class name in snake case.

    Raises:
        ArgumentError: The name is empty or holds a ``/``.

    Example:
        >>> class Scale(Operation):
        ...     def __init__(self, by, name=None):
        ...         super().__init__(name=name)
        ...         self.by = by
        ...     def call(self, x):
        ...         return x * self.by
        >>> double = Scale(2)
        >>> double(np.ones(2)).tolist(), double(Symbol((None, 4))).shape
        ([2.0, 2.0], (None, 4))
        >>> Scale.from_config(double.get_config()).by
        2

    Source: ``keras.Operation``.
    """

    _name: str | None = None
    _arguments: tuple[tuple, dict[str, Any]]
    _calls: list[Call]

    def __new__(cls, *args, **kwargs):
        self = object.__new__(cls)
        self._arguments, self._calls = (args, kwargs), []
        return self

    def __init__(self, name: str | None = None):
        if name is not None:
            self.name = name

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        # ``__new__`` takes anything, and would hide what ``__init__`` takes.
        parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
        cls.__signature__ = inspect.Signature(parameters)

    @property
    def name(self) -> str:
        return self._name or snake_case(type(self).__name__.lstrip("_"))

    @name.setter
    def name(self, value: str) -> None:
        self._name = check_name(type(self).__name__, value)

    def __call__(self, *args, **kwargs):
        if has_symbol((args, kwargs)):
            return self.symbolic_call(*args, **kwargs)
        return self.call(*args, **kwargs)

    def call(self, *args, **kwargs):
        """Computes the outputs of arrays."""
        raise ArgumentError(
            type(self).__name__,
            "an operation needs a method call(self, …)",
            hint="Write def call(self, x): … in the class.",
        )

    def compute_output_spec(self, *args, **kwargs):
        """The outputs as ``KerasTensor``, for arguments that hold some.

        A class may override it where ``call`` cannot be traced.
        """
        return jax.tree.map(Symbol.unmade, self._specs(args, kwargs))

    def symbolic_call(self, *args, **kwargs):
        """Notes the call and returns its output symbols.

        Raises:
            DTypeError: ``compute_output_spec`` returned something that has no shape.
        """
        own = type(self).compute_output_spec is Operation.compute_output_spec
        specs = self._specs(args, kwargs) if own else self._own_specs(args, kwargs)
        outputs = record(self, args, kwargs, specs)
        if symbols := jax.tree.leaves(outputs):
            self._calls.append(symbols[0].call)
        return outputs

    def _specs(self, args: tuple, kwargs: dict) -> Any:
        where = f"operation {self.name!r}"
        return abstract_eval(self.call, args, kwargs, where=where)

    def _own_specs(self, args: tuple, kwargs: dict) -> Any:
        tensors = self.compute_output_spec(*args, **kwargs)
        specs = jax.tree.map(lambda v: v.spec if isinstance(v, Symbol) else v, tensors)
        for spec in jax.tree.leaves(specs):
            if not isinstance(spec, jax.ShapeDtypeStruct):
                raise DTypeError(
                    f"{self.name}.compute_output_spec",
                    f"it must return KerasTensors, received {spec!r}",
                    hint="KerasTensor(shape, dtype), with None for unknown sizes.",
                )
        return specs

    @property
    def input(self):
        """The symbols of the first call, as they were passed."""
        args = self._first_call("input").args
        return args[0] if len(args) == 1 else list(args)

    @property
    def output(self):
        """The symbols that the first call returned."""
        return self._first_call("output").outputs

    def _first_call(self, what: str) -> Call:
        if not self._calls:
            raise GraphError(
                self.name,
                f"{what}: the operation was not called on symbols",
                hint="Call it on one: operation(exburn.Input(shape)).",
            )
        return self._calls[0]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments; the input of ``from_config``.

        Called as ``super().get_config()`` by a class that has one, it returns the name.

        Raises:
            ArgumentError: An argument has no description (see ``exburn.register``).
        """
        config: dict[str, Any] = {"name": self.name}
        if type(self).get_config is not Operation.get_config:
            return config
        args, kwargs = self._arguments
        bound = inspect.signature(type(self)).bind(*args, **kwargs)
        bound.apply_defaults()
        arguments: dict[str, Any] = {}
        for key, value in bound.arguments.items():
            kind = bound.signature.parameters[key].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                arguments |= value
            elif kind is not inspect.Parameter.VAR_POSITIONAL:
                arguments[key] = value
        named = "name" in bound.signature.parameters or "name" in arguments
        return registry.serialize(arguments | (config if named else {}))

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Makes an operation from ``get_config``'s result."""
        return cls(**{key: registry.deserialize(v) for key, v in config.items()})

    def __repr__(self):
        return printable(f"<Operation name={self.name}>")


class Lifted(Operation):
    """A function as an operation; see :func:`lift`."""

    def __init__(self, fn: Callable, name: str):
        self.fn, self._name = fn, name

    def __call__(self, *args, **kwargs):
        return lift(self.fn, self.name)(*args, **kwargs)

    def call(self, *args, **kwargs):
        return self.fn(*args, **kwargs)

    def with_name(self, name: str) -> Lifted:
        """A copy of the operation under the name that a model gives it."""
        other = Lifted(self.fn, name)
        other._calls = self._calls
        return other

    def symbolic_call(self, *args, **kwargs):
        if self.fn in (mask_of, with_mask):
            return self.fn(*args, **kwargs)
        return super().symbolic_call(*args, **kwargs)

    def _specs(self, args: tuple, kwargs: dict) -> Any:
        symbols = [v for v in jax.tree.leaves((args, kwargs)) if isinstance(v, Symbol)]
        if not any(map(is_text, symbols)):
            return self._specs_of_numbers(args, kwargs)
        if not (self.name in _MOVES and all(map(is_text, symbols))):
            raise DTypeError(
                self.name,
                "it computes with numbers, but is given strings",
                {"received": ", ".join(map(describe, symbols))},
                hint="Make numbers of them first: StringLookup, Hashing or "
                "TextVectorization.",
            )
        return as_strings(self._specs_of_numbers(args, kwargs))

    def _specs_of_numbers(self, args: tuple, kwargs: dict) -> Any:
        try:
            return super()._specs(args, kwargs)
        except (TypeError, ValueError) as error:
            fn = self.fn
            ours = any(fn is own for own in OPERATIONS.values())
            ours = ours or jax_dispatch.name_of(fn) is not None
            misfit = "shape" in str(error) or "dimensions" in str(error)
            if isinstance(error, ExBurnError) or not (ours and misfit):
                raise
            operands = [
                v for v in jax.tree.leaves((args, kwargs)) if hasattr(v, "shape")
            ]
            raise ShapeError(
                self.name,
                "the operands do not fit together",
                {
                    "received": ", ".join(describe(v) for v in operands),
                    "cause": str(error).partition("\n")[0],
                },
                hint="Bring them to shapes that broadcast: Reshape, x[..., None].",
            ) from error


def _is_symbol(value: Any) -> bool:
    return isinstance(value, Symbol)


def is_whole(value: Any) -> bool:
    """Whether a value is an argument as it is: a symbol, or a variable, not its array.

    A graph that held the array would keep the variable's value of that time.
    """
    return isinstance(value, Symbol | nnx.Variable)


def _spec(value: Any) -> jax.ShapeDtypeStruct:
    if isinstance(value, Symbol):
        return value.spec
    array = value.get_raw_value()
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def has_symbol(tree: Any) -> bool:
    """Whether any leaf of the (nested) arguments is a symbol."""
    return any(map(_is_symbol, jax.tree.leaves(tree)))


@api_boundary
def lift(fn: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
    """A pure function that works on arrays and, inside a functional model, on symbols.

    Args:
        fn: Any function of arrays, for example ``jnp.tanh``.
        name: Name of the node in summaries; the function's name by default.

    Raises:
        ShapeError: The symbols' shapes do not fit the function.

    Example:
        >>> x = Symbol((None, 4))
        >>> lift(jnp.concatenate)([x, x], axis=-1).shape
        (None, 8)
    """
    if isinstance(fn, nnx.Module):
        raise ArgumentError(
            "fn",
            f"{type(fn).__name__} holds weights, which a function cannot train",
            hint="Wrap it as a layer: exburn.layers.ModuleLayer(module)(x).",
        )
    fn = jax_dispatch.original(fn)
    label = name or _label(fn)

    def call_lifted(*args, **kwargs):
        if not has_symbol((args, kwargs)):
            return fn(*args, **kwargs)
        return Lifted(fn, label).symbolic_call(*args, **kwargs)

    call_lifted.__name__ = label
    call_lifted.__doc__ = fn.__doc__
    return api_boundary(call_lifted)


def _label(fn: Any) -> str:
    """The name of a function; of an object that is called, that of its class."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__name__", None) or snake_case(type(fn).__name__)
    return name.strip("_<>")


def _size(x: Symbol, axis: Any = None) -> int:
    axes = range(x.ndim) if axis is None else np.atleast_1d(axis)
    sizes = [x.spec.shape[i] for i in axes]
    if not all(isinstance(size, int) for size in sizes):
        raise DTypeError(
            "size",
            f"the size of {x!r} is not known before data comes",
            hint="Give the size of the batch: Input(shape, batch_size=32).",
        )
    return math.prod(sizes)


def _result_type(*args: Any) -> Any:
    return jnp.result_type(
        *(v.spec.dtype if isinstance(v, Symbol) else v for v in args)
    )


def _is_complex(x: Symbol) -> bool:
    return jnp.issubdtype(x.spec.dtype, jnp.complexfloating)


def _as_array(a: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    """The symbol itself, which stands for an array, where its dtype stays."""
    if isinstance(a, Symbol) and not args and not set(kwargs) - {"copy", "order"}:
        same = dtype is None or jnp.dtype(dtype) == a.spec.dtype
        return a if same else a.astype(dtype)
    return lift(jnp.asarray)(a, dtype, *args, **kwargs)


_UFUNCS = {"remainder": "mod"}  # of NumPy, which Keras calls otherwise

# What JAX's functions answer without computing anything.
_ANSWERS: dict[str, Callable] = {
    "asarray": _as_array,
    "shape": lambda x: x.shape,
    "ndim": lambda x: x.ndim,
    "size": _size,
    "dtype": lambda x, **_: x.spec.dtype,
    "result_type": _result_type,
    "isscalar": lambda x: x.ndim == 0,
    "iscomplexobj": _is_complex,
    "isrealobj": lambda x: not _is_complex(x),
}


def abstract_eval(fn: Callable, args: tuple, kwargs: dict, *, where: str) -> Any:
    """Output specs of ``fn`` on arguments that hold symbols, by tracing.

    Sizes that JAX cannot reason about symbolically are found by tracing with two
    concrete sizes: what differs between the two is unknown. Operands that do not fit
    so are taken to have the sizes of each other; others are an error when data come.
    """
    leaves, treedef = jax.tree.flatten((args, kwargs), is_leaf=is_whole)
    slots = [i for i, leaf in enumerate(leaves) if is_whole(leaf)]
    specs = [as_places(_spec(leaves[i])) for i in slots]

    def run(*values):
        full = list(leaves)
        for i, value in zip(slots, values, strict=True):
            full[i] = value
        args, kwargs = jax.tree.unflatten(treedef, full)
        shown = substituting(Substitution(meet=meet))
        with key_scope(lambda: jax.random.key(0)), shown:  # shapes are what is asked
            return fn(*args, **kwargs)

    def meet(part):
        if is_seed(part):
            return part
        raise GraphError(
            where,
            f"the function reaches {part.name!r}, which holds weights, and could not "
            "train them",
            hint="Make a layer of it: exburn.layers.Lambda(function)(x).",
        )

    others = [np.shape(v) for v in leaves if not is_whole(v)]
    return meeting(lambda specs: trace_shapes(run, specs, where=where), specs, others)


def as_places(spec: Any) -> Any:
    """What a spec of strings is traced as: their places, which move as they do.

    Example:
        >>> as_places(spec_of((None, 1), TEXT)).dtype.name
        'int32'
    """
    return jax.ShapeDtypeStruct(spec.shape, _PLACES) if is_text(spec) else spec


def as_strings(specs: Any) -> Any:
    """Specs of strings, from those of their places."""
    return jax.tree.map(lambda spec: spec_of(spec.shape, TEXT), specs)


def record(callee: Any, args: tuple, kwargs: dict, specs: Any) -> Any:
    """Notes the call and returns its output symbols, in the structure of ``specs``."""
    call = Call(callee, args, kwargs)
    leaves, treedef = jax.tree.flatten(specs)
    if registry.from_file():
        _check_claims(leaves)
    name = getattr(callee, "name", None)
    symbols = [Symbol.of(s, call, i, name) for i, s in enumerate(leaves)]
    call.outputs = jax.tree.unflatten(treedef, symbols)
    return call.outputs


def mask_of(x: Any) -> Any:
    """The mask that comes with an array in the pass under way, or with a symbol."""
    if isinstance(x, Symbol):
        return x._keras_mask
    ctx = forward_context.current() or forward_context.Context()
    return ctx.mask_of(x)


def with_mask(x: Any, mask: Any) -> Any:
    """An array or symbol of the same values with another mask, or without one."""
    if isinstance(x, Symbol):
        symbol = record(Lifted(with_mask, "with_mask"), (x, mask), {}, x.spec)
        symbol.mask = None if mask is None else _spec_of_mask(mask)
        return symbol
    copy = jnp.copy(x)  # who has the array itself goes by the mask that it had
    if (ctx := forward_context.current()) is not None:
        ctx.set_mask(copy, mask)
    return copy


OPERATIONS |= {"mask_of": mask_of, "with_mask": with_mask}


def with_given_mask(symbol: Symbol) -> Symbol:
    """The symbol as layers see it: with the mask that its user has set, if any."""
    mask = symbol._given_mask
    if mask is _UNSET:
        return symbol
    masked = symbol._masked
    if masked is None:
        masked = with_mask(symbol, None if mask is _REMOVED else mask)
        symbol._masked = masked
    return masked


def _spec_of_mask(mask: Any) -> jax.ShapeDtypeStruct:
    if isinstance(mask, Symbol):
        return mask.spec
    return jax.ShapeDtypeStruct(np.shape(mask), mask.dtype)


def _check_claims(specs: list) -> None:
    """Refuses tensors that only an attack has: some layers count along an axis."""
    for spec in specs:
        sizes = [d for d in spec.shape if isinstance(d, int)]
        if len(spec.shape) > _MOST_AXES or max(sizes, default=0) > _LARGEST_AXIS:
            raise FileFormatError("from_config", f"a tensor of shape {spec.shape}")
