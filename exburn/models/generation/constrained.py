"""Tokens held to a form: the host says which may come, the device chooses among them.

A call of the program writes one token of each row under masks of the form, or several,
where what has followed a mask so far was guessed. The host follows the form token by
token, and compares the masks: tokens behind a wrong one are written again. So a text is
the one that comes of a mask at a time. While guesses are right, the next call is under
way when the host looks at the last one.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from exburn.errors import ArgumentError
from exburn.models.generation.constrained_loop import Turn, make_begin, make_go_on
from exburn.models.generation.loop import GenerationReport
from exburn.models.generation.mask_table import EVERYTHING, GuessStore
from exburn.models.generation.memory import memory_for
from exburn.models.generation.run import Job, Written, check_causal, read_rows
from exburn.models.generation.stops import Stops
from exburn.models.network import Network
from exburn.text import Contrastive, Greedy, RandomSampler
from exburn.text.constraints import TextConstraint, compute_masks

_OP = "generate"
_STEPS = 8  # tokens of a call whose masks are guessed
# Tokens in a row that were guessed right before such a call: more after a wrong one.
_LEAST_RIGHT, _MOST_RIGHT = 8, 64
_KEPT = GuessStore()


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


@dataclasses.dataclass(frozen=True)
class _Flight:
    """A program that was called.

    Attributes:
        report: What it tells.
        steps: Tokens of each row that it writes.
        is_sure: Whether the first of them come under masks of the form.
    """

    report: jax.Array
    steps: int
    is_sure: bool


class ConstrainedRun:
    """A generation whose rows have a form; used as a ``GenerationRun``."""

    def __init__(
        self, job: Job, sampler: Any, key: jax.Array, constraint: TextConstraint
    ):
        self._job, self.length = job, job.length
        memory, further = memory_for(job.plan), job.programs.further
        kind = f"{job.kind}_of_a_form"
        ids, lengths, stops = job.arguments()
        begin = further(f"prefill{kind}", lambda: make_begin(memory), static=(6,))
        self._go_on = further(
            f"generate{kind}", lambda: make_go_on(memory), donated=(2,), static=(7, 8)
        )
        self._prompt, rows = ids.shape[1], len(lengths)
        self._constraint = constraint
        self._matchers = [constraint.start() for _ in range(rows)]
        words = -(-job.plan.vocabulary // 32)
        self._masks = np.zeros((rows, words), np.uint32)
        self._tokens = np.zeros((rows, job.length), np.int32)
        self._count, self._stopped = np.zeros(rows, int), np.zeros(rows, int)
        self._cut = np.zeros(rows, bool)  # by a stop that ends no text
        exact = type(sampler) not in (Greedy, RandomSampler)
        self._key = constraint, rows, words, exact
        self._guesses = _KEPT.take(self._key)
        if self._guesses.is_full:
            self._guesses.clear()
        self._places = np.zeros(rows, int)
        self._step = self._right = 0
        self._needed = _LEAST_RIGHT
        self._find_masks()
        self._begin_places()
        # On the device, once: to send a number takes as long as a program's start.
        self._choice = jax.device_put((sampler, stops, key))
        self._ahead = jax.device_put(Turn.ahead(rows, words))
        self._links, self._changes = None, -1
        masks, turn = self._table(), self._turn(np.full(rows, -1))
        arguments = ids, lengths, masks, turn, self._choice, job.most
        self._state: Any
        self._state, self._results, self._had, report, self._doubt = begin(
            job.groups, *arguments
        )
        self._flights: deque[_Flight] = deque([_Flight(report, 1, True)])

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
                more = self._step < length and not self._stopped.all()
                if self._step >= until or not more:
                    part = read_rows(self._report(), self._job, last=not more)
                    yield part
                    if not more or all(part.ended):
                        return
                    size = min(2 * size, chunk or length)
                    until = min(until + size, length)
                    continue
                self._write(until)
        finally:
            self._state = self._results = self._had = None
            self._flights.clear()
            _KEPT.put_back(self._key, self._guesses)

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

    # ------------------------------------------------------------------ calls
    def _write(self, until: int) -> None:
        """Takes the tokens of a call, at most up to a number, and may call the next."""
        if not self._flights:
            self._call(until)
        if len(self._flights) == 1:
            self._call(until)
        self._take(self._flights.popleft())

    def _call(self, until: int) -> None:
        """Calls the program, unless what is under way must be looked at first."""
        under_way = sum(flight.steps for flight in self._flights)
        left = until - self._step - under_way
        several = self._right >= self._needed and left >= _STEPS
        if under_way and not several:
            return
        steps, turn = _STEPS if several else 1, self._ahead
        if not under_way:
            turn = self._turn(self._new_places())
            if self._changes != self._guesses.changes:
                self._changes = self._guesses.changes
                self._links = jax.device_put(self._guesses.links.copy())
        self._state, report = self._go_on(
            self._job.groups,
            self._results,
            self._state,
            self._had,
            self._links,
            turn,
            self._choice,
            self._prompt,
            steps,
        )
        self._flights.append(_Flight(report, steps, not under_way))

    def _turn(self, slots: np.ndarray) -> Turn:
        """Where the next call begins: behind the last token that is right.

        Args:
            slots: As of ``Turn``.
        """
        step = np.full_like(self._places, self._step)
        numbers = np.array([step, self._places, self._stopped, slots], np.int32)
        return Turn(numbers, self._masks.copy())

    def _new_places(self) -> np.ndarray:
        """Places of the rows' masks that the device does not have; it has all others.

        So it has those that any link leads to.
        """
        guesses = self._guesses
        if guesses.is_full:
            guesses.clear()
            self._begin_places()
            self._known = 1
        are_new = self._places >= self._known
        are_new &= (guesses.masks[self._places] == self._masks).all(axis=1)
        new = np.where(are_new, self._places, -1)
        if not {*range(self._known, len(guesses))} <= {*new.tolist()}:
            self._state = dataclasses.replace(self._state, masks=self._table())
            new[:] = -1
        self._known = len(guesses)
        return new

    def _table(self) -> jax.Array:
        """The masks of all places, on the device."""
        self._known = len(self._guesses)
        masks = np.zeros_like(self._guesses.masks)
        masks[: self._known] = self._guesses.masks[: self._known]
        return jax.device_put(masks)

    # ------------------------------------------------------------------ the form
    def _take(self, flight: _Flight) -> None:
        """Takes the tokens of a call, up to the first whose mask was not the form's."""
        steps, is_sure = np.asarray(flight.report).swapaxes(0, 1), flight.is_sure
        for token, places, stopped in steps:
            going = np.flatnonzero(self._stopped == 0)
            if not is_sure and not self._are_right(going, token, places):
                self._flights.clear()
                self._right = 0
                self._needed = min(2 * self._needed, _MOST_RIGHT)
                return
            self._accept(going, token, stopped)
            is_sure = False
            if self._stopped.all():
                return
        if flight.steps > 1:
            self._needed = max(self._needed // 2, _LEAST_RIGHT)

    def _are_right(self, rows: Any, token: np.ndarray, places: np.ndarray) -> bool:
        """Whether tokens are those that come under the form's masks."""
        masks, token = self._masks[rows], token[rows]
        allowed = masks[np.arange(len(rows)), token // 32] >> (token % 32) & 1
        return bool(allowed.all() and self._guesses.suffice(places[rows], masks).all())

    def _accept(self, going: Any, token: np.ndarray, stopped: np.ndarray) -> None:
        """Goes on by a token of each row."""
        for row in going:
            self._matchers[row].accept(int(token[row]))
            self._cut[row] = stopped[row] and not self._matchers[row].closed
        self._tokens[:, self._step] = token
        self._count[going] += 1
        self._stopped[going] = stopped[going]
        self._step += 1
        self._find_masks()
        rows = np.flatnonzero(self._stopped == 0)
        self._places[rows], were_guessed = self._guesses.note(
            self._places[rows], token[rows].tolist(), self._masks[rows]
        )
        self._right = self._right + 1 if were_guessed.all() else 0

    def _find_masks(self) -> None:
        """Finds out which tokens may come; rows where none may have ended."""
        going = np.flatnonzero(self._stopped == 0)
        compute_masks([self._matchers[row] for row in going])
        for row in going:
            if not self._matchers[row].has_ended:
                self._matchers[row].mask(self._masks[row])
            if self._matchers[row].has_ended:
                self._stopped[row] = -1
        ended = self._stopped != 0
        self._masks[ended], self._places[ended] = 2**32 - 1, EVERYTHING

    def _begin_places(self) -> None:
        rows = np.flatnonzero(self._stopped == 0)
        self._places[rows] = self._guesses.begin(self._masks[rows])

    def _report(self) -> GenerationReport:
        tokens: Any = self._tokens
        count: Any = self._count
        stopped: Any = self._stopped
        step: Any = self._step
        return GenerationReport(tokens, count, stopped, step, self._doubt)
