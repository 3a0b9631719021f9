"""The types of results that depend on the outputs and metrics of a model.

For type checkers and editors: what the methods return is a plain array or number, or a
plain list or dict of them. A union of these would make ``predict(x).argmax(-1)`` and
``loss, accuracy = evaluate(x, y)`` errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:

    class Outputs(np.ndarray[Any, np.dtype[Any]]):
        """An array; of a model of several outputs a list or a dict of arrays."""

        def __getattr__(self, name: str) -> Any: ...

    class Scores(float):
        """The loss; of a model with metrics a list, the loss first."""

        def __getattr__(self, name: str) -> Any: ...
        def __iter__(self) -> Iterator[float]: ...
        def __getitem__(self, index: Any) -> Any: ...
        def __len__(self) -> int: ...

else:
    Outputs: TypeAlias = Any
    Scores: TypeAlias = Any
