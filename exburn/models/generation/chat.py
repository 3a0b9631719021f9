"""``Model.chat``: the answer of a model to a chat, laid out by its template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from exburn.core.checks import check_flag
from exburn.errors import ArgumentError, DataError
from exburn.models.generation.generate import generate
from exburn.models.generation.prompts import Prompts
from exburn.models.network import Network
from exburn.text import Tokenizer
from exburn.text.chat_template import ChatTemplate, read_messages

_OP = "chat"
_ANSWER = "An answer."  # whose end shows what ends one


def chat(
    self: Network,
    messages: Any,
    max_new_tokens: int | None = None,
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
    continue_final_message: bool = False,
    sampler: Any = None,
    stop: Any = None,
    stream: bool | int = False,
    beams: int = 1,
    length_penalty: float = 0.0,
    seed: int | None = None,
    adapter: str | Sequence[str | None] | None = None,
    room: tuple[int, int] | None = None,
    cache: bool | None = None,
    cache_dtype: str | None = None,
    draft: Any = None,
    schema: Any = None,
    regex: str | None = None,
    grammar: str | None = None,
) -> Any:
    """Answers a chat: lays it out by the tokenizer's template, and writes on.

    The answer ends at the token that the template puts behind one, and at those that
    end a text, of the model's folder or else of the tokenizer.

    Args:
        messages: A list of objects with ``role`` and ``content``, and whatever else the
            template reads; or a list of such chats.
        max_new_tokens, sampler, stop, stream, beams, length_penalty, seed, room, cache,
            cache_dtype, draft, schema, regex, grammar: As of ``generate``.
        adapter: As of ``generate``, for each chat.
        tools: Functions that the model may call, as JSON schemas. Calls of them are in
            the answer as the model writes them.
        variables: More names that the template reads, as ``enable_thinking``.
        continue_final_message: Whether the last message is written on, instead of a new
            one.

    Returns:
        The answer's text, a list of them for several chats; with ``stream`` a generator
        of its pieces.

    Raises:
        ArgumentError: The model has no tokenizer, that has no template, or an argument
            does not fit.
        DataError: The template refuses the chat.
        FileFormatError: The template is not to be trusted.
        MissingDependencyError: ``tokenizers`` or ``jinja2`` is not installed.
        IncompleteAnswerError: As of ``generate``.

    Example:
        >>> from exburn.applications import GPT2
        >>> from exburn.text import CHATML, Tokenizer
        >>> special = ["<|im_start|>", "<|im_end|>"]
        >>> tokenizer = Tokenizer.train(["so it is"] * 9, 270, special=special)
        >>> model = GPT2(vocabulary_size=270, layers=1, width=8, heads=2, positions=64)
        >>> model.tokenizer = tokenizer.with_chat_template(CHATML)
        >>> answer = model.chat([{"role": "user", "content": "Is it so?"}], 5)
        >>> isinstance(answer, str)
        True
    """
    tokenizer, template = _parts(self)
    check_flag(_OP, "continue_final_message", continue_final_message)
    several = isinstance(messages, list | tuple) and bool(messages)
    several = several and isinstance(messages[0], list | tuple)
    chats = list(messages) if several else [messages]
    texts = [
        template.render(
            chat,
            tools=tools,
            add_generation_prompt=not continue_final_message,
            continue_final_message=continue_final_message,
            variables=variables,
        )
        for chat in chats
    ]
    # The template has written the tokens that begin a text.
    rows = [tokenizer.encode(text, special=False) for text in texts]
    end = end_of_answers(template, tokenizer, chats[0], variables)
    stops = stop if isinstance(stop, list | tuple) else [] if stop is None else [stop]
    return generate(
        self,
        Prompts(rows, not several, texts),
        max_new_tokens,
        sampler=sampler,
        stop=[*stops, *end],
        stream=stream,
        beams=beams,
        length_penalty=length_penalty,
        seed=seed,
        adapter=adapter,
        room=room,
        cache=cache,
        cache_dtype=cache_dtype,
        draft=draft,
        schema=schema,
        regex=regex,
        grammar=grammar,
    )


def _parts(model: Network) -> tuple[Tokenizer, ChatTemplate]:
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ArgumentError(
            _OP,
            "a chat is cut by the model's tokenizer, and it has none",
            hint="model.tokenizer = exburn.text.Tokenizer.load(folder)",
        )
    template = tokenizer.chat_template
    if template is None:
        raise ArgumentError(
            _OP,
            "a chat is laid out by the tokenizer's template, and it has none",
            hint="A model of texts alone takes them: model.generate(text). Else "
            "model.tokenizer = tokenizer.with_chat_template(template).",
        )
    return tokenizer, template


def end_of_answers(
    template: ChatTemplate, tokenizer: Tokenizer, messages: Any, variables: Any
) -> list[int]:
    """The special token that the template puts behind an answer, if it puts one."""
    chat = read_messages(messages)
    if chat[-1].get("role") == "assistant":
        chat = chat[:-1]
    chat.append({"role": "assistant", "content": _ANSWER})
    try:
        text = template.render(chat, variables=variables)
    except DataError:  # one that takes no such answer has no end to show
        return []
    place = text.rfind(_ANSWER)
    if place < 0:
        return []
    tail = tokenizer.encode(text[place + len(_ANSWER) :], special=False).tolist()
    return [token for token in tail if token in tokenizer.special_numbers][:1]
