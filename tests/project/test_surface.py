"""The comparison of public names: what it lists, and that it sees a change."""

import sys
from pathlib import Path

from tests.project import surface

import exburn


def test_it_lists_names_methods_and_defaults():
    lines = surface.surface()
    assert lines == sorted(set(lines))
    assert any(
        line.startswith("exburn.layers.Dense (units, activation=None") for line in lines
    )
    assert any(line.startswith("exburn.Model.fit (self, x") for line in lines)
    assert "exburn.optimizers.schedules: module" in lines
    assert {f"exburn.losses.{name}" for name in exburn.losses.__all__} <= {
        line.split(" ")[0].rstrip(":") for line in lines
    }


def test_addresses_are_no_part_of_a_signature():
    assert surface.signature(lambda x=object(): x) == "(x=<object object>)"  # noqa: B008


def test_a_changed_default_is_shown(tmp_path: Path, monkeypatch, capsys):
    def scaled(x, factor=2):
        return x * factor

    now = list(surface.describe("scaled", scaled))
    assert now == ["scaled (x, factor=2)"]
    before = tmp_path / "before.txt"
    before.write_text("scaled (x, factor=1)\n", "utf-8")
    monkeypatch.setattr(surface, "surface", lambda: now)
    monkeypatch.setattr(sys, "argv", ["surface.py", "--against", str(before)])
    assert surface.main() == 1
    shown = capsys.readouterr().out
    assert "-scaled (x, factor=1)\n+scaled (x, factor=2)\n" in shown
    before.write_text("scaled (x, factor=2)\n", "utf-8")
    assert surface.main() == 0
