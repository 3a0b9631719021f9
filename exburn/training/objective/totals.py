"""What a run adds up, and the logs that are read of it."""

from __future__ import annotations

from typing import Any

import jax

from exburn.training.custom_step import CustomSteps, own_steps
from exburn.training.objective.objective import Objective
from exburn.training.objective.readings import Readings
from exburn.training.state_holder import StateHolder

__all__ = ["Totals"]


class Totals(StateHolder):
    """The totals of losses and metrics, or of what a model's own steps log.

    Args:
        module, optimizer, seed, auto_scale_loss: As of ``StateHolder``.
        objective: Losses and metrics; none if it is ``None``.

    Attributes:
        custom: The module's own steps.
        readings: What there is of logs, of the last step.
    """

    def __init__(
        self,
        module: Any,
        objective: Objective | None,
        optimizer: Any,
        seed: int | None,
        auto_scale_loss: bool,
    ):
        super().__init__(module, optimizer, seed, auto_scale_loss)
        self.objective = objective or Objective()
        self.custom: CustomSteps | None = None
        self.readings: Readings | None = None

    def owns(self, kind: str) -> bool:
        """Whether what the module brings itself runs as its step."""
        return own_steps(self.custom, kind) is not None

    def fresh_totals(self, kind: str) -> Any:
        """Totals of losses and metrics before the first batch; none consumes them."""
        if own := own_steps(self.custom, kind):
            return jax.device_put(own.fresh(kind))
        return self.objective.fresh()

    def totals(self, kind: str) -> Any:
        """The same on the host, for their shapes."""
        if own := own_steps(self.custom, kind):
            return own.fresh(kind)
        return self.objective.init()

    @property
    def names(self) -> list[str]:
        """Names of the logs of ``fit``."""
        if own := own_steps(self.custom, "train"):
            return own.names("train")
        return self.objective.names

    @property
    def last_logs(self) -> dict[str, Any] | None:
        """Those of the last step, for which this waits."""
        return None if self.readings is None else self.read_logs(self.readings)

    def read_logs(self, readings: Readings) -> dict[str, Any]:
        """Python floats in the order of the logs; other values are NumPy arrays."""
        self.readings = readings
        host = readings.read()
        order = [n for n in (*self.names, *self.objective.names) if n in host]
        return {name: host[name] for name in dict.fromkeys([*order, *host])}
