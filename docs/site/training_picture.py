"""``python -m docs.site.training_picture``: the picture of a training in the README.

Runs the README's Python block in a terminal of 100 columns, and draws its summary and
its last epochs as ``docs/images/training.svg``.
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

_ROOT = Path(__file__).resolve().parents[2]
_COLUMNS = 100
_EPOCHS = 5  # that are shown, at the end


def main() -> None:
    """Writes the picture."""
    readme = (_ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert block is not None, "the README has no Python block"
    lines = _lines(_output(block[1]))
    epochs = [i for i, line in enumerate(lines) if line.plain.startswith("Epoch")]
    shown = [*lines[: epochs[0]], Text("…", style="dim"), *lines[epochs[-_EPOCHS] :]]
    console = Console(
        record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True
    )
    for line in shown:
        console.print(line, soft_wrap=False, no_wrap=True, overflow="crop")
    target = _ROOT / "docs" / "images" / "training.svg"
    picture = console.export_svg(title="python fifteen_lines.py")
    # No font from another site: the reader's own one is as wide.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    target.write_text(picture.replace("Fira Code", "ui-monospace"), encoding="utf-8")


def _output(source: str) -> str:
    """All that a program writes to a terminal."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "fifteen_lines.py"
        script.write_text(source, encoding="utf-8")
        main_end, program_end = pty.openpty()
        environment = os.environ | {
            "COLUMNS": str(_COLUMNS),
            "TERM": "xterm-256color",
            "MPLBACKEND": "agg",
        }
        program = subprocess.Popen(
            [sys.executable, script],
            stdout=program_end,
            stderr=program_end,
            cwd=folder,
            env=environment,
        )
        os.close(program_end)
        parts = []
        while True:
            try:
                part = os.read(main_end, 65536)
            except OSError:  # the program has ended
                break
            if not part:
                break
            parts.append(part)
        if program.wait() != 0:
            raise SystemExit(b"".join(parts).decode())
    return b"".join(parts).decode("utf-8")


def _lines(output: str) -> list[Text]:
    """The lines that stand in the end, of those that were written again and again."""
    texts = []
    for line in output.replace("\r\n", "\n").split("\n"):
        states = [state for state in line.split("\r") if _plain(state).strip()]
        texts.append(Text.from_ansi(states[-1] if states else ""))
    while texts and not texts[-1].plain.strip():
        texts.pop()
    return texts


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


if __name__ == "__main__":
    main()
