"""What a model allows generation: found out once, by abstract passes."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.batch_independence import mixes_rows
from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, ExBurnError
from exburn.layers.contract.key_value_cache import CacheProbe
from exburn.models.generation.memory import run_model
from exburn.module.building import spec_like
from exburn.module.graph import Ref
from exburn.training.module import SplitModule

_OP = "generate"
_TOKENS = 6  # of the sequence that is traced


@dataclasses.dataclass(frozen=True)
class GenerationPlan:
    """What a model allows.

    Attributes:
        why_not_cached: Why every step sees all tokens again; ``None`` if it does not.
        length: The length of sequences that the model's input fixes, or ``None``.
        last: The node of the model's graph from which on the last position alone is
            needed, or ``None``.
        head: The node that makes scores of the tokens' vectors, or ``None``.
        turning_lengths: Lengths of texts beyond which all keys in a cache are wrong.
        adapters: Names of adapters that rows may have beside each other.
        vocabulary: Tokens that it scores.
        few_bits: Whether a cache keeps its keys and values as int8.
    """

    split: SplitModule
    why_not_cached: str | None
    positions: int | None
    length: int | None
    last: int | None
    head: int | None = None
    turning_lengths: tuple[int, ...] = ()
    adapters: set[tuple[str, ...]] = dataclasses.field(
        default_factory=set, compare=False
    )
    vocabulary: int = 0
    few_bits: bool = False

    def without_cache(self, reason: str) -> GenerationPlan:
        """The plan by which every step sees all tokens again."""
        return dataclasses.replace(self, why_not_cached=reason, last=None)

    def with_cache_dtype(self, dtype: Any, op: str = _OP) -> GenerationPlan:
        """The plan whose cache has a dtype: ``"int8"``, or the model's if ``None``.

        Args:
            op: Whose argument that is.

        Raises:
            ArgumentError: There is no such cache, or none at all.
        """
        if dtype is None:
            return self
        if not isinstance(dtype, str) or dtype != "int8":
            raise ArgumentError(
                op,
                'cache_dtype is "int8", or None for that of the model, received '
                f"{dtype!r}",
            )
        if self.why_not_cached is not None:
            raise ArgumentError(
                op, f"there is no cache for cache_dtype: {self.why_not_cached}"
            )
        return dataclasses.replace(self, few_bits=True)

    def turning_length(self, lengths: Sequence[int], new: int) -> int | None:
        """The length at which a row's keys in a cache become wrong, or ``None``.

        Args:
            lengths: Tokens of the prompts.
            new: Tokens that are written, of which no pass sees the last one.
        """
        for turn in self.turning_lengths:
            if any(length <= turn < length + new - 1 for length in lengths):
                return turn
        return None


def fixed_length(model: Any) -> int | None:
    """The length of sequences that a model's input fixes, or ``None``."""
    graph = model.graph
    if graph is None:
        return None
    if len(graph.inputs) != 1 or len(graph.inputs[0].shape) != 2:
        inputs = ", ".join(describe(spec) for spec in graph.inputs)
        raise ArgumentError(
            _OP,
            "the model must have one input of tokens, [batch, time]",
            {"inputs": inputs},
        )
    length = graph.inputs[0].shape[1]
    if getattr(model, "_learnt", False):  # that of the first data: others are taken
        return None
    return length if isinstance(length, int) else None


def make_plan(model: Any, split: SplitModule, outputs: Any) -> GenerationPlan:
    """What the model allows."""
    leaves = jax.tree.leaves(outputs)
    floats = len(leaves) == 1 and jnp.issubdtype(leaves[0].dtype, jnp.floating)
    if not floats or len(leaves[0].shape) != 3:
        raise ArgumentError(
            _OP,
            "the model must have one output of scores, [batch, time, vocabulary]",
            {"outputs": ", ".join(map(describe, leaves))},
            hint="The last layer may be Dense(vocabulary), for every position.",
        )
    words = leaves[0].shape[-1]
    if (length := fixed_length(model)) is not None:
        reason = f"its input has {length} steps, neither more nor fewer"
        return GenerationPlan(split, reason, None, length, None, vocabulary=words)
    reason, probe = _probe(split)
    last = None if reason is not None else _last_position(model, probe)
    head, turns = _head(model, probe), tuple(sorted(probe.turning_lengths))
    return GenerationPlan(
        split, reason, probe.limit, None, last, head, turns, vocabulary=words
    )


def _probe(split: SplitModule) -> tuple[str | None, CacheProbe]:
    """Why a cache does not do, or ``None``; and the probe that has seen the model.

    It does if nothing but attention leads from one position to another, and every such
    call keeps its keys and values; that is read off a trace.
    """
    groups = jax.tree.map(spec_like, split.peek())
    probes: list[CacheProbe] = []

    def forward(groups: Any, ids: Any, places: Any) -> Any:
        """The model on ``[time, 1]``, so that positions are what rows are elsewhere."""
        probes.append(CacheProbe(places.T))
        lengths = jnp.full(1, _TOKENS)  # of no account: told, not counted
        scores = run_model(split, groups, ids.T, probes[-1], lengths=lengths)
        return scores.swapaxes(0, 1)

    spec = jax.ShapeDtypeStruct((_TOKENS, 1), jnp.int32)
    try:
        jax.eval_shape(forward, groups, spec, spec)
    except ExBurnError as error:
        return error.reason, probes[-1]
    probe = probes[-1]
    if not probe.entries:
        return "it has no layer of attention that keeps keys and values", probe
    if mixes_rows(forward, spec, spec, beside=groups):
        return (
            "other layers than attention lead from one position to another, or compute "
            "with the number of a position",
            probe,
        )
    return None, probe


def _head(model: Any, probe: CacheProbe) -> int | None:
    """The node that makes scores of the tokens' vectors: the last one with weights."""
    graph = model.graph
    if graph is None:
        return None
    at = graph.outputs[0].node
    while at >= 0:
        node = graph.nodes[at]
        sources = [ref for ref in node.leaves if isinstance(ref, Ref)]
        if len(sources) != 1 or node.target in _caching(probe):
            return None
        before = sources[0].node
        weighted = isinstance(node.target, str) and model.nodes[node.target].weights
        if weighted:
            vectors = before >= 0 and graph.nodes[before].shapes[sources[0].index]
            return at if vectors and len(vectors) == 3 else None
        at = before
    return None


def _caching(probe: CacheProbe) -> set[str]:
    """The layers of the model that keep keys and values, or hold one that does."""
    return {name.partition("/")[0].partition(":")[0] for name in probe.entries}


def _last_position(model: Any, probe: CacheProbe) -> int | None:
    """The node from which on the last position alone is needed.

    The scores of all of a prompt's tokens would be the largest array there is.
    """
    graph = model.graph
    if graph is None:
        return None
    read = [leaf for node in graph.nodes for leaf in node.leaves]
    readers = Counter(
        ref.node for ref in [*read, *graph.outputs] if isinstance(ref, Ref)
    )
    caching = _caching(probe)
    position, at = None, graph.outputs[0].node
    while at >= 0 and readers[at] == 1 and graph.nodes[at].target not in caching:
        sources = [ref for ref in graph.nodes[at].leaves if isinstance(ref, Ref)]
        if len(sources) != 1:
            break
        position, at = at, sources[0].node
    return position
