"""The gallery: a card for each notebook, with a picture and its question."""

from __future__ import annotations

import html
import re
from pathlib import Path

_NUMBERS = re.compile(r"_(\d+)_(\d+)\.png$")


def write(source: Path, shown: list[tuple[str, str]]) -> None:
    """Writes ``gallery.md`` into the site's sources, beside the notebooks' pages.

    Args:
        source: The folder of the sources; the notebooks are written already.
        shown: ``(stem, title)`` of the notebooks, in their order.
    """
    cards = "\n".join(_card(source / "notebooks", *one) for one in shown)
    (source / "gallery.md").write_text(
        "# Gallery\n\nNotebooks with their results. Each asks a question of real data, "
        "or of data whose truth is known, and answers it with a figure.\n\n"
        f'<div class="gallery">\n{cards}\n</div>\n',
        encoding="utf-8",
    )


def _card(folder: Path, stem: str, title: str) -> str:
    picture = _picture(folder, stem)
    image = ""
    if picture is not None:
        image = f'<img src="notebooks/{picture.name}" alt="" loading="lazy">'
    text = html.escape(_question((folder / f"{stem}.md").read_text(encoding="utf-8")))
    return (
        f'<a class="card" href="notebooks/{stem}.md">{image}'
        f"<strong>{html.escape(title)}</strong><span>{text}</span></a>"
    )


def _picture(folder: Path, stem: str) -> Path | None:
    """The last picture of a notebook, which shows what came of it."""

    def place(path: Path) -> tuple[int, ...]:
        match = _NUMBERS.search(path.name)
        return tuple(map(int, match.groups())) if match else (0, 0)

    return max(folder.glob(f"{stem}_*.png"), key=place, default=None)


def _question(page: str) -> str:
    """The first question of a notebook's introduction, else its first sentence."""
    paragraphs = re.split(r"\n\s*\n", page.partition("\n")[2].strip())
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", " ".join(paragraphs[0].split()))
    sentences = re.split(r"(?<=[.?!])\s+(?=[A-Z0-9])", text)
    asked = [sentence for sentence in sentences if sentence.endswith("?")]
    return (asked or sentences)[0]
