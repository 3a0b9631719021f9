"""Forward passes on rows of several documents.

The tokens go to the network, what tells the documents apart into the forward context:
see `layers/contract/segments.py`. Layers that would mix documents are refused by name
(`padding_rules`); code that is not ours is tried.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core import forward_context
from exburn.core.forward_context import Context, Interceptor
from exburn.data import PackedTokens, has_packed, is_packed
from exburn.data.packed import check_packed
from exburn.errors import ShapeError
from exburn.layers.contract.segments import Segments
from exburn.module.building import spec_like
from exburn.training.batch_mixing import holds_foreign_parts
from exburn.training.padding_rules import ATTENTION, check_packed_layer

_TOLERANCE = 1e-3  # of the largest output: XLA sums in another order


class PackedRows(Interceptor):
    """Refuses layers that would mix the documents of a row."""

    def __init__(self) -> None:
        self._inside: list[Any] = []

    def __call__(self, layer: Any, call: Any, args: tuple, kwargs: dict) -> Any:
        ctx = forward_context.current()
        assert ctx is not None
        leaves = jax.tree.leaves(args)
        ndim = leaves[0].ndim if leaves else 0
        if not any(isinstance(one, ATTENTION) for one in self._inside):
            check_packed_layer(layer, ctx.path_of(layer), ndim)
        self._inside.append(layer)
        try:
            outputs = call(*args, **kwargs)
        finally:
            self._inside.pop()
        return outputs


def enter(x: Any, ctx: Context) -> Any:
    """The tokens of packed rows, whose documents a pass that begins is told of.

    Other inputs stay as they are.

    Raises:
        ShapeError: There are further inputs.
        ArgumentError: Tokens and segments do not fit each other.
    """
    if not is_packed(x):
        if has_packed(x):
            raise ShapeError(
                "PackedTokens",
                "packed rows are the only input of a model, received further ones",
            )
        return x
    check_packed("PackedTokens", x)
    ctx.segments = Segments(x.segments)
    ctx.interceptors = (*ctx.interceptors, PackedRows())
    return x.tokens


def check_packed_model(preparer: Any, x: PackedTokens, op: str) -> None:
    """Raises if code that is not ours would mix the documents of a row.

    Two documents are tried after each other, in either order, and each beside another
    one: what a document's outputs are must not depend on that.

    Args:
        x: A batch.

    Raises:
        ShapeError: The code mixes them, or the model has no output for each token.
    """
    split, (rows, length) = preparer.holder.split, x.shape
    tried = "tried packed rows", rows, length
    if tried in preparer.programs.joins:
        return
    # By their shapes: a pass refers to what it is given until cycles are collected, and
    # training copies the arrays that anything else refers to.
    groups = jax.tree.map(spec_like, split.peek())
    specs = jax.eval_shape(lambda groups: _forward(split, groups, x), groups)
    if any(leaf.shape[:2] != (rows, length) for leaf in jax.tree.leaves(specs)):
        raise ShapeError(
            op,
            "packed rows need an output for each token, [rows, length, …]",
            {"outputs": ", ".join(str(v.shape) for v in jax.tree.leaves(specs))},
        )
    if holds_foreign_parts(split.module):
        _try_documents(split, x, op)
    preparer.programs.joins[tried] = True


def _try_documents(split: Any, x: PackedTokens, op: str) -> None:
    """Raises if documents have other outputs beside others than alone."""
    trial, first, second = _trial_rows(x)
    with jax.numpy_dtype_promotion("standard"):
        outputs = jax.jit(lambda groups, x: _forward(split, groups, x))(
            split.read(), trial
        )
    for leaf in map(np.asarray, jax.tree.leaves(outputs)):
        ours = [leaf[0, :first], leaf[1, second : second + first], leaf[2, :first]]
        theirs = [leaf[0, first : first + second], leaf[1, :second]]
        if not all(_close(ours[0], v) for v in ours) or not _close(*theirs):
            raise ShapeError(
                op,
                "the model gives documents of packed rows other outputs than alone",
                {"tried": "two documents after each other, in either order"},
                hint="Code of your own sees a row's tokens, not documents: positions "
                "come from RotaryEmbedding or PositionEmbedding, and only "
                "MultiHeadAttention and GroupedQueryAttention lead from token to "
                "token.",
            )


def _forward(split: Any, groups: Any, x: Any) -> Any:
    return split.forward(groups, x, training=False, key=jax.random.key(0))[0]


def _trial_rows(x: PackedTokens) -> tuple[PackedTokens, int, int]:
    """Rows of two documents, and the lengths of these."""
    rows, length = x.shape
    first, second = max(length // 3, 1), max(length // 4, 1)
    row = np.asarray(x.tokens)[0]
    one, two = row[:first], row[first : first + second]
    tokens = np.zeros((max(rows, 3), length), row.dtype)
    segments = np.zeros(tokens.shape, np.int32)
    for at, parts in enumerate([(one, two), (two, one), (one, one[::-1][:second])]):
        joined = np.concatenate(parts)[:length]
        tokens[at, : len(joined)] = joined
        segments[at, : len(parts[0])] = 1
        segments[at, len(parts[0]) : len(joined)] = 2
    return PackedTokens(jnp.asarray(tokens), jnp.asarray(segments)), first, second


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    scale = np.abs(a).max(initial=1e-6)
    return a.shape == b.shape and bool(
        np.allclose(a, b, rtol=_TOLERANCE, atol=_TOLERANCE * scale, equal_nan=True)
    )
