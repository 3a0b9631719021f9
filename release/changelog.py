"""CHANGELOG.md as data: which items stand above a release."""

from __future__ import annotations

import re

__all__ = ["items", "names_in", "released"]


def released(text: str) -> dict[str, str]:
    """The day of each version that has one: ``{"0.1.0": "2026-12-01"}``."""
    heading = re.compile(r"^## \[(\d[^\]]*)\] - (\d{4}-\d\d-\d\d)$", re.MULTILINE)
    return dict(heading.findall(text))


def items(text: str, above: str, *kinds: str) -> list[str]:
    """What stands under some kinds of change (``"Changed"``) above a version's heading.

    An item is a list's, with the lines that go on below it.
    """
    recent = re.split(rf"^## \[{re.escape(above)}\]", text, flags=re.MULTILINE)[0]
    entries = []
    for part in re.split(r"^### ", recent, flags=re.MULTILINE)[1:]:
        kind, _, body = part.partition("\n")
        if kind.strip() in kinds:
            body = re.split(r"^## ", body, flags=re.MULTILINE)[0]
            entries += [item.strip() for item in re.split(r"^- ", body, flags=re.M)[1:]]
    return entries


def names_in(item: str) -> set[str]:
    """The names that an item writes as code."""
    return {name for code in re.findall(r"`([^`]+)`", item) for name in _words(code)}


def _words(code: str) -> list[str]:
    return re.findall(r"\w+", code)
