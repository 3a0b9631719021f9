"""The line between a user's program and ExBurn, which tracebacks stop at.

An error that leaves a public function shows the user's lines alone: the call, and the
user's own functions that ran below it. Frames of ExBurn, of JAX and of flax are taken
out, and so are those of other libraries that ExBurn itself has called. A call whose
arguments a function does not take is refused here, too, with the name that was meant.

``exburn.config.disable_traceback_filtering()``, or the variable
``EXBURN_TRACEBACK_FILTERING=off``, leaves tracebacks as they are. The setting is that
of JAX, ``jax_traceback_filtering``: there is one for both.
"""

from __future__ import annotations

import functools
import inspect
import os
import textwrap
import types
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, TypeVar, cast

import jax

from exburn.errors import JAX_NOTE, ExBurnError, SignatureError, unknown_argument

_C = TypeVar("_C", bound=type)
_F = TypeVar("_F", bound=Callable[..., Any])

_HIDDEN = frozenset(("exburn", "flax", "jax", "jaxlib", "optax"))
# Hidden only where ExBurn has called them: a user's program calls them, too.
_BENEATH = frozenset(
    "PIL h5py jsonschema ml_dtypes narwhals numpy onnx opt_einsum optree orbax pandas"
    " polars pyarrow safetensors tensorstore zstandard".split()
)
_STANDARD = os.path.dirname(os.__file__) + os.sep
_SITES = ("site-packages", "dist-packages")
_LONGEST_CALL = 150  # characters
# Methods that subclasses write for ExBurn to call, where each frame counts.
_OVERRIDABLE = frozenset(
    "build call compute_loss compute_mask compute_metrics compute_output_shape"
    " compute_output_spec from_config get_metrics_result predict_step test_step"
    " train_step".split()
)

if os.environ.get("EXBURN_TRACEBACK_FILTERING", "").lower() in ("off", "0", "false"):
    jax.config.update("jax_traceback_filtering", "off")

# Special methods that a user's line stands for.
_OPERATORS = frozenset(
    f"__{name}__"
    for name in (
        "abs add and array array_function array_ufunc bool call contains float floordiv"
        " ge getitem gt init int invert iter jax_array le len lt matmul mod mul ne neg"
        " or pow radd rand rfloordiv rmatmul rmod rmul ror rpow rsub rtruediv rxor"
        " setitem sub truediv xor"
    ).split()
)
_ORIGIN = "_exburn_raised_in"  # an attribute of errors
_codes: set[types.CodeType] = set()  # of the functions that are the line


def api_boundary(function: _F) -> _F:
    """Decorates a public function: its errors show the lines of the user's program.

    Args:
        function: The function, or a method.

    Example:
        >>> @api_boundary
        ... def area(width, height=1):
        ...     return width * height
        >>> area(2, heigth=3)
        Traceback (most recent call last):
        exburn.errors.SignatureError: area: unknown argument 'heigth'
          known: width, height
          → Did you mean 'height'?
    """
    template: Any = _around(function, inspect.isgeneratorfunction(function))
    # With the globals of its module, where doctest, pickle and typing look for it.
    names = getattr(function, "__globals__", globals())
    guarded = types.FunctionType(template.__code__, names, closure=template.__closure__)
    return cast("_F", functools.update_wrapper(guarded, function))


def _around(function: Callable, generates: bool) -> Callable:
    leave, iterate = leave_boundary, _iterate

    def call(*args, **kwargs):
        try:
            if generates:
                return iterate(function(*args, **kwargs))
            return function(*args, **kwargs)
        except BaseException as error:
            if (refusal := leave(error, function, args, kwargs)) is None:
                raise  # adds no line of this function, unlike "raise error"
            try:
                raise refusal from None
            except TypeError:
                leave(refusal)
                raise

    _codes.add(call.__code__)
    return call


def _iterate(generator: Generator) -> Generator:
    try:
        return (yield from generator)
    except BaseException as error:
        leave_boundary(error)
        raise


def boundary_itself(function: _F) -> _F:
    """Decorates a public method that calls `leave_boundary` in its own body.

    For those that run so often that another function around them would be felt.

    Args:
        function: The method.

    Example:
        >>> def __call__(self): ...
        >>> boundary_itself(__call__) is __call__
        True
    """
    _codes.add(function.__code__)  # type: ignore[attr-defined]
    return function


def guard_methods(cls: _C) -> _C:
    """Decorates a class of ExBurn's: its constructor and public methods are guarded.

    Those that subclasses write for ExBurn to call, such as ``call``, stay bare.

    Args:
        cls: The class; methods that it inherits are those of the base.
    """
    for name, value in list(vars(cls).items()):
        method = value.__func__ if isinstance(value, classmethod) else value
        if type(method) is not types.FunctionType or is_guarded(method):
            continue
        if _is_called_by_users(name):
            guarded = api_boundary(method)
            if isinstance(value, classmethod):
                guarded = classmethod(guarded)
            type.__setattr__(cls, name, guarded)
    return cls


def _is_called_by_users(method: str) -> bool:
    if method.startswith(("_", "on_")):
        return method in _OPERATORS
    return method not in _OVERRIDABLE


def leave_boundary(
    error: BaseException,
    function: Callable | None = None,
    args: tuple = (),
    kwargs: Mapping[str, Any] | None = None,
) -> SignatureError | None:
    """Takes lines that are not the user's out of an error's traceback, and its causes'.

    The outermost public function does it; those that ExBurn calls itself leave errors
    as they are.

    Args:
        error: What is being raised, caught in the public function itself.
        function: What the public function has called.
        args: By which arguments.
        kwargs: By which arguments of a name.

    Returns:
        The error to raise in its place if the function does not take the arguments.
    """
    line = error.__traceback__
    if function is not None and isinstance(error, TypeError):
        ran = isinstance(error, SignatureError) or _of_user(line) is not None
        refusal = None if ran else _refuse(function, args, kwargs or {})
        if refusal is not None:
            return refusal
    if line is None or not is_filtering() or _is_inside(line.tb_frame.f_back):
        return None
    for part in _chain(error):
        part.__traceback__ = _of_user(part.__traceback__)
        _drop_notes(part)
    return None


def is_guarded(function: Callable) -> bool:
    """Tells whether errors of a function show the user's lines alone.

    Args:
        function: A function, or a method.
    """
    return getattr(function, "__code__", None) in _codes


def raised_in(error: BaseException) -> str:
    """The module whose function raised an error, also if that line is not shown.

    Args:
        error: The error, caught.

    Example:
        >>> try:
        ...     raise ValueError
        ... except ValueError as error:
        ...     raised_in(error) == __name__
        True
    """
    if (origin := vars(error).get(_ORIGIN)) is not None:
        return origin
    if (line := error.__traceback__) is None:
        return ""
    while line.tb_next is not None:
        line = line.tb_next
    return str(line.tb_frame.f_globals.get("__name__", ""))


def is_filtering() -> bool:
    """Tells whether lines that are not the user's leave tracebacks.

    Example:
        >>> is_filtering()
        True
    """
    values: Any = jax.config
    return values.jax_traceback_filtering != "off"


def _is_inside(frame: types.FrameType | None) -> bool:
    """Tells whether a public function is running around a frame."""
    while frame is not None:
        if frame.f_code in _codes:
            return True
        frame = frame.f_back
    return False


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error, its causes, and the members of groups, each once."""
    visited, waiting = set(), [error]
    while waiting:
        part = waiting.pop()
        if id(part) in visited:
            continue
        visited.add(id(part))
        vars(part).setdefault(_ORIGIN, raised_in(part))
        _forget_details(part)
        yield part
        waiting += [e for e in (part.__cause__, part.__context__) if e is not None]
        if isinstance(part, BaseExceptionGroup):
            waiting += part.exceptions


def _forget_details(error: BaseException) -> None:
    """Takes out of a chain what was raised and caught in libraries alone."""
    # JAX's own chains; the cause of an error of ExBurn's is for programs, too.
    while (cause := error.__cause__) is not None and not isinstance(error, ExBurnError):
        if not _is_of_jax(cause):
            break
        error.__cause__ = cause.__cause__  # also suppresses the context
    context = error.__context__
    if context is not None and error.__cause__ is None:
        if _of_user(context.__traceback__) is None:
            error.__suppress_context__ = True


def _is_of_jax(error: BaseException) -> bool:
    """Tells whether JAX or flax raised an error about nothing of the user's."""
    packages = [type(error).__module__]
    if _of_user(error.__traceback__) is None:
        packages.append(raised_in(error))
    return any(name.partition(".")[0] in ("jax", "jaxlib", "flax") for name in packages)


def _of_user(line: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback without the lines of ExBurn and of what ExBurn calls."""
    lines: list[types.TracebackType] = []
    beneath = False
    while line is not None:
        if not (beneath := _is_hidden(line.tb_frame, beneath)):
            lines.append(line)
        line = line.tb_next
    traceback = None
    for entry in reversed(lines):
        place = entry.tb_frame, entry.tb_lasti, entry.tb_lineno
        traceback = types.TracebackType(traceback, *place)
    return traceback


def _is_hidden(frame: types.FrameType, beneath: bool) -> bool:
    """Tells whether a frame is none of the user's, ``beneath`` others that are none."""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if package in _HIDDEN or frame.f_code in _codes:
        return True
    if not beneath:
        return False
    path = frame.f_code.co_filename
    if package in _BENEATH or path.startswith("<frozen "):
        return True
    return path.startswith(_STANDARD) and not any(site in path for site in _SITES)


def _drop_notes(error: BaseException) -> None:
    """Takes away JAX's note that it has removed lines."""
    notes = getattr(error, "__notes__", None)
    if notes:
        notes[:] = [note for note in notes if JAX_NOTE not in note]
        if not notes:
            del error.__notes__


def _refuse(
    function: Callable, args: tuple, kwargs: Mapping[str, Any]
) -> SignatureError | None:
    """The error for arguments that a function does not take; ``None`` if it does."""
    name = getattr(function, "__name__", "call")
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        reason = str(error)
    else:
        return None
    parameters = _parameters(function)
    if args and parameters and parameters[0].name == "self":
        if name == "__init__":  # a class on this one may have passed its options on
            parameters = [parameters[0], *_parameters(type(args[0]))]
        if name in ("__init__", "__call__"):
            name = type(args[0]).__name__
        parameters, args = parameters[1:], args[1:]
    variadic = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    names = [p.name for p in parameters if p.kind not in variadic]
    if not all(name in names for name in kwargs) and len(names) == len(parameters):
        return unknown_argument(name, kwargs, names)
    bare = [p.replace(annotation=p.empty) for p in parameters]
    call = textwrap.shorten(
        f"{name}{inspect.Signature(bare)}", _LONGEST_CALL, placeholder=" …)"
    )
    if reason.startswith("too many"):
        by_place = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        most = f"{', '.join(by_place)}" if by_place else "none"
        reason = f"it takes {len(by_place)} arguments by position ({most})"
        reason += f", received {len(args)}"
    return SignatureError(name, reason, hint=f"Call it as {call}")


def _parameters(function: Callable) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())
