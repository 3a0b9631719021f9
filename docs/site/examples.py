"""Docstrings prepared for griffe: its names of sections, and links to JAX's pages."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import griffe

_TITLE = re.compile(r"^Example:$", re.MULTILINE)
_ROLE = re.compile(r":[a-z]+(?::[a-z]+)?:`~?([^`]+)`")
_JAX = re.compile(r"``(jax\.(?:lax|nn|numpy|scipy)(?:\.\w+)+)``")
_PAGE = r"[`\1`](https://docs.jax.dev/en/latest/_autosummary/\1.html)"


def prepare(doc: str) -> str:
    """A docstring whose examples griffe finds, without roles, with links to JAX."""
    return _JAX.sub(_PAGE, _ROLE.sub(r"`\1`", _TITLE.sub("Examples:", doc)))


class Examples(griffe.Extension):
    """Prepares the docstrings of all objects that are collected."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is None:
            return
        if obj.parent is obj.module:  # a docstring may be completed when it is made
            home = importlib.import_module(obj.module.path)
            value = getattr(home, obj.name, None)
            if inspect.isclass(value) or inspect.isfunction(value):
                obj.docstring.value = inspect.getdoc(value) or obj.docstring.value
        obj.docstring.value = prepare(obj.docstring.value)
