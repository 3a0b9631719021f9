"""Answers of a form: what masks cost, and what they add to the time of a token.

    python benchmarks/structured.py [masks] [tokens] [--batches 1,8] [--tokens 64]
        [--wait 60] [--rounds 3]

"masks" is the host's part: time to read a tokenizer of 128,000 tokens, to compile a
form for it, and of each token's mask and step, along random ways through the form.
"tokens" is GPT-2 with random weights: ``generate`` with and without a form, which
allows a fifth of the tokens; the least of the rounds, by the clock
and by the processors' time. Where `llguidance`
is not installed, a mask that allows all and takes ``--wait`` µs stands in for it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY = 128_000
PROMPT = 128
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 5},
        "where": {
            "type": "object",
            "properties": {"town": {"type": "string", "pattern": "^[A-Z][a-z]+$"}},
            "required": ["town"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "age", "tags", "where"],
    "additionalProperties": False,
}
WIDE = {
    "type": "object",
    "properties": {f"field_{n}": {"type": ["string", "null"]} for n in range(500)},
    "required": [f"field_{n}" for n in range(500)],
    "additionalProperties": False,
}
FORMS: dict[str, dict[str, Any]] = {
    "schema": {"json_schema": PERSON},
    "schema of 500": {"json_schema": WIDE},
    "any JSON": {"json_schema": {}},
    "regex": {"regex": r"[A-Z][a-z]+( [A-Za-z]+){4,20}\."},
    "grammar": {"grammar": 'start: term ("+" term)*\nterm: /[a-z]+/ | "(" start ")"'},
}


def tokenizer_of(size: int) -> Any:
    """Byte pairs of Python's own library, and words of random letters up to a size."""
    from exburn.text import Tokenizer

    files = sorted(Path(os.__file__).parent.glob("*.py"))
    texts = [file.read_text(errors="replace") for file in files]
    small = Tokenizer.train(texts, min(size, 20_000))
    content = json.loads(small.to_json())
    vocabulary, draw = content["model"]["vocab"], random.Random(0)
    while len(vocabulary) < size:
        word = "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(3, 9)))
        vocabulary.setdefault(draw.choice(["", "Ġ"]) + word, len(vocabulary))
    return Tokenizer(json.dumps(content))


def measure_masks() -> None:
    from exburn.text import TextConstraint

    tokenizer = tokenizer_of(VOCABULARY)
    start = time.perf_counter()
    TextConstraint.compile(tokenizer, regex="a")
    print(f"tokenizer of {VOCABULARY:,}: {time.perf_counter() - start:.2f} s")
    names = f"{'mask µs':>9}{'mean':>8}{'p99':>8}{'accept':>8}"
    print(f"{'form':<16}{'compile ms':>11}{names}")
    for name, form in FORMS.items():
        start = time.perf_counter()
        constraint = TextConstraint.compile(tokenizer, **form)
        compiled = time.perf_counter() - start
        masks, steps = [], []
        for seed in range(20):
            _walk(constraint, seed, masks, steps)
        times = 1e6 * np.array([np.median(masks), np.mean(masks)])
        p99, step = 1e6 * np.quantile(masks, 0.99), 1e6 * np.median(steps)
        cells = f"{times[0]:>9.0f}{times[1]:>8.0f}{p99:>8.0f}{step:>8.0f}"
        print(f"{name:<16}{1e3 * compiled:>11.1f}{cells}")


def _walk(constraint: Any, seed: int, masks: list[float], steps: list[float]) -> None:
    """A random way through a form, at most 100 tokens, with the times of each."""
    matcher, draw = constraint.start(), np.random.default_rng(seed)
    out = np.zeros(-(-VOCABULARY // 32), np.uint32)
    for _ in range(100):
        start = time.perf_counter()
        matcher.mask(out)
        masks.append(time.perf_counter() - start)
        if matcher.has_ended:
            return
        bits = np.unpackbits(out.view(np.uint8), bitorder="little")
        token = int(draw.choice(np.flatnonzero(bits)))
        start = time.perf_counter()
        matcher.accept(token)
        steps.append(time.perf_counter() - start)
        if matcher.has_ended:
            return


class _StandIn:
    """A form that allows all, whose masks take so many seconds."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self.ended = self.closed = False
        self.complete = True

    def start(self) -> _StandIn:
        return self

    def mask(self, out: np.ndarray) -> None:
        until = time.perf_counter() + self._seconds
        while time.perf_counter() < until:
            pass
        out[:] = 2**32 - 1

    def accept(self, token: int) -> None:
        pass


def measure_tokens(batches: list[int], tokens: int, wait: float, rounds: int) -> None:
    from exburn.applications import GPT2
    from exburn.errors import IncompleteAnswerError

    size = 50_257
    model, form = GPT2(size, layers=12, width=768, heads=12, positions=1024), {}
    if importlib.util.find_spec("llguidance"):
        model.tokenizer = tokenizer_of(size)
        form = {"regex": f"[a-z ]{{{20 * tokens}}}"}
    else:
        print(f"llguidance is not installed: masks that take {1e6 * wait:.0f} µs")
        module = sys.modules["exburn.models.generation.generate"]
        read, stands_in = module.read_constraint, _StandIn(wait)

        def read_or_stand_in(model, forms, *rest):
            return stands_in if forms["regex"] else read(model, forms, *rest)

        setattr(module, "read_constraint", read_or_stand_in)  # noqa: B010
        form = {"regex": "a"}

    def write(rows: int, length: int, form: Any) -> np.ndarray:
        prompts = np.ones((rows, PROMPT), np.int32)
        start = np.array([time.perf_counter(), time.process_time()])
        try:
            model.generate(prompts, length, room=(PROMPT, tokens), **form)
        except IncompleteAnswerError:
            pass  # the form asks for more letters than there is room for
        return np.array([time.perf_counter(), time.process_time()]) - start

    def least(rows: int, length: int, form: Any) -> np.ndarray:
        write(rows, length, form)
        return np.min([write(rows, length, form) for _ in range(rounds)], axis=0)

    head = f"{'plain ms/token':>16}{'of a form':>11}{'ratio':>7}"
    print(f"rows  {head}   processor: {head}")
    for rows in batches:
        both = [least(rows, tokens, way) - least(rows, 1, way) for way in ({}, form)]
        cells = [
            f"{1e3 * plain:>16.3f}{1e3 * formed:>11.3f}{formed / plain:>7.2f}"
            for plain, formed in zip(*np.array(both) / (tokens - 1), strict=True)
        ]
        print(f"{rows:<6}" + "              ".join(cells), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", default=["masks", "tokens"])
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--wait", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if "masks" in given.parts:
        measure_masks()
    if "tokens" in given.parts:
        batches = [int(rows) for rows in given.batches.split(",")]
        measure_tokens(batches, given.tokens, given.wait / 1e6, given.rounds)
