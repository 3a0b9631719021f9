"""Writes what Keras' next release has, and what its new functions compute.

It runs in an environment of its own, which has the nightly build and none of ExBurn::

    python -m venv /tmp/next && /tmp/next/bin/pip install keras-nightly jax
    export KERAS_BACKEND=jax PYTHONPATH=.
    /tmp/next/bin/python -m tests.keras_api.next_release.record

``names.txt`` has a line for each public name, with its parameters and their defaults,
and for the methods of the classes that all others are derived from; ``values.npz`` has
the results of ``cases.py``.
"""

import importlib
import inspect
from pathlib import Path

import numpy as np
from tests.keras_api.next_release.cases import CASES

HERE = Path(__file__).parent


def surface(module, path="", seen=None):
    """The public names of Keras in order, each with what it holds."""
    seen = {module.__name__} if seen is None else seen
    for name in sorted(n for n in dir(module) if not n.startswith("_")):
        value = getattr(module, name)
        inner = f"{path}.{name}" if path else name
        if not inspect.ismodule(value):
            yield inner, value
        elif name != "src" and value.__name__ not in seen:
            seen.add(value.__name__)
            yield from surface(value, inner, seen)


def signature(function):
    """The parameters as Python writes them; defaults that it cannot read as ``...``."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    plain = (bool, int, float, str, tuple, list, type(None))
    texts = []
    for parameter in parameters:
        text = str(parameter.replace(annotation=parameter.empty))
        if parameter.default is not parameter.empty:
            known = isinstance(parameter.default, plain)
            text = f"{parameter.name}={parameter.default!r}" if known else text
            text = text if known else f"{parameter.name}=..."
        texts.append(text)
    return ", ".join(texts)


def methods(cls, public):
    """Methods and attributes that the class has, and no public base of it."""
    bases = [base for base in cls.__mro__[1:] if base in public]
    for name in sorted(n for n in dir(cls) if not n.startswith("_")):
        value = inspect.getattr_static(cls, name)
        if not any(inspect.getattr_static(b, name, None) is value for b in bases):
            yield name, getattr(cls, name)


def lines(keras):
    found = list(surface(keras))
    public = {value for _, value in found if inspect.isclass(value)}
    for path, value in found:
        text = signature(value) if callable(value) else None
        yield path if text is None else f"{path}({text})"
        if inspect.isclass(value) and "." not in path:  # what others are derived from
            for name, method in methods(value, public):
                text = signature(method) if callable(method) else None
                yield f"{path}:{name}" + ("" if text is None else f"({text})")


def flat(value):
    """The arrays of a result, which may be lists or tuples of them."""
    if isinstance(value, list | tuple):
        return [array for part in value for array in flat(part)]
    if isinstance(value, dict):
        return flat([value[key] for key in sorted(value)])
    return [np.asarray(value)]


if __name__ == "__main__":
    keras = importlib.import_module("keras")
    (HERE / "names.txt").write_text(
        f"# Keras {keras.__version__}\n" + "\n".join(lines(keras)) + "\n"
    )
    arrays = {
        f"{name}/{i}/{j}": array
        for name, calls in CASES.items()
        for i, call in enumerate(calls)
        for j, array in enumerate(flat(call(keras)))
    }
    np.savez_compressed(HERE / "values.npz", **arrays)
