"""Optimizers that evaluate the loss of a step again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from exburn.errors import ArgumentError
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.trees import same_shapes


def require_loss(
    name: str, value_fn: Callable[[Any], Any] | None, who: str = "it"
) -> Callable[[Any], Any]:
    """The loss that an update was given.

    Args:
        name: Of the optimizer.
        who: What of it needs the loss, as the message says.

    Raises:
        ArgumentError: There is none.
    """
    if value_fn is None:
        raise ArgumentError(
            name,
            f"{who} needs the loss as a function of the parameters",
            hint="In compile() it has that, alone and without a train_step of your "
            "own; by hand: update(grads, state, params, value_fn=loss).",
        )
    return value_fn


class SecondPass(Optimizer):
    """An optimizer whose update needs the loss as a function, beside a gradient.

    A subclass writes ``second_pass``; its rule gets the gradients that this returns.
    """

    evaluates_loss = True

    def second_pass(
        self, grads: Any, opt_state: Mapping[str, Any], params: Any, loss: Callable
    ) -> tuple[Any, Mapping[str, Any]]:
        """Gradients for the rule, and the state with what the loss has told.

        Args:
            grads: Gradients of the loss at the parameters.
            loss: ``loss(params)``, of the same rows and with the same random numbers;
                times ``loss_scale_factor``, as the gradients are.
        """
        raise NotImplementedError

    @property
    def accumulate(self) -> int:
        if (self.gradient_accumulation_steps or 1) > 1:
            raise ArgumentError(
                type(self).__name__,
                "gradients cannot be accumulated: each update evaluates the loss of "
                "its rows again",
                hint="Leave out accumulate_gradients, and take larger batches.",
            )
        return 1

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
        name = type(self).__name__
        loss = require_loss(name, value_fn)
        same_shapes(f"{name}.update", grads, params)
        grads, state = self.second_pass(grads, opt_state, params, loss)
        return super().update(grads, state, params)
