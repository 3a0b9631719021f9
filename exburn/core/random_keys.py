"""Keys of random numbers outside of a pass, the seeds of the process, and paths.

A key is a function of a seed and a path; ``Context.random_key`` has those of a pass.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from exburn.core.checks import check_integer
from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary
from exburn.runtime.sharding.joining import shared_seed

#: The name of the variable that a ``SeedGenerator`` has.
SEED_STATE = "seed_generator_state"
_key_scope: contextvars.ContextVar[list | None] = contextvars.ContextVar(
    "exburn_key", default=None
)


@api_boundary
@contextlib.contextmanager
def key_scope(key: jax.Array | Callable[[], jax.Array]) -> Iterator[None]:
    """Gives layers such as Dropout a PRNG key in hand-written training code.

    Args:
        key: A ``jax.random.key``; pass a fresh one for every step. Or a function that
            makes it, which is called if something draws.

    Example:
        >>> from exburn.layers import Dropout
        >>> import jax.numpy as jnp
        >>> drop = Dropout(0.5)
        >>> def f(x, key):
        ...     with key_scope(key):
        ...         return drop(x, training=True)
        >>> jax.jit(f)(jnp.ones(4), jax.random.key(0)).shape
        (4,)
    """
    token = _key_scope.set([key, itertools.count()])
    try:
        yield
    finally:
        _key_scope.reset(token)


def path_hash(path: str, draw: int = 0) -> int:
    """A stable 31-bit number for a path; equal on every machine and Python."""
    return (zlib.crc32(path.encode()) + 0x9E3779B1 * draw) & 0x7FFFFFFF


class _Seeds:
    """The process' seed, and the stream of keys for eager calls drawn from it.

    The first session has the seed itself, each later one a number made of it.
    """

    def __init__(self):
        self.seed: int | None = None
        self.drawn = False
        self.session = 0
        self.count = itertools.count()
        self.layers = itertools.count()

    def get(self) -> int:
        if self.seed is None:  # one that all processes of a run have, if there are more
            shared = shared_seed()
            drawn = int.from_bytes(os.urandom(4)) if shared is None else shared
            self.seed, self.drawn = drawn >> 1, True
        if self.session:
            return path_hash(f"session {self.session}", self.seed)
        return self.seed


_seeds = _Seeds()


@api_boundary
def set_random_seed(seed: int) -> None:
    """Makes everything that follows reproducible: weights, shuffling, dropout.

    Seeds Python's and NumPy's global generators as well, as Keras does.

    Args:
        seed: An integer ≥ 0 and < 2**32.

    Raises:
        ArgumentError: ``seed`` is not such an integer.

    Example:
        >>> set_random_seed(7)
    """
    import random

    seed = check_integer("set_random_seed", "seed", seed)
    if not 0 <= seed < 2**32:
        raise ArgumentError(
            "set_random_seed", f"seed must be from 0 to 2**32 - 1, received {seed}"
        )
    random.seed(seed)
    np.random.seed(seed)
    _seeds.seed, _seeds.drawn, _seeds.session = seed, False, 0
    _seeds.count, _seeds.layers = itertools.count(), itertools.count()


def begin_session() -> None:
    """Gives what follows another seed: the next one that the process' seed tells.

    Example:
        >>> set_random_seed(7)
        >>> begin_session()
        >>> first = global_seed()
        >>> begin_session()
        >>> second = global_seed()
        >>> set_random_seed(7)
        >>> begin_session()
        >>> first == second, first == global_seed()
        (False, True)
    """
    _seeds.session += 1


def global_seed() -> int:
    """The seed of the process; drawn from the operating system when none was set."""
    return _seeds.get()


def layer_seed() -> int:
    """The seed of one more layer that has none of its own."""
    return path_hash(f"layer {next(_seeds.layers)}", _seeds.get())


def in_key_scope() -> bool:
    """Whether a key was given by ``key_scope``."""
    return _key_scope.get() is not None


def outer_key(path: str) -> jax.Array:
    """A key for a call outside of ExBurn's own programs."""
    scope = _key_scope.get()
    if scope is not None:
        key, draws = scope
        base: Any = key() if callable(key) else key
        return jax.random.fold_in(base, next(draws))
    if tracing():
        raise ArgumentError(
            path or "random",
            "random numbers are drawn in a function that JAX compiles, without a key: "
            "every call of it would draw the same",
            hint="Give the function a key as an argument, and write in it\n"
            "      with exburn.key_scope(key): y = model(x, training=True)\n"
            "    or let the layers' seeds go in and out:\n"
            "      y, rest = model.stateless_call(trained, rest, x, training=True)",
        )
    return jax.random.fold_in(jax.random.key(_seeds.get()), next(_seeds.count))


def tracing() -> bool:
    """Whether JAX is staging the current call out (jit, scan, vmap of jit …)."""
    return isinstance(jax.lax.full((), 0), Tracer)


def next_words(words: Any) -> Any:
    """The two words of the next draw."""
    return words + np.array([0, 1], np.uint32)


def key_of(words: Any) -> jax.Array:
    """The key of two words, whatever kind JAX is told to make by default."""
    return jax.random.wrap_key_data(jax.numpy.asarray(words), impl="threefry2x32")


def is_seed(variable: Any) -> bool:
    """Whether a variable is the state of a ``SeedGenerator``."""
    return getattr(variable, "name", None) == SEED_STATE


def philox(path: str, seed: int) -> np.random.Generator:
    """The NumPy generator of one parameter: a function of seed and path alone."""
    return np.random.Generator(np.random.Philox(key=[seed, path_hash(path)]))
