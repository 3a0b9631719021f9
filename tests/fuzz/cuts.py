"""Texts that come in pieces, beside the same text at once: any tokens, stops and cuts.

Keras has no part in it. A model plays tokens that were drawn; the text of its answer,
of streams of any size of piece, of a ``TextStream`` and of a client over HTTP are to be
the text that the tokens make, up to the first stop.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
from tests.fuzz.values import pick
from tests.models.generation.texts import KINDS, Player, whole_text
from tests.serving.http.conftest import Client

from exburn.serving import Server, TextStream

TOLERANCE = 0.0

_POSITIONS, _MOST = 64, 32
_TEXTS = ("用户：", "用用户", "👩‍👩‍👧", "User: so", "é", "so it", "、", "\ufffd")


class Served(Player):
    """A model that writes the tokens that it is told, and a server over it.

    Args:
        kind: Of its tokenizer.
    """

    def __init__(self, kind: str):
        super().__init__(KINDS[kind], _POSITIONS)
        self.streams = {
            str(chunk): TextStream(self.model, _MOST, _POSITIONS - _MOST, chunk=chunk)
            for chunk in (1, 2, 3, 8)
        }
        self.client = Client(Server(self.streams, port=0).asgi())

    def over_http(self, chunk: int, parameters: dict[str, Any]) -> str:
        """The text that a client puts together of the events."""
        body = {"text_input": Player.PROMPT, "parameters": parameters}
        answer = self.client("POST", f"/v2/models/{chunk}/generate_stream", json=body)
        assert answer.status_code == 200, answer.text
        events = [e for e in answer.text.split("\n\n") if e]
        parts = [json.loads(e.removeprefix("data: "))["text_output"] for e in events]
        return "".join(parts)


@functools.cache
def player(kind: str) -> Served:
    """The player of a kind; its programs are compiled once."""
    return Served(kind)


def play(kind: str, tokens: list[int], stops: list[str], chunk: int) -> dict[str, str]:
    """The text of the tokens, and that of each way to get it."""
    one = player(kind)
    one.learn(tokens)
    named = [*filter(one.tokenizer.is_special, stops), one.tokenizer.end or ""]
    ends = set(map(one.tokenizer.number_of, named))
    count = len(tokens)
    written = next((tokens[:i] for i in range(count) if tokens[i] in ends), tokens)
    texts = {"expected": whole_text(one.tokenizer, one.prompt, written, stops)}
    options = {"stop": stops or None}
    texts["whole"] = one.model.generate(Player.PROMPT, count, **options)
    for size in (1, chunk, 16):
        pieces = one.model.generate(Player.PROMPT, count, stream=size, **options)
        texts[f"stream={size}"] = "".join(pieces)
    told = {"max_tokens": count, "stop": stops}
    for name, stream in one.streams.items():
        request = {"text_input": Player.PROMPT, "parameters": told}
        texts[f"TextStream, {name}"] = "".join(stream.stream(request))
        texts[f"HTTP, {name}"] = one.over_http(int(name), told)
    return texts


def draw(rng: np.random.Generator) -> dict:
    kind = pick(rng, *sorted(KINDS))
    tokenizer = KINDS[kind]
    tokens: list[int] = []
    for _ in range(int(rng.integers(1, 8))):
        if rng.random() < 0.5:
            tokens.append(int(rng.integers(tokenizer.vocabulary_size)))
        else:
            tokens += tokenizer.encode(pick(rng, *_TEXTS)).tolist()
    tokens = tokens[: min(int(rng.integers(4, _MOST + 1)), len(tokens))]
    text, stops = tokenizer.decode(tokens), []
    for _ in range(int(rng.integers(0, 4))):
        if text and rng.random() < 0.7:
            start = int(rng.integers(len(text)))
            end = start + int(rng.integers(1, 5))
            stops.append(text[start:end] + pick(rng, "", "", "户"))
        else:
            stops.append(pick(rng, *_TEXTS))
    return {
        "kind": kind,
        "tokens": tokens,
        "stops": stops,
        "chunk": int(rng.integers(1, 12)),
    }


def render(spec: dict) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in spec.items())
    return f"from tests.fuzz.cuts import play\nresult = play({given})"


def judge(result: Any) -> str | None:
    """The first way that gives another text than the tokens make."""
    if isinstance(result, Exception):
        return f"error: {type(result).__name__}: {str(result).splitlines()[0]}"
    expected = result["result['expected']"]
    for way, text in result.items():
        if text != expected:
            return f"text: {text!r} of {way}, expected {expected!r}"
    return None
