"""Products of one row with what is around them, each as one kernel of a GPU.

A step that writes one row is a list of equations, most of them on vectors. Around a
product of ``vector_product.name_product``, those join its kernel that lead to its input
alone (a normalization), and those that go on from its output entry by entry
(bias, activation, gate, residual sum). Products of one vector with matrices of one size
are one kernel, too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal

from exburn.runtime.kernels import vector_product
from exburn.runtime.kernels.vector_product import Around

_CALLS = {
    "jit",
    "pjit",
    "closed_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "checkpoint",
}
#: What keeps the order of entries, and computes nothing.
_SHAPES = {"reshape", "squeeze", "expand_dims", "broadcast_in_dim", "copy"}
_VIEWS = {*_SHAPES, "convert_element_type"}
_SUMS = {"reduce_sum": (jnp.sum, 0), "reduce_max": (jnp.max, -math.inf)}
_ENTRIES = {
    *("add", "sub", "mul", "div", "neg", "max", "min", "abs", "sign", "square"),
    *("exp", "exp2", "log", "tanh", "logistic", "rsqrt", "sqrt", "integer_pow", "pow"),
    "convert_element_type",
}


@dataclasses.dataclass(frozen=True, eq=False)
class KernelStep:
    """An equation, or a kernel for several."""

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    run: Callable[[Sequence[Any]], Sequence[Any]]
    equation: Any = None


def has_products(equations: Iterable[Any]) -> bool:
    """Whether there are marked products among equations, or in what they call."""
    for equation in equations:
        inner = _inner(equation)
        if _form(equation) or (inner is not None and has_products(inner.jaxpr.eqns)):
            return True
    return False


def flatten(
    equations: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]
) -> Any:
    """Equations as a program without calls in it, but for products that are marked.

    What gives an array another shape or dtype is there once.

    Args:
        inputs, outputs: Variables that the program takes and returns.
    """
    views: dict[Any, Any] = {}

    def evaluate(equations: Any, values: dict[Any, Any], outputs: Any) -> list:
        def read(var: Any) -> Any:
            return var.val if isinstance(var, Literal) else values[var]

        for equation in equations:
            arguments = [read(var) for var in equation.invars]
            inner = None if _form(equation) else _inner(equation)
            if inner is None and equation.primitive.name in _VIEWS:
                key = equation.primitive, id(arguments[0]), str(equation.params)
                if key not in views:  # with the argument, whose id stays its own
                    views[key] = run_equation(equation, arguments), arguments
                results = views[key][0]
            elif inner is None:
                results = run_equation(equation, arguments)
            else:
                jaxpr = inner.jaxpr
                own = dict(zip(jaxpr.constvars, inner.consts, strict=True))
                own |= zip(jaxpr.invars, arguments, strict=True)
                results = evaluate(jaxpr.eqns, own, jaxpr.outvars)
            values.update(zip(equation.outvars, results, strict=True))
        return [read(var) for var in outputs]

    def run(*arguments: Any) -> list:
        return evaluate(equations, dict(zip(inputs, arguments, strict=True)), outputs)

    return jax.make_jaxpr(run)(*(var.aval for var in inputs))


def _inner(equation: Any) -> Any:
    """The program that an equation calls, or ``None``."""
    if equation.primitive.name not in _CALLS:
        return None
    params = equation.params
    inner = params.get("call_jaxpr") or params.get("jaxpr")
    if inner is None or isinstance(inner, ClosedJaxpr):
        return inner
    return ClosedJaxpr(inner, ())


def run_equation(equation: Any, inputs: Sequence[Any]) -> list:
    """The results of an equation."""
    params = equation.primitive.get_bind_params(equation.params)
    results = equation.primitive.bind(*inputs, **params)
    return list(results) if equation.primitive.multiple_results else [results]


def fuse(equations: Iterable[Any], results: Sequence[Any]) -> list[KernelStep]:
    """Equations as steps, those around a marked product as one.

    Args:
        results: Variables that are read afterwards.
    """
    steps = [
        KernelStep(
            tuple(v for v in e.invars if not isinstance(v, Literal)),
            tuple(e.outvars),
            lambda inputs, e=e: run_equation(e, _with_literals(e, inputs)),
            e,
        )
        for e in equations
    ]
    results = [v for v in results if not isinstance(v, Literal)]
    steps = _without_unread(steps, results)
    for step in list(steps):
        if step in steps and _form(step.equation):
            steps = _Fusion(steps, step, results).steps()
    return _without_unread(steps, results)


def _with_literals(equation: Any, inputs: Sequence[Any]) -> list:
    rest = iter(inputs)
    return [v.val if isinstance(v, Literal) else next(rest) for v in equation.invars]


def _form(equation: Any) -> str | None:
    """The form of a marked product's matrix; ``None`` for another equation."""
    if equation is None or equation.primitive.name not in ("jit", "pjit"):
        return None
    name = equation.params["name"]
    prefix = vector_product.PREFIX
    return name.removeprefix(prefix) if name.startswith(prefix) else None


class _Fusion:
    """One kernel, and the steps that it takes the place of."""

    def __init__(
        self, steps: list[KernelStep], product: KernelStep, results: Sequence[Any]
    ):
        self._all, self._results = steps, set(results)
        self._readers: dict[Any, list[KernelStep]] = {}
        self._makers: dict[Any, KernelStep] = {}
        for step in steps:
            self._makers |= dict.fromkeys(step.outputs, step)
            for var in step.inputs:
                self._readers.setdefault(var, []).append(step)
        self._form, parts = self._read_form(product)
        shapes = [var.aval for var in parts]
        self._outputs, self._terms = vector_product.sizes(self._form, shapes)
        self._x = product.inputs[0]
        self._products = [product, *self._siblings(product, shapes)]
        self._before = self._leading()
        self._after = self._following()

    # ------------------------------------------------------------------ products
    def _read_form(self, product: KernelStep) -> tuple[str, tuple[Any, ...]]:
        """The form of a product's matrix and its parts, as they lie in memory."""
        form, parts = _form(product.equation), product.inputs[1:]
        maker = self._makers.get(parts[0])
        if form == "columns" and maker is not None and maker.equation is not None:
            if maker.equation.primitive.name == "transpose":
                return "rows", maker.inputs
        return str(form), parts

    def _siblings(self, product: KernelStep, shapes: list[Any]) -> list[KernelStep]:
        """Products of the same vector with matrices of the same size."""
        siblings = []
        for step in self._readers[self._x]:
            if step is product or not _form(step.equation):
                continue
            form, parts = self._read_form(step)
            same = [(v.aval.shape, v.aval.dtype) for v in parts]
            if form == self._form and same == [(s.shape, s.dtype) for s in shapes]:
                siblings.append(step)
        return siblings

    # ------------------------------------------------------------------ before
    def _leading(self) -> list[KernelStep]:
        """Steps that lead to the input of products alone, in their order."""
        first = self._all.index(self._products[0])
        leading: list[KernelStep] = []
        for step in reversed(self._all[:first]):
            if all(self._leads(var, leading) for var in step.outputs):
                if _fits(step, self._terms, sums=True):
                    leading.insert(0, step)
        return leading

    def _leads(self, var: Any, leading: list[KernelStep]) -> bool:
        if var in self._results or not self._readers.get(var):
            return False
        return all(
            reader in leading or (_form(reader.equation) and reader.inputs[0] is var)
            for reader in self._readers[var]
        ) and (var is self._x or any(r in leading for r in self._readers[var]))

    # ------------------------------------------------------------------ behind
    def _following(self) -> list[KernelStep]:
        """Steps that go on from the products entry by entry, in their order."""
        own = {var for step in self._products for var in step.outputs}
        depending: set[Any] = set()
        following: list[KernelStep] = []
        start = self._all.index(self._products[0]) + 1
        for step in self._all[start:]:
            if step in self._products:
                continue
            mine = any(var in own for var in step.inputs)
            others = any(var in depending for var in step.inputs)
            if mine and not others and _fits(step, self._outputs):
                following.append(step)
                own |= set(step.outputs)
            elif mine or others:
                depending |= set(step.outputs)
        return self._without_leaves(following)

    def _without_leaves(self, following: list[KernelStep]) -> list[KernelStep]:
        """The steps, less those at the end that are as well computed by readers."""
        remaining = list(following)
        for step in reversed(following):
            if any(
                r in remaining for v in step.outputs for r in self._readers.get(v, ())
            ):
                continue
            name = step.equation.primitive.name
            wider = name == "convert_element_type" and (
                step.outputs[0].aval.dtype.itemsize > step.inputs[0].aval.dtype.itemsize
            )
            rest = [s for s in remaining if s is not step]
            outputs = {v for s in (*self._products, *rest) for v in s.outputs}
            read = [v for v in step.inputs if v in outputs]
            if wider or name in _SHAPES or all(self._is_read(v, rest) for v in read):
                if not (wider or name in _SHAPES) and not read:
                    continue
                remaining = rest
        return remaining

    def _is_read(self, var: Any, inside: list[KernelStep]) -> bool:
        """Whether a value is read by others than those steps, and one more."""
        readers = [r for r in self._readers.get(var, ()) if r not in inside]
        return var in self._results or len(readers) > 1

    # ------------------------------------------------------------------ the kernel
    def steps(self) -> list[KernelStep]:
        """All steps, with the kernel in the place of those that it computes."""
        taken = [*self._products, *self._after]
        kernel = self._kernel()
        own = {var for step in taken for var in step.outputs}
        last = max(self._all.index(step) for step in taken)
        early: list[KernelStep] = []
        late: list[KernelStep] = []
        for step in self._all[: last + 1]:
            if step in taken:
                continue
            depends = any(var in own for var in step.inputs)
            own |= set(step.outputs) if depends else set()
            (late if depends else early).append(step)
        return [*early, kernel, *late, *self._all[last + 1 :]]

    def _kernel(self) -> KernelStep:
        taken = [*self._products, *self._after]
        outputs = [var for step in self._products for var in step.outputs]
        inner = {var for step in taken for var in step.outputs}
        results = [
            var
            for step in taken
            for var in step.outputs
            if var in self._results
            or any(r not in taken for r in self._readers.get(var, ()))
        ]
        vectors = _outside(self._before) if self._before else [self._x]
        others = [v for v in _outside(self._after) if v not in inner]
        matrices = [self._read_form(step)[1] for step in self._products]
        flat = [var for parts in matrices for var in parts]
        around = Around(*self._functions(vectors, outputs, others, results))
        form, types = self._form, [var.aval.dtype for var in results]
        shapes = [var.aval.shape for var in results]
        per = len(matrices[0])

        def run(inputs: Sequence[Any]) -> list:
            rows = [v.reshape(-1) for v in inputs[: len(vectors) + len(others)]]
            parts = inputs[len(rows) :]
            grouped = [parts[i : i + per] for i in range(0, len(parts), per)]
            near, far = rows[: len(vectors)], rows[len(vectors) :]
            ys = vector_product.call(form, grouped, near, far, types, around)
            return [y.reshape(s) for y, s in zip(ys, shapes, strict=True)]

        return KernelStep((*vectors, *others, *flat), tuple(results), run)

    def _functions(self, vectors, outputs, others, results) -> tuple:
        """What ``Around`` takes."""
        before, after, x = self._before, self._after, self._x
        numbers = [v for s in before for v in s.outputs if v.aval.size == 1]

        def totals(blocks: list, filled: Any) -> list:
            values = dict(zip(vectors, blocks, strict=True))
            for step in before if numbers else []:
                _evaluate(step, values, filled)
            return [values[var] for var in numbers]

        def lead(blocks: list, totals: list) -> Any:
            values = dict(zip(vectors, blocks, strict=True))
            values |= zip(numbers, totals, strict=True)
            for step in before:
                if step.outputs[0] not in values:
                    _evaluate(step, values)
            return values[x]

        def follow(products: list, blocks: list) -> list:
            values = dict(zip(others, blocks, strict=True))
            for var, product in zip(outputs, products, strict=True):
                values[var] = product.astype(var.aval.dtype)
            for step in after:
                _evaluate(step, values)
            return [values[var] for var in results]

        return totals, lead, follow


def _fits(step: KernelStep, size: int, sums: bool = False) -> bool:
    """Whether a step computes entries of vectors of a size, or numbers."""
    equation = step.equation
    if equation is None or len(step.outputs) != 1:
        return False
    name = equation.primitive.name
    sizes = [getattr(v.aval, "size", 0) for v in (*equation.invars, *step.outputs)]
    if not all(n in (1, size) for n in sizes) or not step.inputs:
        return False
    if not sums and sizes[-1] != size:
        return False
    if name in _SUMS:
        return sums and sizes == [size, 1]
    if name in _SHAPES:
        return sizes[-1] != 1 or sizes[0] == 1
    return name in _ENTRIES


def _outside(steps: Sequence[KernelStep]) -> list[Any]:
    """What steps read and do not compute."""
    outputs = {var for step in steps for var in step.outputs}
    return list(dict.fromkeys(v for s in steps for v in s.inputs if v not in outputs))


def _evaluate(step: KernelStep, values: dict[Any, Any], filled: Any = None) -> None:
    """Computes a step of blocks of vectors, in the precision of the trace or more."""
    equation, name = step.equation, step.equation.primitive.name
    out = step.outputs[0].aval
    inputs = [
        jnp.asarray(v.val) if isinstance(v, Literal) else values[v]
        for v in equation.invars
    ]
    inputs = [
        v.astype(jnp.float32) if v.dtype in (jnp.bfloat16, jnp.float16) else v
        for v in inputs
    ]
    if name in _SUMS:
        function, neutral = _SUMS[name]
        result = function(jnp.where(filled, inputs[0], neutral))
    elif name in _SHAPES or name == "convert_element_type":
        result = inputs[0]
    else:
        shape = jnp.broadcast_shapes(*(v.shape for v in inputs))
        inputs = [jnp.broadcast_to(v, shape) for v in inputs]
        result = run_equation(equation, inputs)[0]
    values[step.outputs[0]] = result.astype(out.dtype)


def _without_unread(
    steps: list[KernelStep], results: Sequence[Any]
) -> list[KernelStep]:
    read, remaining = set(results), []
    for step in reversed(steps):
        effects = step.equation is not None and step.equation.effects
        if effects or any(var in read for var in step.outputs):
            read |= set(step.inputs)
            remaining.append(step)
    return remaining[::-1]
