"""Broken links and anchors of a built site."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

_ANCHOR = re.compile(r"""\s(?:id|name)=(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""")
_LINK = re.compile(
    r"""<(?:a|img|link|script)\b[^>]*?\s(?:href|src)=(?:"([^"]*)"|'([^']*)'|([^\s>"']+))"""
)


def broken_links(folder: Path) -> list[tuple[str, str]]:
    """Links that lead to no file of the site, or to no anchor of its page.

    Args:
        folder: The folder of the site.

    Returns:
        ``(page, link)`` pairs.
    """
    folder = folder.resolve()
    # That page is shown for any address: its links begin at the server's root.
    paths = [path for path in folder.rglob("*.html") if path.name != "404.html"]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    anchors = {path: _found(_ANCHOR, text) for path, text in texts.items()}
    there = {path for path in folder.rglob("*") if path.is_file()}
    broken = []
    for path, text in texts.items():
        for link in sorted(_found(_LINK, text)):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or not link:
                continue
            target = path
            if parts.path:
                base = folder if link.startswith("/") else path.parent
                way = base / unquote(parts.path).lstrip("/")
                target = Path(os.path.normpath(way))  # ten times as quick as resolve
                if target not in there:
                    target = target / "index.html"
            anchor = unquote(parts.fragment)
            if target not in there or (
                anchor and target in anchors and anchor not in anchors[target]
            ):
                broken.append((path.relative_to(folder).as_posix(), link))
    return broken


def _found(pattern: re.Pattern, text: str) -> set[str]:
    """The values of an attribute, however they are quoted."""
    return {html.unescape("".join(match)) for match in pattern.findall(text)}
