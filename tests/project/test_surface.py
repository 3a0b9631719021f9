"""The comparison of public names: what it lists, and that it sees a change."""

import inspect
import sys
from pathlib import Path

from tests.project import surface

import exburn


def test_it_lists_names_methods_and_defaults():
    lines = surface.surface()
    assert lines == sorted(set(lines))
    assert any(
        line.startswith("exburn.layers.Dense (units: 'int', activation:")
        for line in lines
    )
    assert any(line.startswith("exburn.Model.fit (self, x") for line in lines)
    assert "exburn.optimizers.schedules: module" in lines
    assert {f"exburn.losses.{name}" for name in exburn.losses.__all__} <= {
        line.split(" ")[0].rstrip(":") for line in lines
    }


def test_no_two_public_classes_share_a_name():
    """Keras' own pairs aside: a loss and the metric of it, a layer and an initializer.

    ``Precision``, say, as a metric and as a policy would be told apart by nothing.
    """
    classes: dict[str, set[type]] = {}
    for _, value in surface.public_names():
        if inspect.isclass(value):
            classes.setdefault(value.__name__, set()).add(value)
    shared = {name for name, each in classes.items() if len(each) > 1}
    pairs = set(exburn.losses.__all__) & set(exburn.metrics.__all__) | {"Identity"}
    assert shared <= pairs, {name: classes[name] for name in shared - pairs}
    assert "Hinge" in shared  # the walk goes into namespaces


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
