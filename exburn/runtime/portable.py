"""Programs that will run elsewhere, and what they must do without.

What makes ExBurn fast on one kind of hardware (forms of convolutions, windows as axes
of their own, kernels, loops) is of no use to another runtime, or more than it can read.
Code that has such a form asks here before it takes it.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import jax

from exburn.errors import unknown_name
from exburn.errors.boundary import api_boundary


@dataclasses.dataclass(frozen=True)
class ExportTarget:
    """What a program that is traced for another runtime may hold.

    Attributes:
        name: The runtime.
        plain_windows: Pooling is ``lax.reduce_window``, not a reshape to a higher rank.
        exact: Weights and arithmetic are float32, whatever the layers' policies say.
        valid_transposed: Transposed convolutions compute their whole result, of which
            the wanted part is cut.
        unrolled: Recurrent layers have no loop.
        low_rank: Arrays have five axes at most.
        quantizes: It computes in integers where rounding is an operation of its own.
    """

    name: str
    plain_windows: bool = True
    exact: bool = True
    valid_transposed: bool = False
    unrolled: bool = False
    low_rank: bool = False
    quantizes: bool = False


TARGETS = {
    target.name: target
    for target in (
        ExportTarget("platforms", plain_windows=False, exact=False),
        ExportTarget("onnx", quantizes=True),
        ExportTarget(
            "litert",
            valid_transposed=True,
            unrolled=True,
            low_rank=True,
            quantizes=True,
        ),
        ExportTarget("coreml", valid_transposed=True, low_rank=True),
    )
}

_current: contextvars.ContextVar[ExportTarget | None] = contextvars.ContextVar(
    "exburn_target", default=None
)
_OPEN, _CLOSE = "⟨", "⟩"  # around a layer's path in JAX's stack of names


@api_boundary
@contextlib.contextmanager
def portable(target: str) -> Iterator[ExportTarget]:
    """Within the block programs are traced for another runtime.

    Args:
        target: ``"platforms"`` (JAX on other devices, too), ``"onnx"``, ``"litert"`` or
            ``"coreml"``.

    Raises:
        UnknownNameError: There is no such target.

    Example:
        >>> with portable("onnx") as target:
        ...     target.exact, current() is target
        (True, True)
        >>> current() is None
        True
    """
    if target not in TARGETS:
        raise unknown_name("target", target, TARGETS, op="portable")
    token = _current.set(TARGETS[target])
    try:
        yield TARGETS[target]
    finally:
        _current.reset(token)


def current() -> ExportTarget | None:
    """The runtime that programs are traced for now; ``None`` for this process'."""
    return _current.get()


def layer_scope(path: Any) -> AbstractContextManager[Any]:
    """A block whose operations are a layer's: `layer_of` reads its path again."""
    return jax.named_scope(f"{_OPEN}{path}{_CLOSE}")


def layer_of(stack: Any) -> str:
    """The innermost layer's path in a stack of names; empty if there is none.

    Example:
        >>> layer_of("jit(f)/⟨block⟩/⟨block/dense⟩/dot"), layer_of("vmap()/le")
        ('block/dense', '')
    """
    _, opening, rest = str(stack).rpartition(_OPEN)
    return rest.partition(_CLOSE)[0] if opening else ""


def unrolls() -> bool:
    """Whether recurrent layers are traced without a loop now."""
    target = _current.get()
    return target is not None and target.unrolled
