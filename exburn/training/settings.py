"""What programs have built in besides the sizes of data, and how that differs."""

from __future__ import annotations

import dataclasses
from typing import Any

from exburn.core.precision import PrecisionPolicy
from exburn.module.layer import Layer
from exburn.module.traversal import iter_modules

_MANY = 3  # names, and changes of one kind, that are told
_LONG = 120  # characters of a value
_PLAIN = {bool, int, float, str, type(None)}  # which no state can be: told quickly


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a module, its optimizer and its losses were when programs were made.

    Args:
        trained: Names of the weights that are trained.
        frozen: Paths of the layers that are frozen, those in frozen ones too.
        layers: Attributes of the layers, by path and name.
        others: What regularizers, losses and functions of the user's hold, by name.
    """

    trained: list[str]
    frozen: list[str]
    layers: dict[str, Any]
    optimizer: dict[str, Any]
    objective: Any
    others: dict[str, Any]
    numbers: list[str]

    @classmethod
    def of(
        cls,
        module: Any,
        trained: tuple[list, list],
        optimizer: Any,
        objective: Any,
        others: dict[str, Any],
        numbers: list[str],
    ) -> Settings:
        """Settings of a module as it is now."""
        options = {} if optimizer is None else optimizer.settings()
        layers = _attributes(module)
        return cls(*trained, layers, options, objective, others, numbers)

    def changes_from(self, old: Settings) -> list[str]:
        """What is not as it was, in words."""
        changes = []
        for before, now, what in (
            (old, self, "frozen now"),
            (self, old, "frozen no more"),
        ):
            if names := _newly_frozen(before, now):
                more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
                changes.append(f"{what}: {', '.join(names[:_MANY])}{more}")
        options = _differences(old.optimizer, self.optimizer)
        changes += [f"optimizer: {option}" for option in options]
        changes += _differences(old.layers, self.layers)[:_MANY]
        changes += _differences(old.others, self.others)[:_MANY]
        new = [name for name in self.numbers if name not in old.numbers]
        if new:
            changes.append(f"arguments from now on: {', '.join(new)}")
        if old.objective is not self.objective:
            changes.append("the losses or metrics are others")
        return changes


def _attributes(module: Any) -> dict[str, Any]:
    attributes = {}
    for path, part in iter_modules(module):
        start = f"{path}." if path else ""
        for name, value in vars(part).items():
            if name[0] == "_" or name == "built":
                continue
            if type(value) in _PLAIN or not part._pytree__nodes.get(name):
                attributes[start + name] = value
        if isinstance(part, Layer):
            attributes[f"{start}precision"] = part.precision
            attributes[f"{start}rematerialized"] = part.rematerialized
    return attributes


def _newly_frozen(before: Settings, now: Settings) -> list[str]:
    """The outermost layers, and the weights whose layers are not frozen."""
    unlike = set(now.frozen).symmetric_difference(before.frozen)
    like = set(now.frozen) - unlike
    # Whatever holds a layer that stays as it was is not told as a whole.
    whole = unlike.difference(around for path in like for around in _around(path))
    new = [path for path in now.frozen if path in whole]
    layers = [path for path in new if whole.isdisjoint(_around(path))]
    inside = tuple(f"{path}/" for path in layers)
    trained = set(now.trained)
    weights = [name for name in before.trained if name not in trained]
    return layers + [name for name in weights if not name.startswith(inside)]


def _around(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return [
        _change(name, value, new[name])
        for name, value in old.items()
        if name in new and not _same(value, new[name])
    ]


def _same(a: Any, b: Any) -> bool:
    return a is b or (not callable(a) and not callable(b) and repr(a) == repr(b))


def _change(name: str, old: Any, new: Any) -> str:
    before, after = _text(old), _text(new)
    if before == after:  # two functions of one name
        return f"{name}: another {after}"
    return f"{name} {before} → {after}"


def _text(value: Any) -> str:
    if isinstance(value, PrecisionPolicy):
        value = value.identifier
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"
