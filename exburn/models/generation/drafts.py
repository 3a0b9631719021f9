"""The argument ``draft`` of ``generate``, read and checked."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

import jax

from exburn.errors import ArgumentError
from exburn.models.generation.drafting import Drafter, LookupDrafter, ModelDrafter
from exburn.models.generation.memory import CachedMemory
from exburn.models.generation.plan import GenerationPlan
from exburn.models.generation.prompts import Prompts
from exburn.models.network import Network
from exburn.runtime.placement import is_bound
from exburn.text import Contrastive, DraftModel, DraftStatistics, PromptLookup
from exburn.training.trainer import Trainer

_OP = "generate"


@dataclasses.dataclass(frozen=True)
class Draft:
    """What proposes tokens to a generation.

    Attributes:
        kind: Distinguishes its programs from others of the model.
        groups: The arrays of the draft's model.
    """

    drafter: Drafter
    kind: str
    groups: Any
    statistics: DraftStatistics


def read_draft(draft: Any) -> PromptLookup | DraftModel | None:
    """What a user gave as ``draft``."""
    if draft is None or isinstance(draft, PromptLookup | DraftModel):
        return draft
    if isinstance(draft, str) and draft == "ngrams":
        return PromptLookup()
    if isinstance(draft, Network) or (isinstance(draft, str) and draft == "int4"):
        return DraftModel(draft)
    raise ArgumentError(
        _OP,
        'draft must be "ngrams", "int4", a model, or a PromptLookup or DraftModel of '
        f"exburn.text, received {draft!r}",
    )


def check_draft(
    draft: Any, sampler: Any, beams: int, cache: Any, cache_dtype: Any
) -> None:
    """Raises if a draft is combined with what it does not do."""
    if draft is None:
        return
    reasons = (
        (beams > 1, "beams are not drafted: leave out beams, or draft"),
        (
            isinstance(sampler, Contrastive),
            "contrastive search compares all candidates of a token: it takes no draft",
        ),
        (cache is False, "a draft needs a cache: leave out cache=False, or draft"),
        (
            cache_dtype is not None,
            "a draft has no cache in few bits: leave out cache_dtype, or draft",
        ),
    )
    for holds, reason in reasons:
        if holds:
            raise ArgumentError(_OP, reason)


def lookup_draft(lookup: PromptLookup) -> Draft:
    """The draft of prompt lookup."""
    numbers = lookup.tokens, lookup.min_ngram, lookup.max_ngram
    kind = "_".join(("_lookup", *map(str, numbers)))
    return Draft(LookupDrafter(*numbers), kind, (), lookup.statistics)


def draft_network(draft: DraftModel, model: Network) -> Network:
    """The model that drafts."""
    if isinstance(draft.model, Network):
        return draft.model
    return _in_four_bits(model)


def model_draft(
    draft: DraftModel,
    network: Network,
    trainer: Trainer,
    plan: GenerationPlan,
    target: tuple[Network, Trainer, GenerationPlan],
    prompts: Prompts,
    length: int,
) -> Draft:
    """The draft of a model.

    Args:
        network, trainer, plan: The model that drafts.
        target: The model that writes.
        length: Tokens to write.

    Raises:
        ArgumentError: The one cannot draft for the other.
    """
    model, own, own_plan = target
    needed = prompts.longest + length
    positions = plan.positions or needed
    tokenizers = network.tokenizer, model.tokenizer
    words = plan.vocabulary, own_plan.vocabulary
    groups = trainer.holder.split.read()
    places = [_places(arrays) for arrays in (groups, own.holder.split.read())]
    reasons = (
        (
            plan.why_not_cached is not None,
            f"the draft cannot use a cache: {plan.why_not_cached}",
        ),
        (
            words[0] != words[1],
            f"the draft must have the model's vocabulary: it scores {words[0]} tokens, "
            f"the model {words[1]}",
        ),
        (
            None not in tokenizers and tokenizers[0] != tokenizers[1],
            "the draft must have the model's tokenizer, and it has another one",
        ),
        (
            positions < needed,
            f"the draft has {positions} positions, prompt and answer need {needed}",
        ),
        (
            all(places) and places[0] != places[1],
            "the draft must lie on the devices of the model",
        ),
    )
    for holds, reason in reasons:
        if holds:
            raise ArgumentError(_OP, reason)
    # Its programs hold the plan, so that no other one has this number.
    kind = f"_model_{draft.tokens}_{id(plan)}"
    drafter = ModelDrafter(CachedMemory(plan.split, plan.last), draft.tokens)
    return Draft(drafter, kind, groups, draft.statistics)


def _places(groups: Any) -> set[Any]:
    """The devices that arrays are bound to."""
    bound = [array for array in jax.tree.leaves(groups) if is_bound(array)]
    return {device for array in bound for device in array.devices()}


def _in_four_bits(model: Network) -> Network:
    """The model with weights in 4 bits, made again once its weights have changed."""
    session = model._training_session
    arrays = jax.tree.leaves(session.holder.split.read())
    if session.in_four_bits is not None:
        references, small = session.in_four_bits
        if list(map(id, arrays)) == [id(reference()) for reference in references]:
            return small
        session.in_four_bits = None  # free before the next one is made
    try:
        small: Any = model.quantize("int4")
    except ArgumentError as error:
        raise ArgumentError(
            _OP, f'draft="int4" is the model in 4 bits: {error.reason}'
        ) from error
    own = small._training_session
    own.trainer = None  # it only writes, and needs no optimizer's state
    own.device, own.distribution = session.device, session.distribution
    session.in_four_bits = [weakref.ref(array) for array in arrays], small
    return small
