"""Pairs of answers and their reference, for ``fit`` and ``evaluate``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from exburn.data import PackedTokens
from exburn.errors import ArgumentError
from exburn.losses.contract.likelihood import LikelihoodLoss
from exburn.models.network import Network
from exburn.models.preparing import on_device
from exburn.module.traversal import iter_weights
from exburn.text.packing import PackedDocuments
from exburn.text.pairs import PackedPairs
from exburn.training.module import SplitModule
from exburn.training.objective.likelihood import (
    check_adapted,
    one_output,
    token_log_probabilities,
)

_SHOWN = 3  # weights that an error names


def check_pairs(
    op: str, loss: LikelihoodLoss | None, documents: PackedDocuments
) -> None:
    """Raises unless packed documents are what the loss learns from.

    Raises:
        ArgumentError: They are pairs and it is no loss of such, or the other way round.
    """
    paired = isinstance(documents, PackedPairs)
    labelled = isinstance(documents, PackedPairs) and documents.labelled
    if loss is None and not paired:
        return
    if loss is not None and paired and labelled == loss.labelled:
        return
    wants = "documents"
    if loss is not None:
        single = "single answers with labels, of pack_pairs(…, labelled=True)"
        wants = single if loss.labelled else "pairs, of pack_pairs(…)"
    name = "the loss" if loss is None else type(loss).__name__
    raise ArgumentError(
        op,
        f"{name} learns from {wants}, received {documents}",
        hint="Pairs are learnt by loss=losses.DPO(), single answers by losses.KTO().",
    )


def check_reference(
    op: str, model: Network, loss: LikelihoodLoss | None, reference: Any
) -> None:
    """Raises unless there is a reference for a loss that needs one, and else none.

    Raises:
        ArgumentError: There is none, or nothing reads it; or what is trained is not
            only an adapter, without which the model would be the reference.
    """
    if reference is not None:
        if loss is None or not loss.reads_reference:
            name = "no loss" if loss is None else type(loss).__name__
            raise ArgumentError(
                op,
                f"reference is read by losses.DPO, IPO and KTO, and the model has "
                f"{name} of these",
            )
        if not isinstance(reference, Network):
            kind = type(reference).__name__
            raise ArgumentError(op, f"reference is a model, received {kind}")
        return
    if loss is None or not loss.reads_reference:
        return
    check_adapted(loss, model)
    others = [
        path
        for path, weight, learns in iter_weights(model)
        if learns and not weight.get_metadata().get("lora")
    ]
    if others:
        raise ArgumentError(
            op,
            f"{type(loss).__name__} takes the model without its adapter for the "
            "reference, and weights beside the adapter are trained, too",
            {"weights": ", ".join(others[:_SHOWN])},
            hint=f"model.{op}(pairs, reference=model) keeps what it says now.",
        )


def token_scorer(
    model: Network, op: str
) -> Callable[[PackedTokens, np.ndarray], np.ndarray]:
    """A function of packed rows and their next tokens: their log-probabilities."""
    run = model._training_session
    preparer, holder = run.preparer, run.holder
    holder.check_free(op)
    holder.follow_distribution(run.distribution_in_force)

    def score(x: PackedTokens, tokens: np.ndarray) -> np.ndarray:
        with on_device(model):
            with holder.placement.scope():
                preparer.prepare((x, None, None), kind="predict", op=op)
                holder.place_weights()
            make = functools.partial(_make_score, holder.split)
            program = preparer.programs.further("score_packed_tokens", make)
            return np.asarray(jax.device_get(program(holder.split.read(), x, tokens)))

    return score


def _make_score(split: SplitModule) -> Callable:
    def score(groups: Any, x: PackedTokens, tokens: Any) -> jax.Array:
        key = jax.random.key(0)  # of layers that draw at inference
        with split.running(groups, training=False, key=key) as (call, ctx):
            outputs = split.call_on(x, call, groups, ctx)((x,), {})
            return token_log_probabilities(ctx, one_output(outputs), tokens)[0]

    return score
