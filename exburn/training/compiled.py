"""What was compiled, when, how long it took, and why again."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax

from exburn.errors import RecompileWarning, warn
from exburn.module.building import spec_like
from exburn.runtime.gc_pause import has_started, starting
from exburn.runtime.placement import bound_to, is_bound, together
from exburn.training.settings import Settings

__all__ = ["Compilation", "CompileLog", "Watched"]

MANY = 8  # programs for sizes of a training batch, or for shapes of a row elsewhere

_MASKS = "a mask of rows", "a mask of steps"
Spec = tuple[tuple[int, ...], str]


@dataclasses.dataclass(frozen=True)
class Compilation:
    """One compilation.

    Attributes:
        program: ``"train"``, ``"evaluate"`` or ``"predict"``.
        reason: ``"first use"``, or what differs: in the data from the most similar ones
            before, and in the model and its optimizer since the last compilation.
        seconds: From the call to its dispatch: tracing and compiling, or reading the
            compiled program from the cache on disk.
        at: When, in seconds since the epoch.
    """

    program: str
    reason: str
    seconds: float
    at: float


class CompileLog:
    """Notes each compilation; warns once when a shape or dtype keeps changing."""

    def __init__(self):
        self.entries: list[Compilation] = []
        self._seen: dict[str, list[dict[str, Spec]]] = {}
        self._settings: dict[str, Settings] = {}
        self._shapes: Counter[str] = Counter()
        self._sizes: Counter[str] = Counter()
        self._warned = False

    def watched(
        self,
        call: Any,
        name: str,
        traces: Callable[[], int],
        data: int,
        settings: Settings,
    ) -> Watched:
        """The compiled function, noting the calls that compile.

        Args:
            call: A function made by ``jax.jit``.
            name: The program's name.
            traces: How often it was traced so far.
            data: Which of its arguments are the data; row numbers come next.
            settings: What it has built in.
        """

        def note(args: tuple, model: list[tuple[str, str]], seconds: float) -> None:
            self._note(name, _batch_specs(args, data), model, settings, seconds)

        return Watched(call, traces, note)

    def _note(
        self,
        name: str,
        specs: dict[str, Spec],
        changed: list[tuple[str, str]],
        settings: Settings,
        seconds: float,
    ) -> None:
        earlier = self._seen.setdefault(name, [])
        latest = reversed(earlier)  # of those that are equally similar
        changes = min((_changes(old, specs) for old in latest), key=len, default=None)
        earlier.append(specs)
        before = self._settings.get(name, settings)
        self._settings[name] = settings
        if changes is not None and not changes:
            changes = changed
        if changes is None:
            reason = "first use"
        else:
            texts = [text for text, _ in changes[:3]]
            texts += settings.changes_from(before)
            reason = "; ".join(texts) or "the model or an option changed"
        self.entries.append(Compilation(name, reason, seconds, time.time()))
        kinds = {kind for _, kind in changes or ()}
        self._shapes[name] += "row" in kinds
        self._sizes[name] += kinds == {"size"}
        limit = 0 if name == "train" else MANY
        often = self._shapes[name] > limit
        if name == "train":
            often = often or self._sizes[name] > MANY
        if self._warned or not often:
            return
        self._warned = True
        hint = "Give batches of one shape and dtype: pad sequences to few lengths, "
        hint += "cast once before fit."
        if kinds == {"size"}:
            hint = "Give data of few sizes: each number of rows, or of steps, has a "
            hint += "program of its own."
        if reason.startswith("model"):
            hint = "Set weights to arrays of their own shape and dtype: set_weights()."
        warn(
            f"The {name} program was compiled again ({seconds:.1f} s): {reason}.\n"
            f"  → {hint} model.compile_report() lists all compilations.",
            RecompileWarning,
        )


class Watched:
    """A compiled function that notes when it compiles, and can do so ahead.

    Args:
        call: A function made by ``jax.jit``.
        traces: How often it was traced so far.
        note: Called after a compilation with its arguments, with what changed of the
            first of them since the one before, and with the seconds it took.
    """

    def __init__(
        self,
        call: Any,
        traces: Callable[[], int],
        note: Callable[[tuple, list[tuple[str, str]], float], None],
    ):
        self._call, self._traces, self._note = call, traces, note
        self._model: dict[str, Spec] = {}  # as it was when this last compiled
        self._places: set[tuple[str, str]] = set()  # that it was compiled for
        self._ahead: tuple[tuple, float, Future] | None = None

    def __call__(self, *args):
        failed = not self.arrive()
        args, places = _in_places(args)
        before, start = self._traces(), time.perf_counter()
        if self._model:
            out = self._call(*args)
        else:
            with starting():
                out = self._call(*args)
        if failed or self._traces() != before or places not in self._places:
            self._compiled(args, time.perf_counter() - start, places)
        return out

    def ahead(self, *args: Any) -> None:
        """Begins to compile for arguments like these, unless it ever has before.

        It is traced at once, and compiled by a thread, for which the interpreter has
        nothing to do. If that fails, so will the call, which can say why.
        """
        if self._model or self._ahead is not None or not _compiles():
            return
        start = time.perf_counter()
        args, places = _in_places(args)
        with starting():
            lowered = self._call.lower(*args)
        traced = time.perf_counter() - start
        specs = jax.tree.map(spec_like, args)
        threads = ThreadPoolExecutor(1, "exburn-compiler")
        self._ahead = (specs, places), traced, threads.submit(_timed, lowered.compile)
        threads.shutdown(wait=False)

    def arrive(self) -> bool:
        """Waits until what was begun ahead is compiled; says if that did not fail."""
        if self._ahead is None:
            return True
        ((args, places), traced, compiling), self._ahead = self._ahead, None
        if compiling.exception() is not None:
            return False
        self._compiled(args, traced + compiling.result(), places)
        return True

    def _compiled(self, args: tuple, seconds: float, places: tuple[str, str]) -> None:
        has_started()
        # Donated arrays have lost their contents, not their shapes.
        model = _specs(model=args[0])
        changed = _changes(self._model, model) if self._model else []
        if self._places and places not in self._places:
            where = places[0] or places[1] or "no device"
            changed.append((f"the arrays are bound to {where}", "place"))
        self._model = model
        self._places.add(places)
        self._note(args, changed, seconds)


def _in_places(args: tuple) -> tuple[tuple, tuple[str, str]]:
    """Arguments that are all bound if one is, but for the first; and what to.

    Else JAX would compile a program for each mixture.
    """
    first = jax.tree.leaves(args[0])[:1]  # of a state, whose arrays are alike
    if not any(map(is_bound, (*first, *jax.tree.leaves(args[1:])))):
        return args, ("", "")
    args = args[0], *together(args[1:], first, may_alias=True)
    return args, (bound_to(first), bound_to(args[1:]))


def _compiles() -> bool:
    """Whether calls compile at all: not within ``jax.disable_jit()``."""
    return not jax.config.jax_disable_jit  # type: ignore[attr-defined]


def _timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _batch_specs(args: tuple, data: int) -> dict[str, Spec]:
    """Specs of the data that a program was called with, by the names of ``fit``."""
    batch = args[data]
    if isinstance(batch, list):  # a chunk in parts
        batch = jax.tree.map(_whole, *batch)
    x, y, sample_weight = batch
    found = _specs(x=x, y=y, sample_weight=sample_weight, rows=args[data + 1])
    masks = args[data + 2]  # what tells which rows, and which steps, are only padding
    if isinstance(masks, tuple):
        found |= {name: ((), "bool") for name in _MASKS[: len(masks)]}
    return found


def _whole(*parts: Any) -> jax.ShapeDtypeStruct:
    steps = sum(part.shape[0] for part in parts)
    return jax.ShapeDtypeStruct((steps, *parts[0].shape[1:]), parts[0].dtype)


def _specs(**parts: Any) -> dict[str, Spec]:
    """Shapes and dtypes of the leaves, by their names."""
    found = {}
    for part, value in parts.items():
        for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
            name = part + jax.tree_util.keystr(path)
            weak = "weak " if getattr(leaf, "weak_type", False) else ""
            found[name] = (tuple(leaf.shape), f"{weak}{leaf.dtype}")
    return found


def _changes(old: dict[str, Spec], new: dict[str, Spec]) -> list[tuple[str, str]]:
    """What differs: a "part" of the data, the "size" of batches, or a "row"."""
    changes = []
    for name in sorted(old.keys() | new.keys()):
        before, now = old.get(name), new.get(name)
        if before == now:
            continue
        if before is None or now is None:
            gone = "is given no more" if now is None else "is new"
            kind = "size" if name in _MASKS else "part"
            changes.append((f"{name} {gone}", kind))
            continue
        text = f"{name} {_describe(before)} → {_describe(now)}"
        same = name.startswith("rows") or _row(before, old) == _row(now, new)
        changes.append((text, "size" if same else "row"))
    return changes


def _row(spec: Spec, specs: dict[str, Spec]) -> Spec:
    """Shape and dtype of one row: of data on the device, or of a chunk of batches.

    Targets with and without an axis of size one are alike.
    """
    resident = any(name.startswith("rows") for name in specs)
    shape = spec[0][1 if resident else 2 :]
    while shape and shape[-1] == 1:
        shape = shape[:-1]
    return shape, spec[1]


def _describe(spec: Spec) -> str:
    return f"{spec[1]}[{', '.join(map(str, spec[0]))}]"
