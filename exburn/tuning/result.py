"""What a sweep came to: a table of its lanes, drawings, and their models."""

from __future__ import annotations

import collections
import dataclasses
import importlib.util
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from exburn.core.checks import check_count
from exburn.core.printing import Plain, page_text
from exburn.errors import ArgumentError, printable
from exburn.errors.boundary import guard_methods
from exburn.models import Model
from exburn.runtime.files.atomic import write_atomically
from exburn.saving.json_text import damage_error
from exburn.saving.seal import read_document, seal_document
from exburn.tuning import plots
from exburn.tuning.ensemble import Ensemble
from exburn.tuning.folds import ConfidenceInterval, confidence_interval
from exburn.tuning.importance import path_importance, varied_paths
from exburn.tuning.records import LaneRecord, Trial, check_mode, ranking
from exburn.visualization import page
from exburn.visualization.figures import new_figure

__all__ = ["Configuration", "SweepResult"]

FORMAT = "exburn-sweep-1"
_MOST_BYTES, _MOST = 1 << 30, 100_000_000  # values; thousands of lanes and epochs
_SHOWN = 10  # lanes of a printed result


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Values that several lanes have in common: those of its seeds and folds.

    Attributes:
        trial: The values.
        interval: The mean of their scores, with its confidence interval.
        lanes: The numbers of the lanes.
    """

    trial: Trial
    interval: ConfidenceInterval
    lanes: tuple[int, ...]


@guard_methods
class SweepResult:
    """The lanes of a sweep, from the best to the worst.

    Args:
        records: What was kept of each lane.
        build: Returns the trained model of a lane, by its number among the records.
        monitor: The name of the score.
        mode: ``"min"`` or ``"max"``: which scores are better.
        notes: What ran in turn, and why.

    Attributes:
        records: The lanes, in the order in which they were begun: a lane's number is
            its place here.
        monitor, mode, notes: As given.

    Raises:
        ArgumentError: There are no records, or ``mode`` is none.

    Example:
        >>> lanes = [
        ...     LaneRecord({"rate": r}, {"loss": [r]}, 1, "finished", score=r)
        ...     for r in (0.3, 0.1, 0.2)
        ... ]
        >>> result = SweepResult(lanes, None, "loss", "min")
        >>> result.best_trial, result.best_score, result.order()
        ({'rate': 0.1}, 0.1, [1, 2, 0])
    """

    def __init__(
        self,
        records: Sequence[LaneRecord],
        build: Callable[[int], Model] | None,
        monitor: str,
        mode: str,
        notes: Sequence[str] = (),
    ):
        if not records:
            raise ArgumentError("SweepResult", "there are no lanes")
        self.records = list(records)
        self.monitor, self.mode = monitor, check_mode("SweepResult", mode)
        self._build, self.notes = build, list(notes)

    def __len__(self) -> int:
        return len(self.records)

    # ------------------------------------------------------------------ scores
    def order(self) -> list[int]:
        """The numbers of the lanes, the best first; those that turned NaN last.

        Lanes of the folds of one trial stand together, by the mean of their scores.
        """
        if all(record.fold is None for record in self.records):
            return ranking([r.score for r in self.records], self.mode).tolist()
        trials = self._group_lanes(lambda record: record.trial)
        means = [np.mean([self.records[i].score for i in lanes]) for lanes in trials]
        numbers: list[int] = []
        for at in ranking(means, self.mode):
            scores = [self.records[i].score for i in trials[at]]
            numbers += [trials[at][k] for k in ranking(scores, self.mode)]
        return numbers

    @property
    def best(self) -> LaneRecord:
        """The record of the best lane."""
        return self.records[self.order()[0]]

    @property
    def best_trial(self) -> Trial:
        """The values of the best lane."""
        return dict(self.best.trial)

    @property
    def best_score(self) -> float:
        """The score of the best lane, with folds the mean of its trial; NaN if none."""
        same = [r.score for r in self.records if r.trial == self.best.trial]
        return float(np.mean(same)) if self.best.fold is not None else self.best.score

    def configurations(self, level: float = 0.95) -> list[Configuration]:
        """What lanes have in common but for seed and fold, the best mean first.

        The interval says what the score of another seed's model would be on average,
        by Student's t; over folds it is wider, since their rows overlap.

        Args:
            level: The confidence of the intervals.

        Example:
            >>> lanes = [
            ...     LaneRecord({"seed": s, "rate": r}, score=r + s / 100)
            ...     for r in (0.3, 0.1)
            ...     for s in range(3)
            ... ]
            >>> best = SweepResult(lanes, None, "loss", "min").configurations()[0]
            >>> best.trial, str(best.interval)
            ({'rate': 0.1}, '0.11 ± 0.025')
        """
        configurations = []
        for lanes in self._group_lanes(_without_seed):
            scores = [self.records[i].score for i in lanes]
            folds = len({self.records[i].fold for i in lanes})
            interval = confidence_interval(scores, level, folds if folds > 1 else None)
            trial = _without_seed(self.records[lanes[0]])
            configurations.append(Configuration(trial, interval, tuple(lanes)))
        order = ranking([one.interval.mean for one in configurations], self.mode)
        return [configurations[at] for at in order]

    def importance(self, evaluator: str = "auto") -> dict[str, float]:
        """The share of each path in what makes scores differ, the largest first.

        Args:
            evaluator: ``"forest"`` (scikit-learn), ``"fanova"`` or ``"ped_anova"``
                (Optuna); ``"auto"``: the first that is installed.

        Raises:
            ArgumentError: There are fewer than four lanes.
            MissingDependencyError: What evaluates is not installed.
        """
        return path_importance(self.records, self.monitor, self.mode, evaluator)

    # ------------------------------------------------------------------ tables
    def rows(self) -> list[dict[str, Any]]:
        """A dict for each lane, the best first: its values, its end, its last logs."""
        paths = dict.fromkeys(path for r in self.records for path in r.trial)
        names = dict.fromkeys(name for r in self.records for name in r.history)
        folds = any(record.fold is not None for record in self.records)
        rows = []
        for number in self.order():
            record = self.records[number]
            row: dict[str, Any] = {"lane": number}
            row |= {path: record.trial.get(path) for path in paths}
            row |= {"fold": record.fold} if folds else {}
            row |= {"epochs": record.epochs, "status": record.status}
            row |= {"score": record.score}
            row |= {n: record.history.get(n, [math.nan])[-1] for n in names}
            rows.append(row)
        return rows

    def table(self) -> Any:
        """The lanes as a table, the best first.

        Returns:
            A ``pandas.DataFrame`` whose index is the lane's number, in which whole
            numbers that some lanes do not have are ``Int64``; the list of :meth:`rows`
            where pandas is not installed.
        """
        if importlib.util.find_spec("pandas") is None:
            return self.rows()
        import pandas

        rows = self.rows()
        frame = pandas.DataFrame(rows).set_index("lane")
        for path in dict.fromkeys(path for r in self.records for path in r.trial):
            values = [row[path] for row in rows]
            if None in values and all(v is None or _is_whole(v) for v in values):
                frame[path] = pandas.array(values, "Int64")  # it has missing values
        return frame

    def __rich__(self) -> Plain:
        rows = self.rows()
        names = [name for name in rows[0] if name != "score"]
        table = Table(title=self._headline(), title_justify="left")
        for name in names:
            right = isinstance(rows[0][name], int | float)
            table.add_column(Text(name), justify="right" if right else "left")
        for row in rows[:_SHOWN]:
            table.add_row(*(Text(_cell(row[name])) for name in names))
        more = len(rows) - _SHOWN
        lines = [f"and {more} more: table()"] if more > 0 else []
        if lines or self.notes:
            table.caption = Text("\n".join([*lines, *self.notes]))
            table.caption_justify = "left"
        return Plain(table)

    def _repr_html_(self) -> str:
        rows = self.rows()
        names = [name for name in rows[0] if name != "score"]
        numbers = [
            i for i, name in enumerate(names) if isinstance(rows[0][name], int | float)
        ]
        lines = [
            page.TableRow([_cell(row[name]) for name in names]) for row in rows[:_SHOWN]
        ]
        widths = [100 // len(names)] * len(names)
        parts = [page.title("Sweep", self._headline())]
        parts.append(page.table(names, lines, widths, numbers))
        more = len(rows) - _SHOWN
        notes = [f"and {more} more: table()"] if more > 0 else []
        parts += [page.note(line) for line in [*notes, *self.notes]]
        return page.fragment(*parts)

    def _headline(self) -> str:
        ways = collections.Counter(record.status for record in self.records)
        counts = ", ".join(f"{count} {way}" for way, count in ways.items())
        best = f"best {self.monitor} {self.best_score:.4g}"
        return f"{len(self)} lanes ({counts}), {best}"

    def __str__(self) -> str:
        return page_text(self, 120)

    def __repr__(self) -> str:
        return printable(f"<SweepResult: {self._headline()}>")

    # ------------------------------------------------------------------ models
    def best_model(self) -> Model:
        """The trained model of the best lane, compiled, which goes on where it ended.

        Of folds it is the best of the best trial: train its values on all rows for a
        model that has seen them all.

        Raises:
            ArgumentError: All lanes turned NaN, or the result was loaded from a file.
        """
        return self.models(top=1)[0]

    def models(self, top: int = 5) -> list[Model]:
        """The trained models of the best lanes, the best first; never of NaN ones.

        Args:
            top: How many at most.

        Raises:
            ArgumentError: All lanes turned NaN, or the result was loaded from a file.
        """
        top = check_count("SweepResult", "top", top)
        if self._build is None:
            raise ArgumentError(
                "SweepResult",
                "a result that was loaded has records, but no models",
                hint="Save models themselves: result.ensemble(top=5).save(file).",
            )
        good = [i for i in self.order() if math.isfinite(self.records[i].score)]
        if not good:
            reason = f"no lane has a {self.monitor} that is a number"
            raise ArgumentError("SweepResult", reason, hint="Try smaller rates.")
        return [self._build(number) for number in good[:top]]

    def ensemble(self, top: int = 5, outputs: str | Sequence[str] = "auto") -> Ensemble:
        """The best models as one, whose output is the mean of theirs.

        Args:
            top: How many at most.
            outputs: What they put out: see :class:`Ensemble`.

        Raises:
            ArgumentError: As :meth:`models`.
        """
        return Ensemble(self.models(top), outputs)

    # ------------------------------------------------------------------ drawings
    def plot(self, kind: str | None = None, **options: Any) -> Any:
        """Draws the sweep.

        Args:
            kind: ``"curves"`` (of ``metric``, coloured by the path ``color``),
                ``"parallel"`` coordinates, or ``"importance"`` (by ``evaluator``);
                ``None`` for all three.
            **options: Of one kind.

        Returns:
            The ``matplotlib.figure.Figure``; a notebook shows it,
            ``figure.savefig("sweep.png")`` writes it.

        Raises:
            ArgumentError: There is no such kind, or it has no such option.
            UnknownNameError: A metric that was not logged, a path that was not varied.
            MissingDependencyError: matplotlib, or what evaluates, is not installed.

        Example:
            >>> lane = LaneRecord({"seed": 0}, {"loss": [2, 1]}, 2, score=1)
            >>> figure = SweepResult([lane], None, "loss", "min").plot("curves")
            >>> figure.axes[0].get_ylabel()
            'loss'
        """
        kinds = {
            "curves": self._draw_curves,
            "parallel": self._draw_parallel,
            "importance": self._draw_importance,
        }
        if kind is not None:
            if kind not in kinds:
                reason = f"kind is one of {', '.join(kinds)}, received {kind!r}"
                raise ArgumentError("SweepResult.plot", reason)
            figure = new_figure("SweepResult.plot", 7, 4)
            kinds[kind](figure.add_subplot(), **options)
            return figure
        if options:
            reason = f"options are of one kind, received {', '.join(options)}"
            raise ArgumentError("SweepResult.plot", reason)
        if len(self) < 4 or not varied_paths(self.records):
            return self.plot("curves")
        figure = new_figure("SweepResult.plot", 11, 7.5)
        grid = figure.add_gridspec(2, 3)
        self._draw_curves(figure.add_subplot(grid[0, :2]))
        self._draw_importance(figure.add_subplot(grid[0, 2]))
        self._draw_parallel(figure.add_subplot(grid[1, :]))
        return figure

    def _draw_curves(
        self, axes: Any, metric: str | None = None, color: str | None = None
    ) -> None:
        plots.draw_curves(axes, self.records, metric or self.monitor, self.mode, color)

    def _draw_parallel(self, axes: Any) -> None:
        plots.draw_parallel(axes, self.records, self.monitor, self.mode)

    def _draw_importance(self, axes: Any, evaluator: str = "auto") -> None:
        plots.draw_importance(axes, self.importance(evaluator))

    # ------------------------------------------------------------------ files
    def save(self, file: Any) -> None:
        """Writes the records as JSON; ``SweepResult.load`` reads them.

        Models have files of their own: ``result.best_model().save(…)``.

        Args:
            file: The file.

        Raises:
            SaveError: The system refuses.
        """
        content = {
            "monitor": self.monitor,
            "mode": self.mode,
            "notes": self.notes,
            "records": [record.get_config() for record in self.records],
        }
        data = seal_document(FORMAT, content, indent=1)
        write_atomically(Path(file), lambda f: f.write(data), op="SweepResult.save")

    @classmethod
    def load(cls, file: Any) -> SweepResult:
        """The result that ``save`` wrote: tables and drawings, without the models.

        Args:
            file: The file.

        Raises:
            MissingFileError: There is no such file.
            FileFormatError: It is no file of a sweep, or damaged.
            LoadError: The system refuses to read it.
        """
        op, limits = "SweepResult.load", {"most_bytes": _MOST_BYTES, "most": _MOST}
        content = read_document(file, FORMAT, op, **limits)
        monitor, mode = content.get("monitor"), content.get("mode")
        notes, records = content.get("notes"), content.get("records")
        right = {
            "monitor": isinstance(monitor, str),
            "mode": mode in ("min", "max"),
            "notes": isinstance(notes, list) and all(isinstance(n, str) for n in notes),
            "records": isinstance(records, list) and len(records) > 0,
        }
        if wrong := [name for name, holds in right.items() if not holds]:
            reason = "the file holds no result of a sweep"
            raise damage_error(op, file, reason, wrong=", ".join(wrong))
        lane_records = [LaneRecord.from_config(record) for record in content["records"]]
        return cls(
            lane_records, None, content["monitor"], content["mode"], content["notes"]
        )

    def _group_lanes(self, key: Callable[[LaneRecord], Trial]) -> list[list[int]]:
        """The numbers of lanes that have the same values of ``key``, in their order."""
        groups: dict[str, list[int]] = {}
        for number, record in enumerate(self.records):
            text = repr(sorted((path, repr(v)) for path, v in key(record).items()))
            groups.setdefault(text, []).append(number)
        return list(groups.values())


def _without_seed(record: LaneRecord) -> Trial:
    return {path: value for path, value in record.trial.items() if path != "seed"}


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    if value is None:
        return "·"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
