"""Dynamic loss scaling for float16."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core import registry
from exburn.core.checks import check_count, check_number
from exburn.errors import ArgumentError, DTypeError
from exburn.optimizers.contract.complex_parameters import join, split
from exburn.optimizers.contract.live import LiveState
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.rate import host_value, replace_leaf

# Beyond these, doubling or halving would end in infinity or zero, and stay there.
_SMALLEST, _LARGEST = 2.0**-100, 2.0**100


class LossScaleOptimizer(Optimizer):
    """Scales the loss so that float16 gradients neither vanish nor overflow.

    ``compile`` puts it around the optimizer of a model that computes in float16. Its
    scale and counts are part of the optimizer's state, and so of checkpoints.

    The loss is multiplied by a scale and gradients are divided by it. A gradient that
    is not finite halves the scale, and that update is left out; after
    ``dynamic_growth_steps`` finite ones in a row the scale doubles. With accumulation
    the mean gradient of a group of batches counts, and the scale stays during a group.

    Args:
        inner_optimizer: The optimizer that updates; its ``loss_scale_factor`` is unset.
        initial_scale: The first scale.
        dynamic_growth_steps: Finite updates in a row after which the scale doubles.

    Raises:
        DTypeError: ``inner_optimizer`` is not an optimizer.
        ArgumentError: A value is out of range.

    Example:
        >>> from exburn.optimizers import SGD
        >>> optimizer = LossScaleOptimizer(SGD(0.1, momentum=0.0), initial_scale=8.0)
        >>> params = {"w": jnp.array([1.0])}
        >>> state = optimizer.init(params)
        >>> float(optimizer.scale_loss(1.5, state))
        12.0
        >>> params, state = optimizer.update({"w": jnp.array([jnp.inf])}, state, params)
        >>> float(params["w"][0]), optimizer.hyperparameters(state)["loss_scale"]
        (1.0, 4.0)

    Source: Micikevicius et al., *Mixed Precision Training*, 2018.
    """

    def __init__(
        self,
        inner_optimizer: Optimizer,
        initial_scale: float = 2.0**15,
        dynamic_growth_steps: int = 2000,
        name: str | None = None,
    ):
        op = "LossScaleOptimizer"
        if not isinstance(inner_optimizer, Optimizer):
            raise DTypeError(
                op,
                f"inner_optimizer must be an Optimizer, received {inner_optimizer!r}",
                hint="exburn.optimizers.get makes one from a name or from optax.",
            )
        if inner_optimizer.evaluates_loss:
            raise ArgumentError(
                op,
                f"{inner_optimizer!r} needs the plain loss, to evaluate it again",
                hint="Train in float32 or bfloat16, without a LossScaleOptimizer.",
            )
        self._inner = inner_optimizer
        super().__init__(0.0, name=name)
        self._inner.loss_scale_factor = None
        self.initial_scale = check_number(
            op, "initial_scale", initial_scale, open_low=True
        )
        self.dynamic_growth_steps = check_count(
            op, "dynamic_growth_steps", dynamic_growth_steps, floats=True
        )

    @property
    def inner_optimizer(self) -> Optimizer:
        """The optimizer that updates."""
        return self._inner

    def transformation(self, learning_rate, count):
        return self._inner.transformation(learning_rate, count)

    def init(self, params: Any) -> dict[str, Any]:
        return self.around(self._inner.init(params))

    def around(self, inner_state: Mapping[str, Any]) -> dict[str, Any]:
        """The state that begins with this one of the inner optimizer."""
        scale = {
            "factor": np.array(self.initial_scale, np.float32),
            "finite_steps": np.zeros((), np.int32),
            "skipped": np.zeros((), np.int32),
        }
        return {**inner_state, "loss_scale": jax.device_put(scale)}

    def check_finite(self, grads: Any) -> jax.Array:
        """Whether no gradient holds NaN or infinity; ``None`` counts as finite."""
        checks = [jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(grads)]
        return jnp.all(jnp.stack(checks)) if checks else jnp.bool_(True)

    def _step(self, grads, state, params):
        scale = state.pop("loss_scale")
        factor, steps = scale["factor"], scale["finite_steps"]
        finite = self.check_finite(grads)

        unscaled = jax.tree.map(lambda g: g.astype(_wide(g)) / factor, grads)
        new, new_state = self._inner.update(unscaled, state, split(params))
        new = join(new), new_state
        # A choice between arrays, not a branch: on a GPU that would wait for the host.
        new_params, new_state = jax.tree.map(
            lambda n, o: jnp.where(finite, n, o), new, (params, state)
        )
        grown = steps >= self.dynamic_growth_steps - 1
        change = jnp.where(finite, jnp.where(grown, 2.0, 1.0), 0.5)
        new_state["loss_scale"] = {
            "factor": jnp.clip(factor * change, _SMALLEST, _LARGEST),
            "finite_steps": jnp.where(finite & ~grown, steps + 1, 0),
            "skipped": scale["skipped"] + jnp.where(finite, 0, 1),
        }
        return new_params, new_state

    def skips(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Any:
        """Whether the update between two states was left out."""
        return after["loss_scale"]["skipped"] > before["loss_scale"]["skipped"]

    @property
    def loss_scale(self) -> float:
        """The factor on the loss now; the first one before training."""
        state = self._live.state
        if state is None:
            return self.initial_scale
        return host_value(state["loss_scale"]["factor"])

    @property
    def skipped_steps(self) -> int:
        """How many updates were left out because a gradient was not finite."""
        state = self._live.state
        return 0 if state is None else host_value(state["loss_scale"]["skipped"])

    @property
    def scales_loss(self) -> bool:
        return True

    def scale_loss(self, loss: Any, opt_state: Mapping[str, Any] | None = None) -> Any:
        """The loss times the scale of the state (the first scale without a state)."""
        if opt_state is None:
            return loss * self.initial_scale
        return loss * opt_state["loss_scale"]["factor"]

    # Everything about the rate and the averages is the inner optimizer's.

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_live": LiveState()}

    def bind(self, get_state, set_state) -> None:
        self._inner.bind(get_state, set_state)
        self._live = LiveState(get_state, set_state)

    @property
    def learning_rate(self) -> Any:
        """The inner optimizer's learning rate."""
        return self._inner.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self._inner.learning_rate = value

    @property
    def scale(self) -> Any:
        """The inner optimizer's factor on the learning rate; not the loss scale."""
        return self._inner.scale

    @scale.setter
    def scale(self, value: float) -> None:
        self._inner.scale = value

    @property
    def revision(self) -> int:
        return self._revision + self._inner.revision

    def settings(self) -> dict[str, Any]:
        own = {"dynamic_growth_steps": self.dynamic_growth_steps}
        inner = self._inner.settings().items()
        return own | {f"inner_optimizer.{name}": value for name, value in inner}

    @property
    def accumulate(self) -> int:
        return self._inner.accumulate

    @property
    def weighs_batches(self) -> bool:
        return self._inner.weighs_batches

    @property
    def schedule(self):
        return self._inner.schedule

    def check_paths(self, paths: Sequence[str]) -> None:
        self._inner.check_paths(paths)

    def refit(
        self, opt_state: Mapping[str, Any], fresh: Mapping[str, Any], params: Any
    ) -> dict[str, Any]:
        scale = opt_state.get("loss_scale", fresh["loss_scale"])
        state = self._inner.refit(opt_state, _without_scale(fresh), params)
        return {**state, "loss_scale": scale}

    def as_initial(self, opt_state: Mapping[str, Any]) -> dict[str, Any]:
        return self._inner.as_initial(opt_state)

    def as_stored(
        self, opt_state: dict[str, Any], params: Any, paths: Iterable[str]
    ) -> dict[str, Any]:
        return self._inner.as_stored(opt_state, params, paths)

    def restart_schedule(
        self, opt_state: Mapping[str, Any], batches: int = 0
    ) -> dict[str, Any]:
        return self._inner.restart_schedule(opt_state, batches)

    def restart_warm_up(
        self, opt_state: Mapping[str, Any], batches: int = 0
    ) -> dict[str, Any]:
        return self._inner.restart_warm_up(opt_state, batches)

    def end_warm_up(self, opt_state: Mapping[str, Any]) -> dict[str, Any]:
        return self._inner.end_warm_up(opt_state)

    def schedule_start(self, opt_state: Mapping[str, Any]) -> Any:
        return self._inner.schedule_start(opt_state)

    def with_schedule_start(
        self, opt_state: Mapping[str, Any], start: Any
    ) -> dict[str, Any]:
        return self._inner.with_schedule_start(opt_state, start)

    def set_epochs(self, steps_per_epoch: int | None, epochs: int | None) -> None:
        self._inner.set_epochs(steps_per_epoch, epochs)

    def rate(self, opt_state: Mapping[str, Any]) -> Any:
        return self._inner.rate(opt_state)

    def hyperparameters(self, opt_state: Mapping[str, Any]) -> dict[str, Any]:
        factor = host_value(opt_state["loss_scale"]["factor"])
        return {**self._inner.hyperparameters(opt_state), "loss_scale": factor}

    def with_hyperparameters(
        self, opt_state: Mapping[str, Any], **values: Any
    ) -> dict[str, Any]:
        state = dict(opt_state)
        if "loss_scale" in values:
            old = state["loss_scale"]
            factor = replace_leaf(
                "LossScaleOptimizer.with_hyperparameters",
                "loss_scale",
                old["factor"],
                values.pop("loss_scale"),
            )
            state["loss_scale"] = {**old, "factor": factor}
        return self._inner.with_hyperparameters(state, **values)

    @property
    def keeps_average(self) -> bool:
        return self._inner.keeps_average

    def ema_params(self, opt_state: Mapping[str, Any]) -> Any:
        return self._inner.ema_params(opt_state)

    def final_params(self, opt_state: Mapping[str, Any], params: Any) -> Any:
        return self._inner.final_params(opt_state, params)

    def exclude_from_weight_decay(self, var_list=None, var_names=None) -> None:
        self._inner.exclude_from_weight_decay(var_list, var_names)

    def get_config(self) -> dict[str, Any]:
        return {
            "inner_optimizer": registry.serialize(self._inner),
            "initial_scale": self.initial_scale,
            "dynamic_growth_steps": self.dynamic_growth_steps,
            "name": self.name,
        }

    def __repr__(self) -> str:
        return f"LossScaleOptimizer({self._inner!r})"


def _without_scale(state: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key != "loss_scale"}


def _wide(g: Any) -> Any:
    """At least float32: dividing a float16 gradient must not make it vanish again."""
    return jnp.promote_types(g.dtype, jnp.float32)
