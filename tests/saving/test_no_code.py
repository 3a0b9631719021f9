"""The package's source holds nothing that could run what a file says."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("exburn", "layers", "optimizers", "callbacks", "datasets")
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "runpy"}
CALLS = {"eval", "exec", "compile", "__import__"}
METHODS = {"import_module", "extractall", "load_module", "loads_pickle"}
ALLOWED = {
    # The names are those of a table in the file itself.
    "exburn/__init__.py": {"import_module"},
    # require() imports what its caller names: below, only names in the source.
    "exburn/errors/__init__.py": {"import_module"},
    # Two modules of one package, whose name is written in the line before.
    "callbacks/tensorboard.py": {"require"},
    "exburn/distribution/ray.py": {"require"},
    # Classes that a file may name, and parts of packages, are of tables in the code.
    "exburn/core/lazy_names.py": {"import_module"},
    # Extras named in the file.
    "exburn/serving/__init__.py": {"require"},
    "exburn/tuning/optuna.py": {"require"},
    "exburn/visualization/figures.py": {"require"},
    "exburn/tuning/plots.py": {"require"},
    "exburn/tuning/ray.py": {"require"},
    # `exburn serve --import MODULE`: who types the command names the module.
    "exburn/command_line/modules.py": {"import_module"},
    # The converter beside the script that was started, in a process of its own.
    "exburn/export/job.py": {"import_module"},
    # The user's own program is run, whose imports of Keras find parts of ExBurn.
    "exburn/utils/keras_alias.py": {"import_module", "runpy"},
    # Published files of lists, read only if their SHA-256 is the one written here.
    "datasets/contract/files.py": {"allow_pickle"},
    # The user's own data set goes to worker processes that we start; no file is read.
    "datasets/adapters/py_dataset.py": {"pickle"},
    "datasets/adapters/workers.py": {"pickle"},
}


def sources():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                yield path.relative_to(ROOT).as_posix(), path


def forbidden(text):
    """(line, what) of everything that is banned."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
            found += [(node.lineno, n) for n in names if n in MODULES]
        elif isinstance(node, ast.ImportFrom):
            name = (node.module or "").split(".")[0]
            members = {alias.name for alias in node.names} & METHODS
            found += [(node.lineno, n) for n in {name} & MODULES | members]
        elif isinstance(node, ast.Call):
            found += [(node.lineno, what) for what in _called(node)]
    return found


def _called(node):
    function = node.func
    if isinstance(function, ast.Name) and function.id in CALLS | METHODS:
        if not _constant(node):
            yield function.id
    if getattr(function, "id", getattr(function, "attr", "")) == "require":
        if not (node.args and isinstance(node.args[0], ast.Constant)):
            yield "require"
    if isinstance(function, ast.Attribute) and function.attr in METHODS:
        if function.attr != "import_module" or not _constant(node):
            yield function.attr
    for keyword in node.keywords:
        if keyword.arg == "allow_pickle":
            if not (
                isinstance(keyword.value, ast.Constant) and not keyword.value.value
            ):
                yield "allow_pickle"


def _constant(node):
    """Whether a module's name is written in the source."""
    return (
        len(node.args) == 1
        and isinstance(node.args[0], ast.Constant)
        and getattr(node.func, "id", "import_module") not in CALLS
    )


def test_nothing_in_the_source_runs_what_a_file_says():
    wrong = {}
    for name, path in sources():
        found = forbidden(path.read_text(encoding="utf-8"))
        found = [
            (line, what) for line, what in found if what not in ALLOWED.get(name, ())
        ]
        if found:
            wrong[name] = found
    assert wrong == {}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "import marshal as m",
        "eval(text)",
        "exec('1')",
        "compile(text, '', 'exec')",
        "__import__('os')",
        "import importlib\nimportlib.import_module(name)",
        "require(name, 'plot', 'it draws')",
        "errors.require(module=name, op='plot', reason='it draws')",
        "from importlib import import_module",
        "archive.extractall(folder)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
    ],
)
def test_the_check_sees(code):
    assert forbidden(code)


@pytest.mark.parametrize(
    "code",
    [
        "model.eval()",
        "model.compile('adam', 'mse')",
        "re.compile('a')",
        "importlib.import_module('PIL.Image')",
        "require('PIL.Image', 'plot', 'it draws')",
        "np.load(path, allow_pickle=False)",
    ],
)
def test_the_check_allows(code):
    assert forbidden(code) == []
