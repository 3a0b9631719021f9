"""Makes a release from a tag: builds, compares, checks, and tries what was built.

    python -m release v0.1.0              # into build/release/v0.1.0
    python -m release v0.1.0 --upload     # and uploads it

It needs git, and a package index; nothing else is fetched. docs/versions.md lists what
is checked; the first thing that does not hold ends it. Here the tools are installed,
into an environment of their own, in which ``release.making`` does the rest.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from release.environment import Environment, run

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes a release from a tag.")
    parser.add_argument("tag", help="of the version, such as v0.1.0")
    parser.add_argument("--upload", action="store_true", help="upload it by twine")
    parser.add_argument(
        "--unaudited",
        action="store_true",
        help="go on where the index has no record of known holes",
    )
    asked = parser.parse_args()
    commits = [
        run("git", "rev-parse", f"{name}^{{commit}}", cwd=ROOT)
        for name in ("HEAD", asked.tag)
    ]
    if len(set(commits)) > 1:
        raise SystemExit(f"check {asked.tag} out first: its own scripts make a release")
    folder = ROOT / "build" / "release" / asked.tag
    shutil.rmtree(folder, ignore_errors=True)
    tools = Environment.new(folder / "tools", Path(sys.executable))
    tools.install("-r", ROOT / "release" / "requirements.txt")
    words = [asked.tag, folder]
    words += ["--upload"] * asked.upload + ["--unaudited"] * asked.unaudited
    return subprocess.call([tools.python, "-m", "release.making", *words], cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main())
