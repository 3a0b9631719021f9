"""What the layers that are made within a block are given."""

from __future__ import annotations

import dataclasses
from typing import Any

from exburn.core.scoped import Scoped


@dataclasses.dataclass(frozen=True)
class Making:
    """What new layers, and their weights, are given.

    Attributes:
        clone: The clone that they are a part of: a ``CloneScope``.
        precision: Their policy where they are given no ``dtype``, instead of that of
            the process.
        remat: How their calls are rematerialized.
        draws: Whether weights are drawn; else those that are specs stay specs.
    """

    clone: Any = None
    precision: Any = None
    remat: Any = None
    draws: bool = True


#: What the layers that are made now are given.
making = Scoped(Making())
