"""What Keras' next release has: its names, parameters and values."""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest
from tests.keras_api.next_release.cases import CASES
from tests.keras_api.next_release.record import flat

import exburn

HERE = Path(__file__).parent
LINES = (HERE / "names.txt").read_text("utf-8").splitlines()
VALUES = np.load(HERE / "values.npz")

#: What is not there; told in docs/from_keras/, or Keras' own machinery, which nobody
#: calls.
ABSENT = {
    *("layers.TFSMLayer", "layers.TorchModuleWrapper"),
    *(f"optimizers.legacy.{name}" for name in "Adagrad Adam Ftrl RMSprop SGD".split()),
    "optimizers.legacy.Optimizer",
    "Layer:add_metric",  # it only raises
    *("Layer:quantized_build", "Layer:quantized_call", "Layer:rematerialized_call"),
    *("Operation:quantized_call", "Operation:rematerialized_call"),
    "Layer:variable_serialization_spec",
    *("Model:jax_state_sync", "Model:state_sync"),
    *(f"Model:make_{step}_function" for step in ("predict", "test", "train")),
    "Optimizer:update_step",  # of subclasses
}
#: Parameters of methods that take them under other names, or as ``*args``.
OTHERWISE = {
    "Layer:add_variable",
    "Layer:build",
    "Sequential:compute_output_shape",
    "Sequential:compute_output_spec",
}


def find(path):
    value = exburn
    for part in path.replace(":", ".").split("."):
        value = getattr(value, part)
    return value


def entries():
    """Each name with its parameters; None for what is not called."""
    for line in LINES[1:]:
        path, bracket, rest = line.partition("(")
        if path.startswith("Variable:"):  # attributes of what the function makes
            continue
        yield path, _names(rest[:-1]) if bracket else None


def _names(signature):
    """The names of a signature's parameters, without ``*args`` and ``**kwargs``."""
    (function,) = ast.parse(f"def f({signature}): pass").body
    several = {a.arg for a in (function.args.vararg, function.args.kwarg) if a}
    names = {a.arg for a in ast.walk(function) if isinstance(a, ast.arg)}
    return names - several - {"self"}


def parameters(function):
    """Names of the parameters; those that ``**options`` stand for are the bases'."""
    try:
        names = set(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # of C
        return None
    if inspect.isclass(function):
        for base in function.__mro__:
            if "__init__" in vars(base):
                names |= set(inspect.signature(base.__init__).parameters)
    return names


def test_the_page_names_the_version():
    version = LINES[0].split()[-1].partition(".dev")[0]
    page = (Path(__file__).parents[3] / "docs" / "from_keras" / "names.md").read_text(
        "utf-8"
    )
    assert f"Keras {version}" in page


def test_every_name_of_the_next_release_is_there():
    absent = set()
    for path, _ in entries():
        try:
            find(path)
        except AttributeError:
            absent.add(path)
    assert absent == ABSENT


def test_every_parameter_of_the_next_release_is_there():
    missing = {}
    for path, names in entries():
        if path in ABSENT or names is None:
            continue
        has = parameters(find(path))
        if has is not None and names - has:
            missing[path] = names - has
    assert {path for path in missing if path in OTHERWISE} == OTHERWISE
    assert {
        path: names for path, names in missing.items() if path not in OTHERWISE
    } == {}


@pytest.mark.parametrize(
    "name, i", [(name, i) for name, calls in CASES.items() for i in range(len(calls))]
)
def test_values_are_those_of_the_next_release(name, i):
    results = flat(CASES[name][i](exburn))
    recorded = [VALUES[f"{name}/{i}/{j}"] for j in range(len(results))]
    assert f"{name}/{i}/{len(results)}" not in VALUES
    for ours, theirs in zip(results, recorded, strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)
