"""What a layer may know during a forward pass without being passed it."""

from __future__ import annotations

import contextvars
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
from jax.core import Tracer
from jax.sharding import PartitionSpec

from exburn.core.random_keys import outer_key, path_hash
from exburn.core.scoped import value_scope
from exburn.core.substitution import moment
from exburn.errors import LayoutError
from exburn.runtime.sharding.current import active
from exburn.runtime.sharding.layouts import fits

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
        text_lengths: ``[batch]``: tokens of the rows' texts, of which the pass may see
            more, that fill them up, or ``None`` where all that it sees is text.
        segments: The documents of packed rows: ``Segments``; else ``None``.
        adapters: The adapter that each row is computed with, whichever is active:
            ``RowAdapters``; else ``None``.
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
        self.text_lengths: Any = None
        self.segments: Any = None
        self.adapters: Any = None
        self.root: Any = None
        self.lookups: list[tuple[Any, int | None, str]] = []
        self.tables: Any = None
        self.parts: dict[str, Any] = {}
        self._draws: Counter[str] = Counter()
        self._masks: dict[int, tuple[Any, Any]] = {}
        self._sources: dict[int, tuple[Any, Any]] = {}
        self._filled: dict[int, tuple[Any, Any]] = {}
        self._heads: dict[int, tuple[Any, Any]] = {}

    def within(self) -> Context:
        """A context for a part of this pass that is traced by itself.

        It draws the same numbers as this one would have; paths, losses and masks are
        its own.
        """
        part = Context(training=self.training, key=self.key, row_mask=self.row_mask)
        part.asked, part.in_fit = self.asked, self.in_fit
        part.root, part.cache = self.root, self.cache
        part.text_lengths = self.text_lengths
        part.segments, part.adapters = self.segments, self.adapters
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
            return outer_key(path), None
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

    def head_of(self, scores: Any) -> Any:
        """The product that these scores are, a ``Head``; ``None`` if they are none."""
        entry = self._heads.get(id(scores))
        return entry[1] if entry is not None and entry[0] is scores else None

    def heads(self, outputs: Any) -> list[Any]:
        """The ``head_of`` each array of a tree, in the order of its leaves."""
        return [self.head_of(value) for value in jax.tree.leaves(outputs)]

    def set_head(self, scores: Any, head: Any) -> None:
        self._heads[id(scores)] = (scores, head)

    def follow_head(self, value: Any, before: Any, rows: Any) -> None:
        """Gives scores whose rows have another shape the head, of those rows."""
        if (head := self.head_of(before)) is not None:
            self.set_head(value, head._replace(x=rows))

    def follow(self, value: Any, before: Any) -> None:
        """Gives an array the mask and the padded logits of the one that it was.

        And the head.
        """
        if (head := self.head_of(before)) is not None:
            self.set_head(value, head)
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


def current() -> Context | None:
    """The context of the forward pass under way, or ``None``."""
    return _current.get()


def forward(context: Context) -> AbstractContextManager[Context]:
    """Runs the block as (part of) the forward pass of ``context``."""
    return value_scope(_current, context)
