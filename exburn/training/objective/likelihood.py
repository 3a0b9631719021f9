"""Log-probabilities of tokens, and the losses that are made of them.

A pass gives the scores, of which the head's product is read chunk by chunk where it is
large. The reference is a second pass of the same program, without adapters and without
a gradient: the weights beside adapters are frozen, so no copy of them is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.checks import is_known
from exburn.core.forward_context import Context
from exburn.data import is_packed
from exburn.errors import ArgumentError, ShapeError
from exburn.losses.contract.likelihood import (
    LikelihoodLoss,
    LikelihoodResult,
    TokenLikelihoods,
    has_next,
    packed_only,
)
from exburn.losses.contract.probabilities import label_log_likelihood
from exburn.losses.residual import Residual
from exburn.module.traversal import iter_modules
from exburn.runtime.kernels.head_loss import Head, fits, head_log_probabilities
from exburn.training.module import SplitModule


def token_log_probabilities(
    ctx: Context,
    scores: jax.Array,
    tokens: jax.Array,
    counted: Any = None,
    temperature: Any = 1.0,
    entropy: bool = False,
) -> tuple[jax.Array, jax.Array | None]:
    """The log-probability of the next token at each place, ``[rows, length]``.

    Args:
        ctx: The pass that made the scores.
        scores: Its output, ``[rows, length, vocabulary]``.
        tokens: ``[rows, length]``: the next tokens.
        counted: ``[rows, length]`` booleans: others give 0, and need not be computed.
        temperature: The scores are divided by it.
        entropy: Whether the entropy at each place is asked for, too.

    Returns:
        Both; ``None`` for what is not asked for.
    """
    head = ctx.head_of(scores)
    if head is not None and fits(head):
        head = _divide(head, temperature)
        return head_log_probabilities(head, tokens, counted, entropy)
    if not is_known(temperature, 1):
        scores = scores / temperature
    results = label_log_likelihood(tokens, scores, True, -1), None
    if entropy:
        likely = jax.nn.log_softmax(jax.lax.stop_gradient(scores).astype(jnp.float32))
        results = results[0], -jnp.sum(jnp.exp(likely) * likely, axis=-1)
    if counted is None:
        return results
    return jax.tree.map(lambda v: jnp.where(counted, v, 0), results)


def _divide(head: Head, temperature: Any) -> Head:
    """The head whose scores are those of another one, divided by a number."""
    if is_known(temperature, 1):
        return head

    def divide(value: Any) -> Any:
        return value if value is None else value / temperature

    x = divide(head.x).astype(head.x.dtype)
    return head._replace(x=x, bias=divide(head.bias), soft_cap=divide(head.soft_cap))


def reference_log_probabilities(
    split: SplitModule,
    groups: Any,
    x: Any,
    tokens: jax.Array,
    counted: Any = None,
    key: Any = None,
) -> jax.Array:
    """`token_log_probabilities` of a pass without adapters, which has no gradient.

    Args:
        groups: Trained, frozen and other arrays of the split module.
        x: Packed rows.
        key: Of layers that draw at inference.
    """
    groups = jax.lax.stop_gradient(groups)
    options = {"training": False, "key": key, "prepare": _rest_adapters}
    with split.running(groups, **options) as (call, ctx):
        outputs = split.call_on(x, call, groups, ctx)((x,), {})
        likely, _ = token_log_probabilities(ctx, one_output(outputs), tokens, counted)
    return jax.lax.stop_gradient(likely)


def _rest_adapters(module: Any) -> None:
    """Lets every adapter of a copy of a model rest."""
    for _, layer in iter_modules(module):
        if getattr(layer, "_low_rank", None) is not None:
            layer._low_rank = None


def one_output(outputs: Any) -> jax.Array:
    """The scores of a model's one output.

    Raises:
        ShapeError: There are several outputs, or none of scores for each token.
    """
    leaves = jax.tree.leaves(outputs)
    if len(leaves) != 1 or leaves[0].ndim != 3:
        raise ShapeError(
            "fit",
            "a loss of log-probabilities needs one output of scores, "
            "[rows, length, vocabulary]",
            {"outputs": ", ".join(str(leaf.shape) for leaf in leaves)},
        )
    return leaves[0]


def likelihood_loss(losses: Any) -> LikelihoodLoss | None:
    """The loss of log-probabilities that a model is compiled with, if it is one."""
    return losses if isinstance(losses, LikelihoodLoss) else None


def check_alone(losses: Any) -> Any:
    """The losses that ``compile`` was given, unless one that must be alone is not.

    Raises:
        ArgumentError: It is.
    """
    several = isinstance(losses, Mapping | list)
    for one in jax.tree.leaves(losses) if several else ():
        if isinstance(one, LikelihoodLoss | Residual):
            raise ArgumentError(
                "compile", f"{type(one).__name__} is the only loss of a model"
            )
    return losses


def rows_of(loss: LikelihoodLoss, batch: tuple, row_mask: Any) -> TokenLikelihoods:
    """A batch as its loss sees it, but for the log-probabilities.

    Raises:
        ArgumentError: The batch has no packed rows.
    """
    x, y, w = batch
    if not isinstance(y, Mapping):
        raise packed_only(loss)
    counted = (w != 0).astype(jnp.float32)
    segments = x.segments if is_packed(x) else jnp.ones(x.shape, jnp.int32)
    if row_mask is not None:
        segments = jnp.where(row_mask[:, None], segments, 0)
        counted = jnp.where(row_mask[:, None], counted, 0)
    columns = {name: value for name, value in y.items() if name != "tokens"}
    reference = columns.get("reference")
    return TokenLikelihoods(counted, reference, segments, counted, columns)


def asked_tokens(loss: LikelihoodLoss, rows: TokenLikelihoods) -> jax.Array:
    """The places whose log-probabilities a loss reads, ``[rows, length]``."""
    if not loss.reads_prompts:
        return rows.counted > 0
    return has_next(rows.segments)


def reference_of_batch(
    steps: Any, groups: Any, batch: tuple, row_mask: Any, key: Any
) -> jax.Array | None:
    """What the model without adapters says of a batch, if the loss of steps reads that.

    ``None`` where the batch has the numbers of a reference already.
    """
    loss, split = likelihood_loss(steps.objective.losses), steps.split
    if loss is None or not loss.reads_reference:
        return None
    rows = rows_of(loss, batch, row_mask)
    if rows.reference is not None:
        return None
    check_adapted(loss, split.module)
    asked = asked_tokens(loss, rows)
    tokens = batch[1]["tokens"]
    return reference_log_probabilities(split, groups, batch[0], tokens, asked, key)


def loss_of_tokens(
    objective: Any,
    batch: tuple,
    outputs: Any,
    ctx: Context,
    row_mask: Any,
    reference: Any,
) -> tuple[jax.Array, dict[str, Any], LikelihoodResult]:
    """The loss of a batch by the log-probabilities of a pass.

    Returns:
        The loss with its weight among losses, the losses by name, and what is told.
    """
    loss, (term,) = likelihood_loss(objective.losses), objective.terms
    assert loss is not None
    rows = rows_of(loss, batch, row_mask)
    if reference is not None:
        rows = rows._replace(reference=reference)
    asked, scores = asked_tokens(loss, rows), one_output(outputs)
    likely, entropy = token_log_probabilities(
        ctx, scores, batch[1]["tokens"], asked, loss.temperature, loss.reads_entropy
    )
    result = loss.of_tokens(rows._replace(likely=likely, entropy=entropy))
    total = jnp.zeros((), jnp.float32) + objective._scales[term.place] * result.loss
    return total, {term.name: result.loss}, result


def check_adapted(loss: LikelihoodLoss, module: Any) -> None:
    """Raises unless a module has adapters, without which it is the reference.

    Raises:
        ArgumentError: It has none.
    """
    if any(getattr(part, "_low_rank", None) for _, part in iter_modules(module)):
        return
    raise ArgumentError(
        type(loss).__name__,
        "the reference is the model without its adapter, and no adapter is active",
        hint="model.add_lora(rank=16), or the model that is the reference: "
        "model.fit(pairs, reference=model)",
    )
