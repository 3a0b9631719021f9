"""The learning rate in force, and its callbacks' common ground.

The optimizer's rate at update number c is

    warmup_from + (warmup_to − warmup_from) · c / warmup_steps   while c < warmup_steps,
    (schedule(c), or learning_rate where there is no schedule) · scale   after that.

`WarmUp` writes the warm-up's three numbers, `LearningRateScheduler` writes
`learning_rate`, and `ReduceLROnPlateau` writes `scale`: none undoes another.
"""

from __future__ import annotations

from typing import Any


def current_rate(optimizer: Any) -> float:
    """Returns the rate that the optimizer's next update will use."""
    values = optimizer.get_hyperparameters()
    steps = values.get("warmup_steps", 0)
    if steps and optimizer.iterations < steps:
        start, target = values["warmup_from"], values["warmup_to"]
        return float(start + (target - start) * optimizer.iterations / steps)
    return float(optimizer.learning_rate) * float(values["scale"])
