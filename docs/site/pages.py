"""The pages of ``docs/``, and what the root has for readers, as pages of the site."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

_HOME = "index.md"
_MOVED = {
    "README.md": _HOME,
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "docs/index.md": "all_pages.md",
}
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```(\w*)[^\n`]*$", re.MULTILINE)


def write(root: Path, source: Path) -> None:
    """Copies all pages, with the links between them as they are in the site.

    Args:
        root: The checkout.
        source: The folder that is written.
    """
    paths = [root / name for name in _MOVED]
    paths += [p for p in (root / "docs").rglob("*.md") if p not in paths]
    places = {path: source / _place(path, root) for path in paths}
    for path, place in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8")
        place.write_text(_convert(text, path, place, root, places, source), "utf-8")
    shutil.copytree(root / "docs" / "images", source / "images")


def _place(path: Path, root: Path) -> str:
    name = path.relative_to(root).as_posix()
    return _MOVED.get(name, name.removeprefix("docs/"))


def _convert(
    text: str,
    path: Path,
    place: Path,
    root: Path,
    places: dict[Path, Path],
    source: Path,
) -> str:
    def lead(match: re.Match) -> str:
        label, target = match[1], match[2]
        name, mark, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not name:
            return match[0]
        file = (path.parent / name).resolve()
        if file.suffix == ".ipynb":
            to = source / "notebooks" / f"{file.stem}.md"
        elif file.parent == root / "docs" / "images":
            to = source / "images" / file.name
        elif file in places:
            to = places[file]
        else:  # a file of the checkout: readers of the site have none
            return label
        return f"[{label}]({relative(to, place.parent)}{mark}{anchor})"

    parts = re.split(r"(^```.*?^```[^\S\n]*$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        _FENCE.sub(r"```\1", part, count=1)
        if part.startswith("```")
        else _LINK.sub(lead, part)
        for part in parts
    )


def relative(target: Path, folder: Path) -> str:
    """The way from a folder to a file, with slashes."""
    return Path(*_steps(target, folder)).as_posix()


def _steps(target: Path, folder: Path) -> list[str]:
    ours, theirs = folder.parts, target.parts
    same = 0
    while same < min(len(ours), len(theirs)) and ours[same] == theirs[same]:
        same += 1
    return [".."] * (len(ours) - same) + list(theirs[same:])
