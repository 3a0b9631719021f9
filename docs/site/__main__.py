"""Builds the documentation site: pages, notebooks, reference, table of Keras' names.

    python -m docs.site             # into build/site/html, and checks its links
    python -m docs.site --no-check

It gathers the sources in ``build/site/source``, and zensical makes the site of them
(``pip install '.[docs]'``). The pages are those of ``docs/``, which read as well
without it; the reference has a page for each public name, whose text mkdocstrings takes
from the docstring.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

from docs.site import (
    check,
    config,
    gallery,
    notebooks,
    pages,
    reference,
    search,
    table,
)
from exburn.errors import require

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "site"


def gather(source: Path) -> None:
    """Writes the sources of all pages into a folder."""
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    pages.write(ROOT, source)
    shown = notebooks.write(ROOT / "notebooks", source / "notebooks")
    gallery.write(source, shown)
    names = reference.write(source / "reference", ROOT)
    table.write(source / "keras_names", names)
    here = Path(__file__).parent
    shutil.copy(here / "site.css", source)
    shutil.copytree(here / "fonts", source / "fonts")
    config.write(source.parent / "zensical.toml", ROOT, shown, names)


def build(folder: Path = BUILD) -> Path:
    """Makes the site: the folder of its HTML."""
    gather(folder / "source")
    shutil.rmtree(folder / "html", ignore_errors=True)
    require("zensical", "docs.site", "the site is made by zensical", extra="docs")
    command = [sys.executable, "-m", "zensical", "build", "-f", "zensical.toml"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "html"


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds the documentation site.")
    parser.add_argument("--no-check", action="store_true", help="leave links unchecked")
    asked = parser.parse_args()
    start = time.perf_counter()
    html = build()
    absent = search.improve(html / "search.json")
    count = sum(1 for _ in html.rglob("*.html"))
    print(f"{count} pages in {time.perf_counter() - start:.1f} s: {html}/index.html")
    if asked.no_check:
        return 0
    broken = check.broken_links(html)
    broken += [("search.json", page) for page in absent]
    for page, target in broken:
        print(f"{page}: {target} leads nowhere", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
