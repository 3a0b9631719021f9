"""One generation under way: its programs, its state, and what the host reads of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.errors import ArgumentError
from exburn.models.generation import contrastive, loop, speculation
from exburn.models.generation.beams import make_search
from exburn.models.generation.drafts import Draft
from exburn.models.generation.memory import memory_for
from exburn.models.generation.plan import GenerationPlan
from exburn.models.generation.prompts import Prompts, prompt_size, room_for
from exburn.models.generation.stops import Stops
from exburn.text import Contrastive
from exburn.training.program import Programs

_STRIDE = 8  # on a GPU: a look costs about as much as a token of a small model
_DOUBT = 1e-3  # of the scores' size: what a causal model's rounding may make


@dataclasses.dataclass(frozen=True)
class Job:
    """What is to be generated, and with what."""

    programs: Programs
    plan: GenerationPlan
    groups: Any
    prompts: Prompts
    length: int
    stops: Stops
    room: tuple[int, int] | None = None
    draft: Draft | None = None

    @property
    def kind(self) -> str:
        """What distinguishes its programs from others of the model."""
        kind = "" if self.plan.why_not_cached is None else "_without_cache"
        return f"{kind}_int8" if self.plan.few_bits else kind

    @property
    def stride(self) -> int:
        """As of ``loop.make_go_on``."""
        return _STRIDE if jax.default_backend() == "gpu" else 1

    @property
    def most(self) -> int:
        """Tokens that there is room for."""
        length = self.length if self.room is None else self.room[1]
        return room_for(length, self.stride)

    def arguments(self) -> tuple:
        """Token numbers, lengths and stops, as the programs take them."""
        longest = self.prompts.longest if self.room is None else self.room[0]
        filled = self.prompts.fill(prompt_size(longest))
        return (*filled, self.stops.as_array())


@dataclasses.dataclass(frozen=True)
class Written:
    """What the rows have at some moment, on the host.

    Attributes:
        rows: Token numbers of each, without a stop, and without what may become one.
        stops: The stop that each has met; empty where it has met none.
    """

    rows: list[np.ndarray]
    ended: list[bool]
    stops: list[list[int]]


class GenerationRun:
    """A generation by sampling, whose first tokens are on their way."""

    def __init__(self, job: Job, sampler: Any, key: jax.Array):
        self._job, self._sampler, self._key = job, sampler, key
        memory, kind = memory_for(job.plan), job.kind
        way, further = loop, ()
        if isinstance(sampler, Contrastive):
            way, kind = contrastive, f"{kind}_contrastive"
            further = (job.plan.head,)
        self._groups, self._told = job.groups, np.zeros(4, int)
        if job.draft is not None:
            way, kind, further = speculation, job.draft.kind, (job.draft.drafter,)
            self._groups = job.groups, job.draft.groups
        begin = job.programs.further(
            f"prefill{kind}", lambda: way.make_begin(memory, *further), static=(6,)
        )
        self._go_on = job.programs.further(
            f"generate{kind}",
            lambda: way.make_go_on(memory, job.stride, *further),
            donated=(1,),
            static=(6,),
        )
        ids, lengths, self._stops = job.arguments()
        self._prompt = ids.shape[1]
        self._state: Any
        self._report: Any
        self._state, self._report = begin(
            self._groups, ids, lengths, sampler, self._stops, key, job.most
        )
        self._until, self._first = 1, True

    def parts(self, chunk: int | None, look: bool = False) -> Iterator[Written]:
        """What the rows have, again and again until all have ended.

        The next tokens are on their way while the last ones are looked at.

        Args:
            chunk: Tokens between two of them, after fewer at first; ``None`` for all.
            look: Whether the consumer may end rows, so that it is waited for.
        """
        length, size = self._job.length, 1
        try:
            while True:
                report, more = self._report, self._until < length
                size = length if chunk is None else min(2 * size, chunk)
                if more and not look:
                    self._advance(size)
                part = self._read(report, last=not more)
                yield part
                if not more or all(part.ended):
                    return
                if look:
                    self._advance(size)
        finally:
            self._state = self._report = None  # the cache is free, whoever holds this

    def end(self, rows: Sequence[bool]) -> None:
        """Ends rows: they get no more tokens."""
        ended = jnp.where(np.array(rows), -1, self._state.stopped)
        self._state = dataclasses.replace(self._state, stopped=ended)

    def _advance(self, size: int) -> None:
        self._until = min(self._until + size, self._job.length)
        self._state, self._report = self._go_on(
            self._groups,
            self._state,
            self._sampler,
            self._stops,
            self._key,
            self._until,
            self._prompt,
        )

    def _read(self, report: Any, last: bool) -> Written:
        report = jax.device_get(report)
        if self._first:
            check_causal(report)
            self._first = False
        if self._job.draft is not None:
            tally = report.tally.sum(axis=0, dtype=int)
            self._job.draft.statistics.add(*(tally - self._told).tolist())
            self._told = tally
        return read_rows(report, self._job, last)


def search(job: Job, beams: int, penalty: float) -> tuple[Written, np.ndarray]:
    """The best of the beams of each prompt, and their scores.

    Args:
        penalty: The power of the length by which scores are divided.
    """
    memory = memory_for(job.plan)
    program = job.programs.further(
        f"beam_search{job.kind}", lambda: make_search(memory), static=(6, 7)
    )
    ids, lengths, stops = job.arguments()
    report, scores = jax.device_get(
        program(job.groups, ids, lengths, stops, job.length, penalty, job.most, beams)
    )
    check_causal(report)
    return read_rows(report, job, last=True), scores


def read_rows(report: Any, job: Job, last: bool) -> Written:
    """What the rows of a report have.

    Args:
        report: A ``loop.GenerationReport`` on the host.
    """
    overlap = max((len(stop) for stop in job.stops.tokens), default=1) - 1
    rows, ended, stops = [], [], []
    for tokens, count, stopped in zip(
        report.tokens, report.count, report.stopped, strict=True
    ):
        over = stopped != 0 and count <= job.length
        row = tokens[: min(int(count), job.length)]
        if over:
            row = job.stops.without(row, int(stopped))
        elif not last and overlap:
            row = row[: max(len(row) - overlap, 0)]
        rows.append(np.array(row))
        ended.append(bool(over or last))
        stops.append(job.stops.tokens[int(stopped) - 1] if over and stopped > 0 else [])
    return Written(rows, ended, stops)


def check_causal(report: Any) -> None:
    """Raises if scores depend on what comes after them."""
    if report.doubt > _DOUBT:
        raise ArgumentError(
            "generate",
            "the model is not causal: the scores of a token change with those behind "
            "it",
            {"change": f"{float(report.doubt):.2g} of the scores' size"},
            hint="Attention needs use_causal_mask=True, convolutions padding='causal'.",
        )
