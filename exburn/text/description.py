"""Bounds on what the description of a tokenizer may ask for.

A ``tokenizer.json`` is a small program: it replaces parts of texts by others, looks for
expressions, and repeats the result in a template. The package that runs it sets no
bounds, and cannot be stopped. So what could multiply texts is looked for before it
runs, and texts that may grow are measured, a piece at a time.
"""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from exburn.errors import FileFormatError

LAST_TOKEN = 2**31 - 1
_GROWTH = 10_000  # characters that one may become at worst; published ones have 3,600
_HARMLESS = 4  # at most so much growth needs no measuring
_PIECE = 1024  # characters that are measured at once
_ROOM = 1 << 20  # characters that a text may become, however short it is
_DECODED = 16 << 20  # characters that tokens may become
_DECODER_GROWTH = 16
_REPEATS = 8  # of a text in a template
_SPECIAL = 1000  # tokens that a template adds
_LONGEST_WORD = 1000  # characters of WordPiece's words: it takes time in their square
_MOST_STEPS = 256  # of all kinds; published ones have two dozen
_CUTTING = ("pre_tokenizer", "pretokenizers")
_STEPS = (
    ("normalizer", "normalizers"),
    _CUTTING,
    ("post_processor", "processors"),
    ("decoder", "decoders"),
)
_LOOPS = 4  # repetitions in one branch of an expression
# Characters that normalizers of one letter make of one at worst.
_OF_ONE = {"NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 3}
_OF_ONE |= {"BertNormalizer": 12, "ByteLevel": 4, "Nmt": 1}


@dataclasses.dataclass(frozen=True)
class Growth:
    """What texts may become.

    Attributes:
        normalizer, decoder: Characters that one becomes at worst.
        token: Characters of the longest token.
    """

    normalizer: int
    decoder: int
    token: int

    def check_text(self, text: str, normalizer: Any, op: str) -> None:
        """Refuses a text that the normalizer makes far longer.

        Args:
            normalizer: The package's normalizer; ``None`` if there is none.

        Raises:
            FileFormatError: It becomes more than four times as long, and a million
                characters.
        """
        if normalizer is None or self.normalizer <= _HARMLESS:
            return
        if self.normalizer * len(text) <= _ROOM:
            return
        length, most = 0, max(_ROOM, _HARMLESS * len(text))
        for start in range(0, len(text), _PIECE):
            length += len(normalizer.normalize_str(text[start : start + _PIECE]))
            if length > most:
                raise _refusal(
                    op,
                    f"it makes more than {most:,} characters of a text of "
                    f"{len(text):,}",
                )

    def check_tokens(
        self, ids: Sequence[int], token_of: Callable[[int], str | None], op: str
    ) -> None:
        """Refuses tokens whose text would be far longer than tokens are.

        Args:
            token_of: The token of a number.

        Raises:
            FileFormatError: They become more than 16 million characters.
        """
        most = max(_DECODED, 64 * len(ids))
        if len(ids) * self.token * self.decoder <= most:
            return
        length = sum(len(token_of(number) or "") for number in ids)
        if length * self.decoder > most:
            raise _refusal(
                op, f"it makes more than {most:,} characters of {len(ids):,} tokens"
            )


def check_description(content: Mapping[str, Any]) -> Growth:
    """Looks for what could multiply texts, or take time without bound.

    Raises:
        FileFormatError: There is something.
    """
    normalizer = math.prod(map(_growth, steps_of(content, "normalizer", "normalizers")))
    if normalizer > _GROWTH:
        raise _refusal("Tokenizer", "its normalizers may multiply texts without bound")
    decoder = math.prod(map(_growth, steps_of(content, "decoder", "decoders")))
    if decoder > _DECODER_GROWTH:
        raise _refusal("Tokenizer", "its decoders may multiply texts without bound")
    # Each step of bytes writes those of the one before as letters, of two bytes each.
    cutting = math.prod(map(_growth, steps_of(content, *_CUTTING)))
    if cutting > _DECODER_GROWTH:
        raise _refusal(
            "Tokenizer", "its pre-tokenizers may multiply texts without bound"
        )
    count = sum(1 for names in _STEPS for _ in steps_of(content, *names))
    if count > _MOST_STEPS:
        raise _refusal("Tokenizer", f"it takes {count} steps, more than {_MOST_STEPS}")
    for pattern in _patterns(content):
        if _explodes(pattern):
            raise _refusal(
                "Tokenizer",
                "it looks for an expression that may take time without bound: "
                f"{pattern[:100]!r}",
            )
    _check_templates(content)
    token = _check_model(content, normalizer)
    return Growth(normalizer, decoder, token)


def _refusal(op: str, reason: str) -> FileFormatError:
    return FileFormatError(
        op,
        f"the tokenizer's file is not to be trusted: {reason}",
        hint="Take the file from who made the model.",
    )


def steps_of(content: Any, name: str, inner: str) -> Iterator[Mapping[str, Any]]:
    """The steps of a normalizer, decoder …, in order, also of sequences of sequences.

    Args:
        content: What a ``tokenizer.json`` holds.
        name: As ``"normalizer"``.
        inner: What a sequence of such steps calls them.
    """
    todo = [content.get(name)] if isinstance(content, Mapping) else []
    while todo:
        step = todo.pop()
        if isinstance(step, Mapping) and isinstance(step.get(inner), list):
            todo += reversed(step[inner])
        elif isinstance(step, Mapping):
            yield step


def _growth(step: Mapping[str, Any]) -> int:
    """Characters that a step makes of one at worst."""
    match step:
        case {"type": "Replace", "content": str(new), "pattern": {"String": str(old)}}:
            return max(1, -(-len(new) // len(old))) if old else 1 + len(new)
        case {"type": "Replace", "content": str(new)}:
            return 1 + len(new)  # an expression may match what is empty
        case {"type": "Prepend", "prepend": str(text)}:
            return 1 + len(text)
        case {"type": "Precompiled", "precompiled_charsmap": str(data)}:
            return _longest_mapping(data)
    return _OF_ONE.get(str(step.get("type")), 1)


def _longest_mapping(data: str) -> int:
    """The longest text that SentencePiece's table makes of a character.

    The table is a number of bytes, a tree of so many, and texts that end in zeros.
    """
    try:
        table = base64.b64decode(data)
    except ValueError:
        return 1  # the package says what is wrong
    texts = table[4 + int.from_bytes(table[:4], "little") :]
    return max([1, *(len(text) for text in texts.split(b"\0"))])


def _check_templates(content: Mapping[str, Any]) -> None:
    repeats, special = 1, 0
    for step in steps_of(content, "post_processor", "processors"):
        tokens = step.get("special_tokens")
        names = tokens if isinstance(tokens, Mapping) else {}
        for kind in ("single", "pair"):
            parts = step.get(kind)
            if not isinstance(parts, list):
                continue
            repeats *= max(1, sum("Sequence" in part for part in parts))
            special += sum(len(_ids(part, names)) for part in parts)
    if repeats > _REPEATS or special > _SPECIAL:
        raise _refusal("Tokenizer", "its template may multiply texts without bound")


def _ids(part: Any, names: Mapping[str, Any]) -> list[Any]:
    """The tokens that a part of a template adds."""
    match part:
        case {"SpecialToken": {"id": str(name)}}:
            ids = names.get(name)
            numbers = ids.get("ids") if isinstance(ids, Mapping) else None
            return numbers if isinstance(numbers, list) else []
    return []


def _check_model(content: Mapping[str, Any], growth: int) -> int:
    """Checks words and tokens; returns the characters of the longest token."""
    model, entries = content.get("model"), content.get("added_tokens")
    model = model if isinstance(model, Mapping) else {}
    word = model.get("max_input_chars_per_word")
    if isinstance(word, int) and word > _LONGEST_WORD:
        raise _refusal(
            "Tokenizer",
            f"words may have {_LONGEST_WORD} characters, not {word}",
        )
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, Mapping):
        names, numbers = list(vocabulary), list(vocabulary.values())
    else:  # pairs of tokens and their chances
        pairs = vocabulary if isinstance(vocabulary, list) else []
        names = [pair[0] for pair in pairs if isinstance(pair, list) and pair]
        numbers = []
    tokens = entries if isinstance(entries, list) else []
    tokens = [token for token in tokens if isinstance(token, Mapping)]
    numbers += [token.get("id") for token in tokens]
    largest = max((n for n in numbers if isinstance(n, int)), default=0)
    if largest > LAST_TOKEN:
        raise FileFormatError(
            "Tokenizer",
            f"token numbers are from 0 to {LAST_TOKEN}, the file has {largest}",
        )
    length = sum(len(str(t.get("content"))) for t in tokens if t.get("normalized"))
    if length * growth > _DECODED:
        raise _refusal("Tokenizer", "its normalizers would multiply its added tokens")
    names += [token.get("content") for token in tokens]
    return max((len(name) for name in names if isinstance(name, str)), default=0)


# ---------------------------------------------------------------------- expressions
def _patterns(value: Any) -> Iterator[str]:
    """The expressions of pre-tokenizers, normalizers and decoders."""
    todo = [value]
    while todo:
        value = todo.pop()
        if isinstance(value, Mapping):
            pattern = value.get("Regex")
            if isinstance(pattern, str):
                yield pattern
            todo += [part for name, part in value.items() if name != "model"]
        elif isinstance(value, list):
            todo += value


def _explodes(pattern: str) -> bool:
    r"""Whether an expression repeats what repeats or chooses, or repeats very often.

    ``(a+)+`` and ``(a|a)*`` are tried in all ways to divide a text: two to the power of
    its length.

    Example:
        >>> _explodes(r"(a+)+b"), _explodes(r"\p{L}+| ?[^\s(a+)+]+|(?:\d{3})*")
        (True, False)
    """
    # Of each group that is open: whether it has a choice or a repetition, and how many
    # repetitions its branch has.
    groups, at = [[False, 0]], 0
    while at < len(pattern):
        sign, inner = pattern[at], False
        at += 1
        if sign == "\\":
            at += 1
        elif sign == "[":
            at = _end_of_class(pattern, at)
        elif sign == "(":
            groups.append([False, 0])
            continue
        elif sign == "|":
            groups[-1][:] = [True, 0]
            continue
        elif sign == ")" and len(groups) > 1:
            inner, loops = groups.pop()
            groups[-1][0] |= inner
            groups[-1][1] += loops
        times, at = _repetition(pattern, at)
        if times > 1 and inner:
            return True
        if times == math.inf:
            groups[-1] = [True, groups[-1][1] + 1]
            if groups[-1][1] > _LOOPS:
                return True
    return False


def _end_of_class(pattern: str, at: int) -> int:
    """The place behind a class of characters, which may have others in it."""
    depth, first = 1, at + (pattern[at : at + 1] == "^")
    while at < len(pattern) and depth:
        sign = pattern[at]
        if sign == "\\":
            at += 1
        elif sign == "[":
            depth += 1
        elif sign == "]" and at > first:
            depth -= 1
        at += 1
    return at


def _repetition(pattern: str, at: int) -> tuple[float, int]:
    """How often what came last may be repeated, and the place behind that."""
    sign = pattern[at : at + 1]
    times: float = 1
    if sign in ("*", "+"):
        times, at = math.inf, at + 1
    elif sign == "?":
        at += 1
    elif sign == "{" and (end := pattern.find("}", at)) > 0:
        low, comma, high = pattern[at + 1 : end].partition(",")
        if (low + high).isdecimal():
            times = int((high if comma else low) or 0) or (math.inf if comma else 0)
            at = end + 1
    if pattern[at : at + 1] in ("?", "+") and sign:  # lazy, or without trying again
        at += 1
    return times, at
