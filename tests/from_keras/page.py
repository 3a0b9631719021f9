"""The list items of docs/from_keras/*.md, and which tests try what they say.

A check is a test in the module of the item's section, decorated with a few words that
no other item has:

    @says("Names are local to a model")
    def test_names_are_local(): ...

A module's table ``UNTESTED`` has such words of the items that state nothing that could
be run, with the reason. ``test_coverage.py`` finds the items that have neither.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "from_keras"
PAGES = [
    FOLDER / f"{name}.md" for name in ("names", "models", "training", "data_and_files")
]

#: The module that checks each section of the page; a second one may help it.
MODULES = {
    "Imports and names": "test_imports",
    "Models": "test_models",
    "Layers": "test_layers",
    "compile": "test_compile",
    "fit, evaluate, predict": "test_fit",
    "Optimizers": "test_optimizers",
    "Losses and metrics": "test_losses",
    "Distillation": "test_distillation",
    "Visualization": "test_visualization",
    "Initializers, activations, regularizers": "test_initializers",
    "Callbacks": "test_callbacks",
    "Data": "test_data",
    "Files": "test_files",
    "Quantization": "test_quantization",
    "Devices and precision": "test_devices",
}


class Item(NamedTuple):
    """A list item: the heading above it, and its text with single blanks."""

    section: str
    text: str


def parse(markdown: str) -> list[Item]:
    """The list items of a page, in their order; only indented lines go on with one."""
    items: list[Item] = []
    section, lines = "", None
    for line in [*markdown.splitlines(), "## "]:
        if lines is not None and not line.startswith("  "):
            items.append(Item(section, " ".join(" ".join(lines).split())))
            lines = None
        if line.startswith("## "):
            section = line.removeprefix("## ").strip()
        elif line.startswith("- "):
            lines = [line.removeprefix("- ")]
        elif lines is not None:
            lines.append(line)
    return items


def headings(markdown: str) -> list[str]:
    """The page's sections, in their order."""
    return re.findall(r"^## (.+)$", markdown, re.MULTILINE)


TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
ITEMS = parse(TEXT)
#: The names of the tests that try an item.
CHECKS: dict[Item, set[str]] = defaultdict(set)

Test = TypeVar("Test", bound=Callable)


def find(phrase: str) -> Item:
    """The one list item that has these words.

    Raises:
        LookupError: no item has them, or more than one.
    """
    found = [item for item in ITEMS if phrase in item.text]
    if len(found) != 1:
        raise LookupError(
            f"{phrase!r} is in {len(found)} list items of docs/from_keras: a check "
            "needs words that are in exactly one"
        )
    return found[0]


def says(phrase: str) -> Callable[[Test], Test]:
    """Marks a test as the check of the list item that has these words."""
    item = find(phrase)

    def mark(test: Test) -> Test:
        CHECKS[item].add(test.__name__)
        return test

    return mark
