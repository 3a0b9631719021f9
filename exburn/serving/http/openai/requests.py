"""Requests of OpenAI's routes: every entry is honoured, or refused by its name."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from exburn.errors import ArgumentError, DataError, MissingDependencyError
from exburn.models.generation import generation_defaults
from exburn.serving.http.failures import RequestFailure, failure_of
from exburn.serving.http.openai.entries import Entries
from exburn.serving.http.openai.tool_calls import call_form
from exburn.serving.text import (
    TextQuestion,
    TextStream,
    folder_sampling,
)

_MOST_ROWS = 128  # of a request, as with OpenAI
_MOST_STOPS, _MOST_TOPS, _MOST_TOOLS = 16, 20, 128
_MOST_TOKENS = 16  # of a completion that does not say, as with OpenAI
# What asks for nothing, by entry; of these everything else is refused.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0, 0.0),
    "presence_penalty": (0, 0.0),
    "logit_bias": ({},),
    "store": (False,),
    "service_tier": ("auto", "default"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
    "functions": (),
    "function_call": (),
    "best_of": (1,),
    "echo": (False,),
    "suffix": (),
}
# What changes no answer: whom it is for, and notes of the caller's own.
_NOTES = ("user", "metadata", "safety_identifier", "prompt_cache_key")


@dataclasses.dataclass(frozen=True)
class TextCall:
    """A request of one of the two routes.

    Attributes:
        prompts: Texts or token numbers, of completions.
        messages: The chat, of chats.
        tools: Functions that may be called, as the template reads them.
        forced: Those of them of which one must be called.
        parallel: Whether there may be several calls.
        schema: A JSON schema that the answer is held to, or ``None``.
    """

    model: str
    prompts: tuple[Any, ...] = ()
    messages: tuple[Any, ...] = ()
    tools: tuple[Any, ...] = ()
    forced: tuple[Any, ...] = ()
    variables: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    parallel: bool = True
    schema: Any = None
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    max_tokens: int | None = None
    sampling: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    stop: tuple[str, ...] = ()
    seed: int | None = None
    logprobs: int | None = None

    @property
    def is_chat(self) -> bool:
        """Tells which of the two routes it is of."""
        return bool(self.messages)


def read_chat(values: Any) -> TextCall:
    """A request of ``/v1/chat/completions``.

    Raises:
        RequestFailure: 400, which names the entry.
    """
    entries = Entries(values)
    messages = tuple(
        _read_message(message, f"messages[{number}].")
        for number, message in enumerate(entries.array("messages"))
    )
    if not messages:
        raise entries.refusal("messages", "must be a list of messages")
    tops = entries.count("top_logprobs", None, 0, _MOST_TOPS)
    logprobs = (tops or 0) if entries.flag("logprobs") else None
    if tops and logprobs is None:
        raise entries.refusal("top_logprobs", "needs logprobs=true")
    asked = [entries.count(name, None) for name in ("max_tokens", _NEW_NAME)]
    tools, forced, one = _read_tools(entries)
    parallel = entries.flag("parallel_tool_calls", True)
    call = TextCall(
        messages=messages,
        tools=tools,
        forced=forced,
        parallel=parallel and not one,
        variables=entries.objects("chat_template_kwargs"),
        schema=_read_format(entries),
        max_tokens=asked[0] if asked[1] is None else asked[1],
        logprobs=logprobs,
        **_read_shared(entries),
    )
    entries.finish()
    return call


_NEW_NAME = "max_completion_tokens"


def read_completion(values: Any) -> TextCall:
    """A request of ``/v1/completions``.

    Raises:
        RequestFailure: 400, which names the entry.
    """
    entries = Entries(values)
    prompt = entries.take("prompt")
    several = isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list)
    prompts = tuple(prompt) if several else (prompt,)
    for one in prompts:
        if not isinstance(one, str) and not _are_tokens(one):
            raise entries.refusal(
                "prompt", "must be a text, token numbers, or a list of either"
            )
    call = TextCall(
        prompts=prompts,
        max_tokens=entries.count("max_tokens", None),
        logprobs=entries.count("logprobs", None, 0, _MOST_TOPS),
        **_read_shared(entries),
    )
    if call.n * len(prompts) > _MOST_ROWS:
        raise entries.refusal("n", f"times prompts must be at most {_MOST_ROWS}")
    entries.finish()
    return call


def _are_tokens(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(type(n) is int and 0 <= n < 1 << 31 for n in value)
    )


def _read_shared(entries: Entries) -> dict[str, Any]:
    """What requests of both routes have."""
    for name, usual in _NEUTRAL.items():
        entries.refuse(name, *usual)
    for name in _NOTES:
        entries.take(name)
    stop = entries.take("stop", [])
    words = [stop] if isinstance(stop, str) else stop
    if not isinstance(words, list) or len(words) > _MOST_STOPS:
        raise entries.refusal("stop", f"must be a text, or up to {_MOST_STOPS} of them")
    if not all(isinstance(word, str) and word for word in words):
        raise entries.refusal("stop", "must be texts that are not empty")
    options = Entries(entries.objects("stream_options"), "stream_options.")
    include_usage = options.flag("include_usage")
    options.refuse("include_obfuscation", False)
    options.finish()
    return {
        "model": entries.text("model"),
        "n": entries.count("n", 1, most=_MOST_ROWS),
        "stream": entries.flag("stream"),
        "include_usage": include_usage,
        "sampling": {
            name: value
            for name, value in (
                ("temperature", entries.number("temperature")),
                ("top_k", entries.count("top_k", None, 0)),
                ("top_p", entries.number("top_p", high=1, open_low=True)),
                ("min_p", entries.number("min_p", high=1)),
                (_PENALTY, entries.number(_PENALTY, open_low=True)),
            )
            if value is not None
        },
        "stop": tuple(words),
        "seed": entries.count("seed", None, 0),
    }


_PENALTY = "repetition_penalty"


def _read_message(values: Any, place: str) -> dict[str, Any]:
    """A message as templates read it: texts, and calls whose arguments are objects."""
    entries = Entries(values, place)
    role = entries.text("role")
    if role is None:
        raise entries.refusal("role", "is missing")
    entries.refuse("function_call")
    entries.refuse("audio")
    entries.refuse("refusal", "")
    content = entries.one_of("content", "", str | list, "a text or a list of parts")
    if isinstance(content, list):
        parts = (
            _read_part(part, f"{place}content[{at}].")
            for at, part in enumerate(content)
        )
        content = "".join(parts)
    # Templates know one role for who tells the model how to be.
    message = {"role": "system" if role == "developer" else role, "content": content}
    calls = [
        _read_call(call, f"{place}tool_calls[{at}].")
        for at, call in enumerate(entries.array("tool_calls"))
    ]
    if calls:
        message["tool_calls"] = calls
    for name in ("name", "tool_call_id", "reasoning_content"):
        if (text := entries.text(name)) is not None:
            message[name] = text
    entries.finish()
    return message


def _read_part(values: Any, place: str) -> str:
    entries = Entries(values, place)
    if (kind := entries.text("type")) != "text":
        raise entries.refusal("type", f"must be text, received {kind!r}")
    text = entries.text("text")
    if text is None:
        raise entries.refusal("text", "is missing")
    entries.finish()
    return text


def _read_call(values: Any, place: str) -> dict[str, Any]:
    entries = Entries(values, place)
    identity, kind = entries.text("id"), entries.text("type", "function")
    function = Entries(entries.objects("function"), f"{place}function.")
    name, text = function.text("name"), function.text("arguments", "{}")
    if name is None or kind != "function":
        raise entries.refusal("function", "must be a function with its name")
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        raise function.refusal("arguments", "must be JSON") from None
    for part in (function, entries):
        part.take("index")
        part.finish()
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return call if identity is None else {"id": identity, **call}


def _read_tools(entries: Entries) -> tuple[tuple[Any, ...], tuple[Any, ...], bool]:
    """The tools that may be called, those of which one must be, and whether one only.

    There are none if the model is told to call none.
    """
    tools, choice = entries.array("tools"), entries.take("tool_choice", "auto")
    name = None
    if isinstance(choice, dict):
        name = _read_choice(choice)
    elif choice not in ("auto", "none", "required"):
        raise entries.refusal(
            "tool_choice",
            "must be auto, none, required, or a function by its name",
            "unsupported_parameter",
        )
    forces = name is not None or choice == "required"
    if forces and not tools:
        raise entries.refusal("tool_choice", "needs tools")
    if len(tools) > _MOST_TOOLS:
        raise entries.refusal("tools", f"must be at most {_MOST_TOOLS}")
    for at, tool in enumerate(tools):
        one = Entries(tool, f"tools[{at}].")
        function = Entries(one.objects("function"), f"tools[{at}].function.")
        if one.text("type") != "function" or not function.text("name"):
            raise one.refusal("", "must be a function with its name")
        function.text("description")
        function.objects("parameters")
        if forces:  # the arguments of a call that must come have the schema
            function.flag("strict")
        else:
            function.refuse("strict", False)
        for part in (function, one):
            part.finish()
    if not forces:
        return () if choice == "none" else tuple(tools), (), False
    forced = [t for t in tools if name is None or t["function"]["name"] == name]
    if not forced:
        raise entries.refusal("tool_choice", "names a function that is no tool")
    return tuple(tools), tuple(forced), name is not None


def _read_choice(values: Any) -> str:
    """The name of the function that must be called."""
    choice = Entries(values, "tool_choice.")
    if (kind := choice.text("type")) != "function":
        raise choice.refusal(
            "type", f"must be function, received {kind!r}", "unsupported_parameter"
        )
    function = Entries(choice.objects("function"), "tool_choice.function.")
    if not (name := function.text("name")):
        raise function.refusal("name", "is missing")
    for part in (function, choice):
        part.finish()
    return name


def _read_format(entries: Entries) -> Any:
    """The JSON schema that an answer is held to."""
    if not (values := entries.objects("response_format")):
        return None
    parts = Entries(values, "response_format.")
    kind = parts.text("type")
    schema: Any = {"type": "object"} if kind == "json_object" else None
    if kind == "json_schema":
        described = Entries(parts.objects(kind), "response_format.json_schema.")
        for name in ("name", "description"):
            described.text(name)
        described.flag("strict")
        schema = described.take("schema")
        if not isinstance(schema, dict):
            raise described.refusal("schema", "must be an object")
        described.finish()
    elif kind not in ("text", "json_object"):
        raise parts.refusal("type", "must be text, json_object or json_schema")
    parts.finish()
    return schema


# ---------------------------------------------------------------------- questions
def questions_of(
    call: TextCall, stream: TextStream, adapter: str | None
) -> list[TextQuestion]:
    """What is to be written, in token numbers: ``n`` rows for each prompt in turn.

    Raises:
        RequestFailure: 400, what is asked for does not fit the model.
    """
    ends: tuple[int, ...] = ()
    if call.is_chat:
        tools = [*call.tools] or None
        messages, variables = [*call.messages], dict(call.variables)
        with _told_of("messages"):
            tokens, ends = stream.lay_out(messages, tools, variables)
        prompts = [tokens]
    else:
        with _told_of("prompt"):
            prompts = [_tokens_of(prompt, stream) for prompt in call.prompts]
    constraint = _constraint_of(call, stream, ends)
    defaults = generation_defaults(stream.model)
    sampling = folder_sampling(defaults)
    if not defaults.do_sample:
        sampling["temperature"] = 1.0  # OpenAI's
    questions: list[TextQuestion] = []
    for tokens in prompts:
        question = TextQuestion(
            tokens,
            _room(call, stream, len(tokens)),
            {**sampling, **call.sampling},
            stop=call.stop,
            ends=ends,
            seed=call.seed,
            logprobs=call.logprobs,
            constraint=constraint,
            adapter=adapter,
        )
        questions += (_with_seed(question, row) for row in range(call.n))
    return questions


def _room(call: TextCall, stream: TextStream, prompt: int) -> int:
    """How many tokens are written behind a prompt, at most."""
    entry = "messages" if call.is_chat else "prompt"
    if prompt <= stream.longest_prompt:
        entry = "max_tokens"
    with _told_of(entry, "context_length_exceeded"):
        usual = None if call.is_chat else _MOST_TOKENS
        return stream.room(prompt, call.max_tokens, usual)


@contextlib.contextmanager
def _told_of(entry: str, code: str | None = None) -> Iterator[None]:
    """What the block refuses is told of an entry.

    Args:
        code: The word for programs.
    """
    try:
        yield
    except (ArgumentError, DataError) as error:
        failure = failure_of(error)
        raise RequestFailure(
            failure.status, failure.message, param=entry, code=code
        ) from error


def _with_seed(question: TextQuestion, row: int) -> TextQuestion:
    """The question for another row, which is drawn by a seed of its own."""
    if question.seed is None or row == 0:
        return question
    return dataclasses.replace(question, seed=(question.seed + row) % (1 << 62))


def _constraint_of(call: TextCall, stream: TextStream, ends: tuple[int, ...]) -> Any:
    """What an answer is held to: calls that must come, else a schema."""
    entry = "tool_choice" if call.forced else "response_format"
    try:
        if call.forced:
            form = call_form(stream.tokenizer, forced=True)
            assert form is not None
            stops = stream.end_tokens(ends)
            return form.constrain(stream.tokenizer, call.forced, call.parallel, stops)
        return None if call.schema is None else stream.constrain(call.schema, ends)
    except MissingDependencyError:
        reason = "the server lacks the package for answers by schema"
    except (ArgumentError, DataError) as error:
        reason = str(error.details.get("cause", error.reason))
    except RecursionError:
        reason = "the schema is nested too deeply"
    raise RequestFailure(400, f"{entry}: {reason}", param=entry)


def _tokens_of(prompt: Any, stream: TextStream) -> np.ndarray:
    if isinstance(prompt, str):
        return stream.encode(prompt)
    most = stream.tokenizer.vocabulary_size
    if max(prompt) >= most:
        reason = f"prompt: token numbers are below {most}"
        raise RequestFailure(400, reason, param="prompt")
    return np.asarray(prompt, np.int32)
