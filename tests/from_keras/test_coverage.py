"""Every list item of docs/from_keras/ has a check, or a reason why it has none."""

import importlib
from pathlib import Path

import pytest
from tests.from_keras import page

pytest.importorskip("keras")

HERE = Path(__file__).parent
WRITTEN = {
    section: name
    for section, name in page.MODULES.items()
    if (HERE / f"{name}.py").exists()
}


def test_every_section_of_the_page_has_its_module_named():
    assert page.headings(page.TEXT) == list(page.MODULES)


@pytest.mark.parametrize("section", WRITTEN)
def test_every_item_is_checked_or_says_why_not(section):
    modules = [
        importlib.import_module(f"tests.from_keras.{path.stem}")
        for path in sorted(HERE.glob("test_*.py"))
    ]
    tables = [getattr(module, "UNTESTED", {}) for module in modules]
    excused = {page.find(phrase) for table in tables for phrase in table}
    assert all(reason.strip() for table in tables for reason in table.values())
    assert not excused & page.CHECKS.keys(), "take these out of UNTESTED"
    items = [item for item in page.ITEMS if item.section == section]
    unchecked = [i.text for i in items if i not in page.CHECKS and i not in excused]
    assert not unchecked, "decorate a test with @says for each of these"


def test_items_are_read_with_their_continued_lines():
    text = "## A\n\nProse.\n\n- One `x`\n  goes on.\n- Two.\n\n  More.\n## B\n- Three"
    assert page.parse(text) == [
        ("A", "One `x` goes on."),
        ("A", "Two."),
        ("B", "Three"),
    ]


def test_words_of_no_item_and_of_several_are_refused():
    for phrase in ("no item has these words", "Keras"):
        with pytest.raises(LookupError, match="exactly one"):
            page.says(phrase)
