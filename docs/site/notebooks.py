"""Notebooks with their results as pages."""

from __future__ import annotations

import base64
import html
import json
import re
from pathlib import Path
from typing import Any

_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Scripts, and the style of other libraries; that of ExBurn touches nothing else.
_FOREIGN = re.compile(
    r'(?<!<div class="exburn">)<style.*?</style>|<script.*?</script>', re.DOTALL
)
_LINK = re.compile(r"\]\((?:\.\./docs/)([\w/]+\.md)")
_NOTEBOOK = re.compile(r"\]\(([\w/]+)\.ipynb\)")


def write(folder: Path, target: Path) -> list[tuple[str, str]]:
    """Writes a page for each notebook, with its outputs and pictures.

    Returns:
        ``(stem, title)`` of each, the quickstart first.
    """
    target.mkdir(parents=True)
    paths = sorted(
        folder.glob("*.ipynb"), key=lambda p: (p.stem != "quickstart", p.stem)
    )
    shown = []
    for path in paths:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        text = "\n\n".join(_cells(notebook, path.stem, target))
        (target / f"{path.stem}.md").write_text(text + "\n", encoding="utf-8")
        title = re.search(r"^# (.+)$", text, re.MULTILINE)
        shown.append((path.stem, title[1] if title else path.stem))
    return shown


def _cells(notebook: dict[str, Any], stem: str, target: Path) -> list[str]:
    parts = []
    for number, cell in enumerate(notebook["cells"]):
        source = "".join(cell["source"]).strip("\n")
        if cell["cell_type"] == "markdown":
            source = _LINK.sub(r"](../\1", source)
            parts.append(_NOTEBOOK.sub(r"](\1.md)", source))
        elif cell["cell_type"] == "code" and source:
            parts.append(f"```python\n{source}\n```")
            outputs = [
                part
                for at, output in enumerate(_joined(cell["outputs"]))
                for part in _output(output, f"{stem}_{number}_{at}", target)
            ]
            if outputs:
                inner = "\n\n".join(outputs)
                parts.append(f'<div class="outputs" markdown>\n\n{inner}\n\n</div>')
    return parts


def _joined(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The outputs of a cell; what was printed in a row is one text."""
    joined: list[dict[str, Any]] = []
    for output in outputs:
        printed = output["output_type"] == "stream"
        if printed and joined and joined[-1]["output_type"] == "stream":
            text = "".join(joined[-1]["text"]) + "".join(output["text"])
            joined[-1] = {"output_type": "stream", "text": text}
        else:
            joined.append(output)
    return joined


def _output(output: dict[str, Any], name: str, target: Path) -> list[str]:
    """A picture, a table or text, in the order in which a notebook prefers them."""
    if output["output_type"] == "stream":
        return [_text(output["text"])]
    if output["output_type"] == "error":
        return [_text(output["traceback"])]
    data = output.get("data", {})
    if "image/png" in data:
        (target / f"{name}.png").write_bytes(base64.b64decode(data["image/png"]))
        return [f"![output]({name}.png)"]
    if "text/html" in data:
        page = "".join(data["text/html"])
        page = (
            _FOREIGN.sub("", page).strip().replace("\n", "&#10;")
        )  # a blank line would end the block
        return [f'<div class="output">{page}</div>']
    if "text/plain" in data:
        return [_text(data["text/plain"])]
    return []


def _text(lines: Any) -> str:
    text = _ESCAPES.sub("", "".join(lines)).rstrip()
    # A line that was written over holds only what was there last.
    lines_left = [line.split("\r")[-1] for line in text.split("\n")]
    return f'<pre class="output">{html.escape(chr(10).join(lines_left))}</pre>'
