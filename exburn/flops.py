"""Floating-point operations of a traced program, counted in its jaxpr."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

__all__ = ["Cost", "count", "inner_jaxprs"]


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a program does.

    Attributes:
        flops: Multiplications and additions of contractions and convolutions.
        convolutions: Number of convolutions.
        turned: Of these, such as have another layout than images and kernels with their
            channels last, or spread what they read: transposed ones.
        equations: Number of primitive operations, a measure of launch overhead.
        elements: Array elements written.
    """

    flops: float = 0.0
    convolutions: int = 0
    equations: int = 0
    elements: float = 0.0
    turned: int = 0

    def times(self, factor: float) -> Cost:
        """The cost for so many times the rows: the same operations, larger."""
        flops, elements = self.flops * factor, self.elements * factor
        return dataclasses.replace(self, flops=flops, elements=elements)


def count(jaxpr: Any) -> Cost:
    """Counts a (closed) jaxpr, inner programs included; scans times their length.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> jaxpr = jax.make_jaxpr(jnp.matmul)(jnp.ones((2, 3)), jnp.ones((3, 4)))
        >>> count(jaxpr).flops
        48.0
    """
    flops, convolutions, equations, elements, turned = 0.0, 0, 0, 0.0, 0
    for equation, times in _walk(getattr(jaxpr, "jaxpr", jaxpr), 1):
        name = equation.primitive.name
        out = (
            math.prod(map(_size, equation.outvars[0].aval.shape))
            if equation.outvars
            else 0
        )
        equations += times
        elements += times * out
        if name == "dot_general":
            (contract, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            flops += times * 2.0 * out * math.prod(_size(shape[d]) for d in contract)
        elif name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape
            numbers = equation.params["dimension_numbers"]
            per_output = math.prod(map(_size, kernel)) / max(
                _size(kernel[numbers.rhs_spec[0]]), 1
            )
            flops += times * 2.0 * out * per_output
            convolutions += times
            last = (len(kernel) - 1, len(kernel) - 2)
            straight = numbers.rhs_spec[:2] == last and numbers.lhs_spec[1] == last[0]
            spread = any(n != 1 for n in equation.params["lhs_dilation"])
            turned += times * (spread or not straight)
    return Cost(flops, convolutions, equations, elements, turned)


def _size(dim: Any) -> int:
    return dim if isinstance(dim, int) else 1


def _walk(jaxpr: Any, times: int) -> Iterator[tuple[Any, int]]:
    for equation in jaxpr.eqns:
        inner = [*inner_jaxprs(equation.params)]
        if not inner:
            yield equation, times
            continue
        repeat = (
            _size(equation.params.get("length", 1))
            if equation.primitive.name == "scan"
            else 1
        )
        for sub in inner:
            yield from _walk(sub, times * repeat)


def inner_jaxprs(params: dict) -> Iterator[Any]:
    """The programs within an equation: of a loop, a branch, a jitted function …"""
    for value in params.values():
        for item in value if isinstance(value, list | tuple) else [value]:
            item = getattr(item, "jaxpr", item)
            if hasattr(item, "eqns"):
                yield item
