"""Named kernels: functions of arrays, one by one, in a row, or waited for later.

A kernel is compiled on its first use, a `ComputePipeline` of several as one program; a
`Command` is what JAX dispatched and has not finished yet.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

import jax
import jax.numpy as jnp

from exburn.core.checks import check_number, check_optional
from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, DTypeError, unknown_name
from exburn.errors.boundary import api_boundary, guard_methods
from exburn.runtime.kernels.conv.dispatch import convolve

__all__ = [
    "Command",
    "ComputePipeline",
    "Slot",
    "compile_kernel",
    "kernel",
    "kernels",
    "poll",
    "register_kernel",
    "run_kernel",
    "submit",
    "wait",
]


_Kernel = TypeVar("_Kernel", bound=Callable[..., Any])
_kernels: dict[str, Callable] = {}


@overload
def register_kernel(name: str, fn: _Kernel) -> _Kernel: ...
@overload
def register_kernel(name: str, fn: None = ...) -> Callable[[_Kernel], _Kernel]: ...
@api_boundary
def register_kernel(name: str, fn: Any = None) -> Any:
    """Names a kernel: a JAX function, or one around ``pallas_call``.

    Positional arguments are arrays, keyword arguments are compiled in. Also a
    decorator. A name that exists is replaced.

    Args:
        name: The kernel's name, which is free.
        fn: The function.

    Raises:
        ArgumentError: No name, or no function.

    Example:
        >>> @register_kernel("saxpy")
        ... def saxpy(x, y, *, a=1.0):
        ...     return a * x + y
        >>> run_kernel("saxpy", jnp.ones(2), jnp.ones(2), a=2.0).tolist()
        [3.0, 3.0]
    """
    if fn is None:
        return functools.partial(register_kernel, name)
    if not name or not isinstance(name, str) or not callable(fn):
        raise ArgumentError(
            "register_kernel",
            f"a kernel is a name and a function, received {name!r} and {fn!r}",
        )
    _kernels[name] = fn
    return fn


@api_boundary
def kernels() -> list[str]:
    """Names of the registered kernels.

    Example:
        >>> from exburn import compute
        >>> isinstance(compute.kernels()[0], str)
        True
    """
    return sorted(_kernels)


@api_boundary
def kernel(name: str) -> Callable[..., Any]:
    """The function behind a name.

    Args:
        name: The kernel's name.

    Raises:
        UnknownNameError: No kernel has that name.

    Example:
        >>> from exburn import compute
        >>> callable(compute.kernel(compute.kernels()[0]))
        True
    """
    if name not in _kernels:
        raise unknown_name("kernel", name, _kernels, op="kernel")
    return _kernels[name]


@api_boundary
def run_kernel(name: str, *inputs: Any, **params: Any) -> Any:
    """Runs a kernel; returns at once, with an array that the device still computes.

    Args:
        name: Of the kernel.
        *inputs: Arrays.
        **params: Other arguments, compiled in.

    Raises:
        UnknownNameError: No kernel has that name.
        ArgumentError: It does not take these arrays or arguments.

    Example:
        >>> run_kernel("reduce_sum", jnp.ones((2, 3)), axis=1).tolist()
        [3.0, 3.0]
    """
    fn = kernel(name)
    try:
        return _compile(fn, tuple(params))(*inputs, **static(params))
    except (TypeError, ValueError) as error:
        raise refusal(name, inputs, params, error) from error


@api_boundary
def compile_kernel(name: str, *inputs: Any, **params: Any) -> Any:
    """Compiles a kernel ahead, for inputs like these; ``.cost_analysis()`` tells more.

    Args:
        name: The kernel's name.
        inputs: Arrays of the shapes and dtypes that are meant.
        params: Its keyword arguments.

    Raises:
        UnknownNameError: There is no such kernel.
        ArgumentError: A value can never work.

    Example:
        >>> spec = jax.ShapeDtypeStruct((2, 2), "float32")
        >>> compile_kernel("matmul", spec, spec)(jnp.eye(2), jnp.eye(2)).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    fn = kernel(name)
    try:
        program = _compile(fn, tuple(params))
        return program.lower(*inputs, **static(params)).compile()
    except (TypeError, ValueError) as error:
        raise refusal(name, inputs, params, error) from error


def refusal(name: str, inputs: Any, params: Any, error: Exception) -> ArgumentError:
    """The error for a kernel that was called with what it does not take."""
    if isinstance(error, ArgumentError):
        return error
    received = ", ".join(map(describe, inputs)) or "no arrays"
    return ArgumentError(
        "run_kernel",
        f"the kernel {name!r} does not take {received}",
        {"arguments": params, "cause": error},
    )


@functools.lru_cache(maxsize=256)
def _compile(fn: Callable, names: tuple[str, ...]) -> Any:
    return jax.jit(fn, static_argnames=names)


def static(params: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in params.items()}


# ------------------------------------------------------------ the kernels of ExCubecl
def _layer_norm(x, scale=None, offset=None, *, eps=1e-5):
    """Over the last axis."""
    mean = x.mean(-1, keepdims=True)
    out = (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + eps)
    out = out if scale is None else out * scale
    return out if offset is None else out + offset


def _conv2d(x, kernel, *, strides=(1, 1), padding="VALID"):
    """``[n, h, w, in]`` and ``[kh, kw, in, out]`` → ``[n, h, w, out]``."""
    strides = (strides,) * 2 if isinstance(strides, int) else strides
    if isinstance(padding, str) and padding.upper() not in ("VALID", "SAME"):
        raise ValueError(f"padding is VALID, SAME or pairs of numbers: {padding!r}")
    return convolve(
        x, kernel, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


_BUILT_IN: dict[str, Callable] = {
    "elementwise_add": lambda a, b: a + b,
    "elementwise_sub": lambda a, b: a - b,
    "elementwise_mul": lambda a, b: a * b,
    "elementwise_div": lambda a, b: a / b,
    "relu": lambda x: jax.nn.relu(x),
    "sigmoid": lambda x: jax.nn.sigmoid(x),
    "tanh": lambda x: jnp.tanh(x),
    "matmul": lambda a, b: a @ b,
    "reduce_sum": lambda x, *, axis=None: x.sum(axis),
    "reduce_max": lambda x, *, axis=None: x.max(axis),
    "reduce_min": lambda x, *, axis=None: x.min(axis),
    "softmax": lambda x, *, axis=-1: jax.nn.softmax(x, axis),
    "layer_norm": _layer_norm,
    "conv2d": _conv2d,
    "transpose": lambda x, *, axes=None: jnp.transpose(x, axes),
    "reshape": lambda x, *, shape: jnp.reshape(x, shape),
}
for _name, _fn in _BUILT_IN.items():
    register_kernel(_name, _fn)


@guard_methods
@dataclasses.dataclass(frozen=True)
class Slot:
    """A value of a pipeline that does not exist yet: an input or a step's result.

    Attributes:
        index: Its number in the pipeline.
        name: Its name there.

    Example:
        >>> Slot(0, "x").name
        'x'
    """

    index: int
    name: str


@guard_methods
class ComputePipeline:
    """Records kernels and runs all of them as one program, without host round trips.

    Example:
        >>> import jax.numpy as jnp
        >>> pipe = ComputePipeline()
        >>> x = pipe.input("x")
        >>> hidden = pipe.add("matmul", x, jnp.eye(2))
        >>> out = pipe.add("relu", hidden)
        >>> pipe.run(x=jnp.array([[1.0, -1.0]])).tolist()
        [[1.0, 0.0]]
    """

    def __init__(self):
        self._inputs: list[Slot] = []
        self._steps: list[tuple[Slot, Any, tuple, dict[str, Any]]] = []
        self._programs: dict[tuple[int, ...], Any] = {}
        #: How often the pipeline was traced, and so compiled.
        self.traces = 0

    def input(self, name: str) -> Slot:
        """Declares an input, given by name to `run`.

        Raises:
            ArgumentError: The name is taken, or is none.
        """
        taken = ["outputs", *(slot.name for slot in self._inputs)]
        if not isinstance(name, str) or name in taken:
            raise ArgumentError(
                "ComputePipeline.input",
                f"the name must be a string that is not taken, received {name!r}",
                {"taken": ", ".join(taken)},
            )
        slot = Slot(len(self._inputs) + len(self._steps), name)
        self._inputs.append(slot)
        self._programs.clear()
        return slot

    def add(self, name: str, *inputs: Any, **params: Any) -> Slot:
        """Appends a kernel.

        Args:
            name: Of the kernel.
            *inputs: Slots of this pipeline, or arrays.
            **params: Other arguments of the kernel.

        Raises:
            UnknownNameError: No kernel has that name.
            ArgumentError: A slot of another pipeline.
        """
        self._require_own("ComputePipeline.add", [v for v in inputs if _is_slot(v)])
        slot = Slot(len(self._inputs) + len(self._steps), name)
        self._steps.append((slot, kernel(name), inputs, static(params)))
        self._programs.clear()
        return slot

    def run(self, *, outputs: Sequence[Slot] | None = None, **inputs: Any) -> Any:
        """Runs the pipeline; returns at once, with arrays still being computed.

        Args:
            outputs: The slots wanted, as a list; by default the last step's result.
            **inputs: An array for each input.

        Raises:
            ArgumentError: An input is missing or unknown, there are no steps, an
                output is no slot of this pipeline, or a kernel does not take what it
                is given.
        """
        names = {slot.name for slot in self._inputs}
        if names != set(inputs) or not self._steps:
            raise ArgumentError(
                "ComputePipeline.run",
                f"it takes the inputs {sorted(names)} and needs a step, received "
                f"{sorted(inputs)} and {len(self._steps)} steps",
            )
        if isinstance(outputs, Slot):
            raise ArgumentError(
                "ComputePipeline.run", "outputs must be a list of slots"
            )
        slots = [self._steps[-1][0]] if outputs is None else list(outputs)
        self._require_own("ComputePipeline.run", slots)
        key = tuple(slot.index for slot in slots)
        if key not in self._programs:
            self._programs[key] = self._compile(key)
        results = self._programs[key](inputs, self._constants())
        return results[0] if outputs is None else results

    def _require_own(self, op: str, slots: Sequence[Slot]) -> None:
        own = [*self._inputs, *(step[0] for step in self._steps)]
        for value in slots:
            if not any(value is slot for slot in own):
                raise ArgumentError(op, f"{value} belongs to another pipeline, or none")

    def _constants(self) -> list[Any]:
        """Recorded arrays: arguments of the program, which would copy them else."""
        return [v for _, _, inputs, _ in self._steps for v in inputs if not _is_slot(v)]

    def _compile(self, indices: tuple[int, ...]) -> Any:
        slots, steps = list(self._inputs), list(self._steps)

        def program(inputs, constants):
            self.traces += 1
            rest = iter(constants)
            values = {slot.index: inputs[slot.name] for slot in slots}
            for slot, fn, arguments, params in steps:
                arrays = [
                    values[v.index] if _is_slot(v) else next(rest) for v in arguments
                ]
                try:
                    values[slot.index] = fn(*arrays, **params)
                except (TypeError, ValueError) as error:
                    raise refusal(slot.name, arrays, params, error) from error
            return [values[index] for index in indices]

        return jax.jit(program)


def _is_slot(value: Any) -> bool:
    return isinstance(value, Slot)


@guard_methods
@dataclasses.dataclass
class Command:
    """A kernel or function that was submitted.

    Attributes:
        kernel: Its name.
        inputs, params: What it was called with.
        output: Arrays that may not be computed yet; None if it failed at once.
        error: Why it failed.

    Example:
        >>> import jax.numpy as jnp
        >>> command = submit(jnp.add, 1, 2)
        >>> command.kernel, int(wait(command))
        ('add', 3)
    """

    kernel: str
    inputs: tuple
    params: Mapping[str, Any]
    output: Any = None
    error: Exception | None = None


@api_boundary
def submit(work: str | Callable[..., Any], *inputs: Any, **params: Any) -> Command:
    """Starts a kernel, a pipeline's ``run`` or any JAX function, and returns.

    Args:
        work: The name of a kernel, or a function that returns arrays.
        *inputs, **params: Its arguments.

    Raises:
        ArgumentError: ``work`` is neither a name nor a function; all else is raised by
            `wait`.

    Example:
        >>> import jax.numpy as jnp
        >>> command = submit("matmul", jnp.ones((2, 2)), jnp.ones((2, 2)))
        >>> wait(command).tolist(), poll(command)
        ([[2.0, 2.0], [2.0, 2.0]], 'completed')
    """
    if not (isinstance(work, str) or callable(work)):
        raise ArgumentError(
            "submit", f"a kernel's name or a function is needed, received {work!r}"
        )
    name = work if isinstance(work, str) else getattr(work, "__name__", repr(work))
    command = Command(name, inputs, params)
    try:
        if isinstance(work, str):
            command.output = run_kernel(work, *inputs, **params)
        else:
            command.output = work(*inputs, **params)
    except Exception as error:  # told by poll, raised by wait
        command.error = error
    return command


@api_boundary
def poll(command: Command) -> str:
    """``"running"``, ``"completed"`` or ``"failed"``; never waits.

    Args:
        command: What ``submit`` returned.

    Raises:
        DTypeError: It is no command.

    Example:
        >>> import jax.numpy as jnp
        >>> command = submit(jnp.add, 1, 2)
        >>> _ = wait(command)
        >>> poll(command)
        'completed'
    """
    _require_command("poll", command)
    if command.error is not None:
        return "failed"
    leaves: list[Any] = jax.tree.leaves(command.output)
    ready = all(v.is_ready() for v in leaves if hasattr(v, "is_ready"))
    if not ready:
        return "running"
    try:
        jax.block_until_ready(command.output)  # no wait: it raises what went wrong
    except Exception as error:
        command.error = error
        return "failed"
    return "completed"


@api_boundary
def wait(command: Command, timeout: float | None = None) -> Any:
    """The command's output, once it is there.

    Args:
        command: What `submit` returned.
        timeout: Seconds to wait at most; the work itself goes on.

    Raises:
        DTypeError: ``command`` is no command.
        ArgumentError: ``timeout`` is no number >= 0.
        TimeoutError: It is not there in time.
        Exception: What the command failed with.

    Example:
        >>> import jax.numpy as jnp
        >>> int(wait(submit(jnp.add, 1, 2), timeout=10))
        3
    """
    _require_command("wait", command)
    timeout = check_optional(check_number, "wait", "timeout", timeout)
    if command.error is not None:
        raise command.error
    if timeout is not None:
        end = time.monotonic() + timeout
        while poll(command) == "running":
            if time.monotonic() > end:
                raise TimeoutError(f"{command.kernel!r} runs for more than {timeout} s")
            time.sleep(1e-4)
    return jax.block_until_ready(command.output)


def _require_command(op: str, value: Any) -> None:
    if not isinstance(value, Command):
        raise DTypeError(
            op,
            f"a command is needed, received {type(value).__name__}",
            hint=f"command = submit(work, ...); {op}(command).",
        )
