"""The documentation's Python blocks run as printed; its links and names lead somewhere.

The blocks of a page run in one namespace, in order, in an empty folder. A block whose
fence says ``python needs=torch`` is left out where torch is not installed; one that
says ``devices=8`` has its page run in a process in which JAX has eight. A ``text``
block right after a Python block is what that block prints. What says ``file=NAME`` is
such a file, whatever its language, and ``bash`` does not run.
"""

import contextlib
import importlib
import importlib.util
import io
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import exburn
from exburn.core import random_keys

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
PAGES += sorted(ROOT.glob("docs/benchmarks/*.md"))
PAGES += sorted(ROOT.glob("docs/from_keras/*.md"))
BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)


def blocks(path: Path) -> list[tuple[str, int, str]]:
    """The fenced blocks of a page: what follows the fence, line number, text."""
    text = path.read_text(encoding="utf-8")
    return [
        (match[1].strip(), text.count("\n", 0, match.start(2)), match[2])
        for match in BLOCK.finditer(text)
    ]


def prose(path: Path) -> str:
    """A page without its blocks."""
    return BLOCK.sub("", path.read_text(encoding="utf-8"))


def installed(package: str) -> bool:
    """Whether a package of that name, other than our own folder, can be imported."""
    spec = importlib.util.find_spec(package)
    return spec is not None and not (spec.origin or "").startswith(str(ROOT / package))


def run(path: Path) -> tuple[dict, str]:
    """Executes the Python blocks of a page: their names, and what they printed."""
    namespace: dict = {"__name__": "__main__"}
    printed, last = "", None
    for info, line, source in blocks(path):
        if info == "text" and last is not None:
            assert source.strip() in last, f"{path.name}:{line} is not what is printed"
        last = None
        if info.split(" ")[0] != "python" or "file=" in info:
            continue
        needed = re.findall(r"needs=([\w,]+)", info)
        if needed and not all(map(installed, needed[0].split(","))):
            continue
        # Blank lines in front, so that a traceback shows the page's line number.
        code = compile("\n" * line + source, str(path), "exec")
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(code, namespace)
        last = output.getvalue()
        printed += last
    return namespace, printed


@pytest.fixture(autouse=True)
def reader(tmp_path, monkeypatch):
    """A new folder that is not the checkout, and the global seeds put back."""
    monkeypatch.chdir(tmp_path)
    outside = [p for p in sys.path if Path(p or ".").resolve() != ROOT]
    monkeypatch.setattr(sys, "path", outside)
    seeds = (
        random_keys._seeds.seed,
        random.getstate(),
        np.random.get_state(),
    )
    yield
    random_keys._seeds.seed = seeds[0]
    random.setstate(seeds[1])
    np.random.set_state(seeds[2])


def test_the_quickstart_of_the_readme_runs_as_printed(tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    namespace, printed = run(ROOT / "README.md")
    assert namespace["accuracy"] > 0.95
    assert (tmp_path / "history.png").stat().st_size > 5000
    assert "9,610" in printed  # the parameters, from summary()
    source = next(s for info, _, s in blocks(ROOT / "README.md") if info == "python")
    lines = [line for line in source.splitlines() if line.strip()]
    assert len(lines) <= 20


PYTHON_PAGES = [
    path
    for path in PAGES[1:]
    if any(info.split(" ")[0] == "python" for info, _, _ in blocks(path))
]


def test_the_pages_a_user_reads_have_examples():
    names = {path.stem for path in PYTHON_PAGES}
    assert {"quickstart", "custom_layers", "data", "callbacks"} <= names


@pytest.mark.parametrize("path", PYTHON_PAGES, ids=lambda path: path.stem)
def test_every_python_block_runs(path):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    wanted = [re.findall(r"devices=(\d+)", info) for info, _, _ in blocks(path)]
    if not any(wanted):
        run(path)
        return
    devices = max(int(count) for counts in wanted for count in counts)
    more = f"--xla_force_host_platform_device_count={devices}"
    flags = f"{os.environ.get('XLA_FLAGS', '')} {more}"
    code = f"from tests.project.test_docs import *; run(Path({str(path)!r}))"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"PYTHONPATH": str(ROOT), "EXBURN_COMPILATION_CACHE": "off"},
        check=True,
        timeout=300,
    )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_to_files_and_headings(path):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists():
            broken.append(target)
        elif anchor and anchor not in anchors(file):
            broken.append(target)
    assert not broken


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    titles = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
        for title in titles
    }


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_names_of_the_package_exist(path):
    """Every `exburn.a.b` in the running text is a name that can be had."""
    names = set(re.findall(r"`(exburn(?:\.\w+)+)", prose(path)))
    missing = [name for name in sorted(names) if not exists(name)]
    # The design describes levels that later steps fill.
    planned = tuple(
        f"exburn.{n}" for n in ("typing", "quantization", "serving", "export")
    )
    if path.stem in ("design", "layout"):
        missing = [name for name in missing if not name.startswith(planned)]
    assert not missing


def exists(name: str) -> bool:
    parts = name.split(".")
    value: object = exburn
    for i, part in enumerate(parts[1:], start=2):
        if hasattr(value, part):
            value = getattr(value, part)
            continue
        try:
            value = importlib.import_module(".".join(parts[:i]))
        except ImportError:
            return False
    return True


def test_the_notebook_is_saved_with_its_results():
    """A reader on GitHub sees outputs, pictures and no traceback, and little noise."""
    path = ROOT / "notebooks" / "quickstart.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    pictures = 0
    for cell in code:
        outputs = cell["outputs"]
        kinds = [output["output_type"] for output in outputs]
        assert "error" not in kinds, "".join(cell["source"])
        # One display in a cell: a progress bar that floods it would leave more.
        assert len(kinds) <= 2, "".join(cell["source"])
        pictures += sum("image/png" in output.get("data", {}) for output in outputs)
    assert pictures >= 4
    assert path.stat().st_size < 500_000
