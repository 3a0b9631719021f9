"""JAX's public functions, and how they accept one more kind of argument.

JAX has no hook by which an object that is no array could go into ``jnp.tanh``:
``__array_ufunc__`` is NumPy's, and ``__jax_array__`` has to return an array. So
:func:`extend` puts a thin function in front of each function of the namespaces below.
It looks at the types of the arguments, and calls JAX's function or another one.
Classes, dtypes and what takes no arrays (``jnp.load``, ``jnp.issubdtype`` …) stay as
they are, and so does everything inside JAX, which does not use its public names.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, TypeVar, cast

import jax
import jax.extend.source_info_util as source_info
import jax.image
import jax.scipy.special

from exburn.errors.boundary import api_boundary

_NAMESPACES: tuple[ModuleType, ...] = (
    *(jax.numpy, jax.numpy.linalg, jax.numpy.fft, jax.nn, jax.lax),
    *(jax.scipy.special, jax.image),
)
# Files, printing, foreign memory and questions about dtypes: nothing to compute. A
# saved model may name what the table holds: nothing there reads, writes or runs things.
_WITHOUT_ARRAYS = frozenset(
    "array_repr array_str can_cast conv_dimension_numbers create_token from_dlpack"
    " frombuffer fromfile fromfunction fromiter frompyfunc fromstring"
    " get_printoptions get_scaled_dot_general_config isdtype issubdtype iterable load"
    " printoptions promote_types save savez set_printoptions stage vectorize".split()
)
# What takes an array apart into as many as an argument says: too many to be traced.
SPLITTING = frozenset("split array_split hsplit vsplit dsplit unstack".split())
_NESTED = frozenset((list, tuple, dict))

_Function = TypeVar("_Function", bound=Callable[..., Any])
_extensions: list[tuple[type, Callable[[Callable], Callable]]] = []
_originals: dict[int, Callable] = {}  # by the id of what stands in front of it
_fronts: set[type] = set()  # the types of what stands in front


@functools.cache
def _table() -> dict[str, Callable]:
    """JAX's own functions by their public names, each once."""
    table: dict[str, Callable] = {}
    seen: set[int] = set()
    for space in _NAMESPACES:
        for name, fn in vars(space).items():
            if id(fn) not in seen and _computes(name, fn):
                seen.add(id(fn))
                table[f"{space.__name__}.{name}"] = fn
    return table


def _computes(name: str, value: Any) -> bool:
    private = name.startswith("_") or name in _WITHOUT_ARRAYS
    if private or not callable(value) or isinstance(value, type):
        return False
    return str(getattr(value, "__module__", "")).startswith("jax")


@functools.cache
def _names() -> dict[int, str]:
    return {id(fn): name for name, fn in _table().items()}


def original(fn: Any) -> Any:
    """JAX's own function behind one of its public names; anything else as it is."""
    return _originals.get(id(fn), fn)


def name_of(fn: Any) -> str | None:
    """The public name of a function of JAX, or ``None``.

    Example:
        >>> name_of(jax.nn.relu), name_of(jax.nn.tanh), name_of(len)
        ('jax.nn.relu', 'jax.numpy.tanh', None)
    """
    return _names().get(id(original(fn)))


def function_named(name: str) -> Callable | None:
    """The function that ``name_of`` gave that name: from a closed list, no import."""
    return _table().get(name)


def is_extended() -> bool:
    """Whether the public names accept more than arrays."""
    return bool(_originals)


def extend(
    kind: type,
    handle: Callable[[Callable], Callable],
    answers: Mapping[str, Callable],
) -> None:
    """Makes the public functions of JAX accept instances of ``kind``.

    Args:
        kind: The type; it counts among the arguments and in lists, tuples and dicts.
        handle: Makes of a function of arrays one that takes ``kind`` as well.
        answers: What is called instead, by the last part of a function's public name.
    """
    _extensions.append((kind, handle))
    source_info.register_exclusion(__file__)  # JAX shall name the caller's line
    table, names = _table(), _names()
    fronts: dict[int, Callable] = {}
    for name, fn in table.items():
        answer = answers.get(name.rpartition(".")[2])
        front = _front(fn, name, kind, answer or _once(handle, fn))
        fronts[id(fn)] = front
        _originals[id(front)] = fn
    for space in _NAMESPACES:
        for key, value in list(vars(space).items()):
            if id(value) in names:
                setattr(space, key, fronts[id(value)])


def one_operation(function: _Function) -> _Function:
    """Decorator: a function of our own that accepts what JAX's functions accept.

    It is one operation then, under its own name, not those that it calls.

    Example:
        >>> @one_operation
        ... def double(x):
        ...     return 2 * x
        >>> double(3)
        6
    """

    @api_boundary
    @functools.wraps(function)
    def call(*args, **kwargs):
        for kind, handle in _extensions:
            if any(type(value) is kind for value in (*args, *kwargs.values())):
                return handle(call)(*args, **kwargs)
        return function(*args, **kwargs)

    return cast("_Function", call)


def _once(handle: Callable[[Callable], Callable], fn: Callable) -> Callable:
    """``handle(fn)``, made when it is first called."""
    functions: list[Callable] = []

    def call(*args, **kwargs):
        if not functions:
            functions.append(handle(fn))
        return functions[0](*args, **kwargs)

    return call


def _front(fn: Callable, name: str, kind: type, other: Callable) -> Any:
    """What stands in front of ``fn``; on arrays it costs less than a microsecond."""

    def call(*args, **kwargs):
        functions = False
        for value in (*args, *kwargs.values()) if kwargs else args:
            if (type_ := type(value)) is kind or (
                type_ in _NESTED and _holds(value, kind)
            ):
                return other(*args, **kwargs)
            functions = functions or type_ in _fronts
        if functions:  # JAX knows some by identity: lax.max in lax.reduce_window
            args = tuple(original(value) for value in args)
            kwargs = {key: original(value) for key, value in kwargs.items()}
        return fn(*args, **kwargs)

    space, _, key = name.rpartition(".")
    bound = hasattr(type(fn), "__get__")  # as an attribute of a class: a method
    front: Any = call if bound else _object(call, fn)
    _fronts.add(type(front))
    if bound:
        functools.update_wrapper(front, fn)
        for attribute in set(dir(fn)) - set(dir(front)):  # lower, trace, eval_shape …
            setattr(front, attribute, getattr(fn, attribute))
    front.__module__, front.__qualname__ = space, key  # the name to pickle it by
    return front


def _holds(tree: Any, kind: type) -> bool:
    values = tree.values() if type(tree) is dict else tree
    kinds = set(map(type, values))
    if kind in kinds:
        return True
    nested = kinds & _NESTED
    return bool(nested) and any(_holds(v, kind) for v in values if type(v) in nested)


class _Object:
    """In front of a callable object, ``jnp.add`` or ``jax.nn.relu``: all of its own."""

    def __init__(self, fn: Any):
        self.__dict__ |= {
            "__wrapped__": fn,
            "__name__": getattr(fn, "__name__", type(fn).__name__),
            "__doc__": fn.__doc__,
            "__signature__": inspect.signature(fn),
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["__wrapped__"], name)

    @property
    def __class__(self):  # isinstance(jnp.add, jnp.ufunc) holds
        return type(self.__dict__["__wrapped__"])

    def __reduce__(self):
        return self.__qualname__

    def __repr__(self) -> str:
        return repr(self.__dict__["__wrapped__"])


def _object(call: Callable, fn: Any) -> _Object:
    # A class for each, as a method that calls ``call`` would double the cost.
    return type("_Object", (_Object,), {"__call__": staticmethod(call)})(fn)
