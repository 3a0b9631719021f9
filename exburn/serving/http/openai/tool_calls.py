"""Calls of tools in what a model writes, by the form that its template teaches it."""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Sequence
from typing import Any, Self

import orjson

from exburn.text import TextConstraint, Tokenizer


@dataclasses.dataclass(frozen=True)
class CallForm:
    """How a family of models writes a call.

    Attributes:
        mark: What its template has, and no other's.
        begin, end: What is around a call; an empty ``end`` is that of the answer.
        bare: What an answer begins with that is a call without ``begin``, since that
            is a token without a text.
        arguments: The name of the arguments.
        frame: What is around all calls of an answer that must be one, and between
            them; ``None`` between them if there can only be one.
    """

    mark: str
    begin: str
    end: str
    bare: str = ""
    arguments: str = "arguments"
    frame: tuple[str, str | None, str] = ("", None, "")

    def constrain(
        self,
        tokenizer: Tokenizer,
        tools: Sequence[Any],
        several: bool,
        ends: Sequence[int],
    ) -> TextConstraint:
        """What holds an answer to calls of these tools.

        Raises:
            ArgumentError: Parameters of a tool say what is not honoured.
        """
        calls = []
        for tool in tools:
            function = tool["function"]
            name = json.dumps(function["name"], ensure_ascii=False)
            front = f'{{"name": {name}, "{self.arguments}": '
            calls.append((front, function.get("parameters") or _OBJECT, "}"))
        begin, between, end = self.frame
        frame = begin, between if several else None, end
        return TextConstraint.compile_calls(tokenizer, calls, frame, ends)


_FORMS = (
    CallForm(  # Qwen, Hermes, SmolLM 3
        "<tool_call>",
        "<tool_call>",
        "</tool_call>",
        frame=(
            "<tool_call>\n",
            "\n</tool_call>\n<tool_call>\n",
            "\n</tool_call>",
        ),
    ),
    CallForm(  # Mistral
        "[TOOL_CALLS]", "[TOOL_CALLS]", "", bare="[{", frame=("[", ", ", "]")
    ),
    CallForm(
        "ipython", "<|python_tag|>", "", bare="{", arguments="parameters"
    ),  # Llama
)
# Of a call that must come where a template teaches no form.
_PLAIN = CallForm("", "{", "", bare="{")
_OBJECT = {"type": "object"}


def call_form(tokenizer: Tokenizer, *, forced: bool = False) -> CallForm | None:
    """The form of calls that a template teaches; ``None`` where none is known.

    Args:
        forced: Whether a call must come, which then is a JSON object if none is known.
    """
    template = tokenizer.chat_template
    if template is not None:
        for form in _FORMS:
            if template.mentions(form.mark):
                return form
    return _PLAIN if forced else None


class ToolCallReader:
    """Divides an answer into text and calls, as it comes.

    What may become a call is held back; what has its form and is none, since it is no
    JSON or no tool has its name, stays text.

    Args:
        names: Tools that were offered.
        several: Whether there may be more than one call.

    Example:
        >>> reader = ToolCallReader(_FORMS[0], ["add"])
        >>> reader.read('So: <tool_call>{"name": "add", ', last=False)
        ('So: ', [])
        >>> text, calls = reader.read('"arguments": {"a": 1}}</tool_call>', last=True)
        >>> text, calls[0]["function"]
        ('', {'name': 'add', 'arguments': '{"a":1}'})
    """

    def __init__(self, form: CallForm, names: Sequence[str], several: bool = True):
        self._form, self._names, self._several = form, set(names), several
        self._text, self._nothing_yet, self._any = "", True, False
        self._begin: str | None = None  # of the call that is read

    @classmethod
    def of(
        cls,
        tokenizer: Tokenizer,
        tools: Sequence[Any],
        several: bool,
        *,
        forced: bool = False,
    ) -> Self | None:
        """The reader for a tokenizer's template; ``None`` where no form is known."""
        if not tools or (form := call_form(tokenizer, forced=forced)) is None:
            return None
        return cls(form, [tool["function"]["name"] for tool in tools], several)

    def read(self, text: str, *, last: bool) -> tuple[str, list[dict[str, Any]]]:
        """Text that is no call, and the calls that are complete.

        Args:
            text: More of the answer.
            last: Whether that is the end of it.
        """
        self._text += text
        out: list[str] = []
        calls: list[dict[str, Any]] = []
        while True:
            if self._begin is None:
                before, self._begin = self._next()
                out.append(before)
                self._text = self._text[len(before) + len(self._begin or "") :]
                self._nothing_yet &= not before.strip() and self._begin is None
            if self._begin is None or (at := self._end(last)) < 0:
                break
            inside, end = self._text[:at], self._form.end
            self._text = self._text[at + len(end) :]
            if (parts := self._read_calls(inside)) is None:
                out.append(self._begin + inside + end)
            calls += parts or []
            self._begin = None
        if last:
            out.append((self._begin or "") + self._text)
        if not self._several:
            calls = [] if self._any else calls[:1]
        self._any |= bool(calls)
        return "".join(out), calls

    def _next(self) -> tuple[str, str | None]:
        """Text in front of the next call, and how that begins; ``None``: not yet."""
        form, text = self._form, self._text
        if self._nothing_yet and form.bare:
            if (bare := text.lstrip()).startswith(form.bare):
                return "", ""
            if form.bare.startswith(bare):
                return "", None
        if (at := text.find(form.begin)) >= 0:
            return text[:at], form.begin
        longest = min(len(form.begin) - 1, len(text))
        while not text.endswith(form.begin[:longest]):
            longest -= 1
        return text[: len(text) - longest], None

    def _end(self, last: bool) -> int:
        """Characters in front of the end of the call; -1 while it has none."""
        if self._form.end:
            return self._text.find(self._form.end)
        return len(self._text) if last else -1

    def _read_calls(self, text: str) -> list[dict[str, Any]] | None:
        """The calls in a text, or ``None`` if it is something else."""
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            return None
        calls = []
        for one in value if isinstance(value, list) else [value]:
            name = one.get("name") if isinstance(one, dict) else None
            if not isinstance(name, str) or name not in self._names:
                return None
            arguments = one.get(self._form.arguments, {})
            if isinstance(arguments, str):  # some write them as a text of JSON
                text = arguments
            else:
                text = orjson.dumps(arguments).decode()
            function = {"name": name, "arguments": text}
            identity = f"call_{secrets.token_hex(12)}"
            calls.append({"id": identity, "type": "function", "function": function})
        return calls
