"""L-BFGS: the curvature from the last steps, and a line search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import optax

from exburn.core.checks import check_count
from exburn.optimizers.contract.complex_parameters import join, split, split_gradients
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.second_pass import require_loss
from exburn.optimizers.contract.trees import like, same_shapes, same_structure, widen


class LBFGS(Optimizer):
    r"""Quasi-Newton steps for smooth losses over all data at once.

    .. math::
        p ← p − α η H g

    where H approximates the inverse Hessian from the last ``memory_size`` steps and the
    line search finds α that meets Wolfe's conditions. It evaluates the loss and its
    gradient several times an update, on the batch of the step, so the batch should be
    the whole data set: ``fit(x, y, batch_size=len(x))``. It has none of the options
    that change gradients or parameters aside from the loss that is searched.

    Args:
        learning_rate: η, a number ≥ 0, a schedule, or a function of the step. The
            search begins with it: 1 is right for nearly every problem.
        memory_size: Steps that H is made of.
        max_linesearch_steps: Evaluations of the loss in one search, at most.

    Raises:
        ArgumentError: A count is below 1; or ``update`` is called without the loss.

    Example:
        >>> import jax.numpy as jnp
        >>> def loss(p):
        ...     return 0.5 * p["w"][0] ** 2 + 50.0 * (p["w"][1] - 1.0) ** 2
        >>> optimizer = LBFGS()
        >>> params = {"w": jnp.array([3.0, -1.0])}
        >>> state = optimizer.init(params)
        >>> for _ in range(8):
        ...     grads = jax.grad(loss)(params)
        ...     params, state = optimizer.update(grads, state, params, value_fn=loss)
        >>> bool(loss(params) < 1e-6)
        True

    Source: Liu & Nocedal, *On the Limited Memory BFGS Method for Large Scale
    Optimization*, 1989; Nocedal & Wright, *Numerical Optimization*, 2006, ch. 3.
    """

    evaluates_loss = searches = True

    def __init__(
        self,
        learning_rate: Any = 1.0,
        memory_size: int = 10,
        max_linesearch_steps: int = 20,
        name: str | None = None,
    ):
        super().__init__(learning_rate, name=name)
        self.memory_size = check_count("LBFGS", "memory_size", memory_size)
        self.max_linesearch_steps = check_count(
            "LBFGS", "max_linesearch_steps", max_linesearch_steps
        )

    def transformation(
        self, learning_rate, count
    ) -> optax.GradientTransformationExtraArgs:
        search = optax.scale_by_zoom_linesearch(
            self.max_linesearch_steps, initial_guess_strategy="one"
        )
        return optax.lbfgs(learning_rate, self.memory_size, linesearch=search)

    def update(
        self,
        grads: Any,
        opt_state: Mapping[str, Any],
        params: Any,
        *,
        value_fn: Callable[[Any], Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """One step: ``(new_params, new_opt_state)``.

        Args:
            grads: Gradients of ``value_fn`` at ``params``.
            opt_state: What ``init`` or the last ``update`` returned.
            params: Tree of arrays.
            value_fn: The loss as a pure function of the parameters.

        Raises:
            ArgumentError: ``value_fn`` is missing.
            ShapeError: Gradients, parameters and state do not belong together.
        """
        plain = require_loss("LBFGS", value_fn, "its line search")
        same_shapes("LBFGS.update", grads, params)
        wide, rate = widen(split(params)), opt_state["rate"]
        inner = opt_state["inner"]
        same_structure("LBFGS", inner, jax.eval_shape(self.init_rule, wide))

        def loss(wide):
            return plain(_in_dtypes_of(params, wide))

        rule = self.transformation(self.rate(opt_state), rate["count"])
        grads = widen(split_gradients(grads))
        deltas, new = rule.update(
            grads, inner, wide, value=loss(wide), grad=grads, value_fn=loss
        )
        wide = jax.tree.map(lambda w, d: w + d, wide, deltas)
        return _in_dtypes_of(params, wide), {
            **opt_state,
            "rate": {**rate, "count": rate["count"] + 1},
            "inner": like("LBFGS", new, inner),
        }


def _in_dtypes_of(params: Any, values: Any) -> Any:
    return jax.tree.map(lambda p, v: v.astype(p.dtype), params, join(values))
