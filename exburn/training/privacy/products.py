"""Products of weights in the program of a row, whose gradients need not be made.

The gradient of a weight that a layer multiplies its input with is a sum of products of
the input and the gradient of the output. Its norm, and the clipped sum over many rows,
follow from these two: they are much smaller than the gradients of the weight by rows.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal

from exburn.training.privacy.ghost_norms import (
    DTYPES,
    NORMS,
    computes,
    convolution_gradient,
    has_few_positions,
)

_CALLS = "jit", "pjit"
_CAST = "convert_element_type"
_VIEWS = frozenset(["reshape", "transpose", "squeeze", "rev", "concatenate", _CAST])

Values = dict[Any, Any]


@dataclasses.dataclass(frozen=True)
class Product:
    """An equation that multiplies an input with weights.

    Attributes:
        names: Of the weights: several, if their concatenation is multiplied.
        place: Number of the equation in the program.
        at: Place of the weight among the operands.
        views: The equations that make the operand of the weights.
        saves: Whether input and output are smaller than the weights, and so is what
            tells the norm.
        convolves: Whether it is a convolution.
    """

    names: tuple[str, ...]
    place: int
    at: int
    views: tuple[Any, ...]
    saves: bool
    convolves: bool


class RowProgram:
    """The loss of one row as a program of weights, with the products in it.

    Args:
        closed: ``(weights, others) -> flat outputs``.
        names: Names of the weights, in the order in which the program takes them.
        wanted: Those of which products are looked for.

    Attributes:
        products: Each weight is in one of them at most, and read nowhere else.

    Example:
        >>> code = jax.make_jaxpr(lambda w, b, x: (x @ w + b).sum())
        >>> shapes = jnp.ones((2, 3)), jnp.ones(3), jnp.ones((1, 2))
        >>> RowProgram(code(*shapes), ["w", "b"], {"w", "b"}).products[0].names
        ('w',)
    """

    def __init__(self, closed: ClosedJaxpr, names: Sequence[str], wanted: set[str]):
        count = len(names)
        self._code = _open_calls(closed, count)
        jaxpr = self._code.jaxpr
        self._weights = dict(zip(names, jaxpr.invars[:count], strict=True))
        self.products = find_products(jaxpr, self._weights, wanted)

    def keep(self, choose: Callable[[Product], bool]) -> None:
        """Keeps the products that are chosen."""
        self.products = [product for product in self.products if choose(product)]

    def count_numbers(self) -> int:
        """Numbers of the inputs and outputs of the products."""
        equations = self._code.jaxpr.eqns
        return sum(
            equations[p.place].invars[1 - p.at].aval.size
            + equations[p.place].outvars[0].aval.size
            for p in self.products
        )

    def slopes(self) -> list[jax.Array]:
        """Zeros for the output of each product, by which to differentiate."""
        outputs = (self._code.jaxpr.eqns[p.place].outvars[0] for p in self.products)
        return [jnp.zeros(v.aval.shape, v.aval.dtype) for v in outputs]

    def run(
        self, weights: Mapping[str, Any], others: Sequence[Any], slopes: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """The outputs, and what each product takes beside its weights.

        Args:
            slopes: Added to the outputs of the products.
        """
        jaxpr, inputs = self._code.jaxpr, []
        values = dict(zip(jaxpr.constvars, self._code.consts, strict=True))
        given = [*(weights[name] for name in self._weights), *others]
        values.update(zip(jaxpr.invars, given, strict=True))
        numbers = {p.place: number for number, p in enumerate(self.products)}
        for place, equation in enumerate(jaxpr.eqns):
            operands = _read(values, equation.invars)
            results = run_equation(equation, operands)
            if (number := numbers.get(place)) is not None:
                product = self.products[number]
                inputs.append(operands[1 - product.at])
                results = [results[0] + slopes[number]]
            values.update(zip(equation.outvars, results, strict=True))
        return _read(values, jaxpr.outvars), inputs

    def squares(self, product: Product, x: jax.Array, slope: jax.Array) -> jax.Array:
        """Squared norm of a product's gradient for one row.

        Args:
            x, slope: The input of the product, and the gradient of its output.
        """
        equation = self._code.jaxpr.eqns[product.place]
        return NORMS[equation.primitive.name](equation, product.at, x, slope)

    def gradient_of_row(
        self,
        product: Product,
        weights: Mapping[str, Any],
        x: jax.Array,
        slope: jax.Array,
    ) -> dict[str, jax.Array]:
        """The gradient of a convolution's weights for one row, in float32.

        Args:
            x, slope: As of ``squares``.
        """
        equation = self._code.jaxpr.eqns[product.place]
        gradient = convolution_gradient(equation, product.at, x, slope)
        operand = partial(self._operand, product)
        (gradient,) = jax.linear_transpose(operand, _own(product, weights))(gradient)
        return gradient

    def gradient(
        self,
        product: Product,
        weights: Mapping[str, Any],
        x: jax.Array,
        slope: jax.Array,
    ) -> dict[str, jax.Array]:
        """The gradient of a product's weights, summed over rows, in float32.

        Args:
            x, slope: As of ``squares``, of many rows: ``[rows, …]``.
        """
        equation = self._code.jaxpr.eqns[product.place]
        if jnp.issubdtype(x.dtype, jnp.floating):
            x = x.astype(jnp.float32)

        def multiply(own: Mapping[str, Any], x: jax.Array) -> jax.Array:
            weight = self._operand(product, own)
            operands = (weight, x) if product.at == 0 else (x, weight)
            return run_equation(equation, operands, jnp.float32)[0]

        rows = jax.vmap(multiply, (None, 0))
        own = _own(product, weights)
        (gradient,) = jax.linear_transpose(lambda own: rows(own, x), own)(slope)
        return gradient

    def _operand(self, product: Product, own: Mapping[str, Any]) -> Any:
        """What a product multiplies, made of its weights, without rounding them."""
        values = {self._weights[name]: value for name, value in own.items()}
        for view in product.views:
            results = _read(values, view.invars)
            if view.primitive.name != _CAST:
                results = run_equation(view, results)
            values.update(zip(view.outvars, results, strict=True))
        return values[self._code.jaxpr.eqns[product.place].invars[product.at]]


def _own(product: Product, weights: Mapping[str, Any]) -> dict[str, jax.Array]:
    return {name: weights[name].astype(jnp.float32) for name in product.names}


def find_products(
    jaxpr: Any, weights: Mapping[str, Any], wanted: set[str]
) -> list[Product]:
    """The products of weights that are read by them alone, each once."""
    uses = Counter(
        v
        for read in (*(e.invars for e in jaxpr.eqns), jaxpr.outvars)
        for v in read
        if not isinstance(v, Literal)
    )
    origins: dict[Any, tuple[tuple[str, ...], tuple[Any, ...]]] = {
        var: ((name,), ()) for name, var in weights.items() if name in wanted
    }
    products = []
    for place, equation in enumerate(jaxpr.eqns):
        read = [
            None if isinstance(v, Literal) else origins.get(v) for v in equation.invars
        ]
        if not any(read) or any(
            one and uses[v] > 1 for one, v in zip(read, equation.invars, strict=True)
        ):
            continue
        if all(read) and is_view(equation):
            names = tuple(name for one in read if one for name in one[0])
            views = tuple(view for one in read if one for view in one[1])
            origins[equation.outvars[0]] = names, (*views, equation)
        elif read.count(None) == 1 == len(read) - 1:
            at = 0 if read[0] else 1
            origin = read[at]
            if origin and computes(equation, at):
                weight, x = equation.invars[at].aval, equation.invars[1 - at].aval
                saves = x.size + equation.outvars[0].aval.size < weight.size
                convolves = equation.primitive.name == "conv_general_dilated"
                saves = saves and (not convolves or has_few_positions(equation, at))
                how = saves, convolves
                products.append(Product(origin[0], place, at, origin[1], *how))
    return products


def is_view(equation: Any) -> bool:
    """Whether the result has the numbers of weights, in another form."""
    name, dtype = equation.primitive.name, equation.outvars[0].aval.dtype
    return name in _VIEWS and dtype in DTYPES


def run_equation(
    equation: Any, operands: Sequence[Any], dtype: Any = None
) -> list[Any]:
    """The results of an equation.

    Args:
        dtype: That of a product, in the place of its own.
    """
    params = equation.primitive.get_bind_params(equation.params)
    if dtype is not None and "preferred_element_type" in params:
        params = {**params, "preferred_element_type": jnp.dtype(dtype)}
    results = equation.primitive.bind(*operands, **params)
    return list(results) if equation.primitive.multiple_results else [results]


def _read(values: Values, variables: Sequence[Any]) -> list[Any]:
    return [v.val if isinstance(v, Literal) else values[v] for v in variables]


def _open_calls(closed: ClosedJaxpr, count: int) -> ClosedJaxpr:
    """A program with the calls written out that any of its first inputs goes into."""

    def evaluate(jaxpr: Any, values: Values, touched: set[Any]) -> list[Any]:
        for equation in jaxpr.eqns:
            operands = _read(values, equation.invars)
            inner, marks = equation.params.get("jaxpr"), set()
            if not isinstance(inner, ClosedJaxpr):
                inner = None
            if equation.primitive.name in _CALLS and inner is not None:
                marks = {
                    own
                    for own, var in zip(
                        inner.jaxpr.invars, equation.invars, strict=True
                    )
                    if not isinstance(var, Literal) and var in touched
                }
            if marks and inner is not None:
                own = dict(zip(inner.jaxpr.constvars, inner.consts, strict=True))
                own.update(zip(inner.jaxpr.invars, operands, strict=True))
                results = evaluate(inner.jaxpr, own, marks)
                outer = zip(equation.outvars, inner.jaxpr.outvars, strict=True)
                touched |= {var for var, result in outer if result in marks}
            else:
                results = run_equation(equation, operands)
                if is_view(equation) and any(
                    v in touched for v in equation.invars if not isinstance(v, Literal)
                ):
                    touched |= {*equation.outvars}
            values.update(zip(equation.outvars, results, strict=True))
        return _read(values, jaxpr.outvars)

    jaxpr = closed.jaxpr

    def run(*arguments: Any) -> list[Any]:
        values = dict(zip(jaxpr.constvars, closed.consts, strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))
        return evaluate(jaxpr, values, set(jaxpr.invars[:count]))

    return jax.make_jaxpr(run)(*(var.aval for var in jaxpr.invars))
