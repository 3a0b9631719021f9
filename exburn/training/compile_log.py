"""What was compiled, when, how long it took, and why again."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax

from exburn.errors import RecompileWarning, warn
from exburn.training.settings import Settings

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
    """Notes each compilation; warns once when a shape or dtype keeps changing.

    Args:
        tell: Called with the program and the seconds of each.
    """

    def __init__(self, tell: Callable[[str, float], None] | None = None):
        self._tell = tell
        self.entries: list[Compilation] = []
        self._seen: dict[str, list[dict[str, Spec]]] = {}
        self._settings: dict[str, Settings] = {}
        self._shapes: Counter[str] = Counter()
        self._sizes: Counter[str] = Counter()
        self._warned = False

    def begin_anew(self) -> None:
        """Forgets the data of earlier programs: those to come are for another aim."""
        self._seen.clear()
        self._shapes.clear()
        self._sizes.clear()

    def note(
        self,
        name: str,
        specs: dict[str, Spec],
        changed: list[tuple[str, str]],
        settings: Settings,
        seconds: float,
    ) -> None:
        """Notes a compilation.

        Args:
            specs: Of the data that it was called with: ``batch_specs``.
        """
        earlier = self._seen.setdefault(name, [])
        latest = reversed(earlier)  # of those that are equally similar
        changes = min((changes_of(old, specs) for old in latest), key=len, default=None)
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
        if self._tell is not None:
            self._tell(name, seconds)
        kinds = {kind for _, kind in changes or ()}
        if any(path.endswith((".lengths", "['tokens']")) for path in specs):
            # Of buckets, or of answers that are filled up to few sizes.
            kinds = {"size" if kind == "row" else kind for kind in kinds}
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


def batch_specs(args: tuple, data: int) -> dict[str, Spec]:
    """Specs of the data that a program was called with, by the names of ``fit``."""
    batch = args[data]
    if isinstance(batch, list):  # a chunk in parts
        batch = jax.tree.map(_whole, *batch)
    x, y, sample_weight = batch
    specs = specs_of(x=x, y=y, sample_weight=sample_weight, rows=args[data + 1])
    masks = args[data + 2]  # what tells which rows, and which steps, are only padding
    if isinstance(masks, tuple):
        specs |= {name: ((), "bool") for name in _MASKS[: len(masks)]}
    return specs


def _whole(*parts: Any) -> jax.ShapeDtypeStruct:
    steps = sum(part.shape[0] for part in parts)
    return jax.ShapeDtypeStruct((steps, *parts[0].shape[1:]), parts[0].dtype)


def specs_of(**parts: Any) -> dict[str, Spec]:
    """Shapes and dtypes of the leaves, by their names."""
    specs = {}
    for part, value in parts.items():
        for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
            name = part + jax.tree_util.keystr(path)
            weak = "weak " if getattr(leaf, "weak_type", False) else ""
            specs[name] = (tuple(leaf.shape), f"{weak}{leaf.dtype}")
    return specs


def changes_of(old: dict[str, Spec], new: dict[str, Spec]) -> list[tuple[str, str]]:
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
