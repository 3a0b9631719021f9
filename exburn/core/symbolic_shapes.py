"""Shapes with sizes that are not known yet, and how JAX infers them.

An unknown size is one of JAX's symbolic dimensions, so every function has a shape rule:
what ``jax.eval_shape`` says.
"""

from __future__ import annotations

import contextlib
import contextvars
import operator
import re
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from exburn.errors import (
    ArgumentError,
    ExBurnError,
    NotBuiltError,
    ShapeError,
    locate,
    places_of,
)
from exburn.errors.boundary import api_boundary

#: The dtype of strings, as Keras calls it. Arrays and specs of them hold objects.
TEXT = "string"

# What JAX raises when a program asks for a size that is only a symbol.
_INCONCLUSIVE = (
    jax.errors.InconclusiveDimensionOperation,
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerIntegerConversionError,
)


class _Sizes(NamedTuple):
    """Two sizes of the first axis; i + 1 times as much for axis i.

    If they are alike, of whatever is not known.
    """

    first: int
    second: int
    alike: bool = False


# The large ones have many divisors, and are above what programs cut off; loops over the
# small ones are short; the least are within what tables of positions hold. At last, all
# unknown sizes are taken to be one, as Keras takes any two that meet.
_LARGE, _SMALL, _LEAST = _Sizes(840, 1260), _Sizes(24, 36), _Sizes(4, 6)
_ALIKE = _Sizes(840, 1260, alike=True)

# What sizes that follow from others are written with.
_TOKEN = re.compile(r"\w+|\S")
_FUNCTIONS: dict[str, Callable] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": max,
    "min": min,
}

_symbolic: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "exburn_symbolic", default=False
)


class SymbolicScope:
    """A block in which tensors stand for shapes and dtypes alone.

    ExBurn enters one itself while it infers shapes from code of the user's, which may
    ask ``exburn.backend.in_symbolic_scope()`` and leave out what needs values, such as
    reading a file. As a block of one's own it says so to code called inside.

    Example:
        >>> with SymbolicScope():
        ...     in_symbolic_scope()
        True
        >>> in_symbolic_scope()
        False

    Source: ``keras.SymbolicScope``.
    """

    def __enter__(self) -> Self:
        self._token = _symbolic.set(True)
        return self

    def __exit__(self, *error: Any) -> None:
        _symbolic.reset(self._token)


@api_boundary
def in_symbolic_scope() -> bool:
    """Whether shapes are being inferred around the caller, or a block says so.

    Example:
        >>> import exburn
        >>> inferring = []
        >>> def double(x):
        ...     inferring.append(in_symbolic_scope())
        ...     return 2 * x
        >>> _ = exburn.fn(double)(exburn.Input((3,))), double(1.0)
        >>> inferring
        [True, False]
    """
    return _symbolic.get()


_scope = export.SymbolicScope()
_dims: dict[str, Any] = {}
_ranks: dict[str, int] = {}  # of the symbols: those of axes by axis, others behind
_NAMED = 16  # the rank of the first symbol that is no axis


def dim(axis: int) -> Any:
    """The unknown size of an axis: ``batch`` for the first, one name per further axis.

    Unknown sizes of the same axis are taken to be equal, as the broadcasting of two
    inputs of shape ``(None, 8)`` asks for.
    """
    name = "batch" if axis == 0 else f"d{axis}"
    return _symbol(name, axis)


def symbol(name: str) -> Any:
    """The unknown size of a name: another one than that of any other name.

    Args:
        name: Letters of ASCII, digits and ``_``, with no digit at the start.

    Example:
        >>> symbol("left_d1") == symbol("right_d1"), 2 * symbol("left_d1")
        (False, 2*left_d1)
    """
    return _symbol(name, _NAMED + len(_ranks))


def _symbol(name: str, rank: int) -> Any:
    if name not in _dims:
        _dims[name] = export.symbolic_shape(name, scope=_scope)[0]
        _ranks[name] = rank
    return _dims[name]


def checked_sizes(op: str, shape: Any) -> tuple[int | None, ...]:
    """The shape as a tuple of integers and ``None``.

    Example:
        >>> checked_sizes("Input", [None, 3])
        (None, 3)
    """
    sizes = (shape,) if isinstance(shape, int) else shape
    if isinstance(sizes, str | bytes | Mapping) or not isinstance(sizes, Iterable):
        raise ArgumentError(
            op, f"a shape is a sequence of integers and None, received {shape!r}"
        )
    sizes = tuple(sizes)
    for size in sizes:
        whole = hasattr(size, "__index__") and not isinstance(size, bool)
        if size is not None and not (whole and int(size) >= 0):
            raise ArgumentError(
                op, f"sizes are integers or None, received {size!r} in {sizes}"
            )
    return tuple(None if size is None else int(size) for size in sizes)


def spec_of(shape: tuple, dtype: Any) -> jax.ShapeDtypeStruct:
    """A spec whose ``None`` dimensions are symbolic."""
    dims = tuple(dim(i) if d is None else d for i, d in enumerate(shape))
    kind = np.dtype(object) if _is_text_dtype(dtype) else jnp.dtype(dtype)
    return jax.ShapeDtypeStruct(dims, kind)


def is_text(value: Any) -> bool:
    """Whether an array, a spec or a symbol is one of strings.

    Example:
        >>> is_text(spec_of((None, 1), TEXT)), is_text(np.array(["a"]))
        (True, True)
        >>> is_text(np.ones(3))
        False
    """
    return _is_text_dtype(getattr(value, "dtype", None))


def _is_text_dtype(dtype: Any) -> bool:
    if isinstance(dtype, str):
        return dtype == TEXT
    return isinstance(dtype, np.dtype) and dtype.kind in "OSUT"


def specs_of(shapes: Any, dtype: Any) -> Any:
    """Specs of a shape, or of lists and dicts of them.

    Example:
        >>> specs_of([(2, 3), (2,)], "float32")[1]
        ShapeDtypeStruct(shape=(2,), dtype=float32)
    """
    return jax.tree.map(
        lambda shape: spec_of(tuple(shape), dtype), shapes, is_leaf=is_shape
    )


def is_shape(value: Any) -> bool:
    """Whether a value is one shape, and no list of shapes.

    Example:
        >>> is_shape((None, 3)), is_shape([(2, 3), (2,)])
        (True, False)
    """
    return isinstance(value, list | tuple) and all(
        size is None or isinstance(size, int) for size in value
    )


def canonical_spec(spec: Any) -> jax.ShapeDtypeStruct:
    """The spec with the dtype in which JAX holds such an array.

    JAX warns where it would trace 64 bits as 32.

    Example:
        >>> canonical_spec(jax.ShapeDtypeStruct((2,), np.dtype("int64")))
        ShapeDtypeStruct(shape=(2,), dtype=int32)
    """
    dtype = jax.dtypes.canonicalize_dtype(spec.dtype, allow_extended_dtype=True)
    return jax.ShapeDtypeStruct(spec.shape, dtype)


def sizes_that_meet(shapes: list[tuple]) -> list[tuple]:
    """The shapes with unknown sizes as the one that the others have on that axis.

    Axes count from the last one, as in broadcasting.

    Example:
        >>> sizes_that_meet([(dim(0), dim(1), 8), (16, 8)])
        [(batch, 16, 8), (16, 8)]
    """
    sizes: dict[int, set[int]] = {}
    for shape in shapes:
        for axis, size in enumerate(reversed(shape)):
            if isinstance(size, int) and size != 1:
                sizes.setdefault(axis, set()).add(size)

    def meet(size: Any, axis: int) -> Any:
        others = sizes.get(axis, set())
        return size if isinstance(size, int) or len(others) != 1 else min(others)

    return [
        tuple(meet(size, len(shape) - 1 - i) for i, size in enumerate(shape))
        for shape in shapes
    ]


def meeting(trace: Callable[[list], Any], specs: list, others: list[tuple]) -> Any:
    """What a trace gives, whose operands may have an unknown size on a known one."""
    try:
        return trace(specs)
    except (TypeError, ValueError):
        meet = sizes_that_meet([*(spec.shape for spec in specs), *others])
        alike = [
            jax.ShapeDtypeStruct(shape, spec.dtype)
            for shape, spec in zip(meet, specs, strict=False)
        ]
        if alike == specs:
            raise
        with contextlib.suppress(TypeError, ValueError):
            return trace(alike)
        raise


def public_shape(shape: tuple) -> tuple[int | None, ...]:
    """A shape as users see it, with ``None`` for what is not known."""
    return tuple(d if isinstance(d, int) else None for d in shape)


def common_sizes(first: Any, second: Any) -> Any:
    """One of two (trees of) shapes, with ``None`` for the sizes in which they differ.

    Example:
        >>> common_sizes(((24, 24, 8),), ((36, 24, 8),))
        ((None, 24, 8),)
    """
    return jax.tree.map(
        lambda a, b: a if a == b else None, first, second, is_leaf=lambda v: v is None
    )


def describe(value: Any) -> str:
    """``float32[None, 28, 28]`` of anything with a shape and a dtype."""
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return type(value).__name__
    dims = ", ".join(str(d) for d in public_shape(tuple(value.shape)))
    # An array of objects may hold anything; a spec of them is one of strings.
    array = isinstance(value, np.ndarray)
    if is_text(value) and not array:
        return f"{TEXT}[{dims}]"
    keys = jnp.issubdtype(value.dtype, jax.dtypes.extended)  # no dtype of NumPy
    return f"{value.dtype if keys else np.dtype(value.dtype).name}[{dims}]"


def tracer_hint(error: BaseException) -> str | None:
    """What to do about an error of JAX, met where a program wants an array's values.

    Example:
        >>> @jax.jit
        ... def f(x):
        ...     return x if x > 0 else -x
        >>> try:
        ...     f(1.0)
        ... except jax.errors.TracerBoolConversionError as error:
        ...     print(tracer_hint(error).split(". ")[1])
        Use ops.where, ops.cond or ops.while_loop.
    """
    if isinstance(error, jax.errors.TracerArrayConversionError):
        return (
            "A model's computation is traced: its arrays have no values for NumPy. Use "
            "exburn.ops or jax.numpy."
        )
    numbers = (
        jax.errors.ConcretizationTypeError,
        jax.errors.TracerIntegerConversionError,
    )
    if isinstance(error, numbers):
        return (
            "A model's computation is traced: its arrays have no values for Python's "
            "if, float() or range(). Use ops.where, ops.cond or ops.while_loop."
        )
    return None


def trace_shapes(run: Callable, specs: list, *, where: str) -> Any:
    """``jax.eval_shape`` over symbolic specs, with the concrete fallback."""
    try:
        with SymbolicScope():
            return _trace(run, specs)
    except ExBurnError:
        raise
    except (TypeError, ValueError) as error:
        if not places_of(error):  # a layer inside has said it
            received = ", ".join(describe(s) for s in specs)
            locate(error, f"in {where}, which received {received}")
        raise


def _trace(run: Callable, specs: list) -> Any:
    specs = [canonical_spec(spec) for spec in specs]
    try:
        return jax.eval_shape(run, *specs)
    except Exception as error:
        if all(isinstance(d, int) for spec in specs for d in spec.shape):
            raise
        if isinstance(error, ExBurnError) and not _of_jax(error):
            raise
        symbolic = error
    # A symbol is no number for NumPy and Python in many ways: `np.sqrt(x.shape[0])`,
    # `range(x.shape[0])`, `assert x.shape[0] % 2 == 0`. Or JAX cannot compare two.
    trials, reason = [_LARGE, _SMALL, _LEAST, _ALIKE], symbolic
    if not isinstance(symbolic, _INCONCLUSIVE):
        trials.insert(0, trials.pop(1))
    for sizes in trials:
        try:
            return _concretely(run, specs, sizes)
        except NotBuiltError:
            raise
        except Exception as error:
            # The symbols were one thing, this another.
            if sizes is _LARGE and _line(error) != _line(symbolic):
                reason = error
    raise symbolic if isinstance(symbolic, ExBurnError) else reason from None


def _of_jax(error: ExBurnError) -> bool:
    """Whether an error says of shapes what JAX did."""
    caused = isinstance(error.__cause__, TypeError | ValueError)
    return isinstance(error, ShapeError) and caused


def _line(error: Exception) -> tuple[str, int]:
    """Where it was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return frame.filename, frame.lineno or 0


def _concretely(run: Callable, specs: list, sizes: _Sizes) -> Any:
    """Specs of the outputs by two traces with sizes that are numbers.

    An output's size that follows an unknown one of the inputs is that one.
    """
    unknown = {str(d): d for s in specs for d in s.shape if not isinstance(d, int)}
    values = [
        {name: base if sizes.alike else _size(d, base) for name, d in unknown.items()}
        for base in (sizes.first, sizes.second)
    ]
    first, second = (
        jax.eval_shape(run, *[_concrete(spec, numbers) for spec in specs])
        for numbers in values
    )
    follow: dict[tuple[int, int], list] = {}
    for name, size in unknown.items():
        follow.setdefault((values[0][name], values[1][name]), []).append(size)

    def size_of(pair: tuple[int, int], axis: int) -> Any:
        if pair[0] == pair[1]:
            return pair[0]
        those = follow.get(pair, [None])
        return next((d for d in those if str(d) == str(dim(axis))), those[0])

    def spec(a: Any, b: Any) -> jax.ShapeDtypeStruct:
        pairs = zip(a.shape, b.shape, strict=True)
        return spec_of(tuple(size_of(p, i) for i, p in enumerate(pairs)), a.dtype)

    return jax.tree.map(spec, first, second)


def _size(size: Any, base: int) -> int:
    """What an unknown size is, if axis i has ``base * (i + 1)`` entries."""
    return evaluate_size(size, {n: base * (rank + 1) for n, rank in _ranks.items()})


def symbols_of(size: Any) -> tuple[str, ...]:
    """The names of the symbols in a size, each once.

    Example:
        >>> symbols_of("2*d1 + floordiv(d2, 3)"), symbols_of(2 * dim(1)), symbols_of(7)
        (('d1', 'd2'), ('d1',), ())
    """
    words = (token for token in _TOKEN.findall(str(size)) if token[0].isidentifier())
    return tuple(dict.fromkeys(word for word in words if word not in _FUNCTIONS))


def evaluate_size(
    size: Any,
    values: Mapping[str, Any],
    functions: Mapping[str, Callable] = _FUNCTIONS,
) -> Any:
    """What a size that follows from others is.

    JAX writes sizes as ``floordiv(d1^2, 2) + 1``, which ``symbolic_shape`` reads, too.

    Args:
        values: What its symbols stand for: numbers, or whatever adds and multiplies.
        functions: ``floordiv``, ``mod``, ``max`` and ``min`` of those.

    Example:
        >>> evaluate_size((dim(1) ** 2) // 2 + 1, {"d1": 5})
        13
    """
    return _sum(_TOKEN.findall(str(size))[::-1], values, functions)


# Python's own parser would report to `sys.addaudithook` that code is compiled, and who
# reads the files of others may have set an alarm on that.
def _sum(tokens: list[str], values: Mapping[str, Any], functions: Mapping) -> Any:
    """The sum at the end of tokens in reverse; they are taken off."""
    total: Any = 0
    while tokens and tokens[-1] not in "),":
        sign = tokens.pop() if tokens[-1] in "+-" else "+"
        product = _product(tokens, values, functions)
        total += -product if sign == "-" else product
    return total


def _product(tokens: list[str], values: Mapping[str, Any], functions: Mapping) -> Any:
    product = _power(tokens, values, functions)
    while tokens and tokens[-1] == "*":
        tokens.pop()
        product *= _power(tokens, values, functions)
    return product


def _power(tokens: list[str], values: Mapping[str, Any], functions: Mapping) -> Any:
    token = tokens.pop()
    if token in functions:
        arguments = []
        while tokens.pop() in "(,":
            arguments.append(_sum(tokens, values, functions))
        value = functions[token](*arguments)
    elif token == "-":
        return -_power(tokens, values, functions)
    else:
        value = int(token) if token.isdigit() else values[token]
    if tokens and tokens[-1] == "^":
        tokens.pop()
        value **= int(tokens.pop())
    return value


def _concrete(spec: Any, numbers: dict[str, int]) -> jax.ShapeDtypeStruct:
    shape = tuple(d if isinstance(d, int) else numbers[str(d)] for d in spec.shape)
    return jax.ShapeDtypeStruct(shape, spec.dtype)
