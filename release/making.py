"""The steps of a release, in the environment of its tools (``__main__.py``)."""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from release import agreement, contents, surface, trial
from release.environment import Environment, run

ROOT = Path(__file__).resolve().parents[1]
TOOLS = Path(sys.executable).parent


def export(tag: str, folder: Path) -> Path:
    """The files of a tag, as git has them."""
    folder.mkdir(parents=True)
    archive = folder.with_suffix(".tar")
    run("git", "archive", "--output", archive, tag, cwd=ROOT)
    run("tar", "-xf", archive, cwd=folder)
    archive.unlink()
    return folder


def build(tree: Path, out: Path, date: str) -> list[Path]:
    """The sdist of a tree, and the wheel that is built from the sdist."""
    # pip takes these versions for the build's environment, which it makes anew.
    pinned = str(ROOT / "release" / "constraints.txt")
    run(
        *(sys.executable, "-m", "build", "--outdir", out, tree),
        cwd=tree,
        PIP_CONSTRAINT=pinned,
        SOURCE_DATE_EPOCH=date,
    )
    return sorted(out.iterdir())


def build_twice(tag: str, folder: Path) -> list[Path]:
    """What two builds in unlike folders and under unlike masks both come to."""
    date = run("git", "log", "-1", "--format=%ct", tag, cwd=ROOT).strip()
    first = build(export(tag, folder / "tree"), folder / "files", date)
    mask = os.umask(0o077)
    try:
        second = build(export(tag, folder / "again" / "tree"), folder / "same", date)
    finally:
        os.umask(mask)
    for one, other in zip(first, second, strict=True):
        if (one.name, digest(one)) != (other.name, digest(other)):
            raise SystemExit(f"{one} and {other} differ")
    return first


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def refuse(faults: Iterable[str], what: str) -> None:
    """Ends the release if there is something to mend."""
    if reasons := list(faults):
        raise SystemExit("\n  ".join([f"{what}:", *reasons]))


def check_tree(tree: Path, version: str) -> None:
    """Version and deprecations of a tree, and what of its names programs miss."""
    refuse(agreement.disagreements(tree, version), f"this is not {version}")
    package, today = tree / "exburn", datetime.date.today()
    refuse(agreement.overdue(package, today), "the day of these has come")
    text = (tree / "CHANGELOG.md").read_text("utf-8")
    refuse(agreement.hasty(package, text, today), "these give less than six months")
    if surface.main([]):
        raise SystemExit("CHANGELOG.md does not name these changes")


def check_files(files: list[Path], wheel: Path, tree: Path) -> None:
    """What is in the archives, by our own rules and by those of others."""
    refuse(contents.faults(wheel), wheel.name)
    refuse(filter(None, [contents.bill_fault(wheel)]), "the bill of materials")
    print(run(TOOLS / "twine", "check", "--strict", *files, cwd=tree), end="")
    print(run(TOOLS / "check-wheel-contents", wheel, cwd=tree), end="")


def check_citation(tree: Path, folder: Path) -> None:
    """By the format's own program, which needs older packages than the other tools."""
    apart = Environment.new(folder, Path(sys.executable))
    apart.install("cffconvert==2.0.0")
    words = ("--validate", "--infile", tree / "CITATION.cff")
    print(run(apart.bin / "cffconvert", *words, cwd=folder), end="")


def try_and_audit(wheel: Path, tree: Path, folder: Path, unaudited: bool) -> None:
    """On each Python that is here; what was installed there is asked about."""
    pythons = trial.interpreters()
    if missing := set(trial.VERSIONS) - set(pythons):
        print(f"not tried on {', '.join(sorted(missing))}, which are not here")
    readme = (tree / "README.md").read_text("utf-8")
    for version, python in pythons.items():
        place = trial.try_wheel(wheel, readme, python, folder / f"on {version}")
        print(f"{version}: the doctor and README's program are content", flush=True)
        count, unknown = audit(place.packages, folder / f"audit of {version}.json")
        print(
            f"{version}: no hole of {count} packages is known, {len(unknown)} unasked"
        )
        if unknown and not unaudited:
            refuse(unknown, "the index tells nothing of these (--unaudited goes on)")


def audit(packages: Path, report: Path) -> tuple[int, list[str]]:
    """How many packages were asked about, and which the index knows nothing of.

    A known hole ends the release.
    """
    words = ("--path", packages, "--progress-spinner=off", "-f", "json", "-o", report)
    run(TOOLS / "pip-audit", *words, cwd=report.parent)
    entries = json.loads(report.read_text("utf-8"))["dependencies"]
    entries = [one for one in entries if one["name"] != "exburn"]  # is new to any index
    unknown = [one["name"] for one in entries if "skip_reason" in one]
    return len(entries) - len(unknown), unknown


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tag")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--upload", action="store_true")
    parser.add_argument("--unaudited", action="store_true")
    asked = parser.parse_args()
    begun = time.monotonic()

    def step(name: str) -> None:
        print(f"=== {name} ({time.monotonic() - begun:.0f} s)", flush=True)

    step("two builds")
    files = build_twice(asked.tag, asked.folder)
    wheel = next(path for path in files if path.suffix == ".whl")
    tree = asked.folder / "tree"
    step("version, deprecations, public names")
    check_tree(tree, asked.tag.removeprefix("v"))
    step("what is in the archives")
    check_files(files, wheel, tree)
    check_citation(tree, asked.folder / "citation")
    step("clean environments")
    try_and_audit(wheel, tree, asked.folder, asked.unaudited)
    sums = asked.folder / "files" / "SHA256SUMS"
    sums.write_text("".join(f"{digest(f)}  {f.name}\n" for f in files), "utf-8")
    print(sums.read_text("utf-8"), end="")
    if asked.upload:
        step("upload")
        print(run(TOOLS / "twine", "upload", "--non-interactive", *files, cwd=tree))
    step(f"{asked.tag} is in {asked.folder / 'files'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
