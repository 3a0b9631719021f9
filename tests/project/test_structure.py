"""The shape of the source tree: levels, links, names and what an import costs."""

import ast
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.project.levels import (
    CATALOGUES,
    LEVELS,
    ROOT,
    SOURCES,
    TABLE,
    imports,
    unit_of,
    upward,
    upward_by_name,
    upward_everywhere,
)


def test_every_module_has_a_level_and_every_level_its_modules():
    homeless = sorted(name for name in SOURCES if unit_of(name) is None)
    assert not homeless, "give these a level in docs/layout.md"
    gone = sorted(set(LEVELS) - {unit_of(name) for name in SOURCES})
    assert not gone, "remove these from docs/layout.md"


def test_imports_only_point_down():
    assert upward_everywhere() == []


def test_stubs_import_what_is_there_and_point_down():
    wrong = []
    for path in sorted((ROOT / "exburn").rglob("*.pyi")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = ".".join(parts).removesuffix(".__init__")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        wrong += upward(module, tree)
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(
                "exburn"
            ):
                if node.module not in SOURCES:
                    wrong.append(f"{module}:{node.lineno} has no {node.module}")
                    continue
                text = SOURCES[node.module].read_text(encoding="utf-8")
                absent = [a.name for a in node.names if a.name not in text]
                wrong += [f"{module}:{node.lineno} has no {name}" for name in absent]
    assert wrong == []


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("exburn.errors", "import exburn.module.layer"),
        ("exburn.module.layer", "def f():\n    from exburn.training import trainer"),
        ("exburn.losses.contract.base", "from exburn.metrics import Metric"),
        ("exburn.layers.core.dense", "from exburn import optimizers"),
        ("exburn.module.layer", "import exburn"),
    ],
)
def test_the_check_sees_imports_that_point_up_or_sideways(module, code):
    assert len(upward(module, ast.parse(code))) == 1


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("exburn.models.model", 'importlib.import_module("exburn.serving")'),
        ("exburn.models.model", 'import_module(f"exburn.serving.{name}")'),
        ("exburn.core.registry", '_LATE = {"BERT": "exburn.applications.bert"}'),
        ("exburn.core.registry", 'require("exburn.layers", "op", "reason")'),
        ("exburn.diagnostics", 'sys.modules["exburn"].__version__'),
        ("exburn.diagnostics", 'vars(sys.modules.get("exburn"))'),
        ("exburn.utils.keras_alias", 'import_module(f"exburn.{name}")'),
        ("exburn.losses.contract.base", 'importlib.import_module("exburn.metrics")'),
        ("exburn.module.layer", '__import__("exburn")'),
    ],
)
def test_the_check_sees_modules_that_strings_name(module, code):
    assert len(upward_by_name(module, ast.parse(code))) == 1


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("exburn.datasets", 'import_module(f"exburn.datasets.{name}")'),
        ("exburn.serving", 'MODULES = {"exburn.serving.http.server": "Server"}'),
        ("exburn", 'import_module("exburn.tuning")'),
        ("exburn.diagnostics.doctor", 'importlib.metadata.version("exburn")'),
        ("exburn.core.registry", 'module.partition(".")[0] == "exburn"'),
        ("exburn.core.registry", '"""exburn.layers"""'),
        ("exburn.errors", 'f"exburn.predict runs {name}"'),
        ("exburn.serving.http.routes", 'scope["exburn.exchange"]'),
        (TABLE, 'FUNCTIONS = {"exburn.serving.http.serve": "serve"}'),
    ],
)
def test_the_check_allows_names_that_load_nothing_higher(module, code):
    assert upward_by_name(module, ast.parse(code)) == []


@pytest.mark.parametrize(
    ("module", "code"),
    [
        (
            "exburn.module.layer",
            "from exburn import errors\nimport exburn.core.registry, jax",
        ),
        (
            "exburn.losses.contract.base",
            "from exburn.losses.contract import shapes",
        ),
        ("exburn.layers.core.dense", "from exburn.module.layer import Layer"),
    ],
)
def test_the_check_allows_imports_that_point_down(module, code):
    assert upward(module, ast.parse(code)) == []


def test_no_private_jax_and_no_bare_catalogue_is_imported():
    wrong = []
    for module, path in SOURCES.items():
        for line, target in imports(ast.parse(path.read_text(encoding="utf-8"))):
            private = target.startswith(("jax._src", "jaxlib._"))
            bare = target.split(".")[0] in {*CATALOGUES} - {"datasets"}
            if private or bare:
                wrong.append(f"{module}:{line} imports {target}")
    assert wrong == []


def test_no_module_is_named_after_nothing():
    vague = {"utils", "util", "helpers", "helper", "misc", "common", "manager"}
    public = {"exburn.utils"}  # the name that Keras' users look for
    named = {name for name in SOURCES if name.split(".")[-1] in vague}
    assert named - public == set()


def test_catalogues_are_links_to_the_top_level():
    for name in CATALOGUES:
        assert os.readlink(ROOT / "exburn" / name) == f"../{name}"


def test_no_link_is_broken_or_leaves_the_checkout():
    links = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in {".git", ".venv", "build"}]
        links += [Path(folder, name) for name in (*folders, *files)]
    links = [path for path in links if path.is_symlink()]
    assert len(links) >= len(CATALOGUES)
    for link in links:
        assert not os.path.isabs(os.readlink(link)), f"{link} is absolute"
        assert link.resolve(strict=True).is_relative_to(ROOT), f"{link} leaves"


def python(code: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs code in a new interpreter that finds this checkout first."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ
        | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
        | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def loaded_by(statement: str) -> set[str]:
    run = python(f"{statement}\nimport json, sys\nprint(json.dumps(list(sys.modules)))")
    assert run.returncode == 0, run.stderr
    return {name.split(".")[0] for name in json.loads(run.stdout)}


def test_import_of_exburn_loads_hardly_more_than_jax():
    beside_jax = loaded_by("import exburn") - loaded_by("import jax")
    assert beside_jax - sys.stdlib_module_names == {"exburn"}


def test_a_model_needs_no_optional_package():
    model = "import exburn; exburn.Sequential([exburn.layers.Dense(1)]).compile('adam')"
    beside_jax = loaded_by(model) - loaded_by(
        "import jax, flax.nnx, optax, numpy, rich"
    )
    optional = {
        *("IPython", "PIL", "datasets", "grain", "keras", "matplotlib", "orbax"),
        *(
            "narwhals",
            "pandas",
            "polars",
            "pyarrow",
            "safetensors",
            "sklearn",
            "tensorflow",
        ),
        *("torch", "tqdm"),
    }
    assert beside_jax & optional == set()


def test_bare_datasets_is_refused_as_if_it_were_absent():
    code = "try: import datasets\nexcept ImportError as error: print(error)"
    run = python(code)
    assert run.returncode == 0, run.stderr
    assert "exburn.datasets" in run.stdout
    assert "Hugging Face" in run.stdout


def test_datasets_is_found_inside_the_package():
    run = python("import exburn.datasets; print(exburn.datasets.__name__)")
    assert run.stdout == "exburn.datasets\n", run.stderr


def test_tests_see_the_installed_datasets_and_not_the_catalogue():
    try:
        importlib.metadata.version("datasets")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("Hugging Face's datasets is not installed")
    spec = importlib.util.find_spec("datasets")
    assert spec is not None and spec.origin is not None
    assert Path(spec.origin).parent != ROOT / "datasets", (
        "run `pytest` or `python -P -m pytest`: `python -m pytest` puts the checkout "
        "first, where its catalogue hides Hugging Face's package"
    )


def test_what_a_star_imports_is_listed():
    """Without a list it would import the module's own imports, too."""
    bare = []
    for module, path in SOURCES.items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                text = SOURCES[str(node.module)].read_text(encoding="utf-8")
                only_stars = "import *" in text and "\ndef " not in text
                if "__all__" not in text and not only_stars:
                    bare.append(f"{module} imports all of {node.module}")
    assert bare == []
