"""Which parameters weight decay leaves alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from exburn.errors import ArgumentError


def exactly(path: str) -> str:
    """The pattern of one path.

    Example:
        >>> decays("dense/bias", [exactly("dense/bias")])
        False
    """
    return f"^{re.escape(path)}$"


def decays(path: str, exclusions: Sequence[str]) -> bool:
    """Whether weight decay applies to the parameter at ``path``.

    A pattern is a regular expression searched in the parameter's name, which is the
    last part of its path, or in the whole path if the pattern contains a slash.

    Example:
        >>> decays("dense/bias", ["bias"]), decays("bias_net/kernel", ["bias"])
        (False, True)
        >>> decays("head/kernel", ["^head/"])
        False
    """
    name = path.rpartition("/")[2]
    return not any(
        re.search(pattern, path if "/" in pattern else name) for pattern in exclusions
    )


def exclude_from_weight_decay(
    self: Any,
    var_list: Iterable[Any] | None = None,
    var_names: Iterable[str] | None = None,
) -> None:
    """Leaves parameters out of both kinds of weight decay.

    Args:
        var_list: Paths of parameters, or objects with a ``path``, which are told
            apart from others of the same path where ``build`` is given them.
        var_names: Regular expressions, searched in a parameter's name (the last
            part of its path) or, if they contain a slash, in its whole path.

    Raises:
        ArgumentError: Training has begun.

    Example:
        >>> from exburn.optimizers import AdamW
        >>> optimizer = AdamW(weight_decay=0.01)
        >>> optimizer.exclude_from_weight_decay(var_names=["bias", "scale"])
        >>> optimizer.weight_decay_exclusions
        ('bias', 'scale')
    """
    if self._live.state is not None:
        raise ArgumentError(
            "exclude_from_weight_decay",
            "weight decay cannot change once the optimizer has a state",
            hint="Call it before compile().",
        )
    excluded = list(var_list or ())
    self._undecayed = [v for v in excluded if hasattr(v, "path")]
    exact = [exactly(getattr(v, "path", v)) for v in excluded]
    self.weight_decay_exclusions = (*exact, *(var_names or ()))
