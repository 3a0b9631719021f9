"""Arrays that somebody else holds, too: a program must not consume them."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.core import Tracer


def own_variables(
    variables: Mapping[str, nnx.Variable], arrays: dict[str, Any]
) -> None:
    """Puts copies in the place of the arrays that others hold, too.

    Whoever keeps an array that a weight was set to, or that was read from one, goes on
    with it. Others are whoever refers to it: in CPython an object knows their number.

    Args:
        arrays: What is about to be consumed, by the same names: as a rule the
            variables' own arrays. Nobody else refers to this dictionary's values.

    Example:
        >>> given = jnp.ones(2)
        >>> variables = {"w": nnx.Param(given)}
        >>> arrays = {"w": variables["w"].get_raw_value()}
        >>> own_variables(variables, arrays)
        >>> arrays["w"] is given, variables["w"].get_raw_value() is arrays["w"]
        (False, True)
        >>> own = arrays["w"].unsafe_buffer_pointer()
        >>> own_variables(variables, arrays)
        >>> arrays["w"].unsafe_buffer_pointer() == own
        True
    """
    raw = map(_raw_value, map(variables.__getitem__, arrays))
    inside = map(operator.is_, raw, arrays.values())
    others = map(operator.sub, _references(arrays.values()), inside)
    counts = list(zip(arrays, others, strict=True))
    for name in [name for name, count in counts if count != _ALONE]:
        variable, array = variables[name], arrays[name]
        if _copyable(array):
            arrays[name] = jnp.copy(array)
            if variable.get_raw_value() is array:
                variable.set_raw_value(arrays[name], _unsafe_bypass_check=True)


def own_leaves(tree: Any) -> Any:
    """The tree, with copies in the place of arrays that are not in it alone.

    Example:
        >>> given = jnp.ones(2)
        >>> tree = {"mean": given, "count": jnp.zeros(())}
        >>> own = own_leaves(tree)
        >>> own["mean"] is given, own["count"] is tree["count"]
        (False, True)
    """
    leaves, treedef = jax.tree.flatten(tree)
    counts = enumerate(_references(leaves))  # the list is one that refers to them
    shared = [i for i, n in counts if n != _ALONE + 1 and _copyable(leaves[i])]
    for i in shared:
        leaves[i] = jnp.copy(leaves[i])
    return treedef.unflatten(leaves) if shared else tree


@jax.jit
def copies(tree: Any) -> Any:
    """Copies of all arrays of a tree: the tree's own may be consumed.

    Example:
        >>> given = jnp.ones(2)
        >>> copies([given])[0].unsafe_buffer_pointer() == given.unsafe_buffer_pointer()
        False
    """
    return jax.tree.map(jnp.copy, tree)


def _references(values: Iterable[Any]) -> Iterator[int]:
    return map(sys.getrefcount, values)  # a loop in Python would take twice as long


_raw_value = operator.methodcaller("get_raw_value")
(_ALONE,) = _references([object()])


def _copyable(value: Any) -> bool:
    return _is_concrete(value) and not value.is_deleted()


def is_consumed(value: Any) -> bool:
    """Whether it is an array whose contents a program has taken."""
    return _is_concrete(value) and value.is_deleted()


def _is_concrete(value: Any) -> bool:
    return isinstance(value, jax.Array) and not isinstance(value, Tracer)
