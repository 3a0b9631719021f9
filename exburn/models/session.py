"""What a model holds for training, and whether it may be used now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from exburn.callbacks.contract import History
from exburn.errors import NotCompiledError
from exburn.metrics import Mean
from exburn.runtime.sharding.current import distribution
from exburn.runtime.sharding.strategies import Distribution
from exburn.training.objective.compile_metrics import CompileMetrics
from exburn.training.objective.objective import Objective
from exburn.training.prepare import Preparer
from exburn.training.privacy.accounting import Privacy, Spending
from exburn.training.state_holder import StateHolder
from exburn.training.trainer import Trainer

if TYPE_CHECKING:
    from exburn.models.network import Network


class Session:
    """What a model holds for training: nothing of it is part of the module's state.

    Attributes:
        settings: The arguments of ``compile`` by name; ``None`` before it.
        trainer: What trains it; ``None`` before ``compile`` and before it predicts.
        optimizer, loss: As they are after ``compile``.
        columns: Names of the columns of the frame that ``fit`` was given.
        generation: The programs of ``generate``, and the plan that they were made for.
        in_four_bits: References to the arrays of the model, and the model in 4 bits
            that was made of them as a draft.
        privacy: As of ``compile``.
        spent: What private trainings have spent of these weights' privacy.
        private_fit: The private ``fit`` under way, which counts its steps.
    """

    def __init__(self):
        self.settings: Any = None
        self.trainer: Trainer | None = None
        self.optimizer: Any = None
        self.loss: Any = None
        self.history: History | None = None
        self.stop = {"training": False, "evaluating": False, "predicting": False}
        self.check_numerics = True
        self.compile_metrics: CompileMetrics | None = None
        self._trackers: dict[str, Mean] = {}
        self.variants: dict[Any, Any] = {}
        self.warmup: Any = None
        self.device: Any = None
        self.distribution: Distribution | None = None  # of its own
        self.output_axes: Any = None
        self.columns: tuple[str, ...] | None = None  # of the frame that fit was given
        self.generation: Any = None  # programs, and the plan that was made for them
        self.in_four_bits: Any = None
        self.privacy: Privacy | None = None
        self.spent: list[Spending] = []
        self.private_fit: Any = None

    @property
    def preparer(self) -> Preparer:
        """The preparer of the trainer, where there is one."""
        assert self.trainer is not None
        return self.trainer.preparer

    @property
    def holder(self) -> StateHolder:
        """The holder of the trainer's arrays, where there is one."""
        return self.preparer.holder

    @property
    def objective(self) -> Objective:
        """The losses and metrics that it is trained for."""
        return self.preparer.objective

    def loss_trackers(self, objective: Objective) -> dict[str, Mean]:
        """A metric for the loss and, if there are several, for each of them."""
        names = ["loss", *objective.parts]
        return {n: self._trackers.setdefault(n, Mean(name=n)) for n in names}

    def divide(self, distribution: Distribution | None) -> None:
        """Lets a distribution of the model's own hold, instead of its device."""
        self.distribution = distribution
        if distribution is not None:
            self.device = None

    @property
    def distribution_in_force(self) -> Distribution | None:
        """Its own distribution, or that of all models; none on a device of its own."""
        if self.distribution is not None or self.device is not None:
            return self.distribution
        return distribution()

    def hold_privacy(self, privacy: Privacy | None) -> None:
        """Trains with this from now on; what was spent before counts on."""
        self.privacy = privacy
        if privacy is not None and privacy.spent:
            self.spent = list(privacy.spent)

    def reset(self) -> None:
        """Forgets everything compiled; settings stay."""
        if self.trainer is not None:
            self.trainer.preparer.forget()


def require_idle(model: Network, op: str) -> None:
    """Raises a BusyError if the model is being trained, also in its hooks."""
    if (trainer := model._training_session.trainer) is not None:
        trainer.holder.check_free(op, train=True)


def require_hook(model: Network, op: str) -> None:
    """Raises a BusyError if the model is being trained, but for its hooks."""
    if (trainer := model._training_session.trainer) is not None:
        trainer.holder.check_free(op)


def require_trainer(model: Network, op: str) -> Trainer:
    trainer = model._training_session.trainer
    if trainer is None or model._training_session.settings is None:
        raise NotCompiledError(
            op,
            "the model must be compiled first",
            hint='model.compile(optimizer="adam", loss="cross_entropy")',
        )
    return trainer
