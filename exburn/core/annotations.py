"""The types of arguments that many constructors share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.typing import DTypeLike

#: A function or an object that is called, the name of one, or its configuration.
Identifier: TypeAlias = str | Mapping[str, Any] | Callable[..., Any] | None
#: One size for all axes, or one for each.
Sizes: TypeAlias = int | Sequence[int]
#: A bound, or a lower and an upper one.
Factor: TypeAlias = float | Sequence[float]
#: An array, a weight, a symbol, a number, or nested lists of these.
Tensor: TypeAlias = Any
#: One axis, several, or all of them.
Axis: TypeAlias = int | Sequence[int] | None
#: A dtype or its name; ``None`` where it follows from the values.
DType: TypeAlias = DTypeLike | None
#: A number of equal parts, or the places between parts.
Places: TypeAlias = int | Sequence[int] | np.ndarray | jax.Array
