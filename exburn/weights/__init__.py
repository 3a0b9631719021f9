"""Names and forms that weights have in other people's files, as data.

A rule says which tensor of a file is which weight of a model, and how one becomes the
other; it holds for loading and for saving alike.

Example:
    >>> import numpy as np
    >>> from exburn import Sequential, layers
    >>> model = Sequential([layers.Input((3,)), layers.Dense(2, name="fc")])
    >>> named = rules(
    ...     [
    ...         (r"head\\.weight", "fc/kernel", transpose),
    ...         (r"head\\.bias", "fc/bias"),
    ...     ]
    ... )
    >>> [move.sources for move in named.save_plan(["fc/kernel", "fc/bias"])]
    [('head.weight',), ('head.bias',)]
"""

from typing import TYPE_CHECKING

from exburn.core.missing_names import refuser
from exburn.weights.rules import Move, Rules, rules
from exburn.weights.transforms import (
    Transform,
    add,
    concat,
    permute,
    reshape,
    split,
    split_heads,
    stack,
    transpose,
)

__all__ = [
    "Move",
    "Rules",
    "Transform",
    "add",
    "concat",
    "permute",
    "reshape",
    "rules",
    "split",
    "split_heads",
    "stack",
    "transpose",
]


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
