"""Which callbacks have an example, and the code of docs/callbacks.md."""

import doctest
import re
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


def test_the_code_of_the_document_runs(model, capsys):
    blocks = re.findall(
        r"^```python\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.M | re.S
    )
    namespace = {"model": model, "x": None, "y": None}
    for block in blocks:
        exec(block, namespace)
    assert len(blocks) == 5
    assert model.saved == ["best.safetensors"]
    assert "'epoch': 1" in capsys.readouterr().out
