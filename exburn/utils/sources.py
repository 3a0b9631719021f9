"""Where a symbol comes from."""

from __future__ import annotations

import jax

from exburn.errors.boundary import api_boundary
from exburn.module.symbolic_tensor import Symbol


@api_boundary
def get_source_inputs(tensor: Symbol) -> list[Symbol]:
    """The input symbols that a symbol depends on, each once.

    Args:
        tensor: A symbol of a functional model.

    Example:
        >>> from exburn.layers import Input
        >>> a, b = Input((2,), name="a"), Input((2,), name="b")
        >>> [s.name for s in get_source_inputs(a + b * 2)]
        ['a', 'b']
    """
    symbols: dict[int, Symbol] = {}
    seen: set[int] = set()
    stack = [tensor]
    while stack:
        symbol = stack.pop()
        call = symbol.call
        if call is None or getattr(call.callee, "is_input", False):
            symbols[id(symbol)] = symbol
        elif id(call) not in seen:
            seen.add(id(call))
            leaves = jax.tree.leaves((call.args, call.kwargs))
            stack += [leaf for leaf in reversed(leaves) if isinstance(leaf, Symbol)]
    return list(symbols.values())
