"""Has griffe read a docstring's ``Example:`` as the section that it calls examples."""

from __future__ import annotations

import re
from typing import Any

import griffe

_TITLE = re.compile(r"^Example:$", re.MULTILINE)


class Examples(griffe.Extension):
    """Renames the sections of all docstrings that are collected."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _TITLE.sub("Examples:", obj.docstring.value)
