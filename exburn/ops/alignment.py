"""Connectionist temporal classification: label sequences without an alignment."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from exburn.core.annotations import Tensor
from exburn.errors import ArgumentError, unknown_name
from exburn.ops.contract import op

__all__ = ["ctc_decode", "ctc_loss"]


@op
def ctc_loss(
    target: Tensor,
    output: Tensor,
    target_length: Tensor,
    output_length: Tensor,
    mask_index: int = 0,
) -> jax.Array:
    """Negative log-probability of label sequences, summed over all alignments.

    Args:
        target: Labels.
        output: Logits for each time step.
        target_length: How many labels of each sequence count.
        output_length: How many time steps of each sequence count.
        mask_index: The class that stands for "no label".

    Shape:
        target: [batch, labels]; output: [batch, time, classes];
        target_length, output_length: [batch] → [batch]

    Example:
        >>> logits = jnp.log(jnp.array([[[0.5, 0.5], [0.5, 0.5]]]))
        >>> round(float(jnp.exp(-ctc_loss([[1]], logits, [1], [2])[0])), 4)
        0.75

    Source: Graves et al., *Connectionist Temporal Classification*, 2006.
    """
    import optax  # at the first use: it takes long to import

    output = output.astype(jnp.promote_types(output.dtype, jnp.float32))

    def padding(lengths, size):
        return (jnp.arange(size) >= lengths[:, None]).astype(output.dtype)

    return optax.ctc_loss(
        output,
        padding(output_length, output.shape[1]),
        target.astype(jnp.int32),
        padding(target_length, target.shape[1]),
        blank_id=mask_index,
    )


@op
def ctc_decode(
    inputs: Tensor,
    sequence_lengths: Tensor,
    strategy: str = "greedy",
    beam_width: int = 100,
    top_paths: int = 1,
    merge_repeated: bool = True,
    mask_index: int = 0,
) -> tuple[jax.Array, jax.Array]:
    """The most probable label sequences.

    Args:
        inputs: Logits for each time step.
        sequence_lengths: How many time steps of each sequence count.
        strategy: ``"greedy"`` (the best class of each step) or ``"beam_search"``.
        beam_width: Sequences that the beam search keeps.
        top_paths: Sequences that it returns.
        merge_repeated: Whether the greedy strategy merges equal neighbours.
        mask_index: The class that stands for "no label".

    Returns:
        The labels, filled up with -1, and a score: the negative sum of the greedy
        logits, or the log-probability of the beam search.

    Shape:
        inputs: [batch, time, classes]; sequence_lengths: [batch]
        → [top_paths, batch, time] and [batch, top_paths]

    Raises:
        UnknownNameError: Another strategy.
        ArgumentError: ``top_paths`` exceeds ``beam_width``.

    Example:
        >>> logits = jnp.log(jnp.array([[[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]]))
        >>> ctc_decode(logits, [3])[0].tolist()
        [[[1, 1, -1]]]

    Source: Graves et al., *Connectionist Temporal Classification*, 2006.
    """
    inputs = inputs.astype(jnp.promote_types(inputs.dtype, jnp.float32))
    counts = jnp.arange(inputs.shape[1]) < sequence_lengths[:, None]
    if strategy == "greedy":
        return _greedy(inputs, counts, merge_repeated, mask_index)
    if strategy != "beam_search":
        raise unknown_name(
            "strategy", strategy, ["greedy", "beam_search"], op="ctc_decode"
        )
    if top_paths > beam_width:
        raise ArgumentError(
            "ctc_decode",
            "top_paths must not exceed beam_width",
            {"top_paths": top_paths, "beam_width": beam_width},
        )
    log = jax.nn.log_softmax(inputs)
    paths, scores = jax.vmap(_search, (0, 0, None, None, None))(
        log, counts, beam_width, top_paths, mask_index
    )
    return paths.swapaxes(0, 1), scores


def _greedy(inputs, counts, merge_repeated, blank):
    labels = jnp.where(counts, inputs.argmax(-1), blank)
    scores = -jnp.where(counts, inputs.max(-1), 0).sum(1, keepdims=True)
    keep = labels != blank
    if merge_repeated:
        keep &= jnp.pad(
            labels[:, 1:] != labels[:, :-1], ((0, 0), (1, 0)), constant_values=True
        )
    order = jnp.argsort(~keep, axis=-1, stable=True)
    labels = jnp.take_along_axis(jnp.where(keep, labels, -1), order, -1)
    return labels[None], scores


def _search(log, counts, width: int, top: int, blank: int):
    """Prefix beam search over one sequence ``[time, classes]``.

    Of every prefix it keeps the log-probabilities of ending in a blank and in a label.
    """
    time, classes = log.shape
    never = -jnp.inf
    paths = jnp.full((width, time), -1)
    lengths = jnp.zeros(width, int)
    in_blank = jnp.full(width, never, log.dtype).at[0].set(0)
    in_label = jnp.full(width, never, log.dtype)

    def step(beam, now):
        paths, lengths, in_blank, in_label = beam
        log, counts = now
        total = jnp.logaddexp(in_blank, in_label)
        last = jnp.where(
            lengths > 0, paths[jnp.arange(width), jnp.maximum(lengths - 1, 0)], -1
        )
        is_last = jax.nn.one_hot(last, classes, dtype=bool)  # [width, classes]
        stay_blank = total + log[blank]
        stay_label = jnp.where(lengths > 0, in_label + log[last], never)
        # After a label, the same label is a new one only if a blank lies between.
        extend = jnp.where(is_last, in_blank[:, None], total[:, None]) + log
        extend = extend.at[:, blank].set(never)
        # A prefix that an extension reaches may be in the beam already: add it there.
        parents = paths.at[jnp.arange(width), lengths - 1].set(-1)
        child = (paths[:, None] == parents[None]).all(-1) & (lengths > 0)  # [i, j]
        reached = jnp.where(child, extend[:, last], never)
        stay_label = jnp.logaddexp(stay_label, jax.nn.logsumexp(reached, axis=0))
        merged = (child[:, :, None] & is_last[None]).any(1)
        extend = jnp.where(merged, never, extend)

        scores = jnp.concatenate(
            [jnp.logaddexp(stay_blank, stay_label), extend.reshape(-1)]
        )
        best, chosen = jax.lax.top_k(scores, width)
        grown = chosen >= width
        source = jnp.where(grown, (chosen - width) // classes, chosen)
        label = (chosen - width) % classes
        new = paths[source]
        at = jnp.minimum(lengths[source], time - 1)
        written = new.at[jnp.arange(width), at].set(label)
        new = jnp.where(grown[:, None], written, new)
        alive = best > never
        after = (
            jnp.where(alive[:, None], new, -1),
            jnp.where(alive, lengths[source] + grown, 0),
            jnp.where(grown, never, stay_blank[source]),
            jnp.where(grown, best, stay_label[source]),
        )
        return jax.tree.map(lambda a, b: jnp.where(counts, a, b), after, beam), None

    (paths, _, in_blank, in_label), _ = jax.lax.scan(
        step, (paths, lengths, in_blank, in_label), (log, counts)
    )
    scores, chosen = jax.lax.top_k(jnp.logaddexp(in_blank, in_label), top)
    return paths[chosen], scores
