"""The guides that use a name: what its page of the reference leads to."""

from __future__ import annotations

import collections
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Guides"]

_MOST = 4
# Lists of names, and pages for contributors: they mention all, and explain little.
_LISTS = (
    "from_keras from_exburn keras_names index versions layout design planning variables"
).split()
_CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
_WORD = re.compile(r"(?:([a-z]\w*)\.)?([A-Za-z]\w+)")
# Where no guide has a name of its own.
_OF_SPACES = {
    "exburn.activations": "custom_layers.md",
    "exburn.applications": "pretrained.md",
    "exburn.callbacks": "callbacks.md",
    "exburn.compression": "compression.md",
    "exburn.compute": "compute.md",
    "exburn.constraints": "custom_layers.md",
    "exburn.datasets": "datasets.md",
    "exburn.distillation": "compression.md",
    "exburn.distribution": "distribution.md",
    "exburn.export": "export.md",
    "exburn.initializers": "custom_layers.md",
    "exburn.insight": "explanations.md",
    "exburn.layers": "custom_layers.md",
    "exburn.losses": "choose_loss.md",
    "exburn.metrics": "imbalanced.md",
    "exburn.mixed_precision": "precision.md",
    "exburn.models": "quickstart.md",
    "exburn.ops": "custom_layers.md",
    "exburn.optimizers": "finding.md",
    "exburn.preprocessing": "data.md",
    "exburn.quantizers": "quantization.md",
    "exburn.random": "reproducibility.md",
    "exburn.regularizers": "custom_layers.md",
    "exburn.runs": "runs.md",
    "exburn.saving": "saving.md",
    "exburn.serving": "serving.md",
    "exburn.text": "text.md",
    "exburn.tuning": "sweep.md",
    "exburn.utils": "data.md",
    "exburn.visualization": "finding.md",
    "exburn.weights": "pretrained.md",
}
_OF_ALL = "quickstart.md"


class Guides:
    """Pages of ``docs/`` and notebooks, by the names that their code has.

    Args:
        root: The checkout.

    Example:
        >>> guides = Guides(Path("no such checkout"))
        >>> guides.of("exburn.layers.Dense")
        []
    """

    def __init__(self, root: Path):
        self._pages: dict[str, str] = {}
        self._shares: dict[str, dict[str, float]] = {}
        for place, title, code in (*_texts(root / "docs"), *_books(root / "notebooks")):
            self._pages[place] = title
            words = _WORD.findall(code)
            dotted = (f".{space}.{word}" for space, word in words if space)
            counts = collections.Counter([*dotted, *(word for _, word in words)])
            for word, count in counts.items():
                # A page that is about a name says it often among its words.
                share = count / math.sqrt(len(words) + 100)
                self._shares.setdefault(word, {})[place] = share

    def of(self, path: str) -> list[tuple[str, str]]:
        """``(title, page)`` of those that use a name most, or are on its namespace.

        Args:
            path: The name's: ``exburn.layers.Dense``.
        """
        space, _, short = path.rpartition(".")
        # Only classes have names of their own: "abs" may be anybody's, "ops.abs" not.
        word = short if short[0].isupper() else f".{space.rpartition('.')[2]}.{short}"
        shares = self._shares.get(word, {})
        places = sorted(shares, key=lambda place: -shares[place])[:_MOST]
        while not places and space:
            places = [_OF_SPACES[space]] if space in _OF_SPACES else []
            space = space.rpartition(".")[0]
        places = [place for place in places or [_OF_ALL] if place in self._pages]
        return [(self._pages[place], place) for place in places]


def _texts(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Place, title and code of each guide."""
    for path in sorted(folder.glob("*.md")):
        if path.stem not in _LISTS:
            text = path.read_text(encoding="utf-8")
            title = re.search(r"^# (.+)$", text, re.MULTILINE)
            code = "\n".join(_CODE.findall(text))
            yield f"{path.stem}.md", title[1] if title else path.stem, code


def _books(folder: Path) -> Iterator[tuple[str, str, str]]:
    for path in sorted(folder.glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts = {"markdown": "", "code": ""}
        for cell in cells:
            kind = cell["cell_type"]
            texts[kind] = texts.get(kind, "") + "".join(cell["source"]) + "\n"
        title = re.search(r"^# (.+)$", texts["markdown"], re.MULTILINE)
        place = f"notebooks/{path.stem}.md"
        yield place, title[1] if title else path.stem, texts["code"]
