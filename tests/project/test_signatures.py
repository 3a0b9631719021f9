"""Public constructors name what they take, and stubs say what their modules do."""

import ast
import importlib
import inspect

import pytest
from tests.checkout import ROOT

import exburn

SPACES = (
    "callbacks constraints distillation distribution dtype_policies initializers layers"
    " losses metrics models optimizers optimizers.schedules quantizers regularizers"
    " serving text tuning utils wrappers"
)
# Options that no list of ours can hold.
OPEN = {
    "CallbackList": "what a run was called with, under any name",
    "Config": "entries of the user's own",
    "FunctionLoss": "arguments of the function",
    "Logger": "options of the package that receives the logs",
    "MeanMetricWrapper": "arguments of the function",
    "Server": "options of Serving, which it checks by name",
}


def public_classes():
    modules = [
        exburn,
        *(importlib.import_module(f"exburn.{s}") for s in SPACES.split()),
    ]
    for module in modules:
        names = getattr(module, "__all__", None) or dir(module)
        for name in names:
            value = getattr(module, name, None)
            if inspect.isclass(value) and value.__module__.startswith("exburn."):
                yield value


def hidden(cls: type) -> list[str]:
    """Parameters of a constructor that take arguments under names it does not list."""
    parameters = inspect.signature(cls.__init__).parameters.values()
    return [
        str(parameter)
        for parameter in parameters
        if parameter.kind is parameter.VAR_KEYWORD
        and not str(parameter.annotation).startswith("Unpack[")
    ]


def test_no_constructor_hides_names_of_arguments():
    classes = {cls for cls in public_classes() if inspect.isfunction(cls.__init__)}
    assert len(classes) > 350
    hiding = {cls.__name__: hidden(cls) for cls in classes if hidden(cls)}
    assert set(hiding) == set(OPEN), hiding


def test_the_check_sees_what_hides_names():
    class Hiding:
        def __init__(self, units, **kwargs): ...

    assert hidden(Hiding) == ["**kwargs"]


@pytest.mark.parametrize("path", ["saving"])
def test_a_stub_says_what_its_module_does(path):
    module = importlib.import_module(f"exburn.{path}")
    tree = ast.parse((ROOT / "exburn" / path / "__init__.pyi").read_text())
    names = {
        alias.asname
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    assert names | set(functions) == set(module.__all__)
    for name, node in functions.items():
        own = ast.parse(inspect.getsource(getattr(module, name))).body[0]
        assert isinstance(own, ast.FunctionDef)
        assert ast.unparse(node.args) == ast.unparse(own.args)
