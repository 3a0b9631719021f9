"""Writes the files of this version, beside those of earlier releases.

    PYTHONPATH=. python -P -m tests.saving.releases.make

It is run once for each release, at the commit that gets the tag. What is there stays:
only kinds that the version does not have yet are written.
"""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
from tests.saving.releases.kinds import KINDS

import exburn

HERE = Path(__file__).parent


def make(releases: Path, version: str) -> list[str]:
    """Writes the kinds that a version lacks: their names."""
    written = []
    for name, kind in KINDS.items():
        folder = releases / version / name.replace(" ", "_")
        if folder.exists():
            continue
        with tempfile.TemporaryDirectory() as made:
            answers = kind.write(Path(made))
            np.savez_compressed(Path(made) / "answers.npz", **answers)
            shutil.copytree(made, folder)
        written.append(name)
    about = {"exburn": version, "written with": {"numpy": np.__version__}}
    if written:
        path = releases / version / "about.json"
        path.write_text(json.dumps(about, indent=2) + "\n", "utf-8")
    return written


if __name__ == "__main__":
    print(*make(HERE, exburn.__version__), sep="\n")
