"""The part of the optimizer state that callbacks change without a recompilation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from exburn.core.checks import check_count, check_number
from exburn.errors import ArgumentError

#: The entry of a rate with the update at which schedules began anew, if they did.
SINCE = "schedule_since"

#: The entry with the update at which a warm-up began, if that was not the first one.
WARM_SINCE = "warmup_since"


def initial_rate(learning_rate: float, scale: float = 1.0) -> dict[str, np.ndarray]:
    """The rate state before the first update, as NumPy scalars.

    Example:
        >>> {k: v.item() for k, v in initial_rate(0.5).items() if k != "count"}
        {'learning_rate': 0.5, 'scale': 1.0, 'warmup_from': 0.0, 'warmup_to': 0.0, \
'warmup_steps': 0}
    """
    return {
        "count": np.zeros((), np.int32),
        "learning_rate": np.array(learning_rate, np.float32),
        "scale": np.array(scale, np.float32),
        "warmup_from": np.zeros((), np.float32),
        "warmup_to": np.zeros((), np.float32),
        "warmup_steps": np.zeros((), np.int32),
    }


def current_rate(
    rate: Mapping[str, Any], schedule: Callable[[Any], Any] | None = None
) -> Any:
    """The learning rate of update number ``count``: warmup, else schedule or constant.

    Args:
        rate: The rate state.
        schedule: Function of the update count; None for the constant of the state.
    """
    steps = rate["warmup_steps"]
    number = rate["learning_rate"]
    base = number if schedule is None else schedule(schedule_count(rate))
    base = jnp.asarray(base, jnp.float32)
    slope = (rate["warmup_to"] - rate["warmup_from"]) / jnp.maximum(steps, 1)
    count = schedule_count(rate, WARM_SINCE)
    warm = rate["warmup_from"] + slope * count
    return jnp.where(count < steps, warm, base * rate["scale"]).astype(jnp.float32)


def schedule_count(rate: Mapping[str, Any], entry: str = SINCE) -> Any:
    """The updates that a schedule has come to: those since it was restarted, if it was.

    Args:
        rate: The rate state.
        entry: Where its beginning is; ``WARM_SINCE`` for the warm-up.

    Example:
        >>> rate = initial_rate(0.5) | {"count": np.int32(12)}
        >>> int(schedule_count(rate)), int(schedule_count(rate | {SINCE: np.int32(9)}))
        (12, 3)
    """
    return (
        jnp.maximum(rate["count"] - rate[entry], 0) if entry in rate else rate["count"]
    )


def host_value(leaf: Any) -> Any:
    """A state scalar as the shortest Python number that rounds to it.

    Example:
        >>> host_value(np.float32(0.001))
        0.001
    """
    value = np.asarray(leaf)
    if value.ndim:  # one value for each of several models
        return value
    if np.issubdtype(value.dtype, np.integer):
        return int(value)
    return float(str(value))


def replace_leaf(op: str, name: str, leaf: Any, value: Any) -> Any:
    """A new state scalar of the old one's shape and dtype.

    Raises:
        ArgumentError: A number can never work there, or the shape does not fit.
    """
    shape, dtype = tuple(leaf.shape), leaf.dtype
    if isinstance(value, jax.core.Tracer):
        return jnp.broadcast_to(value, shape).astype(dtype)
    values = np.asarray(value)
    for item in values.ravel().tolist():
        if np.issubdtype(dtype, np.integer):
            check_count(op, name, item, 0, floats=True)
        else:
            check_number(op, name, item)
    if values.shape not in ((), shape):
        raise ArgumentError(
            op,
            f"{name} must be one number, or one for each of the state's models",
            {"state": shape, "received": values.shape},
        )
    return np.array(np.broadcast_to(values, shape), dtype=dtype)


def restart_schedule(
    self: Any, opt_state: Mapping[str, Any], batches: int = 0
) -> dict[str, Any]:
    """A state from which schedules, also those to come, begin anew.

    Args:
        opt_state: The state that the training goes on with.
        batches: Last batches that schedules count, too.
    """
    return self.with_schedule_start(opt_state, _start_of(self, opt_state, batches))


def _start_of(self: Any, opt_state: Mapping[str, Any], batches: int) -> int | None:
    count = host_value(opt_state["rate"]["count"])
    return max(count - batches // self.accumulate, 0) or None


def restart_warm_up(
    self: Any, opt_state: Mapping[str, Any], batches: int = 0
) -> dict[str, Any]:
    """A state from which a warm-up that is yet to be set begins.

    Args:
        opt_state: The state that the training goes on with.
        batches: Last batches that the warm-up counts, too.
    """
    state = self.end_warm_up(opt_state)
    if (start := _start_of(self, opt_state, batches)) is not None:
        state["rate"][WARM_SINCE] = jax.device_put(np.int32(start))
    return state


def end_warm_up(self: Any, opt_state: Mapping[str, Any]) -> dict[str, Any]:
    """A state without a warm-up, whether or not that was over."""
    rate = {k: v for k, v in opt_state["rate"].items() if k != WARM_SINCE}
    rate["warmup_steps"] = jax.device_put(np.int32(0))
    return {**opt_state, "rate": rate}


def schedule_start(self: Any, opt_state: Mapping[str, Any]) -> Any:
    """The update from which schedules count; None for the first one."""
    since = opt_state["rate"].get(SINCE)
    return None if since is None else host_value(since)


def with_schedule_start(
    self: Any, opt_state: Mapping[str, Any], start: Any
) -> dict[str, Any]:
    """A state whose schedules count from another update.

    Args:
        opt_state: The state that the training goes on with.
        start: What ``schedule_start`` returned.
    """
    rate = {k: v for k, v in opt_state["rate"].items() if k != SINCE}
    if start is not None:
        rate[SINCE] = jax.device_put(np.int32(start))
    return {**opt_state, "rate": rate}
