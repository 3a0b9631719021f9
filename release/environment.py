"""Environments of their own, in which the release's tools and trials run."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Environment", "run"]

# What the caller's shell has set for its own work; a user's has none of it.
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "KERAS_BACKEND", "XLA_FLAGS")


def run(*command: object, cwd: Path, **variables: str) -> str:
    """What a command prints; its failure ends the release, with what it printed."""
    words = [str(word) for word in command]
    clean = {k: v for k, v in os.environ.items() if k not in FOREIGN} | variables
    done = subprocess.run(
        words,
        cwd=cwd,
        env=clean,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed\n{done.stdout}")
    return done.stdout


@dataclass(frozen=True)
class Environment:
    """A virtual environment."""

    folder: Path

    @classmethod
    def new(cls, folder: Path, python: Path) -> Environment:
        folder.mkdir(parents=True)
        run(python, "-m", "venv", folder / "venv", cwd=folder)
        return cls(folder / "venv")

    @property
    def bin(self) -> Path:
        return self.folder / ("Scripts" if os.name == "nt" else "bin")

    @property
    def python(self) -> Path:
        return self.bin / "python"

    @property
    def packages(self) -> Path:
        (folder,) = self.folder.glob("[Ll]ib/**/site-packages")
        return folder

    def install(self, *packages: object) -> None:
        quiet = ("--quiet", "--disable-pip-version-check")
        self.run(
            self.python, "-m", "pip", "install", *quiet, *packages, cwd=self.folder
        )

    def run(self, *command: object, cwd: Path, **variables: str) -> str:
        return run(*command, cwd=cwd, **variables)
