"""Docstrings prepared for griffe: as Python has them, with names of its sections."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import griffe

_TITLE = re.compile(r"^Example:$", re.MULTILINE)
_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`~?([^`]+)`")


def prepare(doc: str) -> str:
    """A docstring with the section that griffe calls examples, and without roles."""
    return _ROLE.sub(r"`\1`", _TITLE.sub("Examples:", doc))


class Examples(griffe.Extension):
    """Prepares the docstrings of all objects that are collected."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is None:
            return
        if obj.is_class and "**options: See" in obj.docstring.value:
            # The class has put what its base says of them in this place.
            home = importlib.import_module(obj.module.path)
            obj.docstring.value = inspect.getdoc(getattr(home, obj.name)) or ""
        obj.docstring.value = prepare(obj.docstring.value)
