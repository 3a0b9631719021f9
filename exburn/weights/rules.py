"""Rules between the names in a file and the weights of a model."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary, guard_methods
from exburn.weights.transforms import Transform, identity

_OP = "rules"
_REFERENCE = re.compile(r"\{(\d+)\}")


class Move(NamedTuple):
    """Tensors of a file that are weights of a model.

    Attributes:
        sources: Their names in the file.
        targets: Paths in the model.
        transform: What makes these of those, and those of these.

    Example:
        >>> from exburn.weights import rules
        >>> plan = rules([(r"head\\.bias", "fc/bias")]).load_plan(["head.bias"])
        >>> plan.moves[0].sources, plan.moves[0].targets
        (('head.bias',), ('fc/bias',))
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    transform: Transform


class LoadPlan(NamedTuple):
    """What is to be done with the tensors of a file.

    Attributes:
        moves: Those that are weights of the model.
        ignored: Names that a rule says nobody needs.
        unknown: Names that there is no rule for, or only a part of what it needs.
    """

    moves: list[Move]
    ignored: list[str]
    unknown: list[str]


class _NamePattern:
    """A name with places for groups, as a pattern and as what is written."""

    def __init__(self, pattern: re.Pattern, parts: list[str | int] | None):
        self.pattern, self._parts = pattern, parts

    @classmethod
    def of_regex(cls, text: str) -> _NamePattern:
        """Of a regular expression; its literal parts are what is written."""
        try:
            pattern = re.compile(text)
        except (TypeError, re.error) as error:
            raise ArgumentError(
                _OP, f"{text!r} is not a regular expression: {error}"
            ) from None
        return cls(pattern, _literal_parts(text))

    @classmethod
    def of_path(cls, text: str) -> _NamePattern:
        """Of a path in a model, with ``{1}`` for the first group."""
        parts: list[str | int] = []
        pattern, place, numbers = "", 0, set()
        for match in _REFERENCE.finditer(text):
            number = int(match[1])
            parts += [text[place : match.start()], number]
            pattern += re.escape(text[place : match.start()])
            back = f"(?P=g{number})" if number in numbers else f"(?P<g{number}>[^/]+?)"
            pattern += back
            numbers.add(number)
            place = match.end()
        parts.append(text[place:])
        return cls(re.compile(pattern + re.escape(text[place:])), parts)

    @property
    def groups(self) -> set[int]:
        """Numbers of the groups."""
        if self._parts is None:
            return set(range(1, self.pattern.groups + 1))
        return {part for part in self._parts if isinstance(part, int)}

    def may_have(self, groups: Mapping[int, str]) -> bool:
        """Whether the name with these groups is one that the pattern matches."""
        if self._parts is None:
            return True
        match = self.pattern.fullmatch(self.write(groups))
        return match is not None and dict(enumerate(match.groups(), 1)) == groups

    def write(self, groups: Mapping[int, str]) -> str:
        """The name for these groups.

        Raises:
            ArgumentError: The regular expression stands for names of any form.
        """
        if self._parts is None:
            raise ArgumentError(
                _OP,
                f"{self.pattern.pattern!r} is not the form of one name: nothing can be "
                "saved under it",
                hint="Use literal text and groups such as (\\d+).",
            )
        return "".join(
            groups[part] if isinstance(part, int) else part for part in self._parts
        )


def _literal_parts(text: str) -> list[str | int] | None:
    """Literal text and numbers of groups; ``None`` for any other expression."""
    parts: list[str | int] = []
    literal, place, number = "", 0, 0
    while place < len(text):
        character = text[place]
        if character == "\\":
            place += 1
            if text[place].isalnum():
                return None
            literal += text[place]
        elif character == "(":
            stop = text.find(")", place)
            inner = text[place + 1 : stop]
            after = text[stop + 1 : stop + 2]
            if "(" in inner or inner.startswith("?") or after in ("?", "*", "+", "{"):
                return None
            number += 1
            parts += [literal, number]
            literal, place = "", stop
        elif character in "?*+[]{}|^$)":
            return None
        else:  # a dot that nobody has escaped means a dot
            literal += character
        place += 1
    return [*parts, literal]


class _Rule:
    """One rule; see ``rules``."""

    def __init__(self, entry: Any, prefix: str, write_prefix: bool):
        if not isinstance(entry, tuple | list) or not 2 <= len(entry) <= 3:
            raise ArgumentError(
                _OP, f"a rule is (pattern, target, transform), received {entry!r}"
            )
        sources, targets, transform = (*entry, identity)[:3]
        if transform is None:
            transform = identity
        if not isinstance(transform, Transform):
            raise ArgumentError(
                _OP,
                f"a transform must be one of exburn.weights, received {transform!r}",
                hint="transpose, split_heads, …, or a class with load and save.",
            )
        self.transform = transform
        self.sources = [_NamePattern.of_regex(text) for text in _several(sources)]
        self.ignores = targets is None
        texts = [] if targets is None else _several(targets)
        self.targets = [_NamePattern.of_path(text) for text in texts]
        self.prefix, self._writes = prefix, write_prefix
        for target in self.targets:
            for source in self.sources:
                if target.groups != source.groups:
                    raise ArgumentError(
                        _OP,
                        "the groups of a pattern and the references of its target must "
                        "be the same",
                        {"pattern": sources, "target": targets},
                    )

    def writing(self, prefix: bool) -> _Rule:
        """The same rule, whose names are written with the prefix, or without."""
        other = copy.copy(self)
        other._writes = prefix
        return other

    def match_source(self, name: str) -> tuple[int, tuple[str, ...]] | None:
        """Which of the sources a name is, and its groups."""
        bare = name.removeprefix(self.prefix)
        for number, source in enumerate(self.sources):
            for text in dict.fromkeys((name, bare)):
                if (match := source.pattern.fullmatch(text)) is not None:
                    return number, match.groups()
        return None

    def match_target(self, path: str) -> tuple[int, dict[int, str]] | None:
        """Which of the targets a path is, and its groups."""
        for number, target in enumerate(self.targets):
            if (match := target.pattern.fullmatch(path)) is not None:
                texts = match.groupdict()
                groups = {int(key[1:]): text for key, text in texts.items()}
                if all(source.may_have(groups) for source in self.sources):
                    return number, groups
        return None

    def target_names(self, groups: Mapping[int, str]) -> tuple[str, ...]:
        return tuple(target.write(groups) for target in self.targets)

    def source_names(self, groups: Mapping[int, str]) -> tuple[str, ...]:
        start = self.prefix if self._writes else ""
        return tuple(start + source.write(groups) for source in self.sources)


def _several(value: Any) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else value
    right = isinstance(texts, tuple | list) and texts
    if not right or not all(isinstance(text, str) for text in texts):
        raise ArgumentError(
            _OP,
            f"patterns and targets are texts, or tuples of texts, received {value!r}",
        )
    return tuple(texts)


@guard_methods
class Rules:
    """Rules in the order in which they are tried. ``a + b`` tries those of ``b`` last.

    Args:
        entries: Rules, as of ``rules``.
        prefix: What names in a file may begin with, beside the pattern.
        write_prefix: Whether they begin with it when they are saved.

    Raises:
        ArgumentError: An entry is no rule, or a pattern no regular expression.

    Example:
        >>> named = Rules([(r"head\\.bias", "fc/bias")], prefix="model.")
        >>> named.load_plan(["model.head.bias", "step"]).unknown
        ['step']
    """

    def __init__(
        self, entries: Iterable[Any], *, prefix: str = "", write_prefix: bool = False
    ):
        self._rules = [_Rule(entry, prefix, write_prefix) for entry in entries]

    def __add__(self, other: Any) -> Rules:
        if not isinstance(other, Rules):
            return NotImplemented
        both = Rules([])
        both._rules = [*self._rules, *other._rules]
        return both

    def _match(self, name: str) -> tuple[int, int, tuple[str, ...]] | None:
        """The number of the first rule for a name, which source it is, its groups."""
        for number, rule in enumerate(self._rules):
            if (match := rule.match_source(name)) is not None:
                return number, *match
        return None

    def load_plan(self, names: Iterable[str]) -> LoadPlan:
        """Which tensors of a file become which weights.

        Args:
            names: The names in the file.
        """
        ignored: list[str] = []
        unknown: list[str] = []
        groups: dict[tuple[int, tuple], dict[int, str]] = {}
        for name in names:
            if (match := self._match(name)) is None:
                unknown.append(name)
                continue
            number, part, values = match
            if self._rules[number].ignores:
                ignored.append(name)
                continue
            parts = groups.setdefault((number, values), {})
            if part in parts:  # with the prefix, and without
                unknown.append(name)
            else:
                parts[part] = name
        moves = []
        for (number, values), parts in groups.items():
            rule = self._rules[number]
            if len(parts) < len(rule.sources):
                unknown += parts.values()
                continue
            sources = tuple(parts[i] for i in range(len(rule.sources)))
            targets = rule.target_names(dict(enumerate(values, 1)))
            moves.append(Move(sources, targets, rule.transform))
        return LoadPlan(moves, ignored, unknown)

    def save_plan(self, paths: Iterable[str]) -> list[Move]:
        """Which weights are written as which tensors: the first rule for each counts.

        Args:
            paths: Paths of a model's weights.

        Raises:
            ArgumentError: There is no rule for one of them, or a rule of which only
                some of the weights are there.
        """
        paths = list(paths)
        own_paths, handled = set(paths), set()
        moves: list[Move] = []
        for path in paths:
            if path in handled:
                continue
            for rule in self._rules:
                if (match := rule.match_target(path)) is not None:
                    break
            else:
                raise ArgumentError(
                    _OP,
                    f"there is no rule for the weight {path!r}: it would be lost",
                    hint="Add a rule with this target.",
                )
            targets = rule.target_names(match[1])
            if lost := [target for target in targets if target not in own_paths]:
                raise ArgumentError(
                    _OP, f"a rule needs weights that the model does not have: {lost}"
                )
            handled.update(targets)
            moves.append(Move(rule.source_names(match[1]), targets, rule.transform))
        return moves

    def written_as(self, names: Iterable[str]) -> Rules:
        """The same rules, which write names as these are, where they know them.

        A prefix is written if one of the names has it, and of several rules for a
        weight the one whose names are among these.

        Args:
            names: Names in another file of the kind.
        """
        used: dict[int, tuple[_Rule, bool]] = {}
        for name in names:
            if (match := self._match(name)) is not None:
                rule = self._rules[match[0]]
                used[match[0]] = rule, name.startswith(rule.prefix)
        both = Rules([])
        both._rules = [rule.writing(prefix) for rule, prefix in used.values()]
        both._rules += [r for i, r in enumerate(self._rules) if i not in used]
        return both

    def knows(self, path: str) -> bool:
        """Whether there is a rule that a weight is saved by."""
        return any(rule.match_target(path) is not None for rule in self._rules)

    def __len__(self) -> int:
        return len(self._rules)


@api_boundary
def rules(
    entries: Sequence[Any], *, prefix: str = "", write_prefix: bool = False
) -> Rules:
    """Rules between the names in a file and the weights of a model, for both ways.

    Each is ``(pattern, target)`` or ``(pattern, target, transform)``. The first that
    matches counts.

    - ``pattern``: a regular expression for the whole name in the file; of literal text
      and groups, if weights are to be saved by it. Or several, whose tensors together
      make the target.
    - ``target``: the path of a weight, where ``{1}`` stands for the first group. Or
      several, which the tensor is cut into; or ``None`` for what is left out.
    - ``transform``: what makes a weight of the tensor: ``transpose``, ``split_heads``,
      ``split``, ``concat``, ``stack``, ``permute``, ``reshape``, ``add``, or some of
      them in a row: ``transpose >> split_heads``.

    Args:
        entries: The rules.
        prefix: What names in a file may begin with, such as ``"bert."``.
        write_prefix: Whether names that are saved begin with it.

    Raises:
        ArgumentError: A rule has another form, or its groups are not those of its
            target.

    Example:
        >>> from exburn.weights import rules, split, split_heads, transpose
        >>> gpt = rules(
        ...     [
        ...         (r"wte\\.weight", "tokens/embeddings"),
        ...         (
        ...             r"h\\.(\\d+)\\.attn\\.c_attn\\.weight",
        ...             tuple(
        ...                 f"block_{{1}}/attention/{part}/kernel"
        ...                 for part in ("query", "key", "value")
        ...             ),
        ...             split >> split_heads,
        ...         ),
        ...         (r"h\\.\\d+\\.attn\\.bias", None),
        ...     ],
        ...     prefix="transformer.",
        ... )
        >>> plan = gpt.load_plan(["transformer.h.0.attn.c_attn.weight"])
        >>> plan.moves[0].targets[0]
        'block_0/attention/query/kernel'
    """
    return Rules(entries, prefix=prefix, write_prefix=write_prefix)
