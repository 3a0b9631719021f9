"""Streams of seeds, those of random layers, and the keys of single draws.

Keras lists the seeds of random layers among their variables. ExBurn's own programs have
no use for them: their keys come from the step. A loop by hand gives their values to
``stateless_call`` and gets those for the next call back.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core import forward_context, random_keys
from exburn.core.random_keys import SEED_STATE, key_of, layer_seed, next_words
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.errors.boundary import guard_methods
from exburn.module.traversal import iter_weights
from exburn.module.variable import Buffer, Weight


@guard_methods
@register_builtin
class SeedGenerator:
    """A stream of seeds.

    Args:
        seed: Where the stream starts; a random place by default.
        name: Kept for Keras code.
        backend: As Keras' own layers pass it; there is one.

    Raises:
        ArgumentError: ``seed`` is no integer, or the backend is another than JAX.

    Example:
        >>> from exburn.random import normal
        >>> generator = SeedGenerator(42)
        >>> a, b = normal((3,), seed=generator), normal((3,), seed=generator)
        >>> bool((a == b).any())
        False
        >>> bool((a == normal((3,), seed=SeedGenerator(42))).all())
        True
    """

    def __init__(
        self, seed: int | None = None, name: str | None = None, *, backend: Any = None
    ):
        if (backend_name := getattr(backend, "__name__", backend)) is not None and (
            backend_name.rpartition(".")[2] not in ("jax", "backend")
        ):
            raise ArgumentError(
                "SeedGenerator", f"the backend is JAX, received {backend!r}"
            )
        self.name = name or "seed_generator"
        self._given = seed
        if seed is None:
            seed = int(jax.random.bits(forward_context.Context().random_key(self.name)))
        self._seed = _check_seed(seed)
        self.state = Buffer(_words(self._seed, 0), label=SEED_STATE)

    def next(self, ordered: bool = True) -> jax.Array:
        """The next seed: the two words of a PRNG key of JAX, as in Keras.

        Args:
            ordered: Kept for Keras code.

        Raises:
            ArgumentError: The call is compiled by someone else, and there is no key.
        """
        return jax.random.key_data(self._next_key())

    def _next_key(self) -> jax.Array:
        key = _step_key(f"generator {self._seed}")
        if key is not None:
            return key
        if random_keys.tracing():
            return forward_context.Context().random_key(
                self.name
            )  # raises, and says why
        words = np.asarray(self.state.get_value())
        after = jax.device_put(next_words(words))
        self.state.set_raw_value(after, _unsafe_bypass_check=True)
        return key_of(words)

    def get_config(self) -> dict[str, Any]:
        return {"seed": self._given, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> SeedGenerator:
        return cls(**config)


def _check_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise ArgumentError(
            "random", f"a seed is an integer or a SeedGenerator, received {seed!r}"
        )
    return int(seed)


def _words(seed: int, count: int) -> jax.Array:
    return jax.device_put(np.array([seed & 0xFFFFFFFF, count], np.uint32))


def _step_key(stream: str) -> jax.Array | None:
    """A key of the pass under way or of ``key_scope``; ``None`` if there is neither."""
    ctx = forward_context.current()
    if ctx is not None and ctx.key is not None:
        return ctx.random_key(stream)
    if random_keys.in_key_scope():
        return forward_context.Context().random_key(stream)
    return None


def draw_key(seed: Any = None) -> jax.Array:
    """The PRNG key for one draw.

    Args:
        seed: ``None``, an integer, a :class:`SeedGenerator`, a key of JAX, or
            the words of one.
    """
    if isinstance(seed, SeedGenerator):
        return seed._next_key()
    if isinstance(seed, jax.Array):
        typed = jnp.issubdtype(seed.dtype, jax.dtypes.prng_key)
        if typed:
            return seed
        return key_of(seed) if seed.shape == (2,) else jax.random.wrap_key_data(seed)
    if seed is None:
        return (forward_context.current() or forward_context.Context()).random_key(
            "random"
        )
    seed = _check_seed(seed)
    key = _step_key(f"seed {seed}")
    return key_of(_words(seed, 0)) if key is None else key


class SeedOfLayer:
    """The attribute ``seed_generator`` of a layer, unless a subclass sets its own."""

    def __init__(self, draws: Callable[[Any], bool] = lambda layer: True):
        self.draws = draws

    def __get__(self, layer: Any, owner: type | None = None) -> Any:
        if layer is None:
            return self
        if layer not in _generators:
            seed = getattr(layer, "seed", None)
            with jax.ensure_compile_time_eval():
                _generators[layer] = SeedGenerator(
                    layer_seed() if seed is None else seed
                )
        return _generators[layer]


# Apart from the layers: their graph is part of what a program is compiled for.
_generators: weakref.WeakKeyDictionary[Any, SeedGenerator] = weakref.WeakKeyDictionary()


def iter_variables(root: Any) -> Iterator[tuple[str, Weight, bool]]:
    """``iter_weights``, and after each layer's own weights the states of its seeds."""
    return iter_weights(root, beside=_states)


def _states(module: Any) -> Iterator[tuple[str, Weight]]:
    generators = {
        name: v for name, v in vars(module).items() if isinstance(v, SeedGenerator)
    }
    seed = getattr(type(module), "seed_generator", None)
    if isinstance(seed, SeedOfLayer) and seed.draws(module):
        generators["seed_generator"] = module.seed_generator
    for name, generator in generators.items():
        yield f"{name}/{SEED_STATE}", generator.state
