"""Which parameters weight decay leaves alone."""

from __future__ import annotations

import re
from collections.abc import Sequence


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
