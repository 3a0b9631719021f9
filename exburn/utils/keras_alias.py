"""``import keras`` means ExBurn, for programs and packages written for Keras 3."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import runpy
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary
from exburn.utils import keras_private

KERAS_VERSION = "3.15.0"
"""The version of Keras whose names and defaults ExBurn has."""

_OWN_NAMES = {"__version__": KERAS_VERSION, "version": lambda: KERAS_VERSION}
# Under these, Keras has its public names once more, and all its private ones.
_API, _SOURCE = "api", "src"


class KerasAlias:
    """The state of ``as_keras``.

    Attributes:
        missing: Names that were asked for, and that ExBurn does not have, in the order
            in which they were first asked for. Some packages ask only to see whether
            they are there.
    """

    def __init__(self) -> None:
        self._missing: dict[str, None] = {}
        # Asked of a file of keras.src, whose modules and functions look alike: nothing
        # was found in them yet.
        self._doubtful: dict[str, None] = {}

    @property
    def missing(self) -> list[str]:
        return list(self._missing | self._doubtful)

    def note_doubtful(self, name: str) -> None:
        self._doubtful[name] = None

    def settle(self, module: str) -> None:
        """Something was found in it: it is a module."""
        self._doubtful.pop(module, None)

    def note_missing(self, name: str) -> None:
        self._missing[name] = None

    def report(self) -> str:
        """A line for each name that is missing.

        Example:
            >>> KerasAlias().report()
            'ExBurn has every name of Keras that was asked for.'
        """
        if not self.missing:
            return "ExBurn has every name of Keras that was asked for."
        lines = (f"  {name}" for name in self.missing)
        return "\n".join(["Asked for, and not in ExBurn:", *lines])


_alias = KerasAlias()
_root: list[types.ModuleType] = []  # the package exburn, once it is installed as Keras


def install(root: types.ModuleType) -> KerasAlias:
    """Lets ``import keras`` find the package ``exburn``: see ``as_keras`` there."""
    loaded = sys.modules.get("keras")
    if loaded is not None and not isinstance(loaded, _AliasModule):
        raise ArgumentError(
            "as_keras",
            "Keras itself is imported already, and its classes are in use",
            {"keras": getattr(loaded, "__file__", None)},
            hint="Call exburn.as_keras() before anything imports keras, or run the "
            "program by python -m exburn.as_keras.",
        )
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _root[:] = [root]
    return _alias


class _AliasModule(types.ModuleType):
    """A module of Keras, whose names are those of a namespace of ExBurn."""

    def __getattr__(self, name: str) -> Any:
        full = f"{self.__name__}.{name}"
        if name == "__all__":  # of `from keras import *`
            return [n for n in dir(self) if not n.startswith("_")]
        if name.startswith("__") and name not in _OWN_NAMES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        for namespace in _namespaces(self.__name__):
            if namespace in _root and name in _OWN_NAMES:
                return _OWN_NAMES[name]
            try:
                value = getattr(namespace, name)
            except AttributeError:
                continue
            _alias.settle(self.__name__)
            if not _is_namespace(value):
                return value
            return importlib.import_module(full)
        if self._may_have(name):
            if _resolve(_public(full.split(".")[1:])) is None:
                _alias.note_doubtful(full)
            return importlib.import_module(full)
        _alias.note_missing(full)
        raise AttributeError(f"ExBurn has no {full}", name=name, obj=self)

    def _may_have(self, name: str) -> bool:
        """Tells whether a name may be that of a module, as all private ones may."""
        if self.__name__ == "keras":
            return name in (_API, _SOURCE)
        return self.__name__.startswith(f"keras.{_SOURCE}") and name.islower()

    def __dir__(self) -> list[str]:
        return sorted({name for n in _namespaces(self.__name__) for name in dir(n)})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _alias.settle(self.__name__)
        _alias.note_missing(self.__name__)
        raise TypeError(f"ExBurn has no {self.__name__}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``keras`` and what is under it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        first, *parts = fullname.split(".")
        if first != "keras":
            return None
        private = parts[:1] == [_SOURCE]
        _alias.settle(fullname.rpartition(".")[0])
        if not private and parts and _resolve(_public(parts)) is None:
            _alias.note_missing(fullname)
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _AliasModule(spec.name, f"{spec.name}, as ExBurn has it.")

    def exec_module(self, module: types.ModuleType) -> None:
        _alias._missing.pop(module.__name__, None)  # asked for as a name, found here


def _public(parts: list[str]) -> list[str]:
    return parts[1:] if parts[:1] in ([_API], [_SOURCE]) else parts


def _namespaces(module: str) -> Iterator[types.ModuleType]:
    """The namespaces for the names of a module of Keras, the likeliest first.

    A file of ``keras.src`` defines what one of the namespaces around it has.
    """
    parts = module.split(".")[1:]
    private, parts = parts[:1] == [_SOURCE], _public(parts)
    while True:
        if (namespace := _resolve(parts)) is not None:
            yield namespace
        if not private or not parts:
            break
        parts = parts[:-1]
    if private:
        # Keras' backends have what its ops call, and its files import each other's.
        yield keras_private
        for space in (["ops"], ["utils"], ["preprocessing", "image"]):
            if (namespace := _resolve(space)) is not None:
                yield namespace


def _resolve(parts: list[str]) -> types.ModuleType | None:
    """The namespace of ExBurn with this path."""
    namespace: Any = _root[0]
    for part in parts:
        namespace = getattr(namespace, part, None)
        if not _is_namespace(namespace):
            return None
    return namespace


def _is_namespace(value: Any) -> bool:
    """Tells whether a value is a module of ExBurn, not of a library it imports."""
    return isinstance(value, types.ModuleType) and (
        value.__name__.partition(".")[0] in ("exburn", "keras")
    )


@api_boundary
def run_as_keras(root: types.ModuleType, arguments: Sequence[str]) -> int:
    """Runs ``script.py …`` or ``-m module …`` with ``import keras`` meaning ExBurn.

    What the program asked for in vain is told on stderr at its end.

    Returns:
        The exit status: 2 if there is no program.
    """
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        usage = "usage: python -m exburn.as_keras (SCRIPT | -m MODULE) [ARGUMENT …]"
        print(usage, file=sys.stderr if not arguments else sys.stdout)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    alias = install(root)
    try:
        if arguments[0] == "-m":
            sys.argv = list(arguments[1:])
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(arguments)
            if not sys.flags.safe_path:  # as Python itself does for a script
                sys.path.insert(0, os.path.dirname(os.path.abspath(arguments[0])))
            runpy.run_path(arguments[0], run_name="__main__")
    finally:
        if alias.missing:
            print(alias.report(), file=sys.stderr)
    return 0
