"""The loss of a model that has to fulfil an equation, beside a loss of data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core import registry
from exburn.core.checks import check_number
from exburn.errors import ArgumentError, DTypeError, ShapeError, TargetError
from exburn.losses.catalogue import as_loss, serialize
from exburn.losses.contract.base import Loss, function_config
from exburn.losses.contract.own_call import OwnCall

DATA_LOSS, RESIDUAL_LOSS = "data_loss", "residual_loss"  # the parts, in logs


class Residual(Loss):
    """The mean squares of an equation's residual, and a loss of the data beside them.

    ``fit`` and ``evaluate`` compute it: the function is called in the compiled step
    with the model and the inputs of the batch, and takes the derivatives it needs.

    ``loss = data_loss(y, model(x)) + weight · Σ mean(residual²)``

    The two parts are logged apart, as ``data_loss`` and ``residual_loss``; ``loss`` is
    their sum, with the penalties of layers.

    Rows with a ``sample_weight`` of 0 have no data: only the equation counts there, for
    which all rows count alike.

    Args:
        residual: ``residual(model, x)``, which returns an array that is 0 where the
            equation holds, or a structure of several, each with a mean of its own.
        data_loss: Name of a loss of ``y``, or the loss; ``None`` for models that are
            trained by the equation alone, with ``fit(x)``.
        weight: Factor of the squares of the residual.
        name: Name in logs.

    Raises:
        ArgumentError: ``residual`` is not callable, ``weight`` is no number of at
            least 0, or ``data_loss`` is a loss that cannot stand in another one.

    Example:
        >>> import exburn
        >>> from exburn import ops
        >>> def decay(model, t):  # u' = -u
        ...     u, slope = ops.value_and_grad(model)(t)
        ...     return slope + u
        >>> model = exburn.Sequential([exburn.Input((1,)), exburn.layers.Dense(1)])
        >>> model.compile("adam", loss=Residual(decay))
        >>> history = model.fit(jnp.zeros((4, 1)), jnp.ones((4, 1)), verbose=0)

    Source: Raissi, Perdikaris, Karniadakis, *Physics-informed neural networks*, 2019.
    """

    def __init__(
        self,
        residual: Callable[[Any, Any], Any],
        data_loss: Any = "mse",
        weight: float = 1.0,
        name: str | None = "residual",
    ):
        if not callable(residual):
            raise ArgumentError(
                "Residual",
                "residual must be a function of (model, x)",
                {"residual": residual},
            )
        self.residual, self.data_loss = residual, as_loss(data_loss)
        if isinstance(self.data_loss, OwnCall | Residual) or hasattr(
            self.data_loss, "of_tokens"
        ):
            raise ArgumentError(
                "Residual",
                "data_loss must be a loss of targets and outputs that leaves "
                f"reductions to its base class, received {type(data_loss).__name__}",
            )
        self.weight = check_number("Residual", "weight", weight)
        reduction = getattr(self.data_loss, "reduction", "sum_over_batch_size")
        super().__init__(name=name, reduction=reduction)

    @property
    def reads_targets(self) -> bool:
        """Whether there is a loss of the data."""
        return self.data_loss is not None

    def of_model(self, model: Any, x: Any) -> jax.Array:
        """The part of the equation: a scalar.

        Args:
            model: Called by the function.
            x: The inputs of a batch.
        """
        values = jax.tree.map(jnp.asarray, self.residual(model, x))
        if not jax.tree.leaves(values):
            raise ShapeError(
                self.name,
                "the function of the residual must return arrays, received none",
                hint="Let the function end with `return`.",
            )
        for value in jax.tree.leaves(values):
            if not jnp.issubdtype(value.dtype, jnp.floating):
                raise DTypeError(
                    self.name,
                    f"a residual is of real floats, received {value.dtype.name}",
                    hint="Return the real and the imaginary part as two arrays.",
                )
        means = [
            jnp.mean(jnp.square(value.astype(jnp.float32)))
            for value in jax.tree.leaves(values)
        ]
        return self.weight * jnp.sum(jnp.stack(means))

    def call(self, y_true: Any, y_pred: Any) -> jax.Array:
        return self._of_data().call(y_true, y_pred)

    def __call__(self, y_true: Any, y_pred: Any, *args: Any, **options: Any) -> Any:
        return self._of_data()(y_true, y_pred, *args, **options)

    def check_shapes(self, y_true: Any, y_pred: Any) -> None:
        self._of_data().check_shapes(y_true, y_pred)
        self.per_sample = self._of_data().per_sample

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        self._of_data().check_targets(y_true, y_pred)

    def _of_data(self) -> Loss:
        if self.data_loss is None:
            raise TargetError(
                self.name,
                "there are targets, and Residual(data_loss=None) reads none",
                hint="Leave out y, or name the data_loss.",
            )
        return self.data_loss

    def get_config(self) -> dict[str, Any]:
        data = None if self.data_loss is None else serialize(self.data_loss)
        return {
            "residual": function_config(self.residual),
            "data_loss": data,
            "weight": self.weight,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Residual:
        residual = registry.deserialize(config["residual"])
        return cls(**{**config, "residual": residual})


registry.register(Residual, package="losses")


def equation_of(losses: Any) -> Residual | None:
    """The losses of ``compile`` where they are an equation's; else ``None``.

    Example:
        >>> equation_of("mse") is None
        True
    """
    return losses if isinstance(losses, Residual) else None
