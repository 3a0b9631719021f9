"""The types of arguments that many constructors share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

#: A function or an object that is called, the name of one, or its configuration.
Identifier: TypeAlias = str | Mapping[str, Any] | Callable[..., Any] | None
#: One size for all axes, or one for each.
Sizes: TypeAlias = int | Sequence[int]
#: A bound, or a lower and an upper one.
Factor: TypeAlias = float | Sequence[float]
