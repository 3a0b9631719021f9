"""Work handed to the device, to be waited for later: JAX's asynchronous dispatch."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

from exburn.compute.kernels import run_kernel
from exburn.core.checks import check_number, check_optional
from exburn.errors import ArgumentError, DTypeError
from exburn.errors.boundary import api_boundary, guard_methods


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
