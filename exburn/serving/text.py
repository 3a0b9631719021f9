"""A model that generates texts, as a server streams it.

The request is Triton's of the *generate extension*: ``{"text_input": "…",
"parameters": {"max_tokens": 64, "temperature": 0.7}}``. Each part of the answer is a
text, which comes as soon as the model has written it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from exburn.core.checks import check_count
from exburn.errors import ArgumentError
from exburn.text import Greedy, MinP, RandomSampler, TopK, TopP

_OP = "generate_stream"
_OWN = ("max_tokens", "stop", "seed", "stream")
_OF_SAMPLERS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


class TextStream:
    """Answers of ``model.generate`` in parts: ``Server({"gpt": TextStream(model)})``.

    Args:
        model: A model with a tokenizer.
        max_tokens: Tokens that a request may ask for, and gets if it says nothing.
        chunk: Tokens of a part.

    Raises:
        ArgumentError: The model has no tokenizer, or a number is no integer >= 1.

    Example:
        >>> from exburn.text import Tokenizer
        >>> from exburn.applications import GPT2
        >>> model = GPT2(260, layers=1, width=8, heads=2, positions=64)
        >>> model.tokenizer = Tokenizer.train(["so it is"] * 9, 260)
        >>> request = {"text_input": "so", "parameters": {"max_tokens": 4}}
        >>> all(isinstance(part, str) for part in TextStream(model).stream(request))
        True
    """

    def __init__(self, model: Any, max_tokens: int = 256, chunk: int = 8):
        if getattr(model, "tokenizer", None) is None:
            raise ArgumentError(
                "TextStream",
                "the model needs a tokenizer",
                hint="model.tokenizer = exburn.text.Tokenizer.load(path)",
            )
        self.model, self.name = model, model.name
        self.max_tokens = check_count("TextStream", "max_tokens", max_tokens)
        self.chunk = check_count("TextStream", "chunk", chunk)
        self._starting = threading.Lock()  # a model is prepared by one at a time

    def stream(self, request: Mapping[str, Any]) -> Iterator[str]:
        """The parts of the answer to a request.

        Args:
            request: ``text_input``, and ``parameters``: ``max_tokens``, ``temperature``
                (0 takes the likeliest token), ``top_k``, ``top_p``, ``min_p``,
                ``repetition_penalty``, ``seed``, ``stop`` (a text or several).

        Raises:
            ArgumentError: It has something else, or a number is out of range.
            DataError: The text has no tokens.
        """
        known = {"text_input", "parameters", "id"}
        if unknown := sorted(set(request) - known):
            raise ArgumentError(_OP, f"unknown entry {unknown[0]!r} of the request")
        text, told = request.get("text_input"), request.get("parameters") or {}
        if not isinstance(text, str):
            raise ArgumentError(_OP, f"text_input must be a text, received {text!r}")
        if not isinstance(told, Mapping):
            raise ArgumentError(_OP, f"parameters must be an object, received {told!r}")
        for name in told:
            if name not in (*_OWN, *_OF_SAMPLERS):
                raise ArgumentError(
                    _OP,
                    f"unknown parameter {name!r}",
                    {"known": ", ".join((*_OWN, *_OF_SAMPLERS))},
                )
        count = check_count(_OP, "max_tokens", told.get("max_tokens", self.max_tokens))
        if count > self.max_tokens:
            raise ArgumentError(
                _OP, f"max_tokens must be at most {self.max_tokens}, received {count}"
            )
        with self._starting:
            return self.model.generate(
                text,
                count,
                sampler=_sampler_of(told),
                stop=told.get("stop"),
                seed=told.get("seed"),
                stream=self.chunk,
            )


def _sampler_of(told: Mapping[str, Any]) -> Any:
    """The sampler that parameters ask for; the likeliest token without any."""
    given = {n: told[n] for n in _OF_SAMPLERS if told.get(n) is not None}
    kinds = [name for name in ("top_p", "top_k", "min_p") if name in given]
    if kinds not in ([], ["top_p"], ["top_k"], ["min_p"], ["top_p", "top_k"]):
        raise ArgumentError(_OP, f"{' and '.join(kinds)} do not go together")
    options = {}
    if "repetition_penalty" in given:
        options["repetition_penalty"] = given["repetition_penalty"]
    cold = given.get("temperature") == 0
    if cold or (not kinds and "temperature" not in given):
        return Greedy(**options)
    options["temperature"] = given.get("temperature", 1.0)
    match kinds:
        case ["top_p", *_]:
            return TopP(given["top_p"], given.get("top_k"), **options)
        case ["top_k"]:
            return TopK(given["top_k"], **options)
        case ["min_p"]:
            return MinP(given["min_p"], **options)
    return RandomSampler(**options)
