"""The entries of a JSON object, each read once, honoured or refused by its name."""

from __future__ import annotations

from typing import Any

from exburn.core.checks import check_count, check_number
from exburn.errors import ArgumentError
from exburn.serving.http.failures import RequestFailure

_SHOWN = 100  # characters of a value that errors show


class Entries:
    """The entries of an object; one that is ``null`` is not there.

    Args:
        place: In front of names in errors, as ``"messages[0]."``.

    Example:
        >>> entries = Entries({"n": 2, "seed": None})
        >>> entries.count("n", 1, most=4), entries.count("seed", None)
        (2, None)
        >>> entries.finish()
    """

    def __init__(self, values: Any, place: str = ""):
        self._place = place
        if not isinstance(values, dict):
            raise self.refusal("", f"must be an object, received {_show(values)}")
        self._values = {k: v for k, v in values.items() if v is not None}

    def refusal(self, name: str, text: str, code: str | None = None) -> RequestFailure:
        """The refusal of an entry."""
        name = (self._place + name).rstrip(".") or "the body"
        return RequestFailure(400, f"{name} {text}", param=name, code=code)

    def take(self, name: str, default: Any = None) -> Any:
        """The entry as it is."""
        return self._values.pop(name, default)

    def one_of(self, name: str, default: Any, kinds: Any, text: str) -> Any:
        """An entry of one of several types."""
        value = self.take(name, default)
        if value is default or isinstance(value, kinds):
            return value
        raise self.refusal(name, f"must be {text}, received {_show(value)}")

    def text(self, name: str, default: str | None = None) -> Any:
        """An entry that is a text."""
        return self.one_of(name, default, str, "a text")

    def flag(self, name: str, default: bool = False) -> bool:
        """An entry that is true or false."""
        return self.one_of(name, default, bool, "true or false")

    def array(self, name: str) -> list[Any]:
        """An entry that is a list; an empty one if it is not there."""
        return self.one_of(name, [], list, "a list")

    def objects(self, name: str) -> dict[str, Any]:
        """An entry that is an object; an empty one if it is not there."""
        return self.one_of(name, {}, dict, "an object")

    def count(
        self, name: str, default: int | None, least: int = 1, most: int = 1 << 62
    ) -> Any:
        """An entry that is a whole number."""
        value = self.take(name)
        if value is None:
            return default
        try:
            if (number := check_count("openai", name, value, least)) <= most:
                return number
        except ArgumentError as error:
            raise self.refusal(name, error.reason.removeprefix(f"{name} ")) from None
        raise self.refusal(name, f"must be at most {most}, received {_show(value)}")

    def number(self, name: str, **bounds: Any) -> float | None:
        """An entry that is a number, within the bounds of ``check_number``."""
        value = self.take(name)
        if value is None:
            return None
        try:
            return check_number("openai", name, value, **bounds)
        except ArgumentError as error:
            raise self.refusal(name, error.reason.removeprefix(f"{name} ")) from None

    def refuse(self, name: str, *usual: Any) -> None:
        """Refuses an entry that asks for what is not done.

        Args:
            usual: Values that ask for nothing.
        """
        value = self.take(name)
        same = (one for one in usual if type(one) is type(value) and one == value)
        if value is not None and not any(True for _ in same):
            raise self.refusal(name, "is not supported here", "unsupported_parameter")

    def finish(self) -> None:
        """Refuses what is left, of which nothing is known."""
        for name in self._values:
            raise self.refusal(name, "is unknown", "unknown_parameter")


def _show(value: Any) -> str:
    kinds = {dict: "an object", list: "a list"}
    text = kinds.get(type(value)) or repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
