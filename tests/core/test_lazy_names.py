"""Names that are imported when they are first used."""

import ast
import importlib
import importlib.util
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import exburn
from exburn.core import lazy_names
from exburn.layers import Dense

METHODS = {
    "compress": exburn.Model,
    "curvature": exburn.Model,
    "find_batch_size": exburn.Model,
    "find_learning_rate": exburn.Model,
    "explain": exburn.Model,
    "influence": exburn.Model,
    "profile": exburn.Model,
    "serve": exburn.Model,
    "uncertainty": exburn.Model,
    "quantize": exburn.Layer,
    "enable_lora": Dense,
}


PACKAGES = (
    "exburn",
    "exburn.callbacks",
    "exburn.compression",
    "exburn.datasets",
    "exburn.layers",
    "exburn.layers.attention",
    "exburn.layers.recurrent",
    "exburn.serving",
)


def imports_of_type_checkers(module: ModuleType) -> dict[str, tuple[str | None, str]]:
    """Where type checkers find the names of a module: (module, name there)."""
    blocks = [
        node.body
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    nodes = [n for body in blocks for n in body if isinstance(n, ast.ImportFrom)]
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in nodes
        for alias in node.names
    }


def test_type_checkers_read_the_same_table():
    table = lazy_names.by_name(lazy_names.FUNCTIONS | lazy_names.TYPES)
    places = {name: (module, name) for name, module in table.items()}
    assert imports_of_type_checkers(lazy_names) == places


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_find_what_a_package_imports_late(package):
    module = importlib.import_module(package)
    names = imports_of_type_checkers(module)
    for name in module.__all__:
        value = getattr(module, name)
        if name in names:
            home, original = names[name]
            home = importlib.import_module(str(home))
            assert value is getattr(home, original), name


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_a_higher_room_has_its_signature_and_its_text(name):
    module = lazy_names.by_name(lazy_names.FUNCTIONS)[name]
    method = getattr(METHODS[name], name)
    assert method is getattr(importlib.import_module(module), name)
    assert inspect.getdoc(method) and "Raises:" in method.__doc__
    first = next(iter(inspect.signature(method).parameters.values()))
    assert (first.name, first.annotation) == ("self", inspect.Parameter.empty)


def test_a_method_is_bound_and_its_errors_stop_at_the_call():
    layer = Dense(2)
    assert layer.quantize.__self__ is layer
    with pytest.raises(exburn.errors.SignatureError, match="unknown argument 'rnak'"):
        layer.enable_lora(rnak=2)
    with pytest.raises(exburn.errors.NotBuiltError) as caught:
        layer.enable_lora(2)
    assert len(caught.traceback) == 1


def test_a_table_names_each_once():
    for table in (lazy_names.FUNCTIONS, lazy_names.CLASSES):
        names = " ".join(table.values()).split()
        assert len(names) == len(set(names))


@pytest.mark.parametrize("package", PACKAGES)
def test_no_name_that_is_imported_late_is_that_of_a_module(package):
    """A module takes its name in its package as soon as anything imports it."""
    module = importlib.import_module(package)
    for name in lazy_names.by_name(getattr(module, "_LAZY_NAMES", {})):
        name = name.partition("=")[0]
        assert importlib.util.find_spec(f"{package}.{name}") is None, name


@pytest.mark.parametrize("package", PACKAGES)
def test_names_that_are_imported_late_are_listed(package):
    module = importlib.import_module(package)
    assert set(module.__all__) <= set(dir(module))


_LIGHT = """
import sys, exburn
model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
compressing = "exburn.compression.compressing"
for name in ("exburn.serving", "exburn.tuning", "exburn.applications", compressing):
    assert name not in sys.modules, name
assert callable(model.compress) and compressing in sys.modules
assert exburn.core.registry.lookup("GPT2").__module__ == "exburn.applications.gpt2"
model.compile("sgd", "mse")
assert "scipy.stats" not in sys.modules  # which private training draws rows with
"""


def test_nothing_of_it_is_imported_before_it_is_used():
    subprocess.run([sys.executable, "-c", _LIGHT], check=True)
