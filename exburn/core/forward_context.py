"""What a layer may know during a forward pass without being passed it."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import PartitionSpec

from exburn.core.checks import check_integer
from exburn.core.scoped import value_scope
from exburn.core.substitution import moment
from exburn.errors import ArgumentError, LayoutError
from exburn.errors.boundary import api_boundary
from exburn.runtime.sharding.current import active
from exburn.runtime.sharding.joining import shared_seed
from exburn.runtime.sharding.layouts import fits

#: The name of the variable that a ``SeedGenerator`` has.
SEED_STATE = "seed_generator_state"
_MASK = "_keras_mask"  # the name of Keras' attribute


def carried_mask(value: Any) -> Any:
    """The mask that an array brought from the pass that returned it, or ``None``."""
    return None if isinstance(value, Tracer) else getattr(value, _MASK, None)


class Context:
    """State of one forward pass.

    Attributes:
        training: Whether layers such as dropout are active.
        asked: Whether someone said so: a caller, or a default in the signature of a
            ``call``; not at first in an eager call without ``training=``.
        in_fit: Whether it belongs to a step of ``fit`` that no user wrote: its gradient
            is taken backward, not forward.
        key: PRNG key of this pass, or ``None`` outside of a compiled program.
        row_mask: ``[batch]`` of booleans, false for rows that are only padding.
        paths: ``id(module) -> path`` for the modules of the pass.
        running: The layer whose ``call`` is under way, the innermost one.
        scope: The substitution under which it runs, of a pass through a program's copy.
        began_at: When it began, or the pass that it is a part of: ``moment``.
        losses: Scalars that layers added with ``add_loss``.
        builds: While shapes are being discovered: ``(path, shapes)`` of each layer that
            was met unbuilt; ``None`` in an ordinary pass.
        root: The module that the pass runs through, holding the arrays of this pass.
        lookups: ``(indices, rows, layer)`` of every table that was looked into, and
            ``(values, None, input)`` of every input that is cast to integers.
        tables: What looks into the tables of the pass, if their gradients are summed
            at once: ``rows(table, indices)``; else ``None``.
        parts: The losses that a model's ``compute_loss`` added up, if several, by name.
        interceptors: What surrounds the call of every layer, the outermost first: see
            ``Interceptor``.
        cache: Where a pass that generates text finds the keys and values of attention,
            and the positions of its tokens: a ``KeyValueCache``; else ``None``.
    """

    def __init__(self, *, training=False, key=None, row_mask=None, discovering=False):
        self.training = training
        self.asked, self.in_fit = True, False
        self.key = key
        self.row_mask = row_mask
        self.paths: dict[int, str] = {}
        self.running: Any = None
        self.scope: Any = None
        self.began_at = moment()
        self.losses: list[Any] = []
        self.builds: list[tuple[int, tuple]] | None = [] if discovering else None
        self.interceptors: tuple[Interceptor, ...] = ()
        distribution = active()
        if distribution is not None and distribution.rules:
            self.interceptors = (ResultLayouts(distribution),)
        self.cache: Any = None
        self.root: Any = None
        self.lookups: list[tuple[Any, int | None, str]] = []
        self.tables: Any = None
        self.parts: dict[str, Any] = {}
        self._draws: Counter[str] = Counter()
        self._masks: dict[int, tuple[Any, Any]] = {}
        self._sources: dict[int, tuple[Any, Any]] = {}
        self._filled: dict[int, tuple[Any, Any]] = {}

    def within(self) -> Context:
        """A context for a part of this pass that is traced by itself.

        It draws the same numbers as this one would have; paths, losses and masks are
        its own.
        """
        part = Context(training=self.training, key=self.key, row_mask=self.row_mask)
        part.asked, part.in_fit = self.asked, self.in_fit
        part.root, part.cache = self.root, self.cache
        part.interceptors = tuple(i for i in self.interceptors if not i.keeps_arrays)
        part.running, part.began_at = self.running, self.began_at
        part._draws = self._draws
        return part

    def path_of(self, layer: Any) -> str:
        """The path of a layer of the pass; of another layer its name."""
        path = self.paths.get(id(layer))
        return layer.name if path is None else path

    @property
    def drew(self) -> bool:
        """Whether a key was asked for."""
        return bool(self._draws)

    def random_key(self, path: str) -> jax.Array:
        """A key: a function of the pass's key, the path, and the draw's number."""
        key, number = self.draw(path)
        return key if number is None else jax.random.fold_in(key, number)

    def draw(self, path: str) -> tuple[jax.Array, int | None]:
        """The key that the next draw there shares with others, and the draw's number.

        Without a number it shares it with none.
        """
        draw = self._draws[path]
        self._draws[path] += 1
        if self.key is None:
            return _outer_key(path), None
        return self.key, path_hash(path, draw)

    def mask_of(self, value: Any) -> Any:
        """The mask attached to an array, in this pass or by ``carry``, or ``None``."""
        entry = self._masks.get(id(value))
        if entry is not None and entry[0] is value:
            return entry[1]
        return carried_mask(value)

    def set_mask(self, value: Any, mask: Any) -> None:
        self._masks[id(value)] = (value, mask)

    def carry(self, outputs: Any) -> None:
        """Hangs masks on the arrays that the pass returns, for the next one, as Keras.

        JAX's arrays take attributes, those that it traces do not.
        """
        for value in jax.tree.leaves(outputs):
            mask = self.mask_of(value)
            traced = isinstance(value, Tracer) or isinstance(mask, Tracer)
            if mask is not None and not traced:
                setattr(value, _MASK, mask)

    def padded_logits(self, scores: Any) -> Any:
        """The array that scores were cut and cast from.

        Its rows lie on whole tiles, with spare classes after theirs. ``None`` if there
        is no such array.
        """
        entry = self._filled.get(id(scores))
        return entry[1] if entry is not None and entry[0] is scores else None

    def set_padded_logits(self, scores: Any, filled: Any) -> None:
        self._filled[id(scores)] = (scores, filled)

    def follow(self, value: Any, before: Any) -> None:
        """Gives an array the mask and the padded logits of the one that it was."""
        if (mask := self.mask_of(before)) is not None:
            self.set_mask(value, mask)
        if (filled := self.padded_logits(before)) is not None:
            self.set_padded_logits(value, filled)

    def attachments(self, outputs: Any) -> tuple[list[Any], list[Any]]:
        """For each array of a tree its ``padded_logits`` and its mask.

        Both are lists in the order of the leaves, ``None`` where there is nothing.
        """
        leaves = jax.tree.leaves(outputs)
        return [self.padded_logits(v) for v in leaves], [
            self.mask_of(v) for v in leaves
        ]

    def attach(self, outputs: Any, masks: Sequence[Any]) -> None:
        """Attaches masks to the arrays of a tree, in the order of its leaves."""
        for value, mask in zip(jax.tree.leaves(outputs), masks, strict=True):
            if mask is not None:
                self.set_mask(value, mask)

    def source_of(self, value: Any) -> Any:
        """The array that this one was cast from, or the value itself."""
        entry = self._sources.get(id(value))
        return entry[1] if entry is not None and entry[0] is value else value

    def set_source(self, value: Any, source: Any) -> None:
        """Notes that ``value`` is ``source`` in another dtype."""
        self._sources[id(value)] = (value, self.source_of(source))


class Interceptor:
    """Surrounds the calls of layers, to look at them or to compute them otherwise.

    Subclass it and write ``__call__(layer, call, args, kwargs)``, which returns the
    outputs: ``call(*args, **kwargs)`` is the call as the interceptors further inside,
    and the layer, compute it. Those of a pass surround the calls of all its layers
    (``Context.interceptors``), inside of which are those of a layer itself: functions
    that get its outputs, the dtype of its outputs, ranges, rematerialization.

    Attributes:
        keeps_arrays: Whether it keeps what layers get or return. A part of a pass that
            is traced by itself, whose arrays must not leave it, does without it.

    Example:
        >>> from exburn.layers import Dense
        >>> class Names(Interceptor):
        ...     def __call__(self, layer, call, args, kwargs):
        ...         print(layer.name)
        ...         return call(*args, **kwargs)
        >>> with forward(Context()) as ctx:
        ...     ctx.interceptors = (Names(),)
        ...     outputs = Dense(2, name="hidden")(jax.numpy.ones((1, 3)))
        hidden

    Source: the method interceptors of flax linen, ``nn.intercept_methods``.
    """

    keeps_arrays = False

    def __call__(
        self, layer: Any, call: Callable, args: tuple, kwargs: dict[str, Any]
    ) -> Any:
        raise NotImplementedError


def intercept(
    chain: Sequence[Callable], layer: Any, args: tuple, kwargs: dict[str, Any]
) -> Any:
    """The outputs of ``layer.call`` within interceptors, the outermost first."""
    call = layer.call
    for one in reversed(chain):
        call = functools.partial(_inside, one, layer, call)
    return call(*args, **kwargs)


def _inside(interceptor: Callable, layer: Any, call: Callable, *args, **kwargs) -> Any:
    return interceptor(layer, call, args, kwargs)


class ResultLayouts(Interceptor):
    """Tells XLA where on a mesh the outputs of layers are to lie.

    The rule of a layer is that for ``<path>/output``. Rows that cannot be divided
    evenly are whole on every device.

    Args:
        distribution: The distribution in force, which has the rules.

    Raises:
        LayoutError: The rule does not fit an output.
    """

    def __init__(self, distribution: Any):
        self.distribution = distribution

    def __call__(
        self, layer: Any, call: Callable, args: tuple, kwargs: dict[str, Any]
    ) -> Any:
        outputs, ctx = call(*args, **kwargs), current()
        assert ctx is not None
        path = ctx.path_of(layer)
        layout = self.distribution.get_tensor_layout(f"{path}/output")
        if layout is None:
            return outputs
        mesh, (first, *rest) = layout.device_mesh, layout.axes or (None,)

        def place(value: Any) -> Any:
            if not isinstance(value, Tracer):  # operation by operation: as weights lie
                return value
            sharding = layout.backend_layout
            if value.ndim and value.shape[0] % mesh.size(first):
                sharding = self.distribution.sharding(PartitionSpec(None, *rest))
            if not fits(sharding, value.shape):
                raise LayoutError(
                    "LayoutMap",
                    f"the layout {layout.axes} does not fit what {path!r} returns",
                    {"shape": value.shape, "mesh": mesh},
                )
            placed = jax.lax.with_sharding_constraint(value, sharding)
            ctx.follow(placed, value)
            return placed

        return jax.tree.map(place, outputs)


_current: contextvars.ContextVar[Context | None] = contextvars.ContextVar(
    "exburn_context", default=None
)
_key_scope: contextvars.ContextVar[list | None] = contextvars.ContextVar(
    "exburn_key", default=None
)


def current() -> Context | None:
    """The context of the forward pass under way, or ``None``."""
    return _current.get()


def forward(context: Context) -> AbstractContextManager[Context]:
    """Runs the block as (part of) the forward pass of ``context``."""
    return value_scope(_current, context)


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


def _outer_key(path: str) -> jax.Array:
    """A key for a call outside of ExBurn's own programs.

    Args:
        path: Who draws, for errors.
    """
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
