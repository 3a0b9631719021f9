"""The types of the keyword arguments that all optimizers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class NoOptions(TypedDict):
    """Keyword arguments that are unknown: to a type checker, each is an error."""


class DecayedOptions(TypedDict, total=False):
    """Keyword arguments of optimizers that have a weight decay of their own."""

    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None
    use_ema: bool
    ema_momentum: float
    ema_overwrite_frequency: int | None
    loss_scale_factor: float | None
    gradient_accumulation_steps: int | None
    name: str | None
    l2_weight_decay: float | None
    weight_decay_exclusions: Sequence[str]
    state_bits: int


class Options(DecayedOptions, total=False):
    """Keyword arguments that every optimizer takes; see ``Optimizer``."""

    weight_decay: float | None
