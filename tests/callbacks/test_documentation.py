"""Which callbacks have an example, and which docs/callbacks.md names."""

import doctest
from pathlib import Path

import exburn.callbacks

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "callbacks.md"


def test_every_public_callback_has_an_example():
    finder = doctest.DocTestFinder(recurse=False)
    for name in exburn.callbacks.__all__:
        if name in ("MonitorCallback", "ProgbarLogger"):
            continue
        examples = finder.find(getattr(exburn.callbacks, name))
        assert examples and examples[0].examples, name


def test_the_document_names_every_callback():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [name for name in exburn.callbacks.__all__ if f"`{name}" not in text] == []
