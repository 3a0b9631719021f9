"""Templates of strangers, run within bounds.

A template of Jinja is a program, and Jinja's sandbox keeps it from Python's objects,
not from time and memory. So what it may use is listed here, everything that takes time
or makes values is metered, and what could make much of little is measured first. The
meter counts a step for each value that is looked at, and one for 32 characters.

Imported with the first template, since it needs ``jinja2``.
"""

from __future__ import annotations

import datetime
import functools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sized
from typing import Any

import jinja2
import jinja2.ext
import jinja2.filters
from jinja2 import TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

_STEPS = 600_000  # and for each step that the input takes _STEPS_OF_INPUT
_STEPS_OF_INPUT = 100
_SECONDS, _SECONDS_OF_INPUT = 0.8, 1e-5  # of the processor
_CHARACTERS = 32  # of a step
_LOOK = 0.01  # seconds between two looks at the processor's clock
_LONGEST = 1 << 16  # characters of a template; published ones have 20,000
_DEEPEST = 50  # calls of macros within each other
_ITEMS = 100_000  # of a range, and of a text that is cut
_BITS = 4096  # of an integer
_NUMBER = 1000  # the most that an argument of a filter or a method may be
_SPECIFIER = re.compile(r"%(?:\(\w+\))?[-+ #0]?\d{0,3}(?:\.\d{1,3})?[sdfgx%]")
TODAY = datetime.date(2024, 7, 26)  # what Llama's templates fall back to
_DATE = re.compile(r"(?:%-?[aAbBdHIjmMpSyY%]|[^%]){0,200}")

_FILTERS = """abs batch capitalize count d default dictsort e escape first float groupby
    int items last length list lower map max min reject rejectattr reverse round safe
    select selectattr slice sort string title trim unique upper wordcount""".split()
_GLANCES = set("count d default first items last length safe".split())  # take no time
_ITERATES = set("batch list map max min reject select slice sort unique".split())
_METHODS = {
    str: """capitalize count endswith find index isalnum isalpha isascii isdecimal
        isdigit islower isnumeric isspace istitle isupper join lower lstrip partition
        removeprefix removesuffix replace rfind rindex rpartition rsplit rstrip split
        splitlines startswith strip swapcase title upper""".split(),
    dict: "get items keys values".split(),
    list: "count index".split(),
    tuple: "count index".split(),
    LoopContext: """changed cycle depth depth0 first index index0 last length nextitem
        previtem revindex revindex0""".split(),
}
_STATEMENTS = (
    *(nodes.Template, nodes.Output, nodes.For, nodes.If, nodes.Macro, nodes.CallBlock),
    *(nodes.FilterBlock, nodes.With, nodes.Assign, nodes.AssignBlock, nodes.ExprStmt),
    *(nodes.Continue, nodes.Break, nodes.Expr, nodes.Pair, nodes.Keyword),
    *(nodes.Operand,),
)
_LISTS = (list, tuple, range, *(type(v) for v in ({}.keys(), {}.values(), {}.items())))


__all__ = ["Excess", "Refusal", "Sandbox", "SecurityError", "TemplateSyntaxError"]


class Excess(Exception):
    """Says what a template asks for that is not allowed."""


class Refusal(Exception):
    """What a template itself says against a chat."""


class TemplateMeter:
    """Counts what a template takes, and stops it.

    Args:
        weight: Steps that its input takes to look at.

    Attributes:
        depth: Calls of macros that are under way.
        length: Characters of the result so far.
        spans: The places of what the assistant says in it, with their texts.
    """

    def __init__(self, weight: int):
        self._left = _STEPS + _STEPS_OF_INPUT * weight
        self._end = time.thread_time() + _SECONDS + _SECONDS_OF_INPUT * weight
        self._look = 0.0
        self.depth = self.length = 0
        self.spans: list[tuple[int, int, str]] = []

    def spend(self, steps: int = 1) -> None:
        """Takes steps.

        Raises:
            Excess: There are not so many left, or there is no time left.
        """
        self._left -= steps
        if self._left < 0:
            raise Excess("it takes too many steps, or makes too much text")
        now = time.monotonic()
        if now >= self._look:
            self._look = now + _LOOK
            if time.thread_time() > self._end:
                raise Excess("it takes too much time")

    def spend_characters(self, count: int) -> None:
        self.spend(1 + count // _CHARACTERS)

    def cost_of(self, value: Any) -> int:
        """The steps that it takes to look at a value."""
        left = self._left
        self.weigh(value)
        return left - self._left

    def weigh(self, value: Any) -> tuple[int, int]:
        """Looks at a value and all that it holds.

        Returns:
            How many values these are, and how deep they lie at most.

        Raises:
            Excess: There are too many, or one is no text, number, list or object.
        """
        count = deepest = 0
        todo = [(value, 0)]
        while todo:
            value, depth = todo.pop()
            count, deepest = count + 1, max(deepest, depth)
            if isinstance(value, str):
                self.spend_characters(len(value))
            elif isinstance(value, int) and value.bit_length() > _BITS:
                raise Excess("it computes with integers of thousands of digits")
            elif isinstance(value, dict):
                self.spend(1 + len(value))
                todo += [(part, depth + 1) for item in value.items() for part in item]
            elif isinstance(value, _LISTS):
                self.spend(1 + len(value))
                todo += [(part, depth + 1) for part in value]
            elif value is None or isinstance(value, int | float | Undefined):
                self.spend()
            else:
                raise Excess(f"it lists or writes {_article(type(value).__name__)}")
        return count, deepest

    def stream(self, values: Iterator[Any]) -> Iterator[Any]:
        """The values, each of which is counted."""
        for value in values:
            self.spend_characters(len(value) if isinstance(value, str) else 0)
            yield value


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


# ---------------------------------------------------------------------- the program
class _Metered(NodeTransformer):
    """Has the values that a template makes go through the environment's filters."""

    def generic_visit(self, node, *args, **kwargs):
        if not isinstance(node, _STATEMENTS):
            raise Excess(f"it uses {type(node).__name__.lower()!r}")
        node = super().generic_visit(node, *args, **kwargs)
        match node:
            case nodes.For(recursive=False):
                node.iter = _through_filter(node.iter, "_each")
            case nodes.List() | nodes.Dict() | nodes.Tuple(ctx="load"):
                return _through_filter(node, "_weigh_value")
            case nodes.Compare() | nodes.Getitem(arg=nodes.Slice()):
                return _through_filter(node, "_count_value")
            case nodes.Concat():
                parts = nodes.Tuple(node.nodes, "load", lineno=node.lineno)
                return _through_filter(parts, "_join_parts")
            case nodes.TemplateData():  # as an expression, it is counted when written
                return nodes.Const(node.data, lineno=node.lineno)
        return node


def _through_filter(node: Any, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class _Generation(jinja2.ext.Extension):
    """``{% generation %}`` blocks, which hold what the assistant says."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_note", lineno=line)
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _note(self, caller):
        text, meter = caller(), self.environment.meter  # type: ignore[attr-defined]
        meter.spans.append((meter.length, meter.length + len(text), text))
        return text


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, as chat templates expect it, with what is used listed."""

    intercepted_binops = frozenset("+ - * / // ** %".split())
    meter: TemplateMeter

    def __init__(self):
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # which computes at once, before there is a meter
            finalize=self._write,
            extensions=[_Generation, "jinja2.ext.loopcontrols"],
        )
        self._lock = threading.Lock()
        self.globals = {
            "dict": dict,
            "namespace": Namespace,
            "raise_exception": _refuse,
            "range": range,
            "strftime_now": _write_date,
        }
        filters = {
            name: self._meter_filter(name, self.filters[name]) for name in _FILTERS
        }
        self.filters = filters | {
            "indent": self._indent,
            "join": self._join,
            "replace": self._replace,
            "tojson": self._tojson,
            "_each": self._each,
            "_weigh_value": self._weigh_value,
            "_count_value": self._count_value,
            "_join_parts": self._join_parts,
        }
        self.tests = {n: self._meter_test(t) for n, t in self.tests.items()}

    @functools.lru_cache(maxsize=32)  # noqa: B019
    def _program(self, text: str) -> tuple[jinja2.Template, bool]:
        """The program of a template, and whether it has ``generation`` blocks.

        Raises:
            Excess: It uses what is not listed.
            TemplateSyntaxError, RecursionError: It is none, or nests too deeply.
        """
        if len(text) > _LONGEST:
            raise Excess(f"it has {len(text):,} characters, more than {_LONGEST:,}")
        tree = _Metered().visit(self.parse(text))
        marks = any(tree.find_all(nodes.ExtensionAttribute))
        try:
            return self.from_string(tree), marks
        except (SyntaxError, ValueError) as error:  # of Python's compiler
            raise Excess(f"it cannot be compiled: {error}") from None

    def marks_answers(self, text: str) -> bool:
        """Tells whether a template has ``generation`` blocks; as `run`."""
        return self._program(text)[1]

    def run(
        self, text: str, variables: dict[str, Any]
    ) -> tuple[str, list[tuple[int, int]]]:
        """What a template makes of variables, which are plain values.

        Returns:
            The text, and the places of what the assistant says, if it tells them.

        Raises:
            Excess: It takes too much, or uses what it must not.
            Refusal: It says that the variables do not fit.
            Exception: It fails.
        """
        with self._lock:
            template, _ = self._program(text)
            self.meter = TemplateMeter(TemplateMeter(1 << 40).cost_of(variables))
            parts = []
            for part in template.generate(variables):
                parts.append(part)
                self.meter.length += len(part)
            spans = self.meter.spans
        result = "".join(parts)
        if any(result[start:end] != own for start, end, own in spans):
            raise Excess("it has a 'generation' block within a macro or an assignment")
        return result, [(start, end) for start, end, _ in spans]

    # ------------------------------------------------------------------ values
    @jinja2.pass_context  # which has nothing computed before there is a meter
    def _write(self, context: Any, value: Any) -> str:
        return self._text_of(value)

    def _text_of(self, value: Any) -> str:
        if not isinstance(value, str):
            self.meter.weigh(value)
            value = str(value)
        self.meter.spend_characters(len(value))
        return value

    def _weigh_value(self, value: Any) -> Any:
        self.meter.weigh(value)
        return value

    def _count_value(self, value: Any) -> Any:
        self.meter.spend_characters(len(value) if isinstance(value, Sized) else 0)
        return value

    def _each(self, value: Any) -> Any:
        """Something that a loop goes through, whose turns are paid in advance."""
        self.meter.spend(1 + (len(value) if isinstance(value, Sized) else 0))
        return value

    def _join_parts(self, parts: tuple[Any, ...]) -> str:
        return "".join([self._text_of(part) for part in parts])

    # ------------------------------------------------------------------ filters
    def _meter_filter(self, name: str, function: Callable) -> Callable:
        """A filter of Jinja's, with what it is given and what it makes counted."""
        first = int(hasattr(function, "jinja_pass_arg"))

        @functools.wraps(function)
        def run(*args, **kwargs):
            value, *options = args[first:]
            self._admit(name, value, [*options, *kwargs.values()])
            result = function(*args, **kwargs)
            if isinstance(result, Iterator):
                return self.meter.stream(result)
            if name not in _GLANCES:
                self.meter.weigh(result)
            return result

        return run

    def _admit(self, name: str, value: Any, options: list[Any]) -> None:
        meter = self.meter
        meter.spend()
        if name in _GLANCES:
            return
        for option in options:
            meter.weigh(option)
            if isinstance(option, int) and abs(option) > _NUMBER:
                raise Excess(f"it gives {option} to the filter {name!r}")
        if not isinstance(value, Iterator):
            meter.weigh(value)
        if isinstance(value, str) and name in _ITERATES:
            meter.spend(len(value))
        if isinstance(value, str) and name in ("int", "float") and len(value) > _BITS:
            raise Excess("it reads a number of thousands of digits")

    def _meter_test(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def run(*args, **kwargs):
            self.meter.spend()
            return function(*args, **kwargs)

        return run

    def _join(self, value: Any, d: Any = "", attribute: Any = None) -> str:
        if attribute is not None:
            value = map(jinja2.filters.make_attrgetter(self, attribute), value)
        parts, separator = [self._text_of(part) for part in value], self._text_of(d)
        self.meter.spend_characters(len(separator) * len(parts))
        return separator.join(parts)

    def _replace(self, value: Any, old: Any, new: Any, count: Any = None) -> str:
        text, old, new = map(self._text_of, (value, old, new))
        self.meter.spend_characters(len(text) + text.count(old) * len(new))
        return text.replace(old, new, -1 if count is None else count)

    def _indent(self, value: Any, width: Any = 4, *options: Any, **more: Any) -> str:
        text = self._text_of(value)
        indention = width if isinstance(width, str) else " " * min(width, _NUMBER)
        self.meter.spend(len(text))  # it may have as many lines
        lines = len(text.splitlines()) + 1
        self.meter.spend_characters(len(text) + lines * len(indention))
        return jinja2.filters.do_indent(text, indention, *options, **more)

    def _tojson(
        self,
        value: Any,
        ensure_ascii: Any = False,
        indent: Any = None,
        separators: Any = None,
        sort_keys: Any = False,
    ) -> str:
        """JSON as ``transformers`` writes it, whose ``<`` and ``>`` stay."""
        count, depth = self.meter.weigh(value)
        width = len(indent) if isinstance(indent, str) else indent or 0
        self.meter.weigh(separators)
        width = max(width, 0) * depth + sum(map(len, separators or ()))
        self.meter.spend_characters(count * width)
        text = json.dumps(
            value,
            ensure_ascii=bool(ensure_ascii),
            indent=indent,
            separators=separators,
            sort_keys=bool(sort_keys),
        )
        return self._text_of(text)

    # ------------------------------------------------------------------ operations
    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        meter = self.meter
        meter.spend()
        if isinstance(left, str) and operator == "%":
            meter.weigh(right)
            if "%" in _SPECIFIER.sub("", left):
                raise Excess(f"it formats texts by {left[:40]!r}")
        elif operator == "*":
            for value, times in ((left, right), (right, left)):
                if isinstance(value, str) and isinstance(times, int):
                    meter.spend_characters(len(value) * max(times, 0))
                elif isinstance(value, list | tuple) and isinstance(times, int):
                    meter.spend(meter.cost_of(value) * max(times, 0))
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            if left.bit_length() * right > _BITS:
                raise Excess("it computes with integers of thousands of digits")
        elif operator == "+" and isinstance(left, str) and isinstance(right, str):
            meter.spend_characters(len(left) + len(right))
        result = super().call_binop(context, operator, left, right)
        meter.weigh(result)
        return result

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, Namespace):
            return not attr.startswith("_")
        names = (own for kind, own in _METHODS.items() if isinstance(obj, kind))
        return attr in next(names, ())

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        if attribute.startswith("_"):
            raise SecurityError(f"it asks for {attribute!r}")
        return super().unsafe_undefined(obj, attribute)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        meter = self.meter
        meter.spend(1 + sum(len(arg) for arg in args if isinstance(arg, dict)))
        if isinstance(obj, Macro | LoopContext):
            return self._call_macro(context, obj, *args, **kwargs)
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        method = getattr(obj, "__func__", None) is _Generation._note
        if isinstance(owner, str):
            return self._call_text(obj, owner, name, args, kwargs)
        if isinstance(owner, list | tuple):
            meter.weigh(owner)
        elif not method and not isinstance(owner, dict | LoopContext):
            functions = dict, Namespace, _refuse, range, _write_date
            # What is undefined says itself what it would be.
            if not isinstance(obj, Undefined) and not any(obj is f for f in functions):
                raise SecurityError(f"it calls {name or type(obj).__name__!r}")
        result = super().call(context, obj, *args, **kwargs)
        if isinstance(result, range) and len(result) > _ITEMS:
            raise Excess(f"it has a range of {len(result):,} numbers")
        if obj is dict:
            meter.weigh(result)
        return result

    def _call_macro(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        meter = self.meter
        if meter.depth >= _DEEPEST:
            raise Excess(f"its macros call each other more than {_DEEPEST} times")
        if isinstance(obj, LoopContext):
            args = tuple(map(self._each, args))
        meter.depth += 1
        try:
            return super().call(context, obj, *args, **kwargs)
        finally:
            meter.depth -= 1

    def _call_text(
        self, method: Any, text: str, name: str, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """The result of a method of a text, whose size is looked at before."""
        options = {k: v for k, v in kwargs.items() if k not in _OF_CALLS}
        meter = self.meter
        meter.spend_characters(len(text))
        if name == "join" and args:
            args = ([*args[0]], *args[1:])
            meter.spend_characters(meter.weigh(args[0])[0] * len(text))
        elif name == "replace" and len(args) > 1:
            meter.spend_characters(text.count(args[0]) * len(args[1]))
        elif name == "splitlines":
            meter.spend(len(text))
        elif name in ("split", "rsplit"):
            separator = args[0] if args else options.get("sep")
            pieces = len(text) // 2 if separator is None else text.count(separator)
            meter.spend(pieces)
        result = method(*args, **options)
        meter.weigh(result)
        return result


_OF_CALLS = ("_loop_vars", "_block_vars")  # of the program, not of the template


def _refuse(message: Any) -> None:
    """The function ``raise_exception`` of templates."""
    raise Refusal(message if isinstance(message, str) else repr(message))


def _write_date(form: str) -> str:
    """The function ``strftime_now`` of templates: one date, as there is no clock."""
    if not isinstance(form, str) or not _DATE.fullmatch(form):
        raise Excess("it writes a date in a form that is not known")
    return TODAY.strftime(form)
