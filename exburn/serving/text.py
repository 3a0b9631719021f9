"""A model that writes texts, as a server has it: texts in, pieces of texts out.

The engine writes token numbers. Here are the tokenizer, the template of chats, stops
that are texts, and the requests of Triton's *generate extension*: ``{"text_input": "…",
"parameters": {"max_tokens": 64, "temperature": 0.7}}``. Those of OpenAI's routes are in
``http/openai``.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from exburn.core.checks import check_count, check_number, check_optional, check_seed
from exburn.errors import (
    ArgumentError,
    DataError,
    FileFormatError,
    QueueFullError,
    ServingClosedError,
)
from exburn.errors.boundary import guard_methods
from exburn.models.generation import generation_defaults, generation_plan
from exburn.models.generation.chat import end_of_answers
from exburn.models.generation.engine import TextEngine, TextRequest
from exburn.models.generation.stops import Stops, read_stops
from exburn.serving.options import seconds
from exburn.serving.plain_writer import PlainWriter
from exburn.serving.text_rows import TextRow
from exburn.text.constraints import TextConstraint
from exburn.text.defaults import GenerationDefaults
from exburn.text.token_bytes import token_bytes

_OP = "generate_stream"
_OWN = ("max_tokens", "stop", "seed", "stream")
OF_SAMPLERS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
_DRAWING = {"temperature", "top_k", "top_p", "min_p"}
_LOOK = 0.02  # seconds
_COLDEST, _HOTTEST = 1e-6, 1e30
_USUAL = {"temperature": 1.0}
_TOKENS, _PROMPT = 256, 512  # by default, where there are so many positions


@dataclasses.dataclass(frozen=True)
class TextQuestion:
    """What one row is to be, in token numbers but for stops.

    Attributes:
        sampling: How tokens are drawn, by the names of ``TextRequest``.
        stop: Texts that end it.
        ends: Tokens that do so, beside those of the model's folder.
        logprobs: How many likeliest tokens are told beside each; ``None`` for no
            logarithms.
    """

    tokens: np.ndarray
    max_tokens: int
    sampling: Mapping[str, Any]
    stop: tuple[str, ...] = ()
    ends: tuple[int, ...] = ()
    seed: int | None = None
    logprobs: int | None = None
    constraint: Any = None
    adapter: str | None = None


@guard_methods
class TextStream:
    """A model that writes many texts at once: ``Server({"gpt": TextStream(model)})``.

    Rows of all requests are written together, in slots, over a cache in pages, of which
    prompts that begin alike share those of their beginning. A model that cannot be
    written so (one without a cache of keys and values) runs each request by itself.

    Args:
        model: A model with a tokenizer.
        max_tokens: Tokens that a request may ask for, and gets if neither it nor the
            model's folder says how many. By default all that there is room for may be
            asked for, and 256 are written where nobody says.
        max_prompt: Tokens that a prompt may have; by default the rest.
        chunk: Tokens of a part, at least; by default each comes as it is written.
        slots: Texts that are written at once; 32 by default.
        cache: Memory for keys and values, as ``"2 GB"``; by default as many as 2,048
            tokens for each slot take, and at most half of the free memory.
        cache_dtype: ``"int8"``: keys and values are kept in 8 bits, so that about twice
            as many tokens fit.
        max_queue: Texts that may wait for a slot; one more gets 429.
        wait: Longest time to the first token, and between two; then the request gets
            504.

    Raises:
        ArgumentError: The model has no tokenizer, or fewer positions than that.

    Example:
        >>> from exburn.text import Tokenizer
        >>> from exburn.applications import GPT2
        >>> model = GPT2(260, layers=1, width=8, heads=2, positions=64)
        >>> model.tokenizer = Tokenizer.train(["so it is"] * 9, 260)
        >>> request = {"text_input": "so", "parameters": {"max_tokens": 4}}
        >>> with TextStream(model) as texts:
        ...     all(isinstance(part, str) for part in texts.stream(request))
        True
    """

    def __init__(
        self,
        model: Any,
        max_tokens: int | None = None,
        max_prompt: int | None = None,
        chunk: int | None = None,
        *,
        slots: int | None = None,
        cache: int | str | None = None,
        cache_dtype: str | None = None,
        max_queue: int = 1024,
        wait: Any = "60 s",
    ):
        op = "TextStream"
        if getattr(model, "tokenizer", None) is None:
            raise ArgumentError(
                op,
                "the model needs a tokenizer",
                hint="model.tokenizer = exburn.text.Tokenizer.load(path)",
            )
        self.model, self.name = model, model.name
        self.tokenizer, self.closed = model.tokenizer, False
        self._chunk = check_optional(check_count, op, "chunk", chunk)
        self.wait = seconds(op, "wait", wait, most=3600.0)
        max_queue = check_count(op, "max_queue", max_queue)
        self.max_tokens = check_optional(check_count, op, "max_tokens", max_tokens)
        self.max_prompt = check_optional(check_count, op, "max_prompt", max_prompt)
        plan = generation_plan(model)
        self._check_positions(plan.positions)
        sizes: dict[str, Any] = {
            "slots": slots,
            "cache": cache,
            "cache_dtype": cache_dtype,
        }
        sizes = {name: size for name, size in sizes.items() if size is not None}
        if plan.why_not_cached is None:
            self.engine = TextEngine(model, max_queue=max_queue, **sizes)
            tokens = self.engine.statistics().pages * self.engine.page
            self.limit = min(plan.positions or tokens, tokens)
            self._most = max_queue + self.engine.slots
            self._writer: Any = self.engine
        elif sizes:
            raise ArgumentError(
                op,
                f"the model has no cache that {', '.join(sizes)} could be of: "
                f"{plan.why_not_cached}",
            )
        else:
            self.engine = None
            room = self._choose_room(plan.positions)
            self._writer = PlainWriter(model, room, self._chunk, max_queue)
            self._most = max_queue

    def _check_positions(self, positions: int | None) -> None:
        """Raises if the model has fewer positions than it is to be served with."""
        sizes = {"max_prompt": self.max_prompt or 1, "max_tokens": self.max_tokens or 1}
        if positions is not None and sum(sizes.values()) > positions:
            raise ArgumentError(
                "TextStream",
                f"the model has {positions} positions, fewer than max_prompt and "
                "max_tokens together",
                sizes,
            )

    def _choose_room(self, positions: int | None) -> tuple[int, int]:
        """Tokens of prompt and answer that a model without a cache is compiled for."""
        most = 2 * _PROMPT if positions is None else positions
        self.max_tokens = self.max_tokens or max(min(_TOKENS, most // 2), 1)
        rest = max(min(_PROMPT, most - self.max_tokens), 1)
        self.max_prompt = self.max_prompt or rest
        self.limit = self.max_prompt + self.max_tokens
        return self.max_prompt, self.max_tokens

    # ------------------------------------------------------------------ requests
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
            QueueFullError: Too many requests wait.
        """
        (row,) = self.ask([self.read(request)])
        return (piece.text for piece in row.pieces() if piece.text)

    def read(self, request: Mapping[str, Any]) -> TextQuestion:
        """A request of Triton's form, checked."""
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
            if name not in (*_OWN, *OF_SAMPLERS):
                raise ArgumentError(
                    _OP,
                    f"unknown parameter {name!r}",
                    {"known": ", ".join((*_OWN, *OF_SAMPLERS))},
                )
        stop = parameters.get("stop")
        words = stop if isinstance(stop, list) else [] if stop is None else [stop]
        if not all(isinstance(word, str) for word in words):
            raise ArgumentError(_OP, f"stop is a text or several, received {stop!r}")
        sampling = _sampling_of(parameters, generation_defaults(self.model))
        asked = parameters.get("max_tokens")
        for name in ("max_tokens", "top_k"):
            check_optional(check_count, _OP, name, parameters.get(name))
        seed = check_seed(_OP, parameters.get("seed"))
        if seed is not None and seed >= 1 << 63:
            raise ArgumentError(_OP, f"seed must be below 2**63, received {seed}")
        tokens = self.encode(text)
        return TextQuestion(
            tokens,
            self.room(len(tokens), asked),
            sampling,
            stop=tuple(words),
            seed=seed,
        )

    def encode(self, text: str) -> np.ndarray:
        """The tokens of a prompt.

        Raises:
            DataError: There is none.
        """
        tokens = self.tokenizer.encode(text)
        if not len(tokens):
            raise DataError(
                _OP,
                "the prompt is empty",
                hint="Begin with the token that ends or begins a text.",
            )
        return tokens

    def lay_out(
        self, messages: Any, tools: Any = None, variables: Any = None
    ) -> tuple[np.ndarray, tuple[int, ...]]:
        """The tokens of a chat, up to where an answer begins, and what ends one.

        Raises:
            ArgumentError: The tokenizer has no template.
            DataError: The template refuses the chat.
        """
        template = self.tokenizer.chat_template
        if template is None:
            raise ArgumentError(_OP, "this model takes texts, no chats")
        try:
            text = template.render(
                messages, tools=tools, add_generation_prompt=True, variables=variables
            )
            ends = end_of_answers(template, self.tokenizer, messages, variables)
        except (DataError, FileFormatError) as error:
            raise DataError(_OP, error.reason) from error
        # The template has written the tokens that begin a text.
        return self.tokenizer.encode(text, special=False), tuple(ends)

    def constrain(self, schema: Any, ends: Sequence[int] = ()) -> Any:
        """What holds answers to a JSON schema.

        Args:
            ends: Tokens that end an answer, beside those of the model's folder.

        Raises:
            ArgumentError: It asks for what is not honoured.
        """
        stops = self.end_tokens(ends)
        return TextConstraint.compile(self.tokenizer, json_schema=schema, ends=stops)

    def end_tokens(self, ends: Sequence[int] = ()) -> list[int]:
        """These tokens, and those that end an answer by the model's folder."""
        return [stop[0] for stop in self._stops(ends).tokens if len(stop) == 1]

    def _stops(self, stop: Sequence[Any]) -> Stops:
        ends = generation_defaults(self.model).end_tokens
        return read_stops(list(stop), self.tokenizer, True, ends)

    @property
    def longest_prompt(self) -> int:
        """How many tokens a prompt may have."""
        return self.max_prompt or max(self.limit - (self.max_tokens or 1), 1)

    def room(self, prompt: int, asked: int | None, usual: int | None = _TOKENS) -> int:
        """How many tokens are written behind a prompt, at most.

        Args:
            prompt: Tokens of the prompt.
            asked: How many the request asks for, if it says so.
            usual: How many are written where neither it nor the model's folder says;
                ``None`` for all that there is room for.

        Raises:
            ArgumentError: The prompt is too long, or more are asked for than allowed.
        """
        longest = self.longest_prompt
        if prompt > longest:
            raise ArgumentError(
                _OP, f"the prompt may have {longest} tokens, it has {prompt}"
            )
        most = min(self.max_tokens or self.limit, self.limit - prompt)
        if asked is None:
            count = generation_defaults(self.model).new_tokens(prompt)
            usual = self.max_tokens or usual or most
            return min(usual if count is None else count, most)
        if asked > most:
            raise ArgumentError(
                _OP, f"max_tokens must be at most {most} here, received {asked}"
            )
        return asked

    # ------------------------------------------------------------------ writing
    def ask(
        self, questions: Sequence[TextQuestion], client: str | None = None
    ) -> list[TextRow]:
        """Begins to write the rows of a request: all of them, or none.

        Args:
            client: Whom they are for: the rows of each get their turn.

        Raises:
            QueueFullError: Too many requests wait.
            ServingClosedError: It was closed.
        """
        if self.closed:
            raise ServingClosedError("serving", "the model is served no more")
        if len(questions) > self._most:  # before others wait behind some of them
            raise QueueFullError("serving", f"{self._most} texts may be under way")
        rows: list[TextRow] = []
        try:
            for question in questions:
                rows.append(self._begin(question, client))
        except BaseException:
            for row in rows:
                row.answer.cancel()
            raise
        return rows

    def _begin(self, question: TextQuestion, client: str | None) -> TextRow:
        stops = self._stops([*question.stop, *question.ends])
        request = TextRequest(
            question.tokens,
            question.max_tokens,
            **question.sampling,
            stops=tuple(map(tuple, stops.tokens)),
            seed=question.seed,
            logprobs=question.logprobs,
            constraint=question.constraint,
            adapter=question.adapter,
            client=client,
        )
        try:
            answer = self._writer.submit(request)
        except (ArgumentError, DataError) as error:
            raise type(error)(_OP, error.reason) from error
        least = self._chunk or 1
        row = answer, self.tokenizer, question.tokens, stops.texts, least
        return TextRow(*row, question.constraint)

    # ------------------------------------------------------------------ the model
    @property
    def takes_chats(self) -> bool:
        """Tells whether the tokenizer has a template of chats."""
        return self.tokenizer.chat_template is not None

    @property
    def adapters(self) -> list[str]:
        """Names of the model's adapters, which requests may ask for."""
        return list(getattr(self.model, "adapter_names", ()))

    def warm_up(self) -> None:
        """Has the programs compiled that a lone request needs, by writing a text."""
        question = TextQuestion(np.zeros(1, np.int32), min(2, self.limit - 1), _USUAL)
        for row in self.ask([question]):
            row.answer.result()

    def bytes_of(self, token: int) -> bytes:
        """What a token adds to a text; of a special one its name."""
        data = self._bytes[token] if 0 <= token < len(self._bytes) else b""
        return data or (self.tokenizer.token_of(token) or "").encode()

    @functools.cached_property
    def _bytes(self) -> list[bytes]:
        try:
            return token_bytes(self.tokenizer).tokens
        except FileFormatError:  # its decoder makes of a token what is beside it
            return []

    def refresh(self) -> None:
        """Forgets what was computed of prompts: the model's weights have changed."""
        self._writer.refresh()

    def close(self, *, timeout: float = 0.0) -> None:
        """Takes no more, and gives up its memory, and what is still under way.

        Args:
            timeout: Seconds that the texts under way have.
        """
        self.closed = True
        until = time.monotonic() + timeout
        while self._under_way and time.monotonic() < until:
            time.sleep(_LOOK)
        self._writer.close()

    @property
    def _under_way(self) -> int:
        """Texts that are written, or wait."""
        if self.engine is None:
            return self._writer.under_way
        statistics = self.engine.statistics()
        return statistics.active + statistics.queue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _sampling_of(
    parameters: Mapping[str, Any], defaults: GenerationDefaults
) -> dict[str, Any]:
    """How tokens are drawn: as parameters say, else as the model's folder does."""
    numbers = {n: parameters[n] for n in OF_SAMPLERS if parameters.get(n) is not None}
    if not _DRAWING & numbers.keys():
        numbers = folder_sampling(defaults) | numbers
    numbers.setdefault("temperature", 1.0)
    return check_sampling(_OP, numbers)


def folder_sampling(defaults: GenerationDefaults) -> dict[str, Any]:
    """How a model's folder has tokens drawn.

    Example:
        >>> folder_sampling(GenerationDefaults())
        {'temperature': 0.0, 'repetition_penalty': 1.0}
    """
    names = OF_SAMPLERS if defaults.do_sample else ("repetition_penalty",)
    numbers = {name: getattr(defaults, name) for name in names}
    return {"temperature": 0.0} | numbers


def check_sampling(op: str, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a sampler, each of them allowed.

    Raises:
        ArgumentError: One is not.
    """
    top_k = numbers.get("top_k", 0)
    penalty = numbers.get("repetition_penalty", 1.0)
    penalty = check_number(op, "repetition_penalty", penalty, open_low=True)
    heat = check_number(op, "temperature", numbers["temperature"])
    return {
        # Numbers that are none in float32: nearly 0, and nearly infinite.
        "temperature": min(heat, _HOTTEST) if heat >= _COLDEST else 0.0,
        "top_k": min(check_count(op, "top_k", top_k, 0), 1 << 30),
        "top_p": check_number(
            op, "top_p", numbers.get("top_p", 1.0), high=1, open_low=True
        ),
        "min_p": check_number(op, "min_p", numbers.get("min_p", 0.0), high=1),
        "repetition_penalty": min(max(penalty, _COLDEST), _HOTTEST),
    }
