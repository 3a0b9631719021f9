"""Chats as documents: their tokens, and which of them the loss counts.

The loss counts what the assistant says. A template with ``generation`` blocks tells
what that is; of another one it is what an answer adds to the text before it. Where a
template writes earlier messages in another way once more follow, as those that leave
out old thoughts, there is no such text, and the chat is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exburn.data.documents import Document
from exburn.errors import DataError, printable
from exburn.text.chat_template import ChatTemplate, read_messages

_OP = "chats"
ANSWERS = ("answers", "all", "last")
_ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython")
_ANSWER = "assistant"
_BESIDE_CONTENT = ("tool_calls", "reasoning_content", "function_call")
Span = tuple[int, int]


def check_messages(messages: Any) -> list[dict[str, Any]]:
    """The messages of a chat, each of which says something in a role that is known.

    Raises:
        DataError: One does not, or has another form.

    Example:
        >>> check_messages([{"role": "user", "content": "So?"}])
        [{'role': 'user', 'content': 'So?'}]
    """
    chat = read_messages(messages)
    for number, message in enumerate(chat):
        role, content = message.get("role"), message.get("content")
        if role not in _ROLES:
            roles = ", ".join(_ROLES)
            reason = f"message {number} has the role {_quote(role)}, not one of {roles}"
            raise DataError(_OP, reason)
        if isinstance(content, list) and content and all(map(_is_block, content)):
            content = "".join(str(block["text"]) for block in content)
        beside = any(message.get(name) for name in _BESIDE_CONTENT)
        if content is None and not beside:
            raise DataError(_OP, f"message {number} has no content")
        if not isinstance(content, str | None):
            raise DataError(
                _OP,
                f"the content of message {number} must be text, received "
                f"{_quote(content)}",
            )
        if not (content or "").strip() and not beside:
            raise DataError(_OP, f"message {number} is empty")
        weight = message.get("weight")
        if weight is not None and (role != _ANSWER or weight not in (0, 1)):
            raise DataError(
                _OP,
                f"message {number} of the {role} has the weight {_quote(weight)}",
                hint="Answers have one of 0, not counted, or 1; others have none.",
            )
    return chat


def _answers(chat: Any) -> list[int]:
    return [number for number, m in enumerate(chat) if m["role"] == _ANSWER]


def _is_block(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("text"), str)


def _quote(value: Any) -> str:
    text = repr(value)
    return printable(text if len(text) <= 60 else f"{text[:59]}…")


class ChatText:
    """A chat as text, and what of it the loss counts.

    Attributes:
        text: The text.
        spans: The first character of each part that is counted, and the one behind it.
        trims: Whether blank characters behind the token that ends a part are left out.
        label: As of ``Document``.
    """

    label: bool | None = None

    def __init__(self, text: str, spans: Sequence[Span], *, trims: bool = False):
        self.text, self.spans, self.trims = text, spans, trims

    def document(self, encoded: Any, special: frozenset[int]) -> Document:
        """Its document.

        Args:
            encoded: Its tokens, and their characters, as the tokenizer gives them.
            special: The numbers of special tokens.

        Raises:
            DataError: There are no tokens, or none is counted.
        """
        tokens, offsets = encoded
        counted = np.zeros(len(tokens), bool)
        for span in self.spans:
            inside = overlap(offsets, span)
            if self.trims:
                inside = self._until_end(inside, tokens, offsets, special)
            counted[inside] = True
        if not counted.any():
            raise DataError(_OP, "the loss counts none of the tokens")
        return Document(tokens, counted)

    def _until_end(self, inside: Any, tokens: Any, offsets: Any, special: Any) -> Any:
        """The tokens without what is blank behind a special one."""
        for end in range(len(inside), 0, -1):
            place = inside[end - 1]
            if int(tokens[place]) in special:
                return inside[:end]
            start, stop = offsets[place]
            if not self.text[start:stop].isspace():
                break
        return inside


def overlap(offsets: np.ndarray, span: Span) -> np.ndarray:
    """The tokens that have a character of a part of the text.

    Args:
        offsets: ``[tokens, 2]``: their first characters, and those behind the last.

    Example:
        >>> overlap(np.array([[0, 2], [2, 5], [5, 6]]), (4, 6)).tolist()
        [1, 2]
    """
    first, last = offsets[:, 0], offsets[:, 1]
    # A blank that the tokenizer trims has an empty place behind it.
    empty = (first == last) & (first > span[0]) & (first <= span[1])
    return np.flatnonzero(empty | ((first < span[1]) & (last > span[0])))


class ChatWriter:
    """Makes texts of chats, in which the parts that count are known.

    Args:
        template: The template.
        train_on: What is counted: ``"answers"``, ``"all"`` or ``"last"``, the last
            answer alone.
        variables: More names that the template reads.
    """

    def __init__(
        self, template: ChatTemplate, train_on: str, variables: Mapping[str, Any] | None
    ):
        self._template, self._train_on = template, train_on
        self._variables = variables

    def write(
        self, messages: Any, tools: Any = None, answers_from: int = 0
    ) -> ChatText:
        """A chat as text.

        Args:
            messages: Its messages.
            tools: Functions that the assistant may call.
            answers_from: The first message whose answers are counted.

        Raises:
            DataError: It is no chat, has no answer that counts, or the template does
                not say what of the text is one.
        """
        chat = check_messages(messages)
        counted = self._choose_answers(chat, answers_from)
        text, marks = self._render(chat, tools)
        if self._train_on == "all":
            return ChatText(text, [(0, len(text))])
        if self._template.marks_answers:
            return ChatText(text, self._find_marks(chat, tools, marks, counted))
        spans = [self._find_addition(chat, tools, n, text) for n in counted]
        return ChatText(text, spans, trims=True)

    def _choose_answers(self, chat: Any, answers_from: int) -> list[int]:
        """The numbers of the answers that are counted."""
        answers = [n for n in _answers(chat) if n >= answers_from]
        if not answers:
            raise DataError(_OP, "there is no answer: no message of the assistant")
        if self._train_on == "last":
            answers = answers[-1:]
        counted = [n for n in answers if chat[n].get("weight") != 0]
        if not counted:
            raise DataError(_OP, "each answer that would be counted has the weight 0")
        if self._train_on == "all" and len(counted) < len(answers):
            raise DataError(
                _OP,
                "train_on='all' counts everything, and an answer has the weight 0",
                hint="train_on='answers' leaves such answers out.",
            )
        return counted

    def _render(self, chat: Any, tools: Any, prompt: bool = False) -> Any:
        return self._template.spans(chat, tools, prompt, self._variables)

    def _find_marks(
        self, chat: Any, tools: Any, marks: list[Span], counted: list[int]
    ) -> list[Span]:
        """The parts that the template marks in the messages that are counted."""
        parts, begin = [], None
        for number in _answers(chat):
            if (number in counted) == (begin is not None):
                continue
            before = self._count_marks(chat[:number], tools)
            if begin is not None:
                parts += marks[begin:before]
            begin = before if begin is None else None
        if begin is not None:
            parts += marks[begin:]
        if not parts:
            raise DataError(_OP, "the template marks no answer of the chat")
        return parts

    def _count_marks(self, chat: Any, tools: Any) -> int:
        return len(self._render(chat, tools)[1]) if _answers(chat) else 0

    def _find_addition(self, chat: Any, tools: Any, number: int, text: str) -> Span:
        """What a message adds to the text before it."""
        before = self._text_before(chat, tools, number)
        last = number + 1 == len(chat)
        through = text if last else self._render(chat[: number + 1], tools)[0]
        if not text.startswith(through):  # some write it at the end of a text alone
            through = through.removesuffix(self._template.tokens.get("eos_token", ""))
        if not through.startswith(before) or not text.startswith(through):
            more = "there" if text.startswith(through) else "once others follow"
            raise DataError(
                _OP,
                f"the template writes what is before or in message {number} in another "
                f"way {more}, so that its answers cannot be told apart",
                {"text": _quote(text), "with the message at its end": _quote(through)},
                hint="train_on='last' or 'all', or a template with {% generation %} "
                "blocks: tokenizer.with_chat_template(text).",
            )
        return len(before), len(through)

    def _text_before(self, chat: Any, tools: Any, number: int) -> str:
        """The text up to where an answer begins."""
        if not number:
            raise DataError(_OP, "the first message is of the assistant")
        return self._render(chat[:number], tools, True)[0]
