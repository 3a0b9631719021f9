"""The ways to a smaller model that ``compress`` tries, and how each is made."""

from __future__ import annotations

import dataclasses
from typing import Any

from exburn.compression.pruning import prune
from exburn.compression.quantization_aware import quantize_aware
from exburn.distillation import Distiller, SoftTargets
from exburn.models import Model
from exburn.models.copies import go_on_like
from exburn.module.copying import twin
from exburn.training.overrides import overrides


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One way to a smaller model.

    Attributes:
        mode: What its weights are stored as: a mode of ``quantize``.
        aware: Whether it is trained with the rounding of that mode.
        cut: Share of the units and filters of each layer that are taken away.
    """

    mode: str
    aware: bool = False
    cut: float = 0.0

    @property
    def name(self) -> str:
        """The way in words."""
        units = f"{100 * (1 - self.cut):.0f} % of units, " if self.cut else ""
        return units + self.mode + (", trained" if self.aware else "")

    @property
    def trains(self) -> bool:
        """Whether a model of it is trained."""
        return self.aware or self.cut > 0


#: In the order in which they are tried: what costs nothing first, then what is trained
#: for some epochs; of those, what takes less from the model first.
RECIPES = (
    Recipe("float16"),
    Recipe("int8"),
    Recipe("int4"),
    Recipe("int4", aware=True),
    *(
        Recipe(mode, aware=mode == "int4", cut=cut)
        for cut in (0.25, 0.5, 0.75)
        for mode in ("int8", "int4")
    ),
)


class Workshop:
    """Makes smaller models of one, and trains them beside it."""

    def __init__(
        self,
        model: Model,
        temperature: float = 2.0,
        student_loss_weight: float = 0.5,
        fit: dict[str, Any] | None = None,
    ):
        self.model, self.fit = model, fit
        self.temperature, self.student_loss_weight = temperature, student_loss_weight
        self._narrow: dict[float, Model] = {}  # trained, by what was cut

    def outline(self, recipe: Recipe) -> Model:
        """A model of the recipe's size that was not trained, and is as fast."""
        return _cut(self.model, recipe.cut).quantize(recipe.mode)

    def make(self, recipe: Recipe) -> Model:
        """The recipe's model, trained if it says so."""
        model = self.model
        if recipe.cut:
            if recipe.cut not in self._narrow:
                narrow = _cut(self.model, recipe.cut)
                self._narrow[recipe.cut] = self._train(narrow)
            model = self._narrow[recipe.cut]
        if recipe.aware:
            return self._train(quantize_aware(model, recipe.mode)).quantize()
        return model.quantize(recipe.mode)

    def _train(self, student: Model) -> Model:
        """Trains a model on the data and beside the given one; returns it."""
        trained: Model = student
        own = overrides(student, "train_step") or student.own_compute_loss is not None
        if not own and not student.reads_strings:  # those are trained by their own
            trained = Distiller(
                twin(self.model),
                student,
                SoftTargets(self.temperature),
                student_loss_weight=self.student_loss_weight,
            )
        trained.fit(**(self.fit or {}))
        return student

    def copy_unchanged(self) -> Model:
        """A copy of the model itself, compiled as it is."""
        model = twin(self.model)
        go_on_like(model, self.model)
        return model


def _cut(model: Model, share: float) -> Model:
    """The model without this share of the units of each layer."""
    if not share:
        return model
    return prune(model, share, pattern="channels", scope="layer")
