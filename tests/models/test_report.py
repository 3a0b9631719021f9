"""Records that are mappings, too, and print as tables of figures."""

import dataclasses
import io

import pytest
from rich.console import Console

from exburn.core.printing import amount_text, size_text
from exburn.models.report import Figures


@dataclasses.dataclass(frozen=True, repr=False)
class Car(Figures):
    wheels: int
    name: str

    def _lines(self):
        return "A car", {"wheels": str(self.wheels), "name": self.name}


def test_a_record_is_a_mapping_and_a_table():
    car = Car(4, "[bold]x[/]")
    assert dict(car) == {"wheels": 4, "name": "[bold]x[/]"} and len(car) == 2
    with pytest.raises(KeyError):
        car["_lines"]
    text = str(car)
    assert text == repr(car) and text.startswith("A car")
    assert "[bold]x[/]" in text  # what is in it is no markup
    console = Console(file=io.StringIO(), width=60)
    console.print(car)
    assert "wheels" in console.file.getvalue()


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
def test_numbers_for_people(function, number, text):
    assert function(number) == text
