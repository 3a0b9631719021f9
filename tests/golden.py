"""Arrays of Keras that are recorded in files, so that tests need no Keras.

A test asks for them by the fixture, with the function that computes them::

    def test_elu_agrees_with_keras(golden):
        theirs = golden(lambda: keras.activations.elu(X))
        np.testing.assert_allclose(activations.elu(X), theirs, rtol=1e-6)

Functions that many tests call use ``recorded`` for the same. ``keras`` is imported when
something is computed by it.

The numbers of ``tests/ops/test_x.py`` lie in ``tests/ops/golden/test_x.npz``, by the
test's name and, for each call inside it, a number. What is recorded may be any nest of
dicts, lists and tuples of arrays, numbers, strings and None; the file has the arrays'
own dtypes, but for bfloat16, which comes back as float32.

=========================================  ==========================================
``pytest tests/ops``                       reads the files; ``compute`` does not run
``pytest tests/ops --regenerate``          computes with live Keras and writes them
``pytest tests/ops --recompute``           computes, and compares with what is written
=========================================  ==========================================

``tests/project/test_golden.py`` does the last for a few tests of every file.
"""

import importlib
import io
import json
import operator
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FORMS = "forms"  # the member of a file that says how its arrays belong together

_recordings: "dict[Path, Recording]" = {}
_running: "list[Golden]" = []  # of the test that runs


class _Keras:
    """Keras on JAX, imported when something of it is asked for."""

    def __call__(self):
        os.environ.setdefault("KERAS_BACKEND", "jax")
        return importlib.import_module("keras")

    def __getattr__(self, name: str):
        return getattr(self(), name)

    def __dir__(self):
        return dir(self())


keras = _Keras()


def add_options(parser):
    """The options of pytest by which the files are written and checked."""
    group = parser.getgroup("golden", "recorded arrays of Keras (tests/golden.py)")
    group.addoption("--regenerate", action="store_true", help="write them anew")
    group.addoption("--recompute", action="store_true", help="compare them with Keras")


class Golden:
    """What ``golden`` is inside one test: it counts the test's calls."""

    def __init__(self, path: Path, name: str, config):
        self.file = path.parent / "golden" / f"{path.stem}.npz"
        self.name = name
        self.calls = 0
        self.regenerate = config.getoption("--regenerate")
        self.recompute = config.getoption("--recompute")

    def __call__(self, compute: Callable[[], Any], tolerance: float = 1e-4) -> Any:
        """What ``compute()`` gave when it was recorded.

        Args:
            compute: Gives arrays in dicts, lists and tuples; it runs only with
                ``--regenerate`` and ``--recompute``.
            tolerance: By how much another Keras or machine may differ when the
                arrays are computed again.
        """
        if self.file not in _recordings:
            _recordings[self.file] = Recording(self.file)
        recording = _recordings[self.file]
        key = f"{self.name}#{self.calls}"
        self.calls += 1
        if self.regenerate:
            recording.put(key, compute())
        elif self.recompute:
            fresh = Recording(Path("nowhere"))
            fresh.put(key, compute())
            compare(fresh.get(key), recording.get(key), tolerance)
        return recording.get(key)


def begin(item) -> None:
    """Called as a test begins: what is recorded from now on is this test's."""
    _running[:] = [Golden(item.path, item.name, item.config)]


def recorded(compute: Callable[[], Any], tolerance: float = 1e-4) -> Any:
    """The fixture ``golden`` for functions that many tests call."""
    return _running[0](compute, tolerance)


def running() -> Golden:
    return _running[0]


class Calls:
    """A module of Keras by its path, with functions whose results are recorded."""

    def __init__(self, path: str):
        self.path = path

    def __getattr__(self, name: str):
        find = operator.attrgetter(f"{self.path}.{name}")
        return lambda *args, **kwargs: recorded(lambda: find(keras())(*args, **kwargs))


class Recording:
    """One file: its arrays, and of each call the tree whose leaves they are."""

    def __init__(self, file: Path):
        self.arrays: Any = {}
        if file.exists():  # read whole, so that no file stays open
            self.arrays = np.load(io.BytesIO(file.read_bytes()))
        self.forms = json.loads(str(self.arrays[FORMS])) if self.arrays else {}

    def get(self, key: str) -> Any:
        """The tree that was put there, with NumPy's arrays."""
        if key not in self.forms:
            raise KeyError(f"{key!r} is not recorded: run pytest with --regenerate")

        def build(form):
            if isinstance(form, int):
                return self.arrays[f"{key}/{form}"]
            ((kind, parts),) = form.items()
            if kind == "value":
                return parts
            if kind == "dict":
                return {name: build(part) for name, part in parts}
            return (list if kind == "list" else tuple)(build(part) for part in parts)

        return build(self.forms[key])

    def put(self, key: str, tree: Any) -> None:
        """Takes a tree apart into arrays, and its form as JSON."""
        leaves: list[np.ndarray] = []

        def form(node):
            if isinstance(node, dict):
                return {"dict": [[name, form(part)] for name, part in node.items()]}
            if isinstance(node, list | tuple):
                kind = "list" if isinstance(node, list) else "tuple"
                return {kind: [form(part) for part in node]}
            if node is None or isinstance(node, str | bool | int | float):
                return {"value": node}
            array = np.asarray(node)
            if array.dtype.name == "bfloat16":
                array = array.astype("float32")
            leaves.append(array)
            return len(leaves) - 1

        self.arrays = dict(self.arrays)
        self.forms[key] = form(tree)
        self.arrays |= {f"{key}/{i}": leaf for i, leaf in enumerate(leaves)}

    def save(self, file: Path) -> None:
        """Writes the arrays that a form names, in their order."""
        file.parent.mkdir(exist_ok=True)
        forms = dict(sorted(self.forms.items()))
        arrays = {
            name: self.arrays[name]
            for key in forms
            for name in (f"{key}/{i}" for i in range(_leaves(forms[key])))
        }
        np.savez_compressed(file, **{FORMS: np.array(json.dumps(forms)), **arrays})


def _leaves(form) -> int:
    """The number of arrays in a form."""
    if isinstance(form, int):
        return 1
    ((kind, parts),) = form.items()
    if kind == "value":
        return 0
    return sum(_leaves(part[1] if kind == "dict" else part) for part in parts)


def save_all() -> None:
    """Writes what ``--regenerate`` has computed."""
    for file, recording in _recordings.items():
        recording.save(file)


def compare(fresh: Any, recorded: Any, tolerance: float) -> None:
    """Asserts two trees equal, arrays up to a tolerance."""
    assert type(fresh) is type(recorded), (fresh, recorded)
    if isinstance(fresh, dict):
        assert list(fresh) == list(recorded)
        fresh, recorded = list(fresh.values()), list(recorded.values())
    if isinstance(fresh, list | tuple):
        for a, b in zip(fresh, recorded, strict=True):
            compare(a, b, tolerance)
    elif isinstance(fresh, float):
        np.testing.assert_allclose(fresh, recorded, rtol=tolerance, atol=tolerance)
    elif isinstance(fresh, np.ndarray):
        assert fresh.dtype == recorded.dtype
        if fresh.dtype.kind in "biuSU":
            np.testing.assert_array_equal(fresh, recorded)
        else:
            np.testing.assert_allclose(
                fresh, recorded, rtol=tolerance, atol=tolerance, equal_nan=True
            )
    else:
        assert fresh == recorded
