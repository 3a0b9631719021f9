"""Gradients by differences of losses, and the programs of the exact ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np

from exburn.core.checks import check_number
from exburn.data import as_batch
from exburn.errors import ArgumentError, DataError, DTypeError, unknown_name
from exburn.models.arguments import check_model
from exburn.models.preparing import prepare
from exburn.models.session import require_trainer
from exburn.runtime.cost_model import count
from exburn.runtime.transfer import release_spare
from exburn.training.memory import free_bytes
from exburn.training.overrides import overrides
from exburn.training.program import Programs
from exburn.training.state import TrainState
from exburn.training.trainer import Trainer

METHODS = ("autodiff", "numerical", "numerical_batch")
_LARGEST_CHUNK = 1024
# On a CPU what fits the caches wins.
_CPU_BYTES = 8 << 20


def prepare_batch(model: Any, batch: Any, op: str, method: str) -> tuple[Trainer, Any]:
    """The model's trainer, ready for the batch, and the batch, checked."""
    check_model(op, model)
    if method not in METHODS:
        raise unknown_name("method", method, METHODS, op=op)
    parts = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    if not 1 <= len(parts) <= 3:
        raise DataError(
            op,
            f"a batch is (x, y) or (x, y, sample_weight), received {len(parts)} parts",
        )
    dataset = as_batch(*parts, op=op)
    trainer = require_trainer(model, op)
    own = overrides(model, "train_step")
    if own and not (op == "train_step" and method == "autodiff"):
        raise ArgumentError(
            op,
            f"{type(model).__name__} computes its gradients in its own train_step",
            hint="Use train_step(model, batch), or jax.grad on stateless_call.",
        )
    prepare(model, op, dataset, train=True)
    return trainer, dataset.tree


def on_device(tree: Any) -> Any:
    return jax.tree.map(jax.device_put, tree)


def loss_of(programs: Programs, scaled: bool = False) -> Callable:
    def loss(state: TrainState, batch: Any) -> jax.Array:
        value, (plain, *_) = programs.steps.loss(state.params, state, batch, None)
        return value if scaled else plain

    return loss


def gradients_of(programs: Programs) -> Callable:
    def gradients(state: TrainState, batch: Any) -> dict[str, jax.Array]:
        def loss(params):
            return programs.steps.loss(params, state, batch, None)[1][0]

        return jax.grad(loss)(state.params)

    return gradients


def precise(fn: Callable) -> Callable:
    """The same function with products of float32 that are of float32.

    GPUs multiply with the 10 bits of TF32: what they round away is more than a step of
    a difference changes.
    """

    def run(*args):
        with jax.default_matmul_precision("highest"):
            return fn(*args)

    return run


def default_epsilon(dtype: Any, method: str = "numerical") -> float:
    """The step at which rounding and truncation errors of a difference balance.

    :math:`\\sqrt[3]{u}` for central and :math:`\\sqrt{u}` for one-sided differences,
    with the dtype's resolution :math:`u`: 4.9e-3 and 3.5e-4 in float32. ExBurn's 1e-5
    loses half of the digits there.

    Source: W. H. Press et al., *Numerical Recipes*, §5.7.
    """
    resolution = float(jnp.finfo(jnp.dtype(dtype)).eps)
    return resolution ** (1 / 3 if method == "numerical" else 1 / 2)


def coarsest(params: dict[str, Any], compute: Any) -> Any:
    """The dtype with the fewest digits among all that the loss goes through.

    Those of the parameters, of the layers, and float32, in which losses are summed.
    """
    dtypes = [jnp.dtype("float32"), jnp.dtype(compute)]
    dtypes += [p.dtype for p in params.values()]
    return max(dtypes, key=lambda d: float(jnp.finfo(d).eps))


def check_real(params: dict[str, Any]) -> None:
    """Raises ``DTypeError`` if a parameter is complex: differences move real ones."""
    for path, value in params.items():
        if jnp.iscomplexobj(value):
            raise DTypeError(
                path,
                f"differences move real parameters, and this one is {value.dtype.name}",
                hint="Freeze it (layer.trainable = False) to check the others.",
            )


def numerical(
    programs: Programs,
    state: TrainState,
    data: Any,
    method: str,
    epsilon: float | None,
    compute: Any,
    *,
    scaled: bool = False,
    chosen: dict[str, np.ndarray] | None = None,
) -> dict[str, jax.Array]:
    """Difference quotients for the elements of every parameter, or the chosen ones.

    Args:
        epsilon: The step, or ``None`` for `default_epsilon`.
        scaled: Whether the loss is the optimizer's, scaled one.
        chosen: Numbers of elements by path; the result is flat then.
    """
    check_real(state.params)
    if epsilon is None:
        epsilon = default_epsilon(coarsest(state.params, compute), method)
    epsilon = check_number("compute_gradients", "epsilon", epsilon, open_low=True)
    release_spare()
    budget = free_bytes() // 8
    if jax.default_backend() == "cpu":
        budget = min(budget, _CPU_BYTES)
    # A power of two: one program for about the same memory.
    bits = max(budget.bit_length() - 1, 0)
    rows = chosen or {
        path: np.arange(value.size, dtype=np.int32)
        for path, value in state.params.items()
    }
    # A program of its own, so that the moved values are rounded to their dtype.
    high, low = programs.further("moved", lambda: _step_ends)(state.params, epsilon)
    quotients = programs.further(
        f"{method} 2**{bits} bytes{' scaled' if scaled else ''}",
        lambda: _differences(programs, method, 2**bits, scaled),
    )(state, data, high, low, rows)
    if chosen is not None:
        return quotients
    return {path: quotients[path].reshape(v.shape) for path, v in state.params.items()}


def _step_ends(params: dict[str, jax.Array], epsilon: Any) -> tuple[Any, Any]:
    """Both ends of the step of every element; at least the numbers beside it."""

    def ends(step: Any, limit: float) -> dict[str, jax.Array]:
        neighbours = {}
        for path, value in params.items():
            value = value.ravel()
            moved = value + step
            beside = jnp.nextafter(value, jnp.full_like(value, limit))
            neighbours[path] = jnp.where(moved == value, beside, moved)
        return neighbours

    return ends(epsilon, jnp.inf), ends(-epsilon, -jnp.inf)


def _differences(
    programs: Programs, method: str, budget: int, scaled: bool
) -> Callable:
    """Difference quotients of all parameters, as many at a time as fit the budget."""
    loss = precise(loss_of(programs, scaled))

    def differences(state, data, high, low, rows):
        start, traced = loss(state, data), _Traced.of(loss, state, data)

        def quotients(path):
            value, up = state.params[path].ravel(), high[path]
            at = _loss_of_element(loss, traced, state, data, path)

            def one(row):
                if method == "numerical":
                    end = low[path][row]
                    both = jnp.stack([up[row], end])
                    rise = jnp.subtract(*jax.vmap(at, (None, 0))(row, both))
                else:
                    end = value[row]
                    rise = at(row, up[row]) - start
                # What was really moved, after rounding to the parameter's dtype.
                run = up[row].astype(wide) - end.astype(wide)
                return rise / run

            many, wide = rows[path], jnp.promote_types(value.dtype, jnp.float32)
            if not many.size:
                return jnp.zeros(0, wide)
            room = int(budget // max(_bytes_each(one, many), 1))
            chunk = min(2 ** max(room.bit_length() - 1, 0), _LARGEST_CHUNK, len(many))
            return jax.lax.map(one, many, batch_size=chunk)

        return {path: quotients(path) for path in rows}

    return differences


def _bytes_each(one: Callable, rows: jax.Array) -> int:
    """Bytes that one more element of a chunk writes; what all share is not in it."""
    elements = []
    for size in (1, 2):
        spec = jax.ShapeDtypeStruct((size, *rows.shape[1:]), rows.dtype)
        elements.append(count(jax.make_jaxpr(jax.vmap(one))(spec)).elements)
    return int(4 * (elements[1] - elements[0]))


# --------------------------------------------------------------- one element moved
def _loss_of_element(
    loss: Callable, traced: _Traced, state: TrainState, data: Any, path: str
) -> Callable[[Any, Any], Any]:
    """The loss as a function of one element of a parameter: its number and value.

    A weight that is multiplied once, ``z = h @ w``, needs no copy for each of its
    elements: a move of ``w[i, j]`` adds ``h[:, i]`` times the move to ``z[:, j]``, and
    only what follows is computed anew.
    """
    value = state.params[path]
    cut = traced.product(path)
    if cut is not None:
        return lambda row, moved: cut.loss(value, row, moved)

    def at(row, moved):
        new = value.ravel().at[row].set(moved).reshape(value.shape)
        return loss(state.replace(params={**state.params, path: new}), data)

    return at


@dataclasses.dataclass(frozen=True)
class _Product:
    """A loss, cut at the one product that a weight is a factor of.

    Attributes:
        after: The loss as a function of the product.
        axes: Axes of the weight, and of the factor, that are summed over.
    """

    factor: jax.Array
    result: jax.Array
    after: Callable[[jax.Array], jax.Array]
    axes: tuple[tuple[int, ...], tuple[int, ...]]
    left: bool

    def loss(self, weight: jax.Array, row: Any, moved: Any) -> jax.Array:
        """The loss with another value of the element number ``row``."""
        summed, others = self.axes
        index = jnp.unravel_index(row, weight.shape)
        lines = jnp.moveaxis(self.factor, others, range(len(others)))
        step = (moved - weight[index]) * lines[tuple(index[axis] for axis in summed)]
        place = tuple(n for axis, n in enumerate(index) if axis not in summed)
        place = (*place, ...) if self.left else (..., *place)
        return self.after(self.result.at[place].add(step))


@dataclasses.dataclass(frozen=True)
class _Traced:
    """A loss as JAX' intermediate code, and its arguments.

    Attributes:
        numbers: Of each parameter among them.
    """

    code: Any
    args: list[Any]
    numbers: dict[str, int]

    @classmethod
    def of(cls, loss: Callable, state: TrainState, data: Any) -> _Traced:
        args, treedef = jax.tree.flatten((state, data))
        code = jax.make_jaxpr(lambda *a: loss(*jax.tree.unflatten(treedef, a)))(*args)
        numbers = jax.tree.unflatten(treedef, range(len(args)))[0].params
        return cls(code, args, numbers)

    def product(self, path: str) -> _Product | None:
        """The cut at a parameter's product; ``None`` if it is used in another way."""
        code = self.code.jaxpr
        weight = code.invars[self.numbers[path]]
        uses = [
            (equation, side)
            for equation in code.eqns
            for side, used in enumerate(equation.invars)
            if used is weight
        ]
        if len(uses) != 1 or uses[0][0].primitive.name != "dot_general":
            return None
        equation, side = uses[0]
        axes, batch = equation.params["dimension_numbers"]
        factor, result = equation.invars[1 - side], equation.outvars[0]
        # In 16 bits the product would be rounded before the move, not after it.
        wide = all(v.aval.dtype.itemsize >= 4 for v in (weight, factor, result))
        if any(batch) or not wide:
            return None
        rest = [other for other in code.eqns if other is not equation]
        before = self._function(outvars=[factor, result])
        after = self._function(invars=[*code.invars, result], eqns=rest)
        return _Product(
            *before(*self.args),
            after=lambda value: after(*self.args, value)[0],
            axes=(axes[side], axes[1 - side]),
            left=side == 0,
        )

    def _function(self, **changes: Any) -> Callable:
        code = self.code.jaxpr.replace(**changes)
        closed = jax.extend.core.ClosedJaxpr(code, self.code.consts)
        return jax.extend.core.jaxpr_as_fun(closed)
