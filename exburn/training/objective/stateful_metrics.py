"""Metrics that a model holds and updates itself, in ``call`` or ``compute_loss``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from exburn.errors import ArgumentError
from exburn.metrics import Metric
from exburn.module.traversal import held_metrics
from exburn.training.overrides import has_custom_step

_STEPS = "train", "test"


class OwnMetrics:
    """Their states as values, which a program carries from batch to batch.

    Args:
        module: The module that holds them; none if it brings its own steps, which
            carry the states themselves.
        compile_metrics: Those of ``compile``, which are updated by the engine.
    """

    def __init__(self, module: Any = None, compile_metrics: Sequence[Metric] = ()):
        taken = {id(metric) for metric in compile_metrics}
        self._metrics: dict[str, Metric] = {}
        if module is not None and not any(has_custom_step(module, k) for k in _STEPS):
            for metric in held_metrics(module):
                if id(metric) not in taken:
                    self._metrics.setdefault(metric.name, metric)
        self.names = list(self._metrics)

    @property
    def metrics(self) -> list[Metric]:
        return list(self._metrics.values())

    def init(self) -> dict[str, Any]:
        """Fresh states by name."""
        return {name: metric.init() for name, metric in self._metrics.items()}

    @contextlib.contextmanager
    def working_on(self, states: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Within the block they hold these states; the dict has the new ones after."""
        after = dict(states)
        with contextlib.ExitStack() as stack:
            for name, metric in self._metrics.items():
                stack.enter_context(metric.kept(states[name]))
            yield after
            for name, metric in self._metrics.items():
                after[name] = jax.tree.map(_like, states[name], metric.state())

    def results(self, states: dict[str, Any]) -> dict[str, Any]:
        """Their values."""
        return {name: m.compute(states[name]) for name, m in self._metrics.items()}


@contextlib.contextmanager
def holding(
    metrics: Sequence[Metric], values: Sequence[Any], beside: Sequence[Metric] = ()
) -> Iterator[list[Any]]:
    """Within the block metrics hold these values; the list has the new ones after."""
    after: list[Any] = []
    arrays = list(values)
    with contextlib.ExitStack() as stack:
        for metric in [*metrics, *beside]:
            stack.enter_context(metric.kept())
        variables = [v for metric in metrics for v in metric.variables]
        if len(variables) != len(arrays):
            raise ArgumentError(
                "metrics",
                f"they have {len(variables)} variables, received {len(arrays)} values",
                hint="Pass those of model.metrics_variables, in their order.",
            )
        for variable, value in zip(variables, arrays, strict=True):
            variable.assign(value)
        yield after
        # Those of before: the metrics of ``compile`` are others, maybe, where the block
        # matched them to a batch of another size.
        after += [variable.value for variable in variables]


def _like(old: Any, new: Any) -> jax.Array:
    return jax.lax.stop_gradient(jnp.asarray(new, old.dtype))
