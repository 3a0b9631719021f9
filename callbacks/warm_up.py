"""A learning rate that rises linearly over the first steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exburn.callbacks.contract import Callback
from exburn.core.checks import check_float
from exburn.core.printing import print_text
from exburn.errors import CallbackError


class WarmUp(Callback):
    """Raises the learning rate linearly at the beginning of the training.

    rate(c) = initial + (target − initial) · c / steps  for the updates c < steps

    It overrides every other source of the rate for these updates (a schedule,
    `LearningRateScheduler`, `ReduceLROnPlateau`); afterwards they apply as if there
    had been no warm-up. The rate changes with every update, inside the compiled
    program. Updates are counted since `compile`, so a second `fit` that goes on with
    the same optimizer state is not warmed up again; that of `fit(warmup=…)` counts from
    where that fit begins.

    Args:
        target: Rate to reach; the optimizer's own learning rate if None.
        steps: Length in updates. Give this or `epochs`.
        epochs: Length in epochs; fractions such as 0.5 are fine.
        initial: Rate of the first update.
        verbose: 1 prints a line when the training begins.

    Raises:
        CallbackError: Unless exactly one of `steps` and `epochs` is given and positive;
            when the training begins, for `epochs` over data of unknown length.

    Example:
        >>> from types import SimpleNamespace
        >>> class Optimizer:
        ...     learning_rate = 0.1
        ...     def get_hyperparameters(self):
        ...         return {"scale": 1.0}
        ...     def set_hyperparameters(self, **values):
        ...         print(values)
        >>> warm_up = WarmUp(epochs=2)
        >>> warm_up.set_model(SimpleNamespace(optimizer=Optimizer()))
        >>> warm_up.set_params({"steps": 50})
        >>> warm_up.on_train_begin()
        {'warmup_from': 0.0, 'warmup_to': 0.1, 'warmup_steps': 100}

    Source: P. Goyal et al., "Accurate, Large Minibatch SGD", 2017.
    """

    light = True

    def __init__(
        self,
        target: float | None = None,
        *,
        steps: int | None = None,
        epochs: float | None = None,
        initial: float = 0.0,
        verbose: int = 0,
    ):
        for name, value in (("steps", steps), ("epochs", epochs), ("target", target)):
            if value is not None:
                check_float("WarmUp", name, value, error=CallbackError)
        check_float("WarmUp", "initial", initial, error=CallbackError)
        if (steps is None) == (epochs is None) or not 0 < (steps or epochs or 0) < 1e12:
            raise CallbackError(
                "WarmUp",
                "give a positive number of steps, or of epochs, and not both",
                {"steps": steps, "epochs": epochs},
            )
        if not 0 <= initial < 1e30 or not 0 <= (target or 0) < 1e30:
            raise CallbackError(
                "WarmUp",
                "learning rates must be numbers that are not negative",
                {"initial": initial, "target": target},
            )
        self.target = target
        self.steps = steps
        self.epochs = epochs
        self.initial = initial
        self.verbose = verbose
        self._written: dict[str, Any] | None = None
        self._restored = False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        optimizer = self.model.optimizer
        if not (self._restored and self._written):
            target = self.target
            if target is None:
                scale = optimizer.get_hyperparameters()["scale"]
                target = float(optimizer.learning_rate) * float(scale)
            self._written = self.hyperparameters(float(target))
        self._restored = False
        optimizer.set_hyperparameters(**self._written)
        if self.verbose and self.writes:
            start, target, steps = self._written.values()
            print_text(
                f"Learning rate from {start:.6g} to {target:.6g} in {steps} steps"
            )

    def hyperparameters(self, target: Any) -> dict[str, Any]:
        """The hyperparameters that the warm-up sets in an optimizer.

        Args:
            target: The rate to reach where none was given; or one for each of several
                models.
        """
        return {
            "warmup_from": float(self.initial),
            "warmup_to": target if self.target is None else float(self.target),
            "warmup_steps": self._length(),
        }

    def _length(self) -> int:
        if self.epochs is None:
            return int(self.steps or 0)
        steps = (self.params or {}).get("steps")
        if steps is None:
            raise CallbackError(
                "WarmUp",
                "the length of an epoch of this data is not known in advance",
                {"epochs": self.epochs},
                hint="Pass WarmUp(steps=...), or steps_per_epoch to fit.",
            )
        accumulated = getattr(self.model.optimizer, "gradient_accumulation_steps", 1)
        return max(1, round(self.epochs * steps / (accumulated or 1)))

    def state_dict(self) -> dict[str, Any]:
        return {} if self._written is None else dict(self._written)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._written = dict(state)
        self._restored = True
