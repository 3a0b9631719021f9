"""What of a step a model's class writes itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MEASURES = "compute_metrics", "get_metrics_result"


def built_in(method: Callable) -> Callable:
    """Marks a method that the engine need not call: it computes the same."""
    method.is_built_in = True  # type: ignore[attr-defined]
    return method


def overrides(module: Any, name: str) -> bool:
    """Whether the module's class, or the module, has such a method of its own."""
    method = getattr(module, name, None)
    return callable(method) and not getattr(method, "is_built_in", False)


def measures(module: Any) -> bool:
    """Whether the module computes what is logged."""
    return any(overrides(module, name) for name in _MEASURES)


def gives_loss(module: Any) -> bool:
    """Whether its own ``compute_loss_and_updates`` is what the built-in steps call.

    One beside a ``train_step`` of its own is that step's affair, and may take other
    arguments.
    """
    own = overrides(module, "compute_loss_and_updates")
    return own and not overrides(module, "train_step")


def has_custom_step(module: Any, kind: str) -> bool:
    """Whether the engine calls the module's step: something in it is its own."""
    if overrides(module, f"{kind}_step"):
        return True
    return kind != "predict" and (measures(module) or gives_loss(module))
