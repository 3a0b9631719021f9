"""Which positions of a sequence see which."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


def position_mask(targets: Any, sources: Any, *, causal: bool, window: int | None):
    """Booleans ``[1, 1, targets, sources]``: which positions see which; None if all do.

    Args:
        targets: Number of queries.
        sources: Number of keys.
        causal: Whether a position sees none after it.
        window: Whether a position sees only those less than this many steps away.
    """
    if not causal and window is None:
        return None
    ahead = jnp.arange(targets)[:, None] - jnp.arange(sources)[None, :]
    if window is None:
        seen = ahead >= 0
    elif causal:
        seen = (ahead >= 0) & (ahead < window)
    else:
        seen = jnp.abs(ahead) < window
    return seen[None, None]
