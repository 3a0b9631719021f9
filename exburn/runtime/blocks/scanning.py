"""Functions whose equal blocks run as one loop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal, Var

from exburn.runtime.blocks.forms import function_of, variables
from exburn.runtime.blocks.runs import BlockRun, Place, find_runs

Values = dict[Any, Any]  # by variable
_PRODUCTS = {"dot_general", "conv_general_dilated"}


def scan_blocks(
    function: Callable,
    differentiable: bool = True,
    pays: Callable[[Any, BlockRun], bool] = lambda code, run: True,
) -> Callable:
    """A pure function whose equal blocks in a row are one loop.

    It is traced once for each call, and computes what it did but for rounding. Rows of
    an array that the blocks read in order are not put together again: the loop takes
    the array.

    A loop writes what its gradient needs to memory, and reads it there. So that is the
    results of products alone, from which the pass backward computes the rest again, as
    XLA does without a loop.

    Args:
        differentiable: Whether its gradient may be taken, once.
        pays: Whether a run of blocks shall be a loop: ``pays(jaxpr, run)``.

    Example:
        >>> def deep(x, weights):
        ...     for w in weights:
        ...         x = jnp.tanh(x @ w)
        ...     return x
        >>> arguments = jnp.ones((2, 3)), [jnp.ones((3, 3))] * 8
        >>> code = jax.make_jaxpr(scan_blocks(deep))(*arguments).jaxpr
        >>> [equation.primitive.name for equation in code.eqns]
        ['stack', 'scan']
    """

    @functools.wraps(function)
    def run_scanned(*args: Any) -> Any:
        closed, specs = jax.make_jaxpr(function, return_shape=True)(*args)
        code = closed.jaxpr
        values: Values = dict(zip(code.constvars, closed.consts, strict=True))
        values.update(zip(code.invars, jax.tree.leaves(args), strict=True))
        runs = find_runs(code, differentiable, pays)
        for part in _parts(code, runs, differentiable):
            part.run(values)
        outputs = [v.val if isinstance(v, Literal) else values[v] for v in code.outvars]
        return jax.tree.unflatten(jax.tree.structure(specs), outputs)

    return run_scanned


def _parts(
    code: Any, runs: list[BlockRun], differentiable: bool
) -> list[_Line | _Loop]:
    """A program as parts, one behind the other, without what no result needs."""
    needed = set(variables(code.outvars))
    parts: list[_Line | _Loop] = []
    stop, rows = len(code.eqns), _rows(code.eqns)
    for run in reversed([None, *runs]):
        start = 0 if run is None else run.stop
        parts.append(_Line(code.eqns[start:stop], needed))
        needed = needed.union(parts[-1].inputs)
        if run is not None:
            parts.append(_Loop(code.eqns, run, needed, rows, differentiable))
            needed = needed.union(parts[-1].inputs)
            stop = run.start
    return parts[::-1]


class _Line:
    """Equations that run one by one, as far as they are needed.

    Attributes:
        inputs: The variables that they read.
    """

    def __init__(self, equations: list[Any], needed: set[Any]):
        needed_here, chosen = set(needed), []
        for equation in reversed(equations):
            if equation.effects or not needed_here.isdisjoint(equation.outvars):
                chosen.append(equation)
                needed_here.update(variables(equation.invars))
        self._equations = chosen[::-1]
        self._outputs = [v for e in chosen for v in e.outvars if v in needed]
        self.inputs = _inputs(self._equations)

    def run(self, values: Values) -> None:
        """Adds what they compute to the values."""
        if self._equations:
            call = function_of(self.inputs, self._equations, self._outputs)
            results = call(*(values[v] for v in self.inputs))
            values.update(zip(self._outputs, results, strict=True))


class _Loop:
    """Equal blocks as one loop.

    Attributes:
        inputs: The variables that it reads.
    """

    def __init__(
        self,
        equations: list[Any],
        run: BlockRun,
        needed: set[Any],
        rows: dict[Any, tuple[Any, int]],
        differentiable: bool,
    ):
        self._run, self._differentiable = run, differentiable
        starts = range(run.start, run.stop, run.length)
        self._blocks = [equations[start : start + run.length] for start in starts]
        self._body = list(self._blocks[0])
        self._carried = [self._rename(v.operands) for v in run.carried.values()]
        self._stacked = [self._rename(v.operands) for v in run.stacked]
        own = {*self._carried, *self._stacked}
        self._fixed = [v for v in _inputs(self._body) if v not in own]
        self._wholes = [_whole(one.values, rows) for one in run.stacked]
        self._shown = self._find_shown(needed)
        columns = zip(run.stacked, self._wholes, strict=True)
        self.inputs = [
            *self._fixed,
            *(one.first for one in run.carried.values()),
            *(v for one, w in columns for v in variables([w] if w else one.values)),
        ]

    def _rename(self, operands: list[Place]) -> Var:
        """A variable of its own for some operands of the body."""
        first, operand = operands[0]
        variable = Var(self._body[first].invars[operand].aval)
        for number, operand in operands:
            invars = list(self._body[number].invars)
            invars[operand] = variable
            self._body[number] = self._body[number].replace(invars=invars)
        return variable

    def _find_shown(self, needed: set[Any]) -> list[Place]:
        """Results that are needed of a block whose next one they are not handed to."""
        shown = []
        for number, equation in enumerate(self._blocks[0]):
            for output in range(len(equation.outvars)):
                column = [block[number].outvars[output] for block in self._blocks]
                if (number, output) in self._run.carried:
                    column.pop()
                if not needed.isdisjoint(column):
                    shown.append((number, output))
        return shown

    def run(self, values: Values) -> None:
        """Adds what the blocks compute to the values."""
        run, first = self._run, self._blocks[0]
        outputs = [first[i].outvars[o] for i, o in (*run.carried, *self._shown)]
        inputs = [*self._fixed, *self._carried, *self._stacked]
        call = function_of(inputs, self._body, outputs)
        constants = [values[v] for v in self._fixed]

        def body(carry: list[Any], items: list[Any]) -> tuple[list[Any], list[Any]]:
            results = call(*constants, *carry, *items)
            return results[: len(carry)], results[len(carry) :]

        if self._differentiable:
            body = jax.checkpoint(body, policy=_is_product, prevent_cse=False)
        begin = [values[one.first] for one in run.carried.values()]
        items = [
            _stack(one.values, values) if whole is None else values[whole]
            for one, whole in zip(run.stacked, self._wholes, strict=True)
        ]
        end, rows = jax.lax.scan(body, begin, items, length=run.blocks)
        for (number, output), row in zip(self._shown, rows, strict=True):
            for block, equations in enumerate(self._blocks):
                values[equations[number].outvars[output]] = row[block]
        for (number, output), value in zip(run.carried, end, strict=True):
            values[self._blocks[-1][number].outvars[output]] = value


def _is_product(primitive: Any, *_: Any, **__: Any) -> bool:
    return primitive.name in _PRODUCTS


def _rows(equations: list[Any]) -> dict[Any, tuple[Any, int]]:
    """The variables that are a row of an array, each with the array and its number."""
    slices: dict[Any, tuple[Any, int]] = {}
    rows: dict[Any, tuple[Any, int]] = {}
    for equation in equations:
        name, params = equation.primitive.name, equation.params
        if name == "slice" and set(params["strides"] or (1,)) == {1}:
            array = equation.invars[0]
            starts, limits = params["start_indices"], params["limit_indices"]
            whole = (*starts[:1], *(0 for _ in starts[1:])), array.aval.shape[1:]
            if (starts, limits[1:]) == whole and limits[0] == starts[0] + 1:
                slices[equation.outvars[0]] = array, starts[0]
        elif name == "squeeze" and params["dimensions"] == (0,):
            if (row := slices.get(equation.invars[0])) is not None:
                rows[equation.outvars[0]] = row
    return rows


def _whole(column: list[Any], rows: dict[Any, tuple[Any, int]]) -> Any:
    """The array whose rows a column of variables is, all of them in order."""
    places = [rows.get(v) for v in column if not isinstance(v, Literal)]
    if len(places) < len(column) or places[0] is None:
        return None
    array = places[0][0]
    in_order = places == [(array, number) for number in range(len(column))]
    return array if in_order and array.aval.shape[0] == len(column) else None


def _stack(column: list[Any], values: Values) -> Any:
    """The values of variables or literals, along a new first axis."""
    if isinstance(column[0], Literal):
        dtype: Any = column[0].aval.dtype  # type: ignore[attr-defined]
        return jnp.asarray(np.stack([np.asarray(v.val, dtype) for v in column]))
    return jnp.stack([values[v] for v in column])


def _inputs(equations: list[Any]) -> list[Any]:
    """The variables that equations read and do not define, each once."""
    own = {v for equation in equations for v in equation.outvars}
    read = variables(v for equation in equations for v in equation.invars)
    return [v for v in read if v not in own]
