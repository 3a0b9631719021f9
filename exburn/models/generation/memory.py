"""What a model remembers of the tokens so far: a cache, or the tokens themselves.

``begin`` reads the prompts and ``advance`` one more token of each row. Both return the
memory, whose arrays have the rows on their first axis, and the scores of what comes
next.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp

from exburn.compression.quantization.low_rank import RowAdapters
from exburn.layers.contract.key_value_cache import (
    KeyValueCache,
    PromptCache,
    SpanCache,
    StepCache,
)
from exburn.module.symbolic_tensor import Operation
from exburn.module.variable import Static
from exburn.training.module import SplitModule

if TYPE_CHECKING:
    from exburn.models.generation.plan import GenerationPlan


class Memory(Protocol):
    """How the scores of the next token come about."""

    def begin(
        self, groups: Any, ids: Any, lengths: Any, slots: int, watch: Any = None
    ) -> tuple:
        """The memory of the prompts, the scores after them, and a doubt.

        Args:
            ids: ``[batch, prompt]``, filled up behind each row.
            lengths: ``[batch]``: tokens of each prompt.
            slots: Tokens that a row may come to have, filling included.
            watch: A ``HeadWatch``, which then has the vectors of the prompts' tokens.

        Returns:
            The memory, scores ``[batch, vocabulary]``, and by how much scores differ
            that a causal model computes alike.
        """
        ...

    def advance(
        self,
        groups: Any,
        memory: Any,
        token: Any,
        step: Any,
        lengths: Any,
        prompt: int,
        watch: Any = None,
    ) -> tuple:
        """The memory with one more token of each row, and the scores after it.

        Args:
            token: ``[batch]``.
            step: Number of the token behind the prompt.
            lengths: ``[batch]``: tokens of each prompt.
            prompt: Size that prompts were filled up to.
            watch: A ``HeadWatch``, which then has the token's vector.
        """
        ...


class HeadWatch:
    """Notes the vectors that a model makes scores of, while it is traced.

    Args:
        node: The node of its graph that does so.

    Attributes:
        vectors: ``[batch, time, width]``, after a pass.
    """

    vectors: Any = None

    def __init__(self, node: int):
        self._node = node

    def put(self, copy: Any, counts: Any = None) -> None:
        """Has a copy of the model note them.

        Args:
            counts: The scores are then those after so many tokens of each row alone.
        """

        def wrap(layer: Any) -> Operation:
            head = layer if counts is None else _AtLast(layer, counts)
            return _Noting(head, self)

        _replace_node(copy, self._node, wrap)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RowWeights:
    """A model's arrays, and the adapter that each row is computed with.

    ``run_model`` takes it in the place of the arrays.
    """

    groups: Any
    adapters: RowAdapters

    def of_rows(self, rows: int) -> RowAdapters:
        """The adapters of so many rows, which stand for each row several times."""
        numbers = self.adapters.numbers
        times = rows // len(numbers)
        numbers = jnp.repeat(numbers, times) if times > 1 else numbers
        return dataclasses.replace(self.adapters, numbers=numbers)


def run_model(
    split: SplitModule,
    groups: Any,
    ids: Any,
    cache: KeyValueCache | None,
    prepare: Any = None,
    lengths: Any = None,
) -> Any:
    """The scores of a model, ``[batch, time, vocabulary]``.

    Args:
        groups: The model's arrays, or ``RowWeights``.
        lengths: ``[batch]``: tokens of the texts, or ``[batch, time]``: up to each of
            them; ``None`` if ``ids`` has no more.
    """
    adapters = None
    if isinstance(groups, RowWeights):
        adapters, groups = groups.of_rows(len(ids)), groups.groups
    key = jax.random.key(0)  # of layers that draw at inference
    running = split.running(groups, training=False, key=key, prepare=prepare)
    with running as (call, ctx):
        ctx.cache, ctx.text_lengths, ctx.adapters = cache, lengths, adapters
        return jax.tree.leaves(call((ids,), {}))[0]


def memory_for(plan: GenerationPlan) -> Memory:
    """What a model remembers by its plan."""
    if plan.why_not_cached is None:
        return CachedMemory(plan.split, plan.last, plan.few_bits)
    return TextMemory(plan.split, plan.length, plan.positions)


class CachedMemory:
    """Keys and values of attention; each step computes one token.

    Args:
        few_bits: Whether they are kept as int8.
    """

    def __init__(self, split: SplitModule, last: int | None, few_bits: bool = False):
        self._split, self._last, self._few_bits = split, last, few_bits

    def begin(self, groups, ids, lengths, slots, watch=None):
        cache = PromptCache(slots, self._few_bits)

        def prepare(copy: Any) -> None:
            if watch is not None:
                watch.put(copy, lengths)
            elif self._last is not None:
                last_only(copy, self._last, lengths)

        scores = run_model(self._split, groups, ids, cache, prepare, lengths)
        if scores.shape[1] > 1:  # a class may run its layers by itself
            scores = take_last(scores, lengths)
        return cache.entries, scores[:, 0], jnp.zeros(())

    def advance(self, groups, memory, token, step, lengths, prompt, watch=None):
        cache = StepCache(memory, lengths, prompt, prompt + step)
        prepare = None if watch is None else watch.put
        scores = run_model(self._split, groups, token[:, None], cache, prepare)
        return cache.entries, scores[:, 0]

    def extend(self, groups: Any, memory: Any, tokens: Any, starts: Any) -> tuple:
        """The memory with several tokens of each row, and the scores after each.

        Args:
            tokens: ``[batch, count]``.
            starts: ``[batch]``: the position of each row's first one; what the memory
                held from there on is given up.

        Returns:
            The memory, and scores ``[batch, count, vocabulary]``.
        """
        cache = SpanCache(memory, starts)
        lengths = cache.positions(tokens.shape[1]) + 1
        scores = run_model(self._split, groups, tokens, cache, lengths=lengths)
        return cache.entries, scores


class TextMemory:
    """The tokens; each step computes all of them again.

    Args:
        length: Number of tokens that it takes, the last ones of a row; ``None`` for
            all.
    """

    def __init__(self, split: SplitModule, length: int | None, positions: int | None):
        self._split, self._length, self._positions = split, length, positions

    def begin(self, groups, ids, lengths, slots, watch=None):
        size = max(slots, self._length or 0)
        size = size if self._positions is None else min(size, self._positions)
        text = ids[:, :size]  # what is cut off only fills prompts up
        text = jnp.pad(text, ((0, 0), (0, size - text.shape[1])))
        scores = self._scores(groups, text, lengths, watch)
        # What fills a row up comes after it: a causal model does not see it.
        behind = jnp.arange(text.shape[1])[None] >= lengths[:, None]
        other = self._scores(groups, jnp.where(behind, 1, text), lengths)
        size = jnp.abs(scores).max().astype(jnp.float32)
        return text, scores, jnp.abs(scores - other).max() / (size + 1e-6)

    def advance(self, groups, memory, token, step, lengths, prompt, watch=None):
        at = lengths + step
        here = jnp.arange(memory.shape[1])[None] == at[:, None]
        text = jnp.where(here, token[:, None], memory)
        scores = self._scores(groups, text, at + 1, watch)
        if watch is not None:
            watch.vectors = take_last(watch.vectors, at + 1)
        return text, scores

    def _scores(self, groups: Any, text: Any, counts: Any, watch: Any = None) -> Any:
        """Scores after the first ``counts`` tokens of each row."""
        if self._length is not None:
            start = jnp.maximum(counts - self._length, 0)
            places = start[:, None] + jnp.arange(self._length)[None]
            text = jnp.take_along_axis(text, places, axis=1)
            counts = counts - start
        prepare = None if watch is None else watch.put
        scores = run_model(self._split, groups, text, None, prepare, counts)
        return take_last(scores, counts)[:, 0]


def last_only(copy: Any, node: int, counts: Any) -> None:
    """Has a copy of a model compute the last position of each row alone, from a node.

    Args:
        counts: ``[batch]``: tokens of the rows.
    """
    _replace_node(copy, node, lambda layer: _AtLast(layer, counts))


def take_last(values: Any, counts: Any) -> Any:
    """The last of the first ``counts`` positions of each row, ``[batch, 1, …]``."""
    places = (counts - 1).reshape(-1, *(1,) * (values.ndim - 1))
    return jnp.take_along_axis(values, places, axis=1)


class _AtLast(Operation):
    """A layer that is called on the last position of each row."""

    def __init__(self, layer: Any, counts: Any):
        super().__init__()
        self._layer, self._counts = layer, counts

    def call(self, *args, **kwargs):
        def narrow(value: Any) -> Any:
            return take_last(value, self._counts) if hasattr(value, "shape") else value

        args, kwargs = jax.tree.map(narrow, (args, kwargs))
        return self._layer(*args, **kwargs)


class _Noting(Operation):
    """A layer whose input is noted."""

    def __init__(self, layer: Any, watch: HeadWatch):
        super().__init__()
        self._layer, self._watch = layer, watch

    def call(self, x, *args, **kwargs):
        self._watch.vectors = x
        return self._layer(x, *args, **kwargs)


def _replace_node(copy: Any, number: int, wrap: Callable[[Any], Operation]) -> None:
    """Has a copy of a functional model call something else at a node."""
    graph = copy.graph
    node = graph.nodes[number]
    layer = copy.nodes[node.target] if isinstance(node.target, str) else node.target
    nodes = list(graph.nodes)
    nodes[number] = dataclasses.replace(node, target=wrap(layer))
    vars(copy)["_graph"] = Static(dataclasses.replace(graph, nodes=tuple(nodes)))
