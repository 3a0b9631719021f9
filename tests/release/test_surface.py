"""What a release had and the checkout has not: planted in a repository of its own."""

import subprocess

import pytest

pytest.importorskip("griffe")

from tests.checkout import load

surface = load("release.surface")

FILES = {
    "exburn/__init__.py": """
        from exburn import layers
        from exburn.room.fit import fit
        from exburn.room.model import Model, Small

        if TYPE_CHECKING:
            from exburn import lazy
        __all__ = ["Model", "Small", "fit", "layers", "lazy"]
    """,
    "exburn/layers/__init__.py": """
        from exburn.layers.dense import *
        from exburn.room.base import Layer as Layer
        from json import dumps
        _private = 3
    """,
    "exburn/layers/dense.py": """
        from exburn.room.base import Layer
        __all__ = ["Dense"]

        class Dense(Layer):
            def __init__(self, units, activation=None, *, use_bias=True): ...
            def call(self, x): ...
    """,
    "exburn/lazy.py": """
        from json import dumps
        __all__ = ["dumps", "late"]
        def late(x, y=1): ...
    """,
    "exburn/room/__init__.py": "",
    "exburn/room/base.py": """
        class Layer:
            def get(self, key, default=None): ...
    """,
    "exburn/room/fit.py": """
        def fit(model, x, y=None, epochs=1): ...
        def check(model, deep=1): ...
    """,
    "exburn/room/model.py": """
        from exburn.room import fit as fitting
        class Model:
            fit, check = fitting.fit, fitting.check
            def inner(self, a): ...

        class Small(Model): ...
    """,
    "CHANGELOG.md": """
        # Changelog
        ## [Unreleased]
        ### Added
        - `Dense` has more.
        ## [0.1.0] - 2026-12-01
        ### Changed
        - `late(y=)`, `Dense`, `fit`, `epochs`: of before.
    """,
}


@pytest.fixture
def repository(tmp_path):
    write(tmp_path, FILES)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        margin = "        "
        path.write_text(
            "".join(
                line.removeprefix(margin) for line in text.lstrip().splitlines(True)
            ),
            "utf-8",
        )


def change(folder, name, old, new):
    text = (folder / name).read_text("utf-8")
    assert old in text
    (folder / name).write_text(text.replace(old, new), "utf-8")


def git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@b.org", "-c", "commit.gpgsign=0")
    subprocess.run(["git", *who, "-C", folder, *words], check=True)


def commit(folder):
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "more")


def test_before_the_first_release(repository, capsys):
    assert surface.main([], repository) == 0
    assert "no release yet" in capsys.readouterr().out


def test_what_programs_may_miss_must_be_named(repository, capsys):
    git(repository, "tag", "v0.1.0")
    git(repository, "tag", "nightly")
    commit(repository)
    git(repository, "tag", "v0.2.0")  # the release that is made: not compared with
    # What no program can tell: the room of a class, a new argument with a default.
    change(
        repository, "exburn/layers/dense.py", "use_bias=True", "use_bias=True, more=2"
    )
    (repository / "exburn/room/base.py").rename(repository / "exburn/room/moved.py")
    for name in ("exburn/layers/__init__.py", "exburn/layers/dense.py"):
        change(repository, name, "room.base", "room.moved")
    change(
        repository,
        "exburn/room/model.py",
        "def inner",
        "def _hidden(self): ...\n    def inner",
    )
    assert surface.main([], repository) == 0
    assert "0 changes that programs of v0.1.0" in capsys.readouterr().out

    change(repository, "exburn/layers/dense.py", "activation=None", 'activation="relu"')
    change(repository, "exburn/room/fit.py", "epochs=1", "steps=1")
    change(repository, "exburn/room/fit.py", "deep=1", "deep=2")
    change(repository, "exburn/room/moved.py", "default=None", "default")
    change(repository, "exburn/lazy.py", '"dumps", "late"', "")
    assert surface.main([], repository) == 1
    shown = capsys.readouterr()
    expected = {
        "exburn.lazy.dumps: was removed",
        "exburn.lazy.late: was removed",
        "exburn.layers.Dense.__init__(activation): parameter default was changed: "
        "None -> 'relu'",
        "exburn.fit(epochs): parameter was removed",
        "exburn.Model.check(deep): parameter default was changed: 1 -> 2",
        "exburn.layers.Layer.get(default): parameter is now required",
    }
    assert {line.strip() for line in shown.out.splitlines()[1:]} == expected
    assert {line.strip() for line in shown.err.splitlines()[1:]} == expected

    named = """### Changed
- `Dense(activation=)` is
  `"relu"`.
- `layer.get(key, default)` needs both; `model.check(deep=2)`.
- `fit(steps=)` stands for `epochs`.
### Removed
- `lazy.late`, `lazy.dumps`
## [0.1.0]"""
    change(repository, "CHANGELOG.md", "## [0.1.0]", named)
    assert surface.main([], repository) == 0
    change(repository, "CHANGELOG.md", "stands for `epochs`", "stands for another")
    assert surface.main(["--against", "v0.1.0"], repository) == 1
    (line,) = capsys.readouterr().err.splitlines()[1:]
    assert line.strip() == "exburn.fit(epochs): parameter was removed"
