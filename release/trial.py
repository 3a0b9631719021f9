"""A wheel as users get it: in a clean environment, far from its sources."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from release.environment import Environment

__all__ = ["VERSIONS", "fifteen_lines", "interpreters", "try_wheel"]

VERSIONS = ("3.11", "3.12", "3.13")


def interpreters() -> dict[str, Path]:
    """The supported Pythons that are here, by version: on PATH, or of pyenv."""
    paths = {}
    for version in VERSIONS:
        for path in _candidates(version):
            if _version(path) == version:
                paths[version] = path
                break
    return paths


def fifteen_lines(readme: str) -> str:
    """The program that README shows first."""
    match = re.search(
        r"^## Fifteen lines$.*?^```python\n(.*?)^```$", readme, re.M | re.S
    )
    assert match, "README.md has no program under `## Fifteen lines`"
    return match[1]


def try_wheel(wheel: Path, readme: str, python: Path, folder: Path) -> Environment:
    """Installs a wheel, asks the doctor, and runs README's first program."""
    environment = Environment.new(folder, python)
    environment.install(f"exburn[plot] @ {wheel.resolve().as_uri()}", "scikit-learn")
    (folder / "program.py").write_text(fifteen_lines(readme), "utf-8")
    environment.run(environment.bin / "exburn", "doctor", cwd=folder)
    environment.run(environment.python, "-W", "error", "program.py", cwd=folder)
    if not (folder / "history.png").stat().st_size:
        raise SystemExit("the program of README.md drew nothing")
    return environment


def _candidates(version: str) -> list[Path]:
    minor = tuple(int(part) for part in version.split("."))
    own = [Path(sys.executable)] if sys.version_info[:2] == minor else []
    of_pyenv = (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python")
    return [*own, Path(f"python{version}"), *sorted(of_pyenv)]


def _version(python: Path) -> str | None:
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip()
