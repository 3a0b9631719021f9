"""Smaller learning rates for the layers that are nearer to the input."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from exburn.core import registry
from exburn.core.checks import check_count, check_number
from exburn.errors import ArgumentError, DTypeError
from exburn.errors.boundary import api_boundary
from exburn.module.traversal import iter_weights
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.multi import MultiOptimizer, OptimizerMap
from exburn.optimizers.schedules.scaled import Scaled

_OP = "by_depth"
_MOST_GROUPS = 12


@api_boundary
def by_depth(
    optimizer: Optimizer,
    model: Any,
    *,
    decay: float = 0.8,
    groups: int | Sequence[str] | None = None,
) -> MultiOptimizer:
    """An optimizer whose learning rate falls from the output of a model to its input.

    The last group of layers gets the rate of ``optimizer``, the one before it ``decay``
    times that, and so on: what a trained network has learned about inputs in general
    changes less than what is above it. Each group has a copy of the optimizer.

    Args:
        optimizer: The optimizer; a learning rate that is a schedule is scaled as well.
        model: A built model.
        decay: Factor between a group and the one after it.
        groups: How many groups the model's layers with weights are put in, one after
            the other; by default one for each, and 12 at the most. Or the groups
            themselves, from the input to the output: regular expressions for paths of
            weights.

    Returns:
        A :class:`MultiOptimizer`; ``optimizers[-1]`` is that of the last group.

    Raises:
        ArgumentError: ``decay`` is no number in (0, 1], or there are fewer layers than
            groups.
        DTypeError: ``optimizer`` is none, or one of several.

    Example:
        >>> from exburn import Sequential, layers
        >>> from exburn.optimizers import SGD
        >>> parts = [layers.Input((4,)), layers.Dense(3, name="body")]
        >>> model = Sequential([*parts, layers.Dense(2, name="head")])
        >>> slower = by_depth(SGD(0.5), model, decay=0.5)
        >>> [float(one.learning_rate) for one in slower.optimizers]
        [0.25, 0.5]

    Source: Howard & Ruder, *Universal Language Model Fine-tuning for Text
    Classification*, 2018 (discriminative fine-tuning).
    """
    if not isinstance(optimizer, Optimizer) or isinstance(optimizer, MultiOptimizer):
        raise DTypeError(_OP, f"a single optimizer is needed, received {optimizer!r}")
    check_number(_OP, "decay", decay, high=1.0, open_low=True)
    patterns = _patterns(model, groups)
    slower: dict[str, Optimizer] = {}
    for number, pattern in enumerate(patterns[:-1]):
        factor = decay ** (len(patterns) - 1 - number)
        slower[pattern] = _scaled_copy(optimizer, factor)
    return MultiOptimizer(OptimizerMap(_scaled_copy(optimizer, 1.0), slower))


def _scaled_copy(optimizer: Optimizer, factor: float) -> Optimizer:
    config = optimizer.get_config()
    if factor != 1:
        schedule = optimizer.schedule
        rate = Scaled(schedule, factor) if schedule else None
        config["learning_rate"] = (
            float(optimizer.learning_rate) * factor
            if rate is None
            else registry.serialize(rate)
        )
    return type(optimizer).from_config(config)


def _patterns(model: Any, groups: Any) -> list[str]:
    """Regular expressions for the paths of each group's weights, inputs first."""
    if groups is not None and not isinstance(groups, int):
        patterns = list(groups)
        if not patterns or not all(isinstance(p, str) for p in patterns):
            raise ArgumentError(
                _OP,
                f"groups are a number, or regular expressions, received {groups!r}",
            )
        return patterns
    paths = [path for path, _, _ in iter_weights(model, carried=False)]
    names = list(dict.fromkeys(path.partition("/")[0] for path in paths))
    if not names:
        raise ArgumentError(
            _OP,
            "the model has no weights",
            hint="Build it first: give it an Input, or call it on data.",
        )
    many = min(len(names), _MOST_GROUPS)
    if groups is not None:
        many = check_count(_OP, "groups", groups)
    if many > len(names):
        raise ArgumentError(
            _OP, f"{many} groups of {len(names)} layers with weights cannot be made"
        )
    cuts = [len(names) * number // many for number in range(many + 1)]
    return [
        f"(?:{'|'.join(map(re.escape, names[start:stop]))})(?:/.*)?"
        for start, stop in zip(cuts, cuts[1:], strict=False)
    ]
