"""``Model.generate``: checks, and the answer in the form of the question."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.checks import check_count, check_flag, check_number, check_seed
from exburn.core.forward_context import Context
from exburn.errors import ArgumentError, DataError, IncompleteAnswerError
from exburn.models.generation.adapters import check_rows, read_adapters
from exburn.models.generation.constrained import ConstrainedRun, read_constraint
from exburn.models.generation.drafts import (
    Draft,
    check_draft,
    draft_network,
    lookup_draft,
    model_draft,
    read_draft,
)
from exburn.models.generation.memory import RowWeights, memory_for
from exburn.models.generation.pieces import Pieces
from exburn.models.generation.plan import GenerationPlan, fixed_length, make_plan
from exburn.models.generation.prompts import Prompts, read_prompts
from exburn.models.generation.run import GenerationRun, Job, Written, search
from exburn.models.generation.stops import read_stops
from exburn.models.inferring import require_predictor
from exburn.models.network import Network
from exburn.models.preparing import on_device
from exburn.module.building import spec_like
from exburn.text import Contrastive, PromptLookup, Sampler
from exburn.text.defaults import GenerationDefaults
from exburn.training.check import check_ids
from exburn.training.program import Programs
from exburn.training.trainer import Trainer

_OP = "generate"
_TOKENS = 8  # of the sequence that the model is prepared for; others trace no less
_NEW = 64  # tokens that are written where nobody says how many
_CHUNK = 16  # tokens between two pieces of a stream, and between two looks for stops


@dataclasses.dataclass(frozen=True)
class _Function(Sampler):
    """A function of the user's as a sampler."""

    function: Any = dataclasses.field(default=None, metadata={"static": True})

    def __call__(self, logits, keys):
        return jnp.asarray(self.function(logits, keys))


def generate(
    self: Network,
    prompt: Any,
    max_new_tokens: int | None = None,
    *,
    sampler: Any = None,
    stop: Any = None,
    stream: bool | int = False,
    beams: int = 1,
    length_penalty: float = 0.0,
    seed: int | None = None,
    adapter: str | Sequence[str | None] | None = None,
    include_prompt: bool = False,
    room: tuple[int, int] | None = None,
    cache: bool | None = None,
    cache_dtype: str | None = None,
    draft: Any = None,
    schema: Any = None,
    regex: str | None = None,
    grammar: str | None = None,
) -> Any:
    """Writes on from prompts, token by token, in one compiled loop.

    The model's input is token numbers, ``[batch, time]``, its output scores of the next
    one for each position. Keys and values of attention are kept from token to token, in
    the state of the loop, where nothing else leads from one position to another; other
    causal models see all tokens again for each. Prompts are filled up to the next power
    of two, for which there are two programs: one that reads them, and the loop.

    Args:
        prompt: A text, if the model has a ``tokenizer``; token numbers, ``[time]``; or
            several of them, of any lengths: a list, or an array ``[batch, time]``.
        max_new_tokens: Tokens to write at most; as the model's folder says if ``None``,
            as far as there are positions, else 64.
        sampler: Chooses the next token: one of ``exburn.text``, or a function of
            ``(logits, keys)``; as the model's folder says if ``None``, else the most
            likely one.
        stop: What ends a row, and is not part of the answer: a text, a token number, or
            a list of those and of sequences of token numbers. The tokens that end a
            text, of the model's folder or else of the tokenizer, end a row as well.
        stream: Whether to return a generator of pieces instead, which the loop does not
            wait for; a number says how many tokens a piece has.
        beams: Of so many rows the best one, instead of sampling.
        length_penalty: The best beam has the greatest ``log p / length ** penalty``.
        seed: Makes the draws reproducible; a row draws alike whatever is beside it.
        adapter: The adapter that is computed, by its name, instead of the active one;
            or a list of one for each prompt, where ``None`` is the active one. All
            run together, on the same weights.
        include_prompt: Whether the answer begins with the prompt.
        room: Tokens of a prompt and of an answer that programs are made for, instead of
            the next sizes: calls of one room share them.
        cache: ``False``: see all tokens again for each; ``True``: raise if that is
            necessary; ``None``: where it is.
        cache_dtype: ``"int8"``: keys and values are kept in 8 bits, with a scale for
            each head of a token, in about half the memory; answers may differ a little.
        draft: Proposes tokens, several of which the model checks in one pass; texts are
            those without it. ``"ngrams"`` or a ``PromptLookup``: what followed the last
            tokens before; a smaller model of the same vocabulary, ``"int4"`` (the model
            itself in 4 bits) or a ``DraftModel``: what that writes.
        schema: What each answer is: JSON of a schema, which is a mapping, its text, or
            a class that ``pydantic`` describes.
        regex: An expression of ``re`` that each answer matches as a whole; ``\\d``,
            ``\\w`` and ``\\s`` are those of ``re.ASCII``.
        grammar: A grammar in Lark's syntax, whose rule ``start`` each answer is.

    Returns:
        A text for a text, token numbers ``[new tokens]`` for token numbers, and a list
        of those for several prompts; with ``stream`` a generator of them.

    Raises:
        ArgumentError: An argument does not fit, the model has another form or is not
            causal, or there are fewer positions than prompt and answer need.
        DataError: A prompt is empty, or the model has no such token.
        UnknownNameError: The model has no such adapter.
        MissingDependencyError: Texts need the package ``tokenizers``, and forms
            ``llguidance``.
        BusyError: The model is being trained.
        IncompleteAnswerError: Answers end, by ``max_new_tokens`` or a stop, before they
            have the form that was asked for; the error has all of them.

    Example:
        >>> import numpy as np
        >>> from exburn.applications import GPT2
        >>> model = GPT2(vocabulary_size=9, layers=1, width=8, heads=2, positions=32)
        >>> model.generate(np.array([1, 2, 3]), max_new_tokens=4).shape
        (4,)
        >>> [len(row) for row in model.generate([[1], [2, 3]], 5)]
        [5, 5]
    """
    tokenizer = self.tokenizer
    prompts = read_prompts(prompt, tokenizer)
    if max_new_tokens is not None:
        max_new_tokens = check_count(_OP, "max_new_tokens", max_new_tokens)
    check_flag(_OP, "include_prompt", include_prompt)
    chunk = None if stream is False else _chunk_of(stream)
    defaults = generation_defaults(self)
    texts = prompts.texts is not None
    stops = read_stops(stop, tokenizer, texts, defaults.end_tokens)
    beams = check_count(_OP, "beams", beams)
    if beams > 1 and (sampler is not None or stream):
        raise ArgumentError(
            _OP,
            "beams are searched for the best row, which is neither sampled nor known "
            "before the end",
            hint="Leave out sampler and stream, or beams.",
        )
    length_penalty = check_number(_OP, "length_penalty", length_penalty)
    chooses = defaults.sampler if sampler is None else _sampler_of(sampler)
    draft = read_draft(draft)
    check_draft(draft, chooses, beams, cache, cache_dtype)
    forms = {"schema": schema, "regex": regex, "grammar": grammar}
    constraint = read_constraint(self, forms, stops, chooses, beams, draft)
    seed = check_seed(_OP, seed)
    if seed is not None and seed >= 1 << 63:
        raise ArgumentError(_OP, f"seed must be below 2**63, received {seed}")
    adapters = read_adapters(self, adapter, len(prompts.rows), _OP)
    with on_device(self):
        trainer, programs, plan = prepare_generation(self, cache)
        length = max_new_tokens or _new_tokens(defaults, plan, prompts.longest)
        plan = _without_wrong_keys(plan, prompts, length, cache)
        plan = plan.with_cache_dtype(cache_dtype)
        _check_fit(trainer, plan, prompts, length)
        _check_vectors(chooses, plan)
        _check_room(room, prompts, length)
        groups = trainer.holder.split.read()
        if adapters is not None:
            check_rows(plan, groups, adapters.names)
            groups = RowWeights(groups, adapters)
        drafts = _make_draft(self, draft, trainer, plan, prompts, length)
        job = Job(programs, plan, groups, prompts, length, stops, room, drafts)
        answer = _Answer(job, tokenizer, include_prompt, constraint)
        if beams > 1:
            return answer.of(search(job, beams, length_penalty)[0])
        key = Context().random_key(_OP) if seed is None else jax.random.key(seed)
        if constraint is None:
            run = GenerationRun(job, chooses, key)
        else:
            run = ConstrainedRun(job, chooses, key, constraint)
    if chunk is not None:
        return answer.stream(run, chunk)
    return answer.whole(run)


class _Answer:
    """Makes of what rows have what the user gets."""

    def __init__(
        self, job: Job, tokenizer: Any, include_prompt: bool, constraint: Any = None
    ):
        self._prompts, self._looks = job.prompts, bool(job.stops.texts)
        self._first = include_prompt
        self._pieces: list[Pieces] | None = None
        if job.prompts.texts is not None:
            self._pieces = [
                Pieces(tokenizer, row, job.stops.texts, constraint)
                for row in job.prompts.rows
            ]
        self._texts = [""] * len(job.prompts.rows)  # without the prompts
        self._told = [0] * len(job.prompts.rows)

    def of(self, written: Written) -> Any:
        """All that there is."""
        return self._prompts.in_form(self._parts(written))

    def whole(self, run: GenerationRun | ConstrainedRun) -> Any:
        """The answer, once all rows have ended."""
        parts: list[list[Any]] = []
        chunk = _CHUNK if self._looks else None
        for written in run.parts(chunk, look=self._looks):
            parts.append(self._parts(written))
            self._end_rows(run, written)
        each = zip(*parts, strict=True)
        join = np.concatenate if self._pieces is None else "".join
        answers = self._prompts.in_form([join(row) for row in each])
        self._check_form(run, written, answers)
        return answers

    def stream(self, run: GenerationRun | ConstrainedRun, chunk: int) -> Iterator[Any]:
        """The answer in pieces, as they become certain."""
        for written in run.parts(chunk, look=self._looks):
            parts = self._parts(written)
            if any(map(len, parts)):
                yield self._prompts.in_form(parts)
            self._end_rows(run, written)
        self._check_form(run, written, None)

    def _parts(self, written: Written) -> list[Any]:
        """What is new of each row."""
        parts: list[Any] = []
        for number, tokens in enumerate(written.rows):
            if self._pieces is not None:
                part: Any = self._pieces[number].take(tokens, written.ended[number])
                self._texts[number] += part
                if self._first and self._prompts.texts is not None:
                    part = self._prompts.texts[number] + part
            else:
                part = tokens[self._told[number] :]
                self._told[number] = len(tokens)
                if self._first:
                    part = np.concatenate([self._prompts.rows[number], part])
            parts.append(part)
        self._first = False
        return parts

    def _check_form(self, run: Any, written: Written, answers: Any) -> None:
        """Raises if answers have not come to have the form that was asked for."""
        if not isinstance(run, ConstrainedRun):
            return
        texts: list[str | None] = [None] * len(self._texts)
        for number, piece in enumerate(self._pieces or ()):
            if piece.ended:
                texts[number] = self._texts[number]
        rows = run.incomplete(written.rows, texts)
        if not rows:
            return
        text = self._texts[rows[0]] if self._pieces else written.rows[rows[0]]
        error = IncompleteAnswerError(
            _OP,
            f"{len(rows)} of {len(texts)} answers end before they have the form that "
            "was asked for",
            {"max_new_tokens": run.length, f"answer {rows[0]}": text},
            hint="A greater max_new_tokens; error.answers has what was written.",
        )
        error.answers, error.rows = answers, rows
        raise error

    def _end_rows(self, run: GenerationRun | ConstrainedRun, written: Written) -> None:
        """Ends the rows whose text has met a stop."""
        if not self._looks or self._pieces is None:
            return
        ended = [piece.ended for piece in self._pieces]
        both = zip(ended, written.ended, strict=True)
        if any(met and not over for met, over in both):
            run.end(ended)


def generation_defaults(model: Network) -> GenerationDefaults:
    """What a model's folder says of writing."""
    defaults = model._generation
    return GenerationDefaults() if defaults is None else defaults.value


def _new_tokens(defaults: GenerationDefaults, plan: GenerationPlan, prompt: int) -> int:
    """How many tokens are written where the call says nothing."""
    default = defaults.new_tokens(prompt)
    if default is None:
        return _NEW
    room = default if plan.positions is None else plan.positions - prompt
    return max(min(default, room), 1)


def _sampler_of(sampler: Any) -> Any:
    if isinstance(sampler, Sampler):
        return sampler
    if callable(sampler) and not isinstance(sampler, type):
        return _Function(function=sampler)
    raise ArgumentError(
        _OP,
        f"sampler must be one of exburn.text, or a function, received {sampler!r}",
        hint="For example sampler=exburn.text.TopP(0.9, temperature=0.7).",
    )


def _make_draft(
    model: Network,
    draft: Any,
    trainer: Trainer,
    plan: GenerationPlan,
    prompts: Prompts,
    length: int,
) -> Draft | None:
    """What proposes tokens, if anything does."""
    if draft is None:
        return None
    if plan.why_not_cached is not None:
        raise ArgumentError(_OP, f"a draft needs a cache: {plan.why_not_cached}")
    if isinstance(draft, PromptLookup):
        return lookup_draft(draft)
    network = draft_network(draft, model)
    with on_device(network):
        other, _, other_plan = prepare_generation(network, None)
    target = model, trainer, plan
    return model_draft(draft, network, other, other_plan, target, prompts, length)


def _chunk_of(stream: Any) -> int:
    return _CHUNK if stream is True else check_count(_OP, "stream", stream)


def prepare_generation(
    model: Network, cache: Any
) -> tuple[Trainer, Programs, GenerationPlan]:
    """The model, ready to generate; what it allows is found out once."""
    length = fixed_length(model)
    trainer, run = require_predictor(model), model._training_session
    holder, preparer = trainer.holder, trainer.preparer
    holder.check_free(_OP)
    holder.follow_distribution(run.distribution_in_force)
    if holder.placement.spans_processes:
        raise ArgumentError(_OP, "it is for one process, and the model is on several")
    spec = _spec_of(length)
    with holder.placement.scope():
        outputs = preparer.prepare((spec, None, None), kind="predict", op=_OP)
        holder.place_weights()
    if outputs is None:
        raise ArgumentError(
            _OP, "the model has a predict_step of its own, which nothing is known of"
        )
    programs = preparer.programs
    if run.generation is None or run.generation[0] is not programs:
        run.generation = programs, make_plan(model, holder.split, outputs)
    plan = run.generation[1]
    if cache is not None and check_flag(_OP, "cache", cache):
        if plan.why_not_cached is not None:
            raise ArgumentError(
                _OP, f"the model cannot use a cache: {plan.why_not_cached}"
            )
    elif cache is not None:
        plan = plan.without_cache("cache=False")
    return trainer, programs, plan


def cache_bytes(
    model: Network, rows: int, length: int, dtype: str | None = None
) -> int | None:
    """Bytes of the keys and values of so many tokens; ``None`` if none are kept.

    The model's weights may be specs.

    Args:
        dtype: As ``cache_dtype`` of ``generate``.
    """
    trainer = require_predictor(model)
    outputs = trainer.preparer.prepare((_spec_of(None), None, None), kind="predict")
    try:
        plan = make_plan(model, trainer.holder.split, outputs)
    except ArgumentError:  # no model that writes
        return None
    if plan.why_not_cached is not None or length > (plan.positions or length):
        return None
    groups = jax.tree.map(spec_like, trainer.holder.split.peek())
    ids = jax.ShapeDtypeStruct((rows, length), jnp.int32)
    lengths = jax.ShapeDtypeStruct((rows,), jnp.int32)
    memory = memory_for(plan.with_cache_dtype(dtype))
    kept = jax.eval_shape(
        lambda g, i, n: memory.begin(g, i, n, length)[0], groups, ids, lengths
    )
    return sum(math.prod(v.shape) * v.dtype.itemsize for v in jax.tree.leaves(kept))


def _spec_of(length: int | None) -> jax.ShapeDtypeStruct:
    """The tokens that a model is prepared for."""
    return jax.ShapeDtypeStruct((1, length or _TOKENS), jnp.int32)


def _check_room(room: Any, prompts: Prompts, length: int) -> None:
    """Raises unless there is room for the prompts and the answer."""
    if room is None:
        return
    if not isinstance(room, list | tuple) or len(room) != 2:
        raise ArgumentError(
            _OP, f"room is (tokens of a prompt, of an answer), received {room!r}"
        )
    for size, needed, what in zip(
        room, (prompts.longest, length), ("prompt", "answer"), strict=True
    ):
        if check_count(_OP, "room", size) < needed:
            raise ArgumentError(
                _OP, f"there is room for {size} tokens of a {what}, not for {needed}"
            )


def _without_wrong_keys(
    plan: GenerationPlan, prompts: Prompts, length: int, cache: Any
) -> GenerationPlan:
    """The plan, without a cache if keys in it would become wrong.

    Raises:
        ArgumentError: The call asks for a cache.
    """
    turn = plan.turning_length([len(row) for row in prompts.rows], length)
    if turn is None or plan.why_not_cached is not None:
        return plan
    reason = (
        f"texts of more than {turn} tokens have other angles of positions, and a row "
        "becomes longer while it is written"
    )
    if cache:
        raise ArgumentError(_OP, f"the cache cannot be used: {reason}")
    return plan.without_cache(reason)


def _check_vectors(sampler: Any, plan: GenerationPlan) -> None:
    """Raises if the sampler compares vectors of tokens, and the model shows none."""
    if not isinstance(sampler, Contrastive) or plan.head is not None:
        return
    raise ArgumentError(
        _OP,
        "contrastive search compares the vectors of which the last layer makes scores, "
        "and this model shows none",
        hint="It needs a functional model or a Sequential of any length, whose last "
        "layer with weights is given [batch, time, width].",
    )


def generation_plan(model: Network) -> GenerationPlan:
    """What the model allows."""
    with on_device(model):
        return prepare_generation(model, None)[2]


def position_limit(model: Network) -> int | None:
    """How many tokens prompt and answer may have together; ``None`` for any number."""
    return generation_plan(model).positions


def _check_fit(
    trainer: Trainer, plan: GenerationPlan, prompts: Prompts, length: int
) -> None:
    """Raises unless the model has the prompts' tokens, and positions for all."""
    if plan.positions is not None and prompts.longest + length > plan.positions:
        raise ArgumentError(
            _OP,
            f"the model has {plan.positions} positions, fewer than prompt and answer "
            "need",
            {"longest prompt": prompts.longest, "max_new_tokens": length},
            hint=f"max_new_tokens={max(plan.positions - prompts.longest, 0)}, or a "
            "shorter prompt.",
        )
    check_tokens(trainer, plan, prompts.rows, _OP)


def check_tokens(trainer: Trainer, plan: GenerationPlan, rows: Any, op: str) -> None:
    """Raises unless the model has the tokens of rows.

    Raises:
        DataError: Naming the first number that it does not have.
    """
    lookups = trainer.preparer.forward(_spec_of(plan.length)).lookups
    what = "prompt" if op == _OP else "text"
    for number, row in enumerate(rows):
        check_ids(row[None], lookups, op)
        if row.min() < 0:
            raise DataError(
                op, f"token numbers are ≥ 0, received {row.min()} in {what} {number}"
            )
