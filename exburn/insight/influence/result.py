"""`Influence`: what ``model.influence`` returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from rich.table import Table

from exburn.core.checks import check_count, check_number
from exburn.core.printing import shorten
from exburn.errors import ArgumentError
from exburn.insight.influence.products import METHODS
from exburn.insight.insight import Insight
from exburn.visualization.figures import new_figure

_SHOWN = 10  # rows of a table and of a plot
_TEXTS, _WIDTH = 5, 60  # texts of a kind in a table, and characters of each
_BLOCK = 1024  # rows that are compared with all before them at once
_WAYS = {
    "tracin": "the products of gradients (TracIn)",
    "trak": "the products of gradients, by the inverse of all rows' second moments "
    "(as in TRAK, with the gradients of the loss)",
    "datainf": "the products of each weight's gradients, by the mean of the inverses "
    "of the rows' second moments (DataInf)",
}


class TopRows(NamedTuple):
    """Numbers of rows of the training, the most influential first.

    Attributes:
        helpful: Rows whose steps lower the loss.
        harmful: Rows whose steps raise it.
    """

    helpful: np.ndarray
    harmful: np.ndarray


@dataclasses.dataclass(frozen=True, repr=False)
class Influence(Insight):
    """How rows of the training act on the loss of other rows, and on their own.

    Attributes:
        method: ``"tracin"``, ``"trak"`` or ``"datainf"``.
        self_influence: ``[n]``: of each row on itself. It is large where a row is
            unlike what the others teach.
        features: ``[n, width]``: the gradient of each row, projected where it is long;
            of several checkpoints side by side, each times the root of its share.
        scores: ``[n, m]``: of each row on each row of ``on``; positive where a step on
            the former lowers the loss of the latter. ``None`` without ``on``.
        entries: Numbers of a whole gradient.
        checkpoints: At the weights of how many gradients were taken; 0: as they were.
        texts: How each row begins, of chats and documents.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((1,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse", seed=0)
        >>> x = np.array([[0.0], [1.0], [2.0], [3.0]])
        >>> y = np.array([[0.0], [1.0], [2.0], [-30.0]])
        >>> rows = model.influence(x, y, on=(x[:3], y[:3]))
        >>> rows.mislabelled(0.25).tolist(), rows.harmful()[:1].tolist()
        ([3], [3])
    """

    kind: ClassVar[str] = "influence"

    method: str
    self_influence: np.ndarray
    features: np.ndarray
    scores: np.ndarray | None
    entries: int
    checkpoints: int = 0
    texts: tuple[str, ...] = ()

    def top(self, k: int = 10, *, row: int | None = None) -> TopRows:
        """The rows that help and harm the rows of ``on`` most.

        Args:
            k: How many of each, at most.
            row: Number of the one row of ``on`` that is meant; all of them by default.

        Raises:
            ArgumentError: There were no rows ``on``, or not so many.
        """
        k, means = check_count("Influence.top", "k", k), self._means("top", row)
        order = np.argsort(-means, kind="stable")
        helpful, harmful = order[means[order] > 0], order[means[order] < 0]
        return TopRows(helpful[:k], harmful[::-1][:k])

    def harmful(self) -> np.ndarray:
        """All rows whose steps raise the mean loss of ``on``, the worst first.

        Raises:
            ArgumentError: There were no rows ``on``.
        """
        return self.top(len(self.self_influence)).harmful

    def mislabelled(self, share: float = 0.05) -> np.ndarray:
        """The share of the rows with the largest self-influence, the largest first.

        They are to be looked at: among them are wrong labels, and rare rows that are
        right. ``mislabelled(0.05)`` gives 5 % of the rows, whatever they are.

        Raises:
            ArgumentError: ``share`` is not in (0, 1].
        """
        share = check_number(
            "Influence.mislabelled", "share", share, 0, 1, open_low=True
        )
        rows = int(np.ceil(share * len(self.self_influence) - 1e-9))
        return np.argsort(-self.self_influence, kind="stable")[:rows]

    def duplicates(self, similarity: float = 0.9999) -> list[np.ndarray]:
        """Groups of rows whose gradients point the same way: they teach the same.

        A row joins the group of the first row before it that is as similar. Rows
        without a gradient, which teach nothing, are in no group.

        Args:
            similarity: The cosine from which on two gradients are the same.

        Raises:
            ArgumentError: ``similarity`` is not in (0, 1].
        """
        similarity = check_number(
            "Influence.duplicates", "similarity", similarity, 0, 1, open_low=True
        )
        least = min(similarity, 1 - 1e-6)  # cosines are rounded
        norms = np.linalg.norm(self.features, axis=1, keepdims=True)
        unit = np.divide(
            self.features, norms, out=np.zeros_like(self.features), where=norms > 0
        )
        first = np.arange(len(unit))
        for start in range(0, len(unit), _BLOCK):
            block = unit[start : start + _BLOCK]
            alike = block @ unit[: start + len(block)].T >= least
            alike &= np.arange(start + len(block)) < first[start:, None][: len(block)]
            joins = alike.any(1)
            first[start : start + len(block)][joins] = alike.argmax(1)[joins]
        for row, other in enumerate(first):  # earlier rows know their groups
            first[row] = first[other]
        order = np.argsort(first, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(first[order])) + 1)
        return [group for group in groups if len(group) > 1]

    def text(self) -> str:
        width, where = self.features.shape[1], "as they were"
        if self.checkpoints:
            width, where = (
                width // self.checkpoints,
                f"of {self.checkpoints} checkpoints",
            )
        exact = "exact gradients"
        if width < self.entries:
            error = f" (a product errs by about {1 / np.sqrt(width):.1%} of the norms')"
            if self.method == "datainf":
                error = ", weight by weight"
            exact = f"gradients projected onto {width:,} numbers{error}"
        return (
            f"Scores are {_WAYS[self.method]}, with {exact}, at the weights {where}. A "
            "positive score: a step on the row "
            "lowers the loss of the rows asked about. Gradients are of each row's "
            "loss alone, in a pass at inference. A large self-influence is a reason to "
            "look at a row, and no proof of a wrong label."
        )

    def table(self) -> Table:
        table = Table(
            title=f"Influence of {len(self.self_influence):,} rows ({self.method})",
            title_justify="left",
        )
        columns = [("Self-influence", self.mislabelled(1.0), self.self_influence)]
        if self.scores is not None:
            (helpful, harmful), means = self.top(_SHOWN), self._means("table")
            columns = [("Helps", helpful, means), ("Harms", harmful, means), *columns]
        if self.texts:
            return self._table_of_texts(table, columns)
        for name, _, _ in columns:
            table.add_column("Row", justify="right")
            table.add_column(name, justify="right")
        for place in range(min(_SHOWN, len(self.self_influence))):
            cells = []
            for _, rows, values in columns:
                there = place < len(rows)
                cells += [f"{rows[place]}" if there else ""]
                cells += [f"{values[rows[place]]:.3g}" if there else ""]
            table.add_row(*cells)
        return table

    def _table_of_texts(self, table: Table, columns: list[tuple]) -> Table:
        """The same, a row below the other, with the text of each."""
        for name in ("Row", "", "Value"):
            table.add_column(name, justify="right" if name else "left")
        table.add_column("Text", no_wrap=True)
        for name, rows, values in columns:
            for row in rows[:_TEXTS]:
                text = shorten(self.texts[row], _WIDTH)
                table.add_row(str(row), name, f"{values[row]:.3g}", text)
            table.add_section()
        return table

    def plot(self) -> Any:
        """Draws self-influence by rank, and the rows that help and harm most.

        Returns:
            The ``matplotlib.figure.Figure``.

        Raises:
            MissingDependencyError: matplotlib is not installed.
        """
        panels = 1 if self.scores is None else 2
        figure = new_figure("Influence.plot", 5 * panels, 3.6)
        axes = figure.add_subplot(1, panels, panels)
        values = np.sort(self.self_influence)[::-1]
        axes.plot(100 * np.arange(1, len(values) + 1) / len(values), values)
        if (values > 0).all():
            axes.set_yscale("log")
        axes.set_xlabel("% of the rows, the largest first")
        axes.set_title("Self-influence", loc="left")
        axes.grid(alpha=0.3)
        if self.scores is not None:
            helpful, harmful = self.top(_SHOWN)
            rows, means = [*helpful, *harmful[::-1]], self._means("plot")
            axes, places = figure.add_subplot(1, 2, 1), range(len(rows))
            colors = ["tab:blue"] * len(helpful) + ["tab:orange"] * len(harmful)
            axes.barh(places, means[rows], color=colors)
            axes.set_yticks(places, [str(row) for row in rows], fontsize=7)
            axes.invert_yaxis()
            axes.set_ylabel("row of the training")
            axes.set_title("Rows that help (blue) and harm", loc="left")
            axes.grid(axis="x", alpha=0.3)
        return figure

    def to_content(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        arrays = {"self_influence": self.self_influence, "features": self.features}
        if self.scores is not None:
            arrays["scores"] = self.scores
        settings = {"method": self.method, "entries": self.entries}
        settings |= {"checkpoints": self.checkpoints, "texts": list(self.texts)}
        return settings, arrays

    @classmethod
    def from_content(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> Self:
        own, features = arrays["self_influence"], arrays["features"]
        scores = arrays.get("scores")
        op = "Influence.load"
        entries = check_count(op, "entries", settings["entries"])
        points = check_count(op, "checkpoints", settings["checkpoints"], 0)
        if settings["method"] not in METHODS:
            raise ValueError("it names no method")
        matrices = [features, *([] if scores is None else [scores])]
        if own.ndim != 1 or any(a.ndim != 2 or len(a) != len(own) for a in matrices):
            raise ValueError("its arrays have unlike numbers of rows")
        most = entries * max(points, 1)
        if not len(own) or 0 in features.shape or features.shape[1] > most:
            raise ValueError("its gradients have an impossible size")
        for array in (own, *matrices):
            if array.dtype != np.float32 or not np.isfinite(array).all():
                raise ValueError("its arrays are no finite float32 numbers")
        texts = settings["texts"]
        if not isinstance(texts, list) or len(texts) not in (0, len(own)):
            raise ValueError("it has texts of other rows")
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("its texts are none")
        method = settings["method"]
        return cls(method, own, features, scores, entries, points, tuple(texts))

    def _means(self, method: str, row: int | None = None) -> np.ndarray:
        """Scores ``[n]`` on one of the rows of ``on``, or their mean."""
        op = f"Influence.{method}"
        if self.scores is None:
            raise ArgumentError(
                op,
                "there are no rows whose loss is explained",
                hint="model.influence(x, y, on=(x_test, y_test))",
            )
        if row is None:
            return self.scores.mean(1)
        count = self.scores.shape[1]
        if check_count(op, "row", row, 0) >= count:
            raise ArgumentError(op, f"row must be below {count}, received {row}")
        return self.scores[:, row]
