"""Text for people."""

import sys
import types

import pytest
from rich.table import Table

from exburn.core.printing import amount_text, notebook_shell, page_text, size_text


@pytest.mark.parametrize(
    ("function", "number", "text"),
    [
        (size_text, 1023, "1023 B"),
        (size_text, 1536, "1.50 KB"),
        (size_text, 3 << 40, "3.00 TB"),
        (amount_text, 999, "999"),
        (amount_text, 2_500_000, "2.50 M"),
        (amount_text, 4e12, "4.00 T"),
    ],
)
def test_numbers(function, number, text):
    assert function(number) == text


def test_a_page_is_as_wide_as_it_is_told_and_has_no_colours():
    table = Table(title="[bold]A[/]")
    table.add_column("b")
    table.add_row("[red]long " * 20)
    text = page_text(table, 30)
    assert max(map(len, text.splitlines())) <= 30 and "\x1b" not in text


def test_only_the_kernel_of_a_notebook_is_a_notebook(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert notebook_shell() is None
    for shell, is_one in (
        (None, False),
        (types.SimpleNamespace(), False),  # a terminal
        (types.SimpleNamespace(kernel=None), False),
        (types.SimpleNamespace(kernel=1), True),
    ):
        module = types.SimpleNamespace(get_ipython=lambda shell=shell: shell)
        monkeypatch.setitem(sys.modules, "IPython", module)
        assert (notebook_shell() is shell) == is_one or shell is None
        assert (notebook_shell() is not None) == is_one
