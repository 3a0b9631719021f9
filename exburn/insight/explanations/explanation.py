"""`Explanation`: what each entry of some inputs has to do with their predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from rich.table import Table

from exburn.core.printing import one_line
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
            (value, one_line(self._place(name, place)))
            for name, array in self.arrays.items()
            for place, value in _top(array[row], most)
        ]
        entries.sort(key=lambda entry: -abs(entry[0]))
        return ", ".join(f"{name} {value:+.3g}" for value, name in entries[:most])

    def _place(self, name: str, place: tuple[int, ...]) -> str:
        if len(place) == 1 and self.columns:
            return self.columns[place[0]]
        at = f"[{', '.join(map(str, place))}]"
        return at if len(self.arrays) == 1 else f"{name}{at}"

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
        texts: dict[str, Any] = {
            name: settings[name] for name in ("method", "scored", "layer")
        }
        lists = {name: settings[name] for name in ("columns", "values", "inputs")}
        named = all(
            isinstance(v, list) and all(isinstance(name, str) for name in v)
            for v in lists.values()
        )
        if not named or not all(isinstance(v, str) for v in texts.values()):
            raise TypeError("names must be strings")
        if texts["method"] not in _MEANINGS or not lists["values"]:
            raise ValueError(f"there is no method {texts['method']!r}")
        if texts["scored"] not in ("softmax", "sigmoid", "outputs"):
            raise ValueError(f"there are no scores of {texts['scored']!r}")
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
        return cls(
            arrays=groups["values"],
            inputs=groups["inputs"],
            columns=columns,
            gaps=gaps,
            **texts,
            **rest,
        )


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
