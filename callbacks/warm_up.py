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
    where that fit begins. Of a `MultiOptimizer` each optimizer's rate is raised.

    Args:
        target: Rate to reach; the optimizer's own learning rate if None.
        steps: Length in updates. Give this or `epochs`.
        epochs: Length in epochs; fractions such as 0.5 are fine.
        initial: Rate of the first update.
        verbose: 1 prints a line when the training begins.

    Raises:
        CallbackError: Unless exactly one of `steps` and `epochs` is given and positive;
            when the training begins, for `epochs` over data of unknown length, and for
            an optax transformation that hides its rate.

    Example:
        >>> from types import SimpleNamespace
        >>> class Optimizer:
        ...     def get_hyperparameters(self):
        ...         return {"learning_rate": 0.1, "scale": 1.0}
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
            self._written = self._start(optimizer)
        self._restored = False
        optimizer.set_hyperparameters(**self._written)
        if self.verbose and self.writes:
            self._tell(self._written)

    def _start(self, optimizer: Any) -> dict[str, Any]:
        """The hyperparameters of the warm-up of each rate, from those of the run."""
        values, settings = optimizer.get_hyperparameters(), {}
        # A MultiOptimizer has a rate for each optimizer: "0/scale", and so on.
        parts = getattr(optimizer, "optimizers", None)
        for i, part in enumerate([optimizer] if parts is None else parts):
            prefix = "" if parts is None else f"{i}/"
            scale = values.get(f"{prefix}scale")
            if scale is None:
                raise CallbackError(
                    "WarmUp",
                    "the optimizer has no learning rate that can be set",
                    {"optimizer": part},
                    hint="Give OptaxOptimizer a factory and a number, "
                    "OptaxOptimizer(optax.adam, 0.1), or write the warm-up into the "
                    "optax schedule.",
                )
            target = float(values[f"{prefix}learning_rate"]) * float(scale)
            own = self.hyperparameters(target, part)
            settings |= {f"{prefix}{name}": value for name, value in own.items()}
        return settings

    def _tell(self, settings: Mapping[str, Any]) -> None:
        for name in [name for name in settings if name.endswith("warmup_from")]:
            prefix = name.removesuffix("warmup_from")
            of = f" of optimizer {prefix[:-1]}" if prefix else ""
            print_text(
                f"Learning rate{of} from {settings[name]:.6g} to "
                f"{settings[f'{prefix}warmup_to']:.6g} in "
                f"{settings[f'{prefix}warmup_steps']} steps"
            )

    def hyperparameters(self, target: Any, optimizer: Any = None) -> dict[str, Any]:
        """The hyperparameters that the warm-up sets in an optimizer.

        Args:
            target: The rate to reach where none was given; or one for each of several
                models.
            optimizer: Whose updates are counted; the model's if None.
        """
        return {
            "warmup_from": float(self.initial),
            "warmup_to": target if self.target is None else float(self.target),
            "warmup_steps": self._length(optimizer),
        }

    def _length(self, optimizer: Any = None) -> int:
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
        optimizer = self.model.optimizer if optimizer is None else optimizer
        accumulated = getattr(optimizer, "gradient_accumulation_steps", 1)
        return max(1, round(self.epochs * steps / (accumulated or 1)))

    def state_dict(self) -> dict[str, Any]:
        return {} if self._written is None else dict(self._written)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._written = dict(state)
        self._restored = True
