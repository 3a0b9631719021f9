"""`Predictor`: a model with what is known of the doubt of its predictions."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from exburn.errors import ArgumentError
from exburn.insight.fields import Content, read_fields, write_fields
from exburn.insight.insight import Insight
from exburn.insight.uncertainty.bond import ModelBond, check_digest
from exburn.insight.uncertainty.outputs import (
    LabelledRows,
    ModelOutputs,
    OutputHead,
    RowProgram,
    rows_of_step,
    select,
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

    A subclass is a dataclass that writes ``_of_outputs``, ``_sets`` and ``check``, and
    ``program`` and ``extra`` where it computes other things than the model's outputs.

    Attributes:
        head: The output that is predicted.
        digest: Of the model's weights and options, which must stay as they were.
        bond: The model; ``None`` of one that was loaded without it.
    """

    head: OutputHead
    digest: str
    bond: ModelBond | None = dataclasses.field(repr=False)

    # ------------------------------------------------------------------ a subclass's
    #: Whether ``spread`` is the standard deviation of values that are normal.
    is_normal: ClassVar[bool] = False

    @property
    def program(self) -> RowProgram:
        """What is computed of each row, alike in ``predict`` and in a server."""
        return ModelOutputs()

    @property
    def extra(self) -> dict[str, Any]:
        """Arrays of the program beside those of the model."""
        return {}

    @property
    def value_shape(self) -> tuple[Any, ...]:
        """The shape of the values of a row."""
        return self.head.shape[1:]

    @property
    def has_spread(self) -> bool:
        """Whether forecasts have a ``spread``."""
        return False

    def _of_outputs(self, outputs: Any, op: str) -> Forecast:
        """The forecast of rows by what the program gives of them."""
        raise NotImplementedError

    def _sets(self, forecast: Forecast, level: float) -> np.ndarray:
        """Sets of classes ``[rows, classes]``, or intervals ``[rows, …, 2]``."""
        raise NotImplementedError

    def _forecast(self, rows: LabelledRows, batch_size: int, op: str) -> Forecast:
        """The mean of each row, and what its sets are made of."""
        return self._of_outputs(rows.run(self.program, self.extra, batch_size), op)

    def check_reach(self, level: float, op: str) -> None:
        """Raises ``ArgumentError`` if there are no sets at a level."""

    def check_served(self, op: str) -> None:
        """Raises ``ArgumentError`` if the outputs of a program are not enough."""

    def check(self) -> None:
        """Raises ``ValueError`` if what was read from a file fits not together."""

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
        rows, size = self._look(x, None, level, batch_size, op)
        return self._predict(self._forecast(rows, size, op), level)

    def report(
        self,
        x: Any,
        y: Any = None,
        level: float = 0.9,
        batch_size: int | None = None,
    ) -> UncertaintyReport:
        """How right the predictions and sets are, on rows that nothing was fitted to.

        Args:
            x, y: As of ``evaluate``. Places that are masked, and rows of weight 0, do
                not count.
            level: Of the sets.
            batch_size: Rows of a step; 32 by default.

        Returns:
            Coverage, size of sets, calibration error, likelihood; ``.plot()`` draws a
            reliability diagram.

        Raises:
            ArgumentError, DataError, ShapeError: As ``predict``.
        """
        op = f"{type(self).__name__}.report"
        rows, size = self._look(x, y, level, batch_size, op)
        targets, counts = rows.read(self.head, size, self.value_shape)
        forecast = self._forecast(rows, size, op)
        levels = sorted({level, *(one for one in LEVELS if self._reaches(one, op))})
        sets = {one: select(self._sets(forecast, one), counts) for one in levels}
        mean, deviation = select(forecast.mean, counts), None
        if self.is_normal and forecast.spread is not None:
            deviation = select(forecast.spread, counts)
        return make_report(self.method, targets, mean, deviation, level, sets)

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
        """What a server answers by: ``mean``, ``sets`` and ``spread`` of each request.

        ``Server({"digits": predictor})`` asks for it. A request may name another level
        among its parameters: ``{"parameters": {"level": 0.95}}``. A row has the answer
        of ``predict``, whatever rows are asked for beside it.

        Args:
            level: Where a request says nothing.

        Raises:
            ArgumentError: The level is out of reach, the weights are others by now, or
                the method needs more than the rows.
        """
        from exburn.serving.computation import RowsOfModel
        from exburn.serving.http.endpoint import Endpoint

        op = f"{type(self).__name__}.as_endpoint"
        self.check_reach(check_level(op, level), op)
        self.check_served(op)
        shape: tuple[Any, ...] = (-1, *(n or -1 for n in self.value_shape))
        if self.head.has_classes:
            shape = (*shape[:-1], self.head.classes)
        sets = ("BOOL", shape) if self.head.has_classes else ("FP64", (*shape, 2))
        outputs: dict[str, Any] = {"mean": ("FP64", shape), "sets": sets}
        if self.has_spread:
            outputs["spread"] = ("FP64", shape)
        model: Any = self.model_of(op)
        if not isinstance(self.program, ModelOutputs):
            model = RowsOfModel(model, self.program, self.extra)
        answer = functools.partial(self._answer, level)
        return Endpoint(model, outputs=outputs, answer=answer)

    def _answer(
        self, level: float, outputs: Any, parameters: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        """The answer to a request, by what the program gives of its rows."""
        level = check_level("serving", parameters.get("level", level))
        self.check_reach(level, "serving")
        answer = vars(self._predict(self._of_outputs(outputs, "serving"), level))
        return {name: value for name, value in answer.items() if value is not None}

    def _predict(self, forecast: Forecast, level: float) -> Prediction:
        return Prediction(forecast.mean, self._sets(forecast, level), forecast.spread)

    def to_content(self) -> Content:
        return write_fields(self)

    @classmethod
    def from_content(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> Self:
        found = read_fields(cls, settings, arrays, bond=None)
        if len(found.digest) != 64:
            raise ValueError("it names no weights")
        found.head.check()
        found.check()
        return found

    def _look(
        self, x: Any, y: Any, level: float, batch_size: int | None, op: str
    ) -> tuple[LabelledRows, int]:
        """Rows, and how many are of a step, after all that can be refused before."""
        self.check_reach(check_level(op, level), op)
        model = self.model_of(op)
        return LabelledRows(model, x, y, op), rows_of_step(model, batch_size, op)

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
