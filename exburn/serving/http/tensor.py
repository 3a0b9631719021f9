"""An input or output of a model, as the protocol knows it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from exburn.serving.http.datatypes import DATATYPES


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output.

    Attributes:
        shape: Sizes, -1 where any will do; the first counts the rows.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        """NumPy's dtype; texts are objects."""
        return DATATYPES.get(self.datatype, np.dtype(object))

    def describe(self) -> dict[str, Any]:
        """As the protocol tells it."""
        return {
            "name": self.name,
            "datatype": self.datatype,
            "shape": list(self.shape),
        }
