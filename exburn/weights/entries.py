"""What the entries of other people's configuration files mean, as data.

A table says of each entry that a file may have one of three things: which argument it
becomes, which values alone are computed here, or that it is without effect. Any other
entry is an error that names it, since it may change what a model computes. An entry
that is ``null`` says nothing, unless its kind gives ``null`` a meaning.

Example:
    >>> table = Table(
    ...     "config.json",
    ...     [Field("hidden_size", "width", whole(), 768)],
    ...     only={"hidden_act": ("silu",)},
    ...     harmless=["use_cache"],
    ... )
    >>> table.read({"hidden_size": 64, "use_cache": True}, "Llama")
    {'width': 64}
    >>> try:
    ...     table.read({"soft_cap": 30.0}, "Llama")
    ... except FileFormatError as error:
    ...     print(error.reason)
    config.json has an entry that nothing is known of: 'soft_cap'
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from exburn.errors import FileFormatError

Kind = Callable[[Any], Any]


class Misfit(Exception):
    """Says what must hold of a value that a kind does not take."""


@dataclasses.dataclass(frozen=True)
class Field:
    """An entry that becomes an argument.

    Attributes:
        key: Its name in the file.
        argument: What it becomes.
        kind: Makes the argument of the value, or raises ``Misfit``.
        default: The argument where the file has no such entry.
    """

    key: str
    argument: str
    kind: Kind
    default: Any = None


class Table:
    """All entries that a file may have.

    Args:
        file: The file, for errors.
        entries: Those that become arguments.
        only: Values, by the names of the entries, that alone are computed here.
        harmless: Names of entries without effect on what is computed.
        path: Where in the file the object is that they are of, as ``"rope_scaling"``.
    """

    def __init__(
        self,
        file: str,
        entries: Iterable[Field],
        *,
        only: Mapping[str, tuple[Any, ...]] | None = None,
        harmless: Iterable[str] = (),
        path: str = "",
    ):
        self.file, self.path = file, path
        self.entries = {entry.key: entry for entry in entries}
        self.only, self.harmless = dict(only or {}), frozenset(harmless)

    def derive(
        self,
        entries: Iterable[Field] = (),
        *,
        only: Mapping[str, tuple[Any, ...]] | None = None,
        harmless: Iterable[str] = (),
        defaults: Mapping[str, Any] | None = None,
        without: Iterable[str] = (),
    ) -> Table:
        """The table with more entries, or with others of the same names.

        Args:
            entries, only, harmless: As of ``Table``.
            defaults: Other defaults, by the names of the entries.
            without: Entries that the table is not to have.

        Example:
            >>> table = Table("config.json", [Field("layers", "layers", whole(), 12)])
            >>> table.derive(defaults={"layers": 24}).read({}, "op")
            {'layers': 24}
        """
        entries, only, harmless = list(entries), dict(only or {}), set(harmless)
        for key, value in (defaults or {}).items():
            entries.append(dataclasses.replace(self.entries[key], default=value))
        # What is said anew of a name takes the place of what was said.
        keys = {*without, *(entry.key for entry in entries), *only, *harmless}
        return Table(
            self.file,
            [
                *(entry for entry in self.entries.values() if entry.key not in keys),
                *entries,
            ],
            only={k: v for k, v in self.only.items() if k not in keys} | only,
            harmless=(self.harmless - keys) | harmless,
            path=self.path,
        )

    def at(self, path: str) -> Table:
        """The table of an object that stands somewhere else in the file."""
        table = self.derive()
        table.path = path
        return table

    def read(self, values: Mapping[str, Any], op: str) -> dict[str, Any]:
        """The arguments that a file's values become.

        Args:
            values: What the file says.
            op: The operation named in errors.

        Raises:
            FileFormatError: A value does not fit, is not what is computed here, or
                nothing is known of an entry.
        """
        arguments = {entry.argument: entry.default for entry in self.entries.values()}
        unknown = []
        for key, value in values.items():
            entry = self.entries.get(key)
            if entry is not None:
                arguments[entry.argument] = self._take(entry, value, op)
            elif key in self.only:
                self._compare(key, value, op)
            elif key not in self.harmless and value is not None:
                unknown.append(key)
        if unknown:
            names = ", ".join(repr(self._name(key)) for key in unknown[:6])
            several = len(unknown) > 1
            raise FileFormatError(
                op,
                f"{self.file} has {'entries' if several else 'an entry'} that nothing "
                f"is known of: {names}",
                hint="It may change what the model computes. Take it out of the file "
                "if it does not.",
            )
        return arguments

    def _take(self, entry: Field, value: Any, op: str) -> Any:
        """The argument of a value.

        Raises:
            FileFormatError: It does not fit.
        """
        try:
            return entry.kind(value)
        except Misfit as misfit:
            raise FileFormatError(
                op,
                f"{self._name(entry.key)!r} in {self.file} must be {misfit}, received "
                f"{value!r}",
            ) from None

    def _compare(self, key: str, value: Any, op: str) -> None:
        """Raises unless what is computed here is what the file asks for.

        Raises:
            FileFormatError: It is not.
        """
        allowed = self.only[key]
        if value is None or any(_same(value, one) for one in allowed):
            return
        raise FileFormatError(
            op,
            f"{self._name(key)!r} in {self.file} must be "
            f"{' or '.join(map(repr, allowed)) or 'null'}, the file has {value!r}",
            hint="Nothing else is computed here.",
        )

    def _name(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def _same(value: Any, other: Any) -> bool:
    """Whether two values of JSON are equal; ``true`` is no 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


# ---------------------------------------------------------------------- kinds
def whole(least: int = 1, most: int | None = None) -> Kind:
    """Whole numbers of at least ``least``.

    Args:
        least, most: The bounds; there is no upper one if None.

    Example:
        >>> whole()(3)
        3
    """

    def read(value: Any) -> int:
        if type(value) is not int or value < least or (most and value > most):
            end = f"at least {least}" if most is None else f"{least} to {most}"
            raise Misfit(f"a whole number of {end}")
        return value

    return read


def real(
    low: float = -math.inf, high: float = math.inf, *, above: bool = False
) -> Kind:
    """Finite numbers from ``low`` to ``high``.

    Args:
        low, high: The bounds.
        above: Whether the number must be above ``low``.

    Example:
        >>> real(0, 1)(1)
        1.0
    """

    def read(value: Any) -> float:
        right = type(value) in (int, float) and low <= value <= high
        right = right and abs(value) <= sys.float_info.max  # and no NaN
        if not right or (above and value == low):
            if low == -math.inf and high == math.inf:
                raise Misfit("a number")
            end = "" if high == math.inf else f" to {high}"
            raise Misfit(f"a number {'above' if above else 'from'} {low}{end}")
        return float(value)

    return read


def flag(value: Any) -> bool:
    """``true`` or ``false``.

    Example:
        >>> flag(True)
        True
    """
    if not isinstance(value, bool):
        raise Misfit("true or false")
    return value


def text(value: Any) -> str:
    """Texts.

    Example:
        >>> text("bicubic")
        'bicubic'
    """
    if not isinstance(value, str):
        raise Misfit("a text")
    return value


def choice(names: Mapping[Any, Any] | Iterable[Any]) -> Kind:
    """One of several values, and what each of them means.

    Args:
        names: The values, or a mapping of them to what they mean.

    Example:
        >>> choice({"swish": "silu"})("swish")
        'silu'
    """
    meanings = (
        dict(names) if isinstance(names, Mapping) else {one: one for one in names}
    )

    def read(value: Any) -> Any:
        for name, meaning in meanings.items():
            if _same(value, name):
                return meaning
        raise Misfit(f"one of {', '.join(map(repr, meanings))}")

    return read


def nullable(kind: Kind, meaning: Any = None) -> Kind:
    """The same, or ``null``.

    Args:
        kind: Of other values.
        meaning: What ``null`` means.

    Example:
        >>> nullable(whole())(None) is None
        True
    """

    def read(value: Any) -> Any:
        return meaning if value is None else kind(value)

    return read


def list_of(kind: Kind, lengths: Sequence[int] = ()) -> Kind:
    """Lists, as tuples.

    Args:
        kind: Of what is in them.
        lengths: How long they may be; any length if empty.

    Example:
        >>> list_of(whole(), [2])([224, 192])
        (224, 192)
    """

    def read(value: Any) -> tuple:
        if not isinstance(value, list) or (lengths and len(value) not in lengths):
            of = f" of {' or '.join(map(str, lengths))}" if lengths else ""
            raise Misfit(f"a list{of}")
        try:
            return tuple(kind(one) for one in value)
        except Misfit as misfit:
            raise Misfit(f"a list, and each of it {misfit}") from None

    return read


def one_or_list(kind: Kind) -> Kind:
    """A value or a list of them, as a tuple; ``null`` is none.

    Example:
        >>> one_or_list(whole())(3), one_or_list(whole())([3, 4])
        ((3,), (3, 4))
    """

    def read(value: Any) -> tuple:
        if value is None:
            return ()
        return list_of(kind)(value) if isinstance(value, list) else (kind(value),)

    return read


def section(table: Table, op: str) -> Kind:
    """An object in the file, with a table of its own.

    Args:
        table: Of its entries.

    Example:
        >>> rope = Table("config.json", [Field("base", "base", real(), 1e4)])
        >>> section(rope, "op")({"base": 5})
        {'base': 5.0}
    """

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Misfit("an object")
        return table.read(value, op)

    return read
