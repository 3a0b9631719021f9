"""`Explanation`: what each entry of some inputs has to do with their predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from exburn.core.printing import Plain, one_line
from exburn.errors import printable
from exburn.insight.explanations import pictures
from exburn.insight.insight import Insight

_MOST = 12  # rows that a table shows
_MEANINGS = {
    "saliency": "The size of the score's gradient: how much a small change of an entry "
    "would change it, in either direction.",
    "smooth_gradient": "The mean gradient of the score over inputs with noise: a small "
    "rise of an entry raises the score where it is positive.",
    "integrated_gradients": "What each entry adds to the score, beside that of the "
    "baseline; a row's values add up to the difference of the two scores.",
    "gradcam": "Where the layer's channels that raise the score are active; what "
    "lowers it is left out.",
    "occlusion": "What the score loses when a patch is covered by the baseline, shared "
    "over the patches that cover an entry.",
    "shapley": "What the score gains when a patch is uncovered, as a mean over orders; "
    "the patches add up to the difference of the row's score and its baseline's.",
    "attention": "From which places of the input attention flows through all layers to "
    "the position that is asked about; a row's values add up to 1.",
}
_ASSUMPTIONS = {
    "saliency": "It holds near the input only.",
    "smooth_gradient": "It depends on the noise, which must be small beside the input.",
    "integrated_gradients": "It depends on the baseline, which should mean nothing.",
    "gradcam": "It is as coarse as the layer.",
    "occlusion": "It depends on the patches and the baseline, and sees no joint effect "
    "of several patches.",
    "shapley": "It depends on the patches and the baseline, and by chance on the "
    "orders where these are not all.",
    "attention": "It is the mean over heads, knows nothing of what values hold, and is "
    "the same for all targets.",
}


@dataclasses.dataclass(frozen=True, repr=False)
class Explanation(Insight):
    """Shares of the entries of each row in the row's score.

    Attributes:
        method: How it was found.
        arrays: The values by the name of the input, in its shape: one number a token
            where an ``Embedding`` looks it up, and for ``"gradcam"`` one for each
            place of the layer's outputs.
        inputs: The inputs that were explained, by name.
        outputs: What the model returned, for each row.
        scores: The score of each row that is explained.
        targets: The place of that score among those of the row.
        scored: ``"softmax"`` or ``"sigmoid"``: the scores go into one; ``"outputs"``.
        columns: Names of the columns of a table.
        layer: The path of the layer of ``"gradcam"``, else ``""``.
        gaps: Of integrated gradients: how far a row's values are from adding up to the
            difference of scores, as a share of it.
        texts: The texts of the tokens of each row, by the name of the input.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> model.set_weights([np.array([[2.0], [-1.0]]), np.zeros(1)])
        >>> x = np.array([[3.0, 4.0]])
        >>> shares = model.explain(x, method="integrated_gradients")
        >>> shares.values.round(3).tolist()
        [[6.0, -4.0]]
    """

    kind: ClassVar[str] = "explanation"

    method: str
    arrays: dict[str, np.ndarray]
    inputs: dict[str, np.ndarray]
    outputs: np.ndarray
    scores: np.ndarray
    targets: np.ndarray
    scored: str
    columns: tuple[str, ...] = ()
    layer: str = ""
    gaps: np.ndarray | None = None
    texts: dict[str, list[list[str]]] = dataclasses.field(default_factory=dict)

    @property
    def values(self) -> Any:
        """The values of the only input, or of all of them by name."""
        arrays = list(self.arrays.values())
        return arrays[0] if len(arrays) == 1 else dict(self.arrays)

    def text(self) -> str:
        parts = [_MEANINGS[self.method], _ASSUMPTIONS[self.method]]
        if self.scored == "outputs":
            parts.append("Scores are the model's outputs as they are.")
        else:
            parts.append(f"Scores are what goes into the model's last {self.scored}.")
        cold = [not v.any() for v in next(iter(self.arrays.values()))]
        if self.method == "gradcam" and any(cold):
            parts.append(
                f"In {sum(cold)} of {len(cold)} rows no place of the layer raises it: "
                "take another layer, or integrated gradients."
            )
        if self.gaps is not None:
            parts.append(f"The values miss the difference by {self.gaps.max():.1e}.")
        return " ".join(parts)

    def table(self) -> Table:
        where = f" at {one_line(self.layer)}" if self.layer else ""
        title = f"{self.method.replace('_', ' ')} of {len(self.scores):,} rows{where}"
        table = Table(title=title, title_justify="left")
        for name in ("Row", "Target", "Score"):
            table.add_column(name, justify="right")
        if self.gaps is not None:
            table.add_column("Gap", justify="right")
        table.add_column("Largest values", overflow="fold")
        for row in range(min(len(self.scores), _MOST)):
            cells = [str(row), str(self.targets[row]), f"{self.scores[row]:.4g}"]
            if self.gaps is not None:
                cells.append(f"{self.gaps[row]:.1e}")
            table.add_row(*cells, self._largest(row))
        if len(self.scores) > _MOST:
            table.add_row("…")
        return table

    def _largest(self, row: int, most: int = 4) -> str:
        entries = [
            (value, self._place(name, row, place))
            for name, array in self.arrays.items()
            for place, value in _top(array[row], most)
        ]
        entries.sort(key=lambda entry: -abs(entry[0]))
        return ", ".join(f"{name} {value:+.3g}" for value, name in entries[:most])

    def _place(self, name: str, row: int, place: tuple[int, ...]) -> str:
        if name in self.texts:
            return f"{printable(self.texts[name][row][place[0]])!r}"
        if len(place) == 1 and self.columns:
            return one_line(self.columns[place[0]])
        at = f"[{', '.join(map(str, place))}]"
        return at if len(self.arrays) == 1 else one_line(f"{name}{at}")

    def __rich__(self) -> Plain:
        lines = [
            pictures.ColouredTokens(texts, self.arrays[name][row])
            for name, rows in self.texts.items()
            for row, texts in enumerate(rows[:_MOST])
        ]
        return Plain(Group(self.table(), *lines, Text(self.text())))

    def _repr_html_(self) -> str:
        lines = [
            pictures.ColouredTokens(texts, self.arrays[name][row]).html()
            for name, rows in self.texts.items()
            for row, texts in enumerate(rows[:_MOST])
        ]
        return super()._repr_html_() + "".join(lines)

    def plot(self) -> Any:
        """Draws the values: heat over pictures, bars of columns, coloured tokens.

        Returns:
            The ``matplotlib.figure.Figure``.

        Raises:
            MissingDependencyError: matplotlib is not installed.
        """
        return pictures.draw(self)

    def to_content(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        settings: dict[str, Any] = {"method": self.method, "scored": self.scored}
        settings |= {"columns": list(self.columns), "layer": self.layer}
        settings |= {"values": list(self.arrays), "inputs": list(self.inputs)}
        settings |= {"texts": self.texts}
        arrays = {f"values/{i}": v for i, v in enumerate(self.arrays.values())}
        arrays |= {f"inputs/{i}": v for i, v in enumerate(self.inputs.values())}
        arrays |= {"outputs": self.outputs, "scores": self.scores}
        arrays |= {"targets": self.targets}
        if self.gaps is not None:
            arrays["gaps"] = self.gaps
        return settings, arrays

    @classmethod
    def from_content(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> Self:
        words: dict[str, Any] = {
            name: settings[name] for name in ("method", "scored", "layer")
        }
        lists = {name: settings[name] for name in ("columns", "values", "inputs")}
        named = all(
            isinstance(v, list) and all(isinstance(name, str) for name in v)
            for v in lists.values()
        )
        if not named or not all(isinstance(v, str) for v in words.values()):
            raise TypeError("names must be strings")
        if words["method"] not in _MEANINGS or not lists["values"]:
            raise ValueError(f"there is no method {words['method']!r}")
        if words["scored"] not in ("softmax", "sigmoid", "outputs"):
            raise ValueError(f"there are no scores of {words['scored']!r}")
        groups = {
            kind: {n: arrays[f"{kind}/{i}"] for i, n in enumerate(lists[kind])}
            for kind in ("values", "inputs")
        }
        rest: dict[str, Any] = {n: arrays[n] for n in ("outputs", "scores", "targets")}
        gaps = arrays.get("gaps")
        wide = [*groups["values"].values(), *groups["inputs"].values(), rest["outputs"]]
        flat = [rest["scores"], rest["targets"], *([] if gaps is None else [gaps])]
        rows = rest["scores"].shape[:1]
        sizes = {v.shape[:1] for v in (*wide, *flat)}
        if sizes != {rows} or rows in ((), (0,)) or any(v.ndim != 1 for v in flat):
            raise ValueError("the arrays must have the same rows")
        if any(v.ndim < 2 for v in groups["values"].values()):
            raise ValueError("the values of a row must have an axis")
        real = [*groups["values"].values(), rest["scores"]]
        real += [] if gaps is None else [gaps]
        if rest["targets"].dtype.kind not in "iu" or any(
            v.dtype.kind != "f" or not v.size for v in real
        ):
            raise TypeError("targets must be whole numbers, values and scores floats")
        columns = tuple(lists["columns"])
        if columns and next(iter(groups["values"].values())).shape[1:] != (
            len(columns),
        ):
            raise ValueError("there must be a name for each column")
        texts = settings["texts"]
        _check_texts(texts, groups["values"])
        return cls(
            arrays=groups["values"],
            inputs=groups["inputs"],
            columns=columns,
            gaps=gaps,
            texts=texts,
            **words,
            **rest,
        )


def _check_texts(texts: Any, values: Mapping[str, np.ndarray]) -> None:
    """Raises unless texts, of a file, are a text for each token of values."""
    if not isinstance(texts, dict) or not set(texts) <= set(values):
        raise ValueError("it has texts of no input")
    for name, rows in texts.items():
        sizes = [len(row) for row in rows if isinstance(row, list)]
        shape = len(sizes), *sizes[:1]
        if len(rows) != len(sizes) or len({*sizes}) > 1 or shape != values[name].shape:
            raise ValueError("there must be a text for each token")
        if not all(isinstance(text, str) for row in rows for text in row):
            raise TypeError("texts must be strings")


def _top(values: np.ndarray, most: int) -> list[tuple[tuple[int, ...], float]]:
    """The places of the largest values, in either direction."""
    flat = np.abs(values).reshape(-1)
    order = np.argsort(-flat, kind="stable")[:most]
    return [
        (
            tuple(int(n) for n in np.unravel_index(i, values.shape)),
            float(values.flat[i]),
        )
        for i in order
    ]
