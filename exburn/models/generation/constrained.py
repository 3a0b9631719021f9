"""Tokens held to a form: the host says which may come, the device chooses among them.

The device runs the model on a token while the host finds out what may follow it. So a
step is two programs: one chooses, by a mask, the other computes the next scores. The
second is called before the host has seen the token, which may have been the last one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.errors import ArgumentError
from exburn.models.generation.invariants import HoistedFunction
from exburn.models.generation.loop import (
    GenerationReport,
    State,
    append,
    choose,
    seen_by,
)
from exburn.models.generation.memory import Memory, memory_for
from exburn.models.generation.run import Job, Written, check_causal, read_rows
from exburn.models.generation.stops import Stops
from exburn.models.network import Network
from exburn.text import Contrastive
from exburn.text.constraints import TextConstraint, compute_masks

_OP = "generate"


def read_constraint(
    model: Network,
    forms: dict[str, Any],
    stops: Stops,
    sampler: Any,
    beams: int,
    draft: Any,
) -> TextConstraint | None:
    """The form that a call asks for.

    Args:
        forms: ``schema``, ``regex`` and ``grammar``, of which one at most is no
            ``None``.
        stops: Those of the call, whose special tokens end a text.
        sampler, beams, draft: How tokens are chosen, which must be one by one.
    """
    forms = {name: form for name, form in forms.items() if form is not None}
    if not forms:
        return None
    names, tokenizer = ", ".join(forms), model.tokenizer
    if len(forms) > 1:
        raise ArgumentError(_OP, f"an answer has one form, received {names}")
    contrastive = isinstance(sampler, Contrastive)
    ways = {"beams": beams > 1, "contrastive search": contrastive, "draft": draft}
    for way in filter(ways.get, ways):
        raise ArgumentError(
            _OP, f"an answer of a form is written token by token, without {way}"
        )
    if tokenizer is None:
        raise ArgumentError(
            _OP,
            f"{names} is about the texts of tokens, which the model's tokenizer knows, "
            "and it has none",
            hint="model.tokenizer = exburn.text.Tokenizer.load(path)",
        )
    defaults = model._generation
    ends = None if defaults is None else defaults.value.end_tokens
    if ends is None:
        ends = [tokenizer.number_of(tokenizer.end)] if tokenizer.end else []
    single = [stop[0] for stop in stops.tokens if len(stop) == 1]
    more = [token for token in single if token in tokenizer.special_numbers]
    ((name, form),) = forms.items()
    name = "json_schema" if name == "schema" else name
    return TextConstraint.compile(tokenizer, ends=[*ends, *more], **{name: form})


class ConstrainedRun:
    """A generation whose rows have a form; used as a ``GenerationRun``."""

    def __init__(
        self, job: Job, sampler: Any, key: jax.Array, constraint: TextConstraint
    ):
        self._job, self.length = job, job.length
        memory, further = memory_for(job.plan), job.programs.further
        kind = f"{job.kind}_of_a_form"
        ids, lengths, stops = job.arguments()
        begin = further(f"prefill{kind}", lambda: make_begin(memory), static=(5,))
        self._choose = further("choose_of_a_form", make_choose, donated=(0,))
        self._advance = further(
            f"generate{kind}", lambda: make_advance(memory), donated=(2,), static=(6,)
        )
        self._prompt = ids.shape[1]
        # On the device, once: to send a number takes as long as a program's start.
        self._lengths, *self._choice = jax.device_put((lengths, sampler, stops, key))
        (self._memory, self._state, self._scores, self._results), self._doubt = begin(
            job.groups, ids, lengths, sampler, stops, job.most
        )
        rows = len(lengths)
        self._constraint = constraint
        self._matchers = [constraint.start() for _ in range(rows)]
        self._masks = np.zeros((rows, -(-self._scores.shape[-1] // 32)), np.uint32)
        self._tokens = np.zeros((rows, job.length), np.int32)
        self._count, self._stopped = np.zeros(rows, int), np.zeros(rows, int)
        self._cut = np.zeros(rows, bool)  # by a stop that ends no text
        self._step = 0

    def parts(self, chunk: int | None, look: bool = False) -> Iterator[Written]:
        """What the rows have, again and again until all have ended.

        Args:
            chunk: Tokens between two of them, after fewer at first; ``None`` for all.
            look: Whether the consumer may end rows, which it always may.
        """
        length, size = self._job.length, 1
        try:
            check_causal(self._report())
            until = length if chunk is None else 1
            while True:
                self._fill_masks()
                more = self._step < length and not self._stopped.all()
                if self._step >= until or not more:
                    part = read_rows(self._report(), self._job, last=not more)
                    yield part
                    if not more or all(part.ended):
                        return
                    size = min(2 * size, chunk or length)
                    until = min(until + size, length)
                    continue
                self._write()
        finally:
            self._memory = self._state = self._scores = self._results = None

    def end(self, rows: Sequence[bool]) -> None:
        """Ends rows: they get no more tokens."""
        self._stopped[np.array(rows) & (self._stopped == 0)] = -1

    def incomplete(
        self, tokens: Sequence[np.ndarray], texts: Sequence[Any]
    ) -> list[int]:
        """Numbers of the rows whose answers have not come to have the form.

        Args:
            tokens: Of each answer.
            texts: What a stop that is a text has left of each; ``None`` where none has
                cut it.
        """
        rows = []
        for row, (numbers, text) in enumerate(zip(tokens, texts, strict=True)):
            if text is None and self._cut[row]:
                reader = self._constraint.reader()
                text = "".join(map(reader.add, numbers.tolist())) + reader.rest()
            complete = self._matchers[row].complete
            if not (complete if text is None else self._constraint.allows(text)):
                rows.append(row)
        return rows

    def _fill_masks(self) -> None:
        """Finds out which tokens may come, while the device makes scores of all."""
        going = zip(self._matchers, self._stopped, strict=True)
        compute_masks([matcher for matcher, stopped in going if stopped == 0])
        for row, matcher in enumerate(self._matchers):
            if self._stopped[row] == 0 and not matcher.has_ended:
                matcher.mask(self._masks[row])
            if self._stopped[row] == 0 and matcher.has_ended:
                self._stopped[row] = -1
            if self._stopped[row]:
                self._masks[row] = 2**32 - 1  # of no account

    def _write(self) -> None:
        """Another token of each row."""
        self._state, token, both = self._choose(
            self._state, self._scores, self._masks, *self._choice
        )
        self._step += 1
        if self._step < self._job.length:
            self._memory, self._scores = self._advance(
                self._job.groups,
                self._results,
                self._memory,
                token,
                self._state.step,
                self._lengths,
                self._prompt,
            )
        token, stopped = np.asarray(both)
        going = self._stopped == 0
        for row in np.flatnonzero(going):
            self._matchers[row].accept(int(token[row]))
            self._cut[row] = stopped[row] and not self._matchers[row].closed
        self._tokens[:, self._step - 1] = token
        self._count += going
        self._stopped = np.where(going, stopped, self._stopped)

    def _report(self) -> GenerationReport:
        tokens: Any = self._tokens
        count: Any = self._count
        stopped: Any = self._stopped
        step: Any = self._step
        return GenerationReport(tokens, count, stopped, step, self._doubt)


def make_begin(memory: Memory) -> Callable:
    """The program that reads the prompts."""

    def begin(groups, ids, lengths, sampler, stops, most: int):
        prompt = ids.shape[1]
        cache, scores, doubt = memory.begin(groups, ids, lengths, prompt + most)
        seen = seen_by(sampler, ids, lengths, scores.shape[-1])
        state = State.fresh(None, lengths, most, stops, seen)
        token = jnp.zeros_like(lengths)
        hoisted = _advance_hoisted(
            memory, groups, cache, token, state.step, lengths, prompt
        )
        return (cache, state, scores, hoisted.begin(groups)), doubt

    return begin


def make_choose() -> Callable:
    """The program that chooses a token of each row among those of a mask."""

    def choose_allowed(state, scores, masks, sampler, stops, key):
        bits = masks[:, :, None] >> jnp.arange(32, dtype=jnp.uint32) & 1
        allowed = bits.reshape(len(masks), -1)[:, : scores.shape[-1]] == 1
        scores = jnp.where(allowed, scores, -jnp.inf)
        token = choose(sampler, scores, state.seen, key, state.step)
        stopped = jnp.zeros_like(state.stopped)  # those of before are the host's
        state = append(dataclasses.replace(state, stopped=stopped), token, stops)
        return state, token, jnp.stack([token, state.stopped])  # one way to the host

    return choose_allowed


def make_advance(memory: Memory) -> Callable:
    """The program that computes the scores after a token."""

    def advance(groups, results, cache, token, step, lengths, prompt: int):
        arguments = cache, token, step - 1, lengths
        hoisted = _advance_hoisted(memory, groups, *arguments, prompt)
        return hoisted.rest(groups, results)(*arguments)

    return advance


def _advance_hoisted(
    memory: Memory,
    groups: Any,
    cache: Any,
    token: Any,
    step: Any,
    lengths: Any,
    prompt: int,
) -> HoistedFunction:
    def advance(groups, cache, token, step, lengths):
        return memory.advance(groups, cache, token, step, lengths, prompt)

    return HoistedFunction(advance, groups, cache, token, step, lengths)
