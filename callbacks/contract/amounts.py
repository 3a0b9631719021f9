"""How much of the data a step is, for what shows a speed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def amount_of_step(params: Mapping[str, Any]) -> tuple[float, str]:
    """What a step takes of the data, and what that is called.

    Args:
        params: What callbacks are told of a run.

    Example:
        >>> amount_of_step({"batch_size": 8}), amount_of_step({})
        ((8, 'samples'), (0, 'steps'))
        >>> amount_of_step({"batch_size": 8, "tokens_of_step": 1900.0})
        (1900.0, 'tokens')
    """
    if tokens := params.get("tokens_of_step"):
        return tokens, "tokens"
    size = params.get("batch_size") or 0
    return size, "samples" if size else "steps"
