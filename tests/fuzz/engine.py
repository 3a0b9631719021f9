"""Runs a random program in both packages, and says where they differ."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import re
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import keras
import numpy as np
from tests.fuzz import values
from tests.fuzz.simplify import simpler

import exburn

__all__ = ["KINDS", "Decided", "Finding", "find", "run_kind"]

#: Kinds of programs, and how many of them a hundred draws have.
KINDS = {
    "ops": 40,
    "losses": 15,
    "metrics": 15,
    "models": 8,
    "training": 8,
    "saving": 4,
    "flips": 20,
    "cuts": 4,
    "bombs": 6,
    "changes": 10,
}
#: Half precision results differ by the order of operations.
_COARSE = {"float16": 4e-3, "bfloat16": 3e-2}
TABLE = Path(__file__).with_name("decided.toml")
_HEADER = """\
import numpy as np
import keras  # or: import exburn as keras
from tests.fuzz.values import array, fill, weights

"""


@dataclasses.dataclass
class Finding:
    """A program whose results differ."""

    kind: str
    seed: int
    index: int
    source: str
    difference: str

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.seed}/{self.index}: {self.difference}\n"
            f"python -m tests.fuzz --kind {self.kind} --seed {self.seed} "
            f"--only {self.index}\n\n{_HEADER}{self.source}\nprint(result)\n"
        )


class Decided:
    """The table of differences that are known: who is right, and why."""

    def __init__(self, path: Path = TABLE):
        self.entries = tomllib.loads(path.read_text())["difference"]
        self.uses = [0] * len(self.entries)

    def knows(self, kind: str, source: str, difference: str) -> bool:
        for i, entry in enumerate(self.entries):
            if (
                kind in entry["kinds"]
                and all(re.search(part, source) for part in entry["source"])
                and re.search(entry["difference"], difference)
            ):
                self.uses[i] += 1
                return True
        return False


def execute(source: str, package: ModuleType) -> Any:
    """The ``result`` of a program, or the exception that ended it."""
    keras.utils.set_random_seed(0)
    exburn.set_random_seed(0)
    namespace = {"keras": package, "np": np, "inf": np.inf, "nan": np.nan}
    namespace |= {name: getattr(values, name) for name in ("array", "fill", "weights")}
    try:
        with warnings.catch_warnings(action="ignore"):
            exec(compile(source, "<drawn>", "exec"), namespace)
            return values.flat(jax.tree.map(_host, namespace["result"]))
    except Exception as error:
        return error


def _host(value: Any) -> Any:
    return np.asarray(value) if hasattr(value, "dtype") else value


def difference(kind: ModuleType, source: str) -> str | None:
    """Where ExBurn does something else than Keras; None where it does not.

    What Keras refuses may work, and what works here without a peer is judged alone.
    """
    if hasattr(kind, "judge"):
        return kind.judge(execute(source, exburn))
    theirs = execute(source, keras)
    if isinstance(theirs, Exception):
        return None
    ours = execute(source, exburn)
    if isinstance(ours, Exception):
        first = str(ours).split("\n")[0]
        return f"error: {type(ours).__name__}: {first}"
    halves = [v for k, v in _COARSE.items() if k in source]
    return compare(ours, theirs, max([kind.TOLERANCE, *halves]))


def compare(ours: dict, theirs: dict, tolerance: float) -> str | None:
    """The first difference between two results."""
    if list(ours) != list(theirs):
        return f"structure: {list(ours)[:6]} here, {list(theirs)[:6]} in Keras"
    for path, mine in ours.items():
        other = theirs[path]
        if not hasattr(mine, "dtype") or not hasattr(other, "dtype"):
            if not hasattr(mine, "dtype") and not isinstance(mine, float):
                if mine != other:
                    return f"value: {mine!r} here, {other!r} in Keras, of {path}"
                continue
        mine, other = np.asarray(mine), np.asarray(other)
        if mine.shape != other.shape:
            return f"shape: {mine.shape} here, {other.shape} in Keras, of {path}"
        if mine.dtype != other.dtype and not _numbers_of_python(ours, theirs, path):
            return f"dtype: {mine.dtype} here, {other.dtype} in Keras, of {path}"
        if gap := far_apart(mine, other, tolerance):
            return f"value: {gap} of {path}"
    return None


def _numbers_of_python(ours: dict, theirs: dict, path: str) -> bool:
    return isinstance(ours[path], float | int) or isinstance(theirs[path], float | int)


def far_apart(mine: np.ndarray, other: np.ndarray, tolerance: float) -> str | None:
    """How far, if two arrays are not equal up to the tolerance."""
    if mine.dtype.kind in "biu" and other.dtype.kind in "biu":
        same = mine == other
        return None if same.all() else _report(mine, other, ~same)
    if mine.dtype.kind not in "biufcV" and mine.dtype.name not in _COARSE:
        return None if (mine == other).all() else "unequal"
    wide = np.complex128 if "c" in (mine.dtype.kind, other.dtype.kind) else np.float64
    a, b = mine.astype(wide), other.astype(wide)
    with np.errstate(all="ignore"):
        finite = np.abs(b[np.isfinite(b)])
        scale = finite.max() if finite.size else 1.0
        # relative to the number itself, and to the largest, of which rounding is a part
        close = np.abs(a - b) <= tolerance * (
            np.abs(b) + min(scale, 1.0) + 1e-3 * scale
        )
        close |= (a == b) | (np.isnan(a) & np.isnan(b))
    return None if close.all() else _report(a, b, ~close)


def _report(a: np.ndarray, b: np.ndarray, wrong: np.ndarray) -> str:
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{a[place]!s} here, {b[place]!s} in Keras, at {place}, "
        f"{int(wrong.sum())} of {wrong.size}"
    )


def module_of(name: str) -> ModuleType:
    """The module of a kind."""
    return importlib.import_module(f"tests.fuzz.{name}")


def find(name: str, seed: int, index: int, decided: Decided) -> Finding | None:
    """The new difference of one draw, of the simplest program that has it."""
    kind = module_of(name)
    number = list(KINDS).index(name)
    spec = kind.draw(np.random.default_rng([seed, number, index]))
    source = kind.render(spec)
    what = difference(kind, source)
    if what is None or decided.knows(name, source, what):
        return None
    spec, what = shrink(name, kind, spec, what, decided)
    return Finding(name, seed, index, kind.render(spec), what)


def shrink(name, kind, spec, what, decided, tries: int = 60) -> tuple[Any, str]:
    """A simpler specification with a difference of the same sort."""
    sort = what.partition(":")[0]
    changed = True
    while changed and tries > 0:
        changed = False
        for candidate in getattr(kind, "simpler", simpler)(spec):
            if (tries := tries - 1) < 0:
                break
            try:
                source = kind.render(candidate)
                found = difference(kind, source)
            except Exception:  # no program
                continue
            if found is None or found.partition(":")[0] != sort:
                continue
            if not decided.knows(name, source, found):
                spec, what, changed = candidate, found, True
                break
    return spec, what


def run_kind(
    name: str, draws: range, seed: int, decided: Decided
) -> Iterator[Finding | None]:
    """One result a draw."""
    for index in draws:
        yield find(name, seed, index, decided)
        if index % 25 == 24:  # programs of a thousand shapes fill the memory
            jax.clear_caches()
            keras.utils.clear_session()
            gc.collect()
