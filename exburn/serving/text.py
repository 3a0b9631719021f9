"""A model that generates texts, as a server streams it.

The request is Triton's of the *generate extension*: ``{"text_input": "…",
"parameters": {"max_tokens": 64, "temperature": 0.7}}``. Each part of the answer is a
text, which comes as soon as the model has written it.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.checks import check_count, check_number
from exburn.errors import ArgumentError
from exburn.errors.boundary import guard_methods
from exburn.models.generation import generation_defaults, position_limit
from exburn.text import Sampler
from exburn.text.defaults import GenerationDefaults

_OP = "generate_stream"
_OWN = ("max_tokens", "stop", "seed", "stream")
_OF_SAMPLERS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
_TOKENS, _PROMPT = 256, 512  # by default, where there are so many positions


@guard_methods
class TextStream:
    """Answers of ``model.generate`` in parts: ``Server({"gpt": TextStream(model)})``.

    All requests share two programs, whatever they ask for; they are compiled here.

    Args:
        model: A model with a tokenizer.
        max_tokens: Tokens that a request may ask for, and gets if neither it nor the
            model's folder says how many; 256 by default, or half of the model's
            positions.
        max_prompt: Tokens that a prompt may have; 512 by default, or the rest of them.
        chunk: Tokens of a part.

    Raises:
        ArgumentError: The model has no tokenizer, or fewer positions than that.

    Example:
        >>> from exburn.text import Tokenizer
        >>> from exburn.applications import GPT2
        >>> model = GPT2(260, layers=1, width=8, heads=2, positions=64)
        >>> model.tokenizer = Tokenizer.train(["so it is"] * 9, 260)
        >>> request = {"text_input": "so", "parameters": {"max_tokens": 4}}
        >>> all(isinstance(part, str) for part in TextStream(model).stream(request))
        True
    """

    def __init__(
        self,
        model: Any,
        max_tokens: int | None = None,
        max_prompt: int | None = None,
        chunk: int = 8,
    ):
        op = "TextStream"
        if getattr(model, "tokenizer", None) is None:
            raise ArgumentError(
                op,
                "the model needs a tokenizer",
                hint="model.tokenizer = exburn.text.Tokenizer.load(path)",
            )
        self.model, self.name = model, model.name
        limit = position_limit(model)
        most = 2 * _PROMPT if limit is None else limit
        if max_tokens is None:
            max_tokens = max(min(_TOKENS, most // 2), 1)
        self.max_tokens = check_count(op, "max_tokens", max_tokens)
        if max_prompt is None:
            max_prompt = max(min(_PROMPT, most - self.max_tokens), 1)
        self.max_prompt = check_count(op, "max_prompt", max_prompt)
        if limit is not None and self.max_tokens + self.max_prompt > limit:
            raise ArgumentError(
                op,
                f"the model has {limit} positions, fewer than max_prompt and "
                "max_tokens together",
                {"max_prompt": self.max_prompt, "max_tokens": self.max_tokens},
            )
        self.chunk = check_count(op, "chunk", chunk)
        self._starting = threading.Lock()  # a model is prepared by one at a time
        if self.max_tokens > 1:
            self._generate([[0]], 2, {})  # compiles what all requests need

    def stream(self, request: Mapping[str, Any]) -> Iterator[str]:
        """The parts of the answer to a request.

        Args:
            request: ``text_input``, and ``parameters``: ``max_tokens``, ``temperature``
                (0 takes the likeliest token), ``top_k``, ``top_p``, ``min_p``,
                ``repetition_penalty``, ``seed``, ``stop`` (a text or several). Without
                any of drawing tokens are chosen as the model's folder says, else the
                likeliest is.

        Raises:
            ArgumentError: It has something else, or a number is out of range.
            DataError: The text has no tokens.
        """
        entries = {"text_input", "parameters", "id"}
        if unknown := sorted(set(request) - entries):
            raise ArgumentError(_OP, f"unknown entry {unknown[0]!r} of the request")
        text, parameters = request.get("text_input"), request.get("parameters")
        if not isinstance(text, str):
            raise ArgumentError(_OP, f"text_input must be a text, received {text!r}")
        parameters = {} if parameters is None else parameters
        if not isinstance(parameters, Mapping):
            raise ArgumentError(
                _OP, f"parameters must be an object, received {parameters!r}"
            )
        for name, value, kind, what in (
            ("id", request.get("id"), str, "a text"),
            ("stream", parameters.get("stream"), bool, "true or false"),
        ):
            if not isinstance(value, kind | None):
                raise ArgumentError(_OP, f"{name} must be {what}, received {value!r}")
        for name in parameters:
            if name not in (*_OWN, *_OF_SAMPLERS):
                raise ArgumentError(
                    _OP,
                    f"unknown parameter {name!r}",
                    {"known": ", ".join((*_OWN, *_OF_SAMPLERS))},
                )
        asked = parameters.get("max_tokens")
        asked = self._usual(text) if asked is None else asked
        count = check_count(_OP, "max_tokens", asked)
        if count > self.max_tokens:
            raise ArgumentError(
                _OP, f"max_tokens must be at most {self.max_tokens}, received {count}"
            )
        stop = parameters.get("stop")
        words = stop if isinstance(stop, list) else [] if stop is None else [stop]
        if not all(isinstance(word, str) for word in words):
            raise ArgumentError(_OP, f"stop is a text or several, received {stop!r}")
        options = {"stop": words or None, "seed": parameters.get("seed")}
        return self._generate(text, count, parameters, stream=self.chunk, **options)

    def _usual(self, text: str) -> int:
        """The number of tokens that are written where a request does not say."""
        defaults = generation_defaults(self.model)
        size = (
            0 if defaults.max_length is None else len(self.model.tokenizer.encode(text))
        )
        count = defaults.new_tokens(size)
        return self.max_tokens if count is None else min(count, self.max_tokens)

    def _generate(
        self, prompt: Any, count: int, parameters: Mapping[str, Any], **options
    ):
        with self._starting:
            return self.model.generate(
                prompt,
                count,
                sampler=_sampler_of(parameters, generation_defaults(self.model)),
                room=(self.max_prompt, self.max_tokens),
                **options,
            )


@dataclasses.dataclass(frozen=True)
class _AnySampler(Sampler):
    """All samplers in one, whose choice is a matter of its numbers.

    Args:
        greedy: 1 to take the likeliest token, else 0.
        k, p, min_p: As of ``TopK``, ``TopP`` and ``MinP``; tokens need all of them.
    """

    greedy: Any = 0
    k: Any = 1 << 30
    p: Any = 1.0
    min_p: Any = 0.0

    def keep(self, logits):
        ordered = jnp.sort(logits, axis=-1, descending=True)
        among = jnp.arange(logits.shape[-1]) < self.k
        shares = jax.nn.softmax(jnp.where(among, ordered, -jnp.inf), axis=-1)
        needed = among & (jnp.cumsum(shares, axis=-1) - shares < self.p)
        needed &= shares >= self.min_p * shares[..., :1]
        least = jnp.where(needed, ordered, jnp.inf).min(axis=-1, keepdims=True)
        return jnp.where(logits < least, -jnp.inf, logits)

    def __call__(self, logits, keys):
        drawn = super().__call__(logits, keys)
        return jnp.where(self.greedy == 1, logits.argmax(axis=-1), drawn)


def _parameters_of(defaults: GenerationDefaults) -> dict[str, Any]:
    """A folder's defaults as parameters of a request."""
    if not defaults.do_sample:
        return {"repetition_penalty": defaults.repetition_penalty}
    parameters = {name: getattr(defaults, name) for name in _OF_SAMPLERS}
    return parameters | {"top_k": defaults.top_k or 1 << 30}


def _sampler_of(parameters: Mapping[str, Any], defaults: GenerationDefaults) -> Sampler:
    """The sampler that parameters ask for, else the one of the model's folder."""
    numbers = {n: parameters[n] for n in _OF_SAMPLERS if parameters.get(n) is not None}
    if not {"temperature", "top_k", "top_p", "min_p"} & numbers.keys():
        numbers = _parameters_of(defaults) | numbers
    heat = check_number(_OP, "temperature", numbers.get("temperature", 1.0))
    penalty = numbers.get("repetition_penalty", 1.0)
    drawn = {"temperature", "top_k", "top_p", "min_p"} & numbers.keys()
    p = check_number(_OP, "top_p", numbers.get("top_p", 1.0), high=1, open_low=True)
    return _AnySampler(
        int(heat == 0 or not drawn),
        min(check_count(_OP, "top_k", numbers.get("top_k", 1 << 30)), 1 << 30),
        p,
        check_number(_OP, "min_p", numbers.get("min_p", 0.0), high=1),
        temperature=heat or 1.0,
        repetition_penalty=check_number(
            _OP, "repetition_penalty", penalty, open_low=True
        ),
    )
