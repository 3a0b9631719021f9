"""Chats as texts, by the templates that folders of models have."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exburn.core.checks import check_flag
from exburn.errors import (
    ArgumentError,
    DataError,
    ExBurnError,
    FileFormatError,
    printable,
    require,
)
from exburn.errors.boundary import guard_methods
from exburn.text.settings import Texts

_OP = "ChatTemplate"
_DEEPEST = 50  # lists and objects within each other in a message
_MARK = "CONTINUE_FINAL_MESSAGE_TAG "
_REASONING = ("reasoning_content", "thinking", "reasoning")

CHATML = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.role == 'assistant' %}"
    "{%- generation %}{{- message.content + '<|im_end|>' }}{%- endgeneration %}"
    "{%- else %}{{- message.content + '<|im_end|>' }}{%- endif %}"
    "{{- '\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


@guard_methods
class ChatTemplate:
    """A template of Jinja, or several by their names, which make a text of a chat.

    It runs in Jinja's sandbox and sees plain values alone; its steps, its time and what
    it writes are bounded. ``strftime_now`` tells one fixed date: there is no clock.

    Args:
        template: Its text, or texts by names: ``tool_use`` is taken where there are
            tools, else ``default``.
        tokens: What it knows of tokens, as ``bos_token``.

    Attributes:
        tokens: The same.

    Raises:
        ArgumentError, DataError: One of them is no text.

    Example:
        >>> template = ChatTemplate(CHATML)
        >>> print(template.render([{"role": "user", "content": "Hello."}]))
        <|im_start|>user
        Hello.<|im_end|>
        <BLANKLINE>
    """

    def __init__(
        self,
        template: str | Mapping[str, str],
        tokens: Mapping[str, str] | None = None,
    ):
        one = isinstance(template, str)
        self._texts = Texts({"default": template} if one else template)
        self.tokens = Texts(tokens or {})

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The text of a chat, as ``apply_chat_template`` of ``transformers`` makes it.

        Args:
            messages: Objects with ``role`` and ``content``, and whatever else the
                template reads, as ``tool_calls`` or ``reasoning_content``.
            tools: Functions that the assistant may call, as JSON schemas.
            add_generation_prompt: Whether the text ends where an answer begins.
            continue_final_message: Whether the last message is left open, to be
                written on.
            variables: More names that the template reads, as ``enable_thinking``.

        Raises:
            ArgumentError: The two ends are asked for together.
            DataError: The chat has other things than plain values, or the template
                refuses it or fails on it.
            FileFormatError: The template is none, or not to be trusted.
            MissingDependencyError: ``jinja2`` is not installed.
        """
        check_flag(_OP, "add_generation_prompt", add_generation_prompt)
        if not check_flag(_OP, "continue_final_message", continue_final_message):
            return self.spans(messages, tools, add_generation_prompt, variables)[0]
        if add_generation_prompt:
            raise ArgumentError(
                _OP,
                "a chat ends with an open message (continue_final_message) or where a "
                "new one begins (add_generation_prompt), not both",
            )
        return self._open(messages, tools, variables)

    def spans(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> tuple[str, list[tuple[int, int]]]:
        """The text of a chat, and where in it the template says the assistant speaks.

        Args: as of `render`.

        Returns:
            The text, and the first character of each such part and the one behind it.
        """
        schemas = None if tools is None else plain_value(tools, "tools")
        values = {
            "messages": read_messages(messages),
            "tools": schemas,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        more = plain_value(variables or {}, "variables")
        if not isinstance(more, dict) or not more.keys().isdisjoint(values):
            raise DataError(
                _OP,
                "variables are an object of more names than "
                f"{', '.join(values)}, received {printable(', '.join(map(str, more)))}",
            )
        values = {**self.tokens, **values, **more}
        return _run(self._text_for(schemas), values)

    @property
    def marks_answers(self) -> bool:
        """Whether the template itself says what the assistant speaks.

        Example:
            >>> ChatTemplate(CHATML).marks_answers
            True
        """
        sandbox = _sandbox()
        return any(sandbox.marks_answers(text) for text in self._texts.values())

    def mentions(self, text: str) -> bool:
        """Whether one of the templates has a text.

        Example:
            >>> ChatTemplate(CHATML).mentions("<|im_start|>")
            True
        """
        return any(text in template for template in self._texts.values())

    def _text_for(self, tools: Any) -> str:
        texts = self._texts
        name = "tool_use" if tools is not None and "tool_use" in texts else "default"
        if name not in texts:
            raise FileFormatError(
                _OP,
                "none of the templates is the default one",
                {"templates": ", ".join(map(printable, texts))},
                hint="Choose one: tokenizer.with_chat_template(text).",
            )
        return texts[name]

    def _open(self, messages: Any, tools: Any, variables: Any) -> str:
        """The text up to the end of the last message's content."""
        chat = read_messages(messages)
        last = chat[-1] if chat else {}
        blocks = last.get("content")
        if isinstance(blocks, list):
            texts = [b for b in blocks if isinstance(b, dict) and "text" in b]
            place, key = (texts[-1], "text") if texts else ({}, "text")
        else:
            place, key = last, "content"
        content = place.get(key)
        if not isinstance(content, str):
            raise DataError(_OP, "the last message has no content to be written on")
        place[key] = content + _MARK
        text, _ = self.spans(chat, tools, False, variables)
        mark = text.rfind(_MARK.strip())
        if mark < 0 or content.strip() not in text:
            raise DataError(
                _OP, "the template leaves out the content of the last message"
            )
        trims = text[mark : mark + len(_MARK)] != _MARK
        return text[:mark].rstrip() if trims else text[:mark]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChatTemplate) and (
            (self._texts, self.tokens) == (other._texts, other.tokens)
        )

    def __hash__(self) -> int:
        return hash((self._texts, self.tokens))

    def __repr__(self) -> str:
        size = sum(map(len, self._texts.values()))
        return f"ChatTemplate({size} characters, {', '.join(self._texts)})"


# ---------------------------------------------------------------------- values
def read_messages(messages: Any) -> list[dict[str, Any]]:
    """The messages of a chat as plain values, with the names that templates read.

    An entry that is ``None`` is left out, and thoughts have each of their names.

    Raises:
        DataError: It is no list of objects, or has other things than plain values.

    Example:
        >>> read_messages([{"role": "user", "content": "Hello.", "name": None}])
        [{'role': 'user', 'content': 'Hello.'}]
    """
    chat = plain_value(messages, "messages")
    if not isinstance(chat, list) or not chat:
        raise DataError(
            _OP, f"a chat is a list of messages, received {_kind(messages)}"
        )
    for number, message in enumerate(chat):
        if not isinstance(message, dict):
            raise DataError(
                _OP,
                f"message {number} must be an object with 'role' and 'content', "
                f"received {_kind(message)}",
            )
    chat = [{k: v for k, v in m.items() if v is not None} for m in chat]
    for message in chat:
        thoughts = [message[name] for name in _REASONING if name in message]
        if thoughts:
            message.setdefault("thinking", thoughts[0])
            message["reasoning_content"] = thoughts[0]
    return chat


def plain_value(value: Any, name: str, depth: int = 0) -> Any:
    """A copy of a value that has texts, numbers, lists and objects alone.

    Args:
        value: Lists and objects as Python, NumPy and Arrow have them.
        name: Its name in errors.

    Raises:
        DataError: It has something else, or is nested too deeply.

    Example:
        >>> plain_value({"a": (np.int64(1), "so")}, "message")
        {'a': [1, 'so']}
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    if depth > _DEEPEST:
        raise DataError(_OP, f"{name} are nested more than {_DEEPEST} times")
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, np.generic | np.ndarray):
        return plain_value(value.tolist(), name, depth + 1)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise DataError(_OP, f"{name} have an object whose keys are no texts")
        return {
            str.__str__(key): plain_value(value[key], name, depth + 1) for key in value
        }
    if isinstance(value, list | tuple):
        return [plain_value(part, name, depth + 1) for part in value]
    raise DataError(
        _OP,
        f"{name} have texts, numbers, lists and objects alone, received {_kind(value)}",
    )


def _kind(value: Any) -> str:
    empty = isinstance(value, list | tuple) and not value
    return "an empty list" if empty else printable(type(value).__name__)


# ---------------------------------------------------------------------- running
@functools.cache
def _sandbox() -> Any:
    require("jinja2", _OP, "chats are laid out by `jinja2`", extra="text")
    from exburn.text.sandbox import Sandbox

    return Sandbox()


def _run(text: str, values: dict[str, Any]) -> tuple[str, list[tuple[int, int]]]:
    """What a template makes of values.

    Raises:
        DataError: It refuses them, or fails on them.
        FileFormatError: It is none, or not to be trusted.
    """
    sandbox = _sandbox()
    try:
        result, spans = sandbox.run(text, values)
    except ExBurnError:
        raise
    except Exception as error:
        raise _failure(error) from None
    return result, spans


def _failure(error: Exception) -> ExBurnError:
    from exburn.text.sandbox import Excess, Refusal, SecurityError, TemplateSyntaxError

    first = printable((str(error).splitlines() or [""])[0][:300])
    if isinstance(error, Refusal):
        return DataError(_OP, f"the template refuses the chat: {first}")
    if isinstance(error, TemplateSyntaxError):
        return FileFormatError(_OP, f"it is no template of Jinja: {first}")
    if isinstance(error, Excess | SecurityError | MemoryError | RecursionError):
        reason = first or f"it ended in a {type(error).__name__}"
        return FileFormatError(
            _OP,
            f"the template is not to be trusted: {reason}",
            hint="Take the folder from who made the model, or another template: "
            "tokenizer.with_chat_template(text).",
        )
    return DataError(
        _OP, f"the template fails on the chat: {type(error).__name__}: {first}"
    )
