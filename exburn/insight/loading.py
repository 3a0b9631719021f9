"""Files of insights of any kind, read by what they say that they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from exburn.errors.boundary import api_boundary
from exburn.insight import curvature as curvature  # whose classes are known then
from exburn.insight.explanations import explanation as explanation
from exburn.insight.influence import result as result
from exburn.insight.insight import Insight, read_kind
from exburn.insight.uncertainty import uncertainty as uncertainty
from exburn.saving.json_text import damage_error

_OP = "exburn.insight.load"


@api_boundary
def load(path: Any) -> Any:
    """Reads what ``save`` of an explanation, an influence or another insight wrote.

    Nothing in the file is executed. ``Explanation.load(path)`` and the like read files
    of their own kind alone.

    Args:
        path: The file.

    Returns:
        The object of the class that wrote it.

    Raises:
        ModelFormatError: It is damaged, or something else.
        ArgumentError: There is no such file.
        LoadError: The system refuses to read it.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> path = model.explain(np.ones((1, 2))).save(tempfile.mkdtemp() + "/found")
        >>> type(exburn.insight.load(path)).__name__
        'Explanation'
    """
    kind = read_kind(path, _OP)
    kinds = {one.kind: one for one in _subclasses(Insight) if hasattr(one, "kind")}
    if kind not in kinds:
        raise damage_error(_OP, path, "the file holds no insight", kind=kind or "none")
    return kinds[kind].load(path)


def _subclasses(root: type[Insight]) -> Iterator[type[Insight]]:
    for one in root.__subclasses__():
        yield one
        yield from _subclasses(one)
