"""`Predictor`: a model with what is known of the doubt of its predictions."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from exburn.core.checks import check_count
from exburn.errors import ArgumentError
from exburn.insight.insight import Insight
from exburn.insight.uncertainty.bond import ModelBond, check_digest
from exburn.insight.uncertainty.outputs import (
    FAMILIES,
    LabelledRows,
    OutputHead,
    rows_of_step,
)
from exburn.insight.uncertainty.prediction import Forecast, Prediction, check_level
from exburn.insight.uncertainty.report import UncertaintyReport, make_report
from exburn.models.network import Network
from exburn.runtime.files.atomic import path_of
from exburn.saving.beside import Beside, read_beside
from exburn.saving.json_text import damage_error
from exburn.saving.model import load_model, write_model

if TYPE_CHECKING:
    from exburn.serving.http.endpoint import Endpoint

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # of a report's curve of coverage


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Predictor(Insight):
    """A model's predictions with their doubt, by one method.

    A subclass writes ``_of_outputs`` or ``_forecast``, ``_sets``, ``own_content`` and
    ``from_own`` beside what an ``Insight`` writes.

    Attributes:
        head: The output that is predicted.
        digest: Of the model's weights, which must stay as they were.
        bond: The model; ``None`` of one that was loaded without it.
    """

    head: OutputHead
    digest: str
    bond: ModelBond | None = dataclasses.field(repr=False)

    # ------------------------------------------------------------------ a subclass's
    #: Whether ``spread`` is the standard deviation of values that are normal.
    is_normal: ClassVar[bool] = False

    def _forecast(self, rows: LabelledRows, batch_size: int, op: str) -> Forecast:
        """The mean of each row, and what its sets are made of."""
        return self._of_outputs(rows.outputs(batch_size), op)

    def _of_outputs(self, outputs: Any, op: str) -> Forecast:
        """A forecast by the outputs of the model alone.

        Raises:
            ArgumentError: The method computes more than these.
        """
        raise ArgumentError(
            op,
            f"{self.method!r} needs more than the outputs of the model, so that it "
            "cannot be served",
            hint="Those of conformal sets and of scaling are enough.",
        )

    def _sets(self, forecast: Forecast, level: float) -> np.ndarray:
        """Sets of classes ``[rows, classes]``, or intervals ``[rows, …, 2]``."""
        raise NotImplementedError

    @property
    def value_shape(self) -> tuple[Any, ...]:
        """The shape of the values of a row."""
        return self.head.shape[1:]

    @property
    def needs_outputs_alone(self) -> bool:
        """Whether ``_of_outputs`` makes a forecast, so that it can be served."""
        return type(self)._of_outputs is not Predictor._of_outputs

    def check_reach(self, level: float, op: str) -> None:
        """Raises ``ArgumentError`` if there are no sets at a level."""

    def own_content(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """As ``to_content``, of what is the subclass's own."""
        raise NotImplementedError

    @classmethod
    def from_own(
        cls,
        common: Mapping[str, Any],
        settings: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
    ) -> Self:
        """The object of that content.

        Args:
            common: The fields of every predictor.
        """
        raise NotImplementedError

    # ------------------------------------------------------------------ of all
    def predict(
        self, x: Any, level: float = 0.9, batch_size: int | None = None
    ) -> Prediction:
        """Predictions with sets or intervals; ``p, sets = predictor.predict(x)``.

        Args:
            x: Inputs, as of ``model.predict``.
            level: The share of rows whose target is to be in its set.
            batch_size: Rows of a step; 32 by default.

        Returns:
            ``(mean, sets)``, with ``.spread``.

        Raises:
            ArgumentError: ``level`` is no share or out of reach, the weights are others
                by now, or there is no model.
            DataError, ShapeError: The data do not fit the model.
        """
        op = f"{type(self).__name__}.predict"
        forecast = self._look(x, None, level, batch_size, op)[1]
        return Prediction(forecast.mean, self._sets(forecast, level), forecast.spread)

    def report(
        self,
        x: Any,
        y: Any = None,
        level: float = 0.9,
        batch_size: int | None = None,
    ) -> UncertaintyReport:
        """How right the predictions and sets are, on rows that nothing was fitted to.

        Args:
            x, y: As of ``evaluate``.
            level: Of the sets.
            batch_size: Rows of a step; 32 by default.

        Returns:
            Coverage, size of sets, calibration error, likelihood; ``.plot()`` draws a
            reliability diagram.

        Raises:
            ArgumentError, DataError, ShapeError: As ``predict``.
        """
        op = f"{type(self).__name__}.report"
        rows, forecast = self._look(x, y, level, batch_size, op)
        levels = sorted({level, *(one for one in LEVELS if self._reaches(one, op))})
        sets = {one: self._sets(forecast, one) for one in levels}
        targets = rows.targets_of(self.head, self.value_shape)
        normal = self.is_normal and forecast.spread is not None
        deviation = forecast.spread if normal else None
        return make_report(self.method, targets, forecast.mean, deviation, level, sets)

    @property
    def method(self) -> str:
        """The method, as ``model.uncertainty`` calls it."""
        return self.kind

    def of(self, model: Network) -> Self:
        """The same, with a model that has the weights of the calibration.

        Raises:
            ArgumentError: Its weights are others.
        """
        check_digest(model, self.digest, f"{type(self).__name__}.of")
        return dataclasses.replace(self, bond=ModelBond(model))

    def save(self, path: Any, *, with_model: bool = False) -> Path:
        """Writes a sealed file, whole or not at all.

        Args:
            with_model: Whether it is the file of the model, which ``load_model`` reads
                as ever, with the predictor beside it; ``exburn serve`` then answers
                sets. Without it the file is small, and needs ``.of(model)``.

        Returns:
            The file.

        Raises:
            ArgumentError: The model's weights are others by now, or there is none.
            SaveError: The system refuses.
        """
        if not with_model:
            return super().save(path)
        model = self.model_of("save")
        beside = Beside(self.kind, *self.to_content())
        return write_model(model, path, beside=beside)

    @classmethod
    def load(cls, path: Any, custom_objects: Mapping[str, Any] | None = None) -> Self:
        """Reads what ``save`` wrote, with its model if that is in the file.

        Args:
            custom_objects: Classes and functions of the model by name.

        Raises:
            ModelFormatError: It is damaged, or something else.
            ArgumentError: There is no such file.
            LoadError: The system refuses to read it.
        """
        op = f"{cls.__name__}.load"
        path = path_of(path, ".exburn", op, exists=True)
        beside = read_beside(path, op)
        if beside is None:
            return super().load(path)
        if beside.kind != cls.kind:
            reason = f"the file holds no {cls.kind}"
            raise damage_error(op, path, reason, received=beside.kind)
        found = cls._of_file(op, path, beside.settings, beside.arrays)
        return found.of(load_model(path, custom_objects))

    def as_endpoint(self, level: float = 0.9) -> Endpoint:
        """What a server answers by: ``mean`` and ``sets`` of each request.

        ``Server({"digits": predictor})`` asks for it. A request may name another level
        among its parameters: ``{"parameters": {"level": 0.95}}``.

        Args:
            level: Where a request says nothing.

        Raises:
            ArgumentError: The level is out of reach, the weights are others by now, or
                the method needs more than the outputs of the model.
        """
        from exburn.serving.http.endpoint import Endpoint

        op = f"{type(self).__name__}.as_endpoint"
        self.check_reach(check_level(op, level), op)
        if not self.needs_outputs_alone:
            self._of_outputs(None, op)
        mean = (-1, self.head.classes) if self.head.has_classes else None
        mean = mean or (-1, *self.value_shape)
        sets = ("BOOL", mean) if self.head.has_classes else ("FP64", (*mean, 2))
        return Endpoint(
            self.model_of(op),
            outputs={"mean": ("FP64", mean), "sets": sets},
            answer=functools.partial(self._answer, level),
        )

    def _answer(
        self, level: float, outputs: Any, parameters: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        """The answer to a request, by the outputs of the model."""
        level = check_level("serving", parameters.get("level", level))
        self.check_reach(level, "serving")
        forecast = self._of_outputs(outputs, "serving")
        return {"mean": forecast.mean, "sets": self._sets(forecast, level)}

    def to_content(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        settings, arrays = self.own_content()
        head = dataclasses.asdict(self.head)
        head["shape"] = [n if isinstance(n, int) else None for n in self.head.shape]
        return {"head": head, "digest": self.digest, "own": settings}, arrays

    @classmethod
    def from_content(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> Self:
        head, digest = dict(settings["head"]), settings["digest"]
        shape = head["shape"] = tuple(head["shape"])
        head = OutputHead(**head)
        if not (isinstance(digest, str) and len(digest) == 64 and len(shape) > 1):
            raise ValueError("it names no weights")
        check_count(cls.__name__, "number", head.number, 0)
        sizes = all(n is None or (type(n) is int and n > 0) for n in shape)
        if head.family not in FAMILIES or type(head.logits) is not bool or not sizes:
            raise ValueError("it describes no output")
        if not (isinstance(head.name, str) and 0 <= head.number < head.count):
            raise ValueError("it names no output")
        common = {"head": head, "digest": digest, "bond": None}
        return cls.from_own(common, settings["own"], arrays)

    def _look(
        self, x: Any, y: Any, level: float, batch_size: int | None, op: str
    ) -> tuple[LabelledRows, Forecast]:
        """Rows and their forecast, after all that can be refused before."""
        self.check_reach(check_level(op, level), op)
        model = self.model_of(op)
        size = rows_of_step(model, batch_size, op)
        rows = LabelledRows(model, x, y, op)
        if op.endswith(".report"):
            rows.targets_of(self.head, self.value_shape)
        return rows, self._forecast(rows, size, op)

    def model_of(self, op: str) -> Network:
        """The model, whose weights are those of the calibration.

        Raises:
            ArgumentError: There is none, or its weights are others.
        """
        if self.bond is None:
            raise ArgumentError(
                op,
                "it was loaded without its model",
                hint=f"{type(self).__name__}.load(path).of(model)",
            )
        self.bond.check(op)
        return self.bond.model

    def _reaches(self, level: float, op: str) -> bool:
        try:
            self.check_reach(level, op)
        except ArgumentError:
            return False
        return True
