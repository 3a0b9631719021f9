"""What pip installs is the tree: wheel, sdist and editable install, outside of it."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from tests.checkout import load

contents = load("release.contents")


ROOT = Path(__file__).resolve().parents[2]
LINKS = ("callbacks", "datasets", "layers", "optimizers")

# The installed package must work with nothing of the checkout on the path.
SMOKE = """
import pathlib, sys
import numpy as np
import exburn
from exburn import callbacks, datasets, layers, optimizers

model = exburn.Sequential([layers.Dense(4, activation="relu"), layers.Dense(1)])
model.compile(optimizer=optimizers.Adam(0.1), loss="mse")
x = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
history = model.fit(x, x.sum(1, keepdims=True), epochs=20, verbose=0)
assert history.history["loss"][-1] < history.history["loss"][0]
assert exburn.device_info()["device"] in ("cpu", "gpu", "tpu")
for module in (exburn, callbacks, datasets, layers, optimizers):
    print(pathlib.Path(module.__file__).resolve())
"""


def run(*command: object, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment | {"JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{command} failed\n{done.stdout[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of what git holds or would hold, so that builds leave no trace here."""
    copy = tmp_path_factory.mktemp("checkout")
    listed = run(
        *("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"),
        cwd=ROOT,
    )
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, copy / name
        if not os.path.lexists(source):
            continue  # deleted, and the deletion is not committed yet
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)
    return copy


@pytest.fixture(scope="module")
def expected(checkout) -> set[str]:
    """The files of the package, as they must be installed."""
    found = {
        "exburn/py.typed",
        "exburn/datasets/digits.npz",
        "exburn/serving/http/page.html",
    }
    for folder in (checkout / "exburn", *(checkout / "exburn" / n for n in LINKS)):
        found |= {
            p.relative_to(checkout).as_posix()
            for p in folder.rglob("*.py*")
            if p.suffix in {".py", ".pyi"}
        }
    return found


@pytest.fixture(scope="module")
def built(checkout, tmp_path_factory) -> dict[str, Path]:
    """The sdist, and the wheel that is built from the sdist."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", out, checkout, cwd=out)
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


@pytest.fixture(scope="module")
def fresh(built, tmp_path_factory) -> Path:
    """The Python of a new environment with the wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("fresh")
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    if uv := shutil.which("uv", path=path):  # a quarter of pip's time
        run(uv, "venv", "--quiet", "--seed", "--clear", folder, cwd=folder)
        run(
            uv,
            "pip",
            "install",
            "--quiet",
            "--python",
            python,
            built["wheel"],
            cwd=folder,
        )
    else:
        venv.create(folder, with_pip=True)
        run(python, "-m", "pip", "install", "--quiet", built["wheel"], cwd=folder)
    return python


def test_wheel_holds_the_tree_as_real_files(built, expected):
    with zipfile.ZipFile(built["wheel"]) as archive:
        members = archive.infolist()
    package = {m.filename for m in members if m.filename.startswith("exburn/")}
    assert package == expected
    rest = {m.filename.split("/")[0] for m in members} - {"exburn"}
    assert len(rest) == 1 and rest.pop().endswith(".dist-info")
    assert contents.faults(built["wheel"]) == []  # size, links, bill of materials


def test_a_second_build_is_the_same_bytes(built, checkout, tmp_path):
    """Elsewhere, under another mask, and without what git does not hold."""
    copy = shutil.copytree(checkout, tmp_path / "another place", symlinks=True)
    mask = os.umask(0o077)
    try:
        run(sys.executable, "-m", "build", "--outdir", tmp_path, copy, cwd=tmp_path)
    finally:
        os.umask(mask)
    for archive in built.values():
        assert (tmp_path / archive.name).read_bytes() == archive.read_bytes()


def test_sdist_holds_the_tree_as_real_files(built, expected):
    with tarfile.open(built["sdist"]) as archive:
        members = archive.getmembers()
    assert all(m.isfile() or m.isdir() for m in members)
    files = {m.name.split("/", 1)[1] for m in members if m.isfile()}
    assert {name for name in files if name.startswith("exburn/")} == expected
    assert {"LICENSE", "README.md", "pyproject.toml", "release/backend.py"} <= files
    assert {"CHANGELOG.md", "SECURITY.md", "CITATION.cff"} <= files
    assert not any(name.startswith("tests/") for name in files)  # not all of them


def test_metadata_has_the_extras_and_the_licence(built):
    with zipfile.ZipFile(built["wheel"]) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("/METADATA"))
        metadata = archive.read(name).decode()
    extras = set(re.findall(r"^Provides-Extra: (\S+)$", metadata, re.MULTILINE))
    assert {"cuda", "cuda12", "metal", "notebook", "plot", "dev"} <= extras
    assert "License-Expression: Apache-2.0" in metadata


@pytest.mark.parametrize("kind", ["wheel", "sdist", "editable"])
def test_installed_package_works_outside_the_checkout(
    kind, built, fresh, checkout, tmp_path
):
    source = ("-e", checkout) if kind == "editable" else (built[kind],)
    options = ("--quiet", "--no-deps", "--force-reinstall")
    run(fresh, "-m", "pip", "install", *options, *source, cwd=tmp_path)
    home = checkout if kind == "editable" else fresh.parent.parent
    printed = run(fresh, "-W", "error", "-c", SMOKE, cwd=tmp_path)
    paths = [Path(line) for line in printed.splitlines()]
    assert len(paths) == 5
    assert all(path.is_relative_to(home.resolve()) for path in paths)
    assert "serve" in run(fresh.parent / "exburn", "--help", cwd=tmp_path)
