"""Versions that files say, and deprecations whose day has come."""

import datetime
import tomllib

import pytest
from tests.checkout import ROOT, load

import exburn
from exburn.core.deprecation import deprecate

agreement, changelog, contents, trial = (
    load(f"release.{name}") for name in ("agreement", "changelog", "contents", "trial")
)


def test_this_tree_says_one_version():
    said = agreement.disagreements(ROOT, exburn.__version__)
    assert all("CHANGELOG.md has no heading" in line for line in said)  # not released
    assert len(agreement.disagreements(ROOT, "99.0")) == 4


def test_nothing_here_is_overdue():
    assert agreement.overdue(ROOT / "exburn", datetime.date.today()) == []


def test_the_day_of_a_deprecation_comes(tmp_path):
    (tmp_path / "old.py").write_text(
        "from exburn.core.deprecation import deprecate\n"
        "def old():\n"
        '    deprecate("old", "new", since="0.2.0", until="2027-06-01")\n'
    )
    (tmp_path / "other.py").write_text("deprecate = None\n")
    day = datetime.date(2027, 6, 1)
    assert agreement.overdue(tmp_path, day - datetime.timedelta(1)) == []
    (found,) = agreement.overdue(tmp_path, day)
    assert found.startswith("old.py:3: deprecate('old', 'new'")
    # Half a year goes from the first release that warns, or from the one that is made.
    soon, early = "## [0.2.0] - 2027-01-02\n", "## [0.2.0] - 2026-11-30\n"
    assert agreement.hasty(tmp_path, soon, day) == [found]
    assert agreement.hasty(tmp_path, early, day) == []
    assert agreement.hasty(tmp_path, "", datetime.date(2027, 1, 2)) == [found]


def test_a_deprecation_names_the_line_that_uses_it():
    with pytest.warns(DeprecationWarning, match="use new") as caught:
        deprecate("old", "new", since="0.2.0", until="2027-06-01")
    assert caught[0].filename == __file__


def test_days_and_items_of_a_changelog():
    text = (
        "## [Unreleased]\n### Added\n- `a`\n### Changed\n- `b(c=1)`,\n  `d`\n- e\n"
        "## [0.2.0] - 2027-01-02\n### Removed\n- `f`\n## [0.1.0] - 2026-12-01\n"
        "### Changed\n- `g`\n"
    )
    assert changelog.released(text) == {"0.2.0": "2027-01-02", "0.1.0": "2026-12-01"}
    items = changelog.items(text, "0.1.0", "Changed", "Removed")
    assert items == ["`b(c=1)`,\n  `d`", "e", "`f`"]
    assert changelog.names_in(items[0]) == {"b", "c", "1", "d"}


def test_the_program_of_the_readme_is_found():
    program = trial.fifteen_lines((ROOT / "README.md").read_text("utf-8"))
    assert program.startswith("import exburn as keras\n") and "```" not in program


def test_the_tools_of_a_release_are_pinned():
    texts = [path.read_text("utf-8") for path in (ROOT / "release").glob("*.txt")]
    lines = [line for text in texts for line in text.splitlines()]
    assert all("==" in line for line in lines if not line.startswith("#"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["build-system"]["build-backend"] == "release.backend"
    assert contents.MOST_BYTES < 2**22
