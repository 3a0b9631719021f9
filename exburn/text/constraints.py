"""Answers that are held to a form: which tokens may come next, by `llguidance`.

A :class:`TextConstraint` is compiled once for a tokenizer; each text has a
:class:`Matcher` of its own.
"""

from __future__ import annotations

import codecs
import functools
import json
import os
import re
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from exburn.core.checks import check_unicode
from exburn.errors import ArgumentError, DataError, require
from exburn.errors.boundary import guard_methods
from exburn.text.schemas import has_finite_answer, read_schema
from exburn.text.token_bytes import TokenBytes, token_bytes
from exburn.text.tokenizer import Tokenizer

_OP = "TextConstraint"
# What `json.dumps` writes between values: nothing, a space, or a line's indentation.
_BETWEEN_VALUES = r"( |\n[ \t]{0,64})"
# How `json.dumps` writes without an indentation.
_ON_ONE_LINE = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}
# Bytes that alone may come are not cut into tokens by the package, which never returned
# from that with some grammars: the model chooses among all ways to write them.
_OPTIONS = '%llguidance {"no_forcing": true}'
_ESCAPE_OR_SET = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_RULE = re.compile(r"^\s*[?!]?[A-Za-z_][\w.]*\s*(?:\[[^\]]*\]\s*)?:", re.MULTILINE)
_SCHEMA = re.compile(r"%json\s*")
_MOST_RULES = 500
_LARGEST = 1 << 18  # characters of an expression or a grammar
# Tokens that the package allows as a whole where all of them may come, beside its own
# sets for JSON: masks of words then take 0.1 to 0.5 of the time.
_WORDS = ("[a-z]{1,10}", " [a-z]{1,10}", "[A-Za-z]{1,10}", " [A-Za-z]{1,10}")
_QUICK = 0.01  # seconds that a matcher may take to be made for each text
_FEW_CORES = 4  # on fewer, threads wait for each other
_POSSESSIVE = re.compile(r"[*+?}]\+")


@guard_methods
class TextConstraint:
    """A form that texts are held to, compiled for a tokenizer.

    Args:
        vocabulary: The tokenizer's tokens. ``compile`` gives all three.
        matcher: What follows a text, at its beginning.
        ends: Tokens that end a text.
        make: Makes such a matcher anew, which shares nothing with it.

    Attributes:
        vocabulary_size: Tokens that a mask tells of.

    Example:
        >>> from exburn.text import Tokenizer
        >>> tokenizer = Tokenizer.train(["yes or no"] * 9, 260)
        >>> constraint = TextConstraint.compile(tokenizer, regex="yes|no")
        >>> constraint.allows("yes"), constraint.allows("maybe")
        (True, False)
    """

    def __init__(
        self,
        vocabulary: _Vocabulary,
        matcher: Any,
        ends: Sequence[int],
        make: Callable[[], Any] | None = None,
    ):
        self._vocabulary, self._first, self._make = vocabulary, matcher, make
        self._ends = frozenset(ends)
        self._end_bits: dict[int, np.uint32] = {}  # by words of a mask
        for end in self._ends:
            bits = self._end_bits.get(end // 32, np.uint32(0))
            self._end_bits[end // 32] = bits | np.uint32(1 << end % 32)
        self.vocabulary_size = len(vocabulary.tokens.tokens)

    @classmethod
    def compile(
        cls,
        tokenizer: Tokenizer,
        *,
        json_schema: Any = None,
        regex: str | None = None,
        grammar: str | None = None,
        ends: Sequence[int] | None = None,
    ) -> TextConstraint:
        """Compiles one of three forms.

        Args:
            tokenizer: Of the texts.
            json_schema: A JSON schema as a mapping or its text; or a class that
                ``pydantic`` describes: one of its own, a data class, a ``TypedDict``.
            regex: An expression of the module ``re`` that the whole text matches,
                without look-around and references back. ``\\d``, ``\\w`` and ``\\s``
                are those of ``re.ASCII``.
            grammar: A grammar in the syntax of Lark, whose first rule is ``start``.
            ends: Tokens that end a text; that of the tokenizer if ``None``.

        Raises:
            ArgumentError: Not one of them is given, it is none, or says what is not
                honoured.
            DataError: The tokenizer has no token that could come first.
            FileFormatError: The tokenizer does not tell the bytes of its tokens.
            MissingDependencyError: ``llguidance`` is not installed.
        """
        forms = {"json schema": json_schema, "regex": regex, "grammar": grammar}
        forms = {name: form for name, form in forms.items() if form is not None}
        if len(forms) != 1:
            raise ArgumentError(
                _OP,
                "one of json_schema, regex and grammar is needed",
                {"received": ", ".join(forms) or "none"},
            )
        ((kind, form),) = forms.items()
        if kind == "json schema":
            form = json.dumps(read_schema(form))
        elif kind == "regex":
            form = _package().regex_to_lark(_check_regex(form), "dws")
        else:
            form = _check_grammar(form)
        if ends is None:
            end = tokenizer.number_of(tokenizer.end) if tokenizer.end else None
            ends = () if end is None else (end,)
        return _compile(tokenizer, kind, form, tuple(ends))

    @classmethod
    def compile_calls(
        cls,
        tokenizer: Tokenizer,
        calls: Sequence[tuple[str, Any, str]],
        frame: tuple[str, str | None, str] = ("", None, ""),
        ends: Sequence[int] = (),
    ) -> TextConstraint:
        """Compiles calls of functions: one of several texts around JSON, or a list.

        JSON is written on one line, as by ``json.dumps``.

        Args:
            tokenizer: Of the texts.
            calls: Of each function the text in front of its arguments, their schema,
                and the text behind them.
            frame: What is in front of the first call, between two, and behind the last;
                ``None`` between them if there is one alone.
            ends: Tokens that end a text.

        Raises:
            ArgumentError: There is no call, or a schema says what is not honoured.
            MissingDependencyError: ``llguidance`` is not installed.

        Example:
            >>> from exburn.text import Tokenizer
            >>> tokenizer = Tokenizer.train(["now and then"] * 9, 260)
            >>> schema = {"type": "object", "additionalProperties": {"type": "null"}}
            >>> calls = [("now ", schema, "."), ("then ", schema, ".")]
            >>> constraint = TextConstraint.compile_calls(tokenizer, calls)
            >>> constraint.allows('then {"a": null}.'), constraint.allows("now.")
            (True, False)
        """
        if not calls:
            raise ArgumentError(_OP, "there is no function to call")
        schemas = [read_schema(schema) for _, schema, _ in calls]
        if not all(map(has_finite_answer, schemas)):
            raise ArgumentError(
                _OP, "no call has this form: a json schema asks for itself without end"
            )
        parts = [
            (before, schema, after)
            for (before, _, after), schema in zip(calls, schemas, strict=True)
        ]
        form = _check_length("calls", json.dumps({"calls": parts, "frame": frame}))
        return _compile(tokenizer, "calls", form, tuple(ends))

    def start(self) -> Matcher:
        """A matcher of a text that begins."""
        make = self._make or self._first.deep_copy
        return Matcher(self, make())

    def allows(self, text: str) -> bool:
        """Whether a text has the form.

        Raises:
            ArgumentError, DataError: It is no text.
        """
        text = check_unicode(_OP, text)
        data = (self._vocabulary.tokens.before + text).encode()
        tokens = self._vocabulary.longest_tokens(data)
        matcher = self._first.deep_copy()
        if tokens is None or not matcher.consume_tokens(tokens):
            return False
        return matcher.is_accepting()

    def reader(self) -> TextReader:
        """What makes text of a row's tokens, as the form sees them."""
        return TextReader(self._vocabulary.tokens)


@guard_methods
class Matcher:
    """Follows one text, token by token.

    Attributes:
        closed: Whether a token has ended the text, or none is left that may come.

    Example:
        >>> from exburn.text import Tokenizer
        >>> tokenizer = Tokenizer.train(["yes or no"] * 9, 260)
        >>> matcher = TextConstraint.compile(tokenizer, regex="ab?").start()
        >>> matcher.accept(tokenizer.number_of("a"))
        >>> matcher.complete, matcher.has_ended
        (True, False)
        >>> matcher.accept(tokenizer.number_of("b"))
        >>> matcher.complete, matcher.has_ended
        (True, True)
    """

    def __init__(self, constraint: TextConstraint, matcher: Any, closed: bool = False):
        self._constraint, self._matcher, self.closed = constraint, matcher, closed

    @property
    def complete(self) -> bool:
        """Whether the text has the form if nothing more comes."""
        return self.closed or self._matcher.is_accepting()

    @property
    def has_ended(self) -> bool:
        """Whether nothing more may come."""
        return self.closed or self._matcher.is_stopped()

    def mask(self, out: np.ndarray | None = None) -> np.ndarray:
        """Which tokens may come next, a bit for each, the least of a word first.

        Tokens that end a text may come where it is complete, and no special ones.

        Args:
            out: uint32, filled and returned; its size may be that of a model's scores.

        Shape:
            out, result: [ceil(tokens / 32)]

        Raises:
            DataError: No token may come, or the form is too complex.
        """
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)
        self._check()
        size = self._constraint.vocabulary_size
        if out is None:
            out = np.zeros(-(-size // 32), np.uint32)
        words = min(len(out), len(bits))
        out[:words], out[words:] = bits[:words], 0
        ends = self._constraint._end_bits.items()
        ends = [(word, bits) for word, bits in ends if word < len(out)]
        for word, bits in ends:
            out[word] &= ~bits
        if size < 32 * len(out):  # the bit of the package's own end
            out[size // 32] &= ~np.uint32(1 << size % 32)
        complete, is_empty = self.complete, not out.any()
        if is_empty and not complete:
            raise DataError(
                _OP, "the tokenizer has no token that the form allows to come next"
            )
        self.closed = is_empty
        for word, bits in ends if complete else ():
            out[word] |= bits
        return out

    def accept(self, token: int) -> None:
        """Goes on by a token.

        Raises:
            DataError: It may not come.
        """
        if token in self._constraint._ends and self.complete:
            self.closed = True
            return
        tokens = self._constraint._vocabulary.tokens.tokens
        ordinary = 0 <= token < len(tokens) and tokens[token]
        if (
            self.has_ended
            or not ordinary
            or token in self._constraint._ends
            or not self._matcher.validate_tokens([token])
        ):
            raise DataError(_OP, f"the form does not allow token {token} to come next")
        self._matcher.consume_token(token)
        self._check()

    def copy(self) -> Matcher:
        """A matcher of the same text, which goes on by itself."""
        return Matcher(self._constraint, self._matcher.deep_copy(), self.closed)

    def _check(self) -> None:
        if self._matcher.is_error():
            raise DataError(
                _OP,
                "the form cannot be followed any further",
                {"cause": _reason(self._matcher.get_error())},
                hint="A simpler form has fewer ways to go on.",
            )


def compute_masks(matchers: Sequence[Any]) -> None:
    """Computes the masks of several texts side by side, for ``mask`` to read.

    The package keeps the mask of a matcher until its text goes on. Where nearly any
    token may come one takes half a millisecond, so that rows would wait for each other.
    Others than a :class:`Matcher`, and texts that have ended, are left out.
    """
    ours = [m for m in matchers if isinstance(m, Matcher) and not m.has_ended]
    sizes = {len(m._constraint._vocabulary.tokens.tokens) for m in ours}
    if len(ours) < 2 or len(sizes) > 1 or (os.cpu_count() or 1) < _FEW_CORES:
        return
    words = sizes.pop() // 32 + 1  # with the package's own end
    bits = np.empty((len(ours), words), np.uint32)
    rows = [(matcher._matcher, row) for row, matcher in enumerate(ours)]
    _threads().unsafe_compute_mask_ptr(rows, bits.ctypes.data, 4 * words, len(ours))


@functools.cache
def _threads() -> Any:
    return _package().LLExecutor()


class TextReader:
    """Text of a row's tokens, as it becomes certain: no half character."""

    def __init__(self, tokens: TokenBytes):
        self._tokens, self._skip = tokens.tokens, len(tokens.before)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """What another token makes certain."""
        data = self._tokens[token] if token < len(self._tokens) else b""
        skip = min(self._skip, len(data))
        self._skip -= skip
        return self._decoder.decode(data[skip:])

    def rest(self) -> str:
        """What is left at the end."""
        return self._decoder.decode(b"", final=True)


class _Vocabulary:
    """A tokenizer as the package sees it, with an end of its own behind its tokens."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokens = token_bytes(tokenizer)
        self._numbers = {token: n for n, token in enumerate(self.tokens.tokens)}
        self._longest = max(map(len, self._numbers), default=0)
        package = _package()
        slices = [*package.LLTokenizer.general_slices(), *_WORDS]
        wrapper = package.TokenizerWrapper(_Wrapper(self))
        self.engine = package.LLTokenizer(wrapper, slices=slices)

    def longest_tokens(self, data: bytes) -> list[int] | None:
        """The longest token of the bytes, again and again; ``None`` without one."""
        numbers, at = [], 0
        while at < len(data):
            for size in range(min(self._longest, len(data) - at), 0, -1):
                number = self._numbers.get(data[at : at + size])
                if number is not None:
                    break
            else:
                return None
            numbers.append(number)
            at += size
        return numbers


class _Wrapper:
    """What the package's tokenizer is made of."""

    bos_token_id = None

    def __init__(self, vocabulary: _Vocabulary):
        self._encode = vocabulary.longest_tokens
        self.tokens = [*vocabulary.tokens.tokens, b"<end>"]
        self.eos_token_id = len(self.tokens) - 1
        self.special_token_ids = [self.eos_token_id]

    def __call__(self, data: bytes) -> list[int]:
        return self._encode(data) or []


def _package() -> Any:
    return require(
        "llguidance",
        _OP,
        "answers are held to a form by `llguidance`",
        extra="structured",
    )


@functools.lru_cache(maxsize=4)
def _vocabulary(tokenizer: Tokenizer) -> _Vocabulary:
    return _Vocabulary(tokenizer)


@functools.lru_cache(maxsize=32)
def _compile(
    tokenizer: Tokenizer, kind: str, form: str, ends: tuple[int, ...]
) -> TextConstraint:
    package, vocabulary = _package(), _vocabulary(tokenizer)
    text = _grammar_of(package.LLMatcher, kind, form, vocabulary.tokens.before)
    limits = package.LLParserLimits(verbose_errors=False)

    def make() -> Any:
        return package.LLMatcher(vocabulary.engine, text, log_level=0, limits=limits)

    start = time.perf_counter()
    matcher = make()
    seconds = time.perf_counter() - start
    reasons = [matcher.get_error()] if matcher.is_error() else []
    reasons = reasons or list(matcher.get_grammar_warnings())
    if reasons:
        raise ArgumentError(
            _OP, f"the {kind} is not honoured", {"cause": _reason(reasons[0])}
        )
    if kind == "json schema" and not has_finite_answer(json.loads(form)):
        raise ArgumentError(
            _OP, "no text has this form: the json schema asks for itself without end"
        )
    first = matcher.deep_copy()
    first.compute_bitmask()
    if first.is_error():
        reason = _reason(first.get_error())
        if reason == "NoExtensionBias":
            reason = "no text has this form, or no token begins it"
        raise ArgumentError(_OP, f"the {kind} is not honoured", {"cause": reason})
    # Copies share a lock, so that their masks are computed one after the other.
    several = seconds < _QUICK and (os.cpu_count() or 1) >= _FEW_CORES
    return TextConstraint(vocabulary, matcher, ends, make if several else None)


def _grammar_of(make: Any, kind: str, form: str, before: str) -> str:
    """The form as the package reads it, behind the space that begins each text."""
    if kind == "regex":
        inside = f"/(?:{form})/"
    elif kind == "grammar":
        inside = f"%lark {{\n{form}\n}}"
    elif kind == "calls":
        return make.grammar_from_lark(_grammar_of_calls(json.loads(form), before))
    else:
        options = {"whitespace_pattern": _BETWEEN_VALUES}
        schema = {**json.loads(form), "x-guidance": options}
        inside = f"%json {json.dumps(schema)}"
    first = f'"{before}"' if before else ""
    if kind == "grammar" and not before:
        return make.grammar_from_lark(f"{form}\n{_OPTIONS}")
    return make.grammar_from_lark(f"{_OPTIONS}\nstart: {first} form\nform: {inside}")


def _grammar_of_calls(form: Any, before: str) -> str:
    begin, between, end = form["frame"]
    several = "" if between is None else f"({_literal(between)} call)*"
    calls = range(len(form["calls"]))
    rules = [
        _OPTIONS,
        f"start: {_literal(before + begin)} call {several} {_literal(end)}",
        "call: " + " | ".join(f"call_{number}" for number in calls),
    ]
    for number, (front, schema, behind) in zip(calls, form["calls"], strict=True):
        inside = json.dumps({**schema, "x-guidance": _ON_ONE_LINE})
        rules += [
            f"call_{number}: {_literal(front)} json_{number} {_literal(behind)}",
            f"json_{number}: %json {inside}",
        ]
    return "\n".join(rules)


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""


def _reason(text: str) -> str:
    """The line of the package's error that says what is wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error:")]
    line = (errors or lines or [""])[0].removeprefix("error: ")
    return line.rpartition("failed to compile JSON schema: ")[2]


def _check_regex(regex: Any) -> str:
    """An expression that means the same in Python and in Rust.

    Raises:
        ArgumentError, DataError: It is none.
    """
    regex = _check_length("regex", regex)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # sets within sets, which Rust has
            re.compile(regex)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        raise ArgumentError(
            "regex", "it is no expression of `re`", {"cause": error}
        ) from None
    if _POSSESSIVE.search(_ESCAPE_OR_SET.sub("a", regex)):
        raise ArgumentError("regex", "possessive repetitions are not honoured")
    return regex


def _check_grammar(grammar: Any) -> str:
    """A grammar of bounded size, whose JSON schemas are honoured.

    Raises:
        ArgumentError, DataError: It is none.
    """
    grammar = _check_length("grammar", grammar)
    if "%llguidance" in grammar:
        raise ArgumentError("grammar", "options of the package (%llguidance) are ours")
    rules = len(_RULE.findall(grammar))
    if rules > _MOST_RULES:  # the package follows them into one another
        raise ArgumentError("grammar", f"it has {rules} rules, at most {_MOST_RULES}")
    for place in _SCHEMA.finditer(grammar):
        try:
            schema, _ = json.JSONDecoder().raw_decode(grammar, place.end())
        except (ValueError, RecursionError):
            continue  # a text that says so; or the package tells what is wrong
        read_schema(schema)
    return grammar


def _check_length(op: str, form: Any) -> str:
    form = check_unicode(op, form)
    if len(form) > _LARGEST:
        raise ArgumentError(op, f"it has {len(form):,} letters, at most {_LARGEST:,}")
    return form
