"""What a model is: parameters, bytes, loss, optimizer and device."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx

from exburn.core.printing import size_text
from exburn.errors import ExBurnError
from exburn.models.report import Figures
from exburn.module.selection import frozen_paths, layer_paths
from exburn.module.traversal import iter_weights
from exburn.module.variable import scalars
from exburn.runtime.device import device_name


@dataclasses.dataclass(frozen=True, repr=False)
class ModelInfo(Figures):
    """What a model is; a mapping of these names, too.

    Attributes:
        name, type: The model's name and class.
        layers: Number of layers, those within others counted.
        parameters: Numbers in all weights.
        trainable: Numbers that training changes.
        frozen: Numbers in parameters that are frozen.
        state: Numbers in other weights, such as moving statistics.
        frozen_layers: Paths of the frozen layers.
        bytes: Bytes of the weights by dtype.
        optimizer_bytes: Bytes of the optimizer's state; ``None`` without an optimizer.
        precision: The model's policy.
        compiled: Whether ``compile`` was called.
        optimizer, learning_rate: Its name and rate now, or ``None``.
        loss: Its name; a dict or list where outputs have their own.
        metrics: Names of the metrics.
        device: Where the weights are.
    """

    name: str
    type: str
    layers: int
    parameters: int
    trainable: int
    frozen: int
    state: int
    frozen_layers: tuple[str, ...]
    bytes: dict[str, int]
    optimizer_bytes: int | None
    precision: str
    compiled: bool
    optimizer: str | None
    learning_rate: Any
    loss: Any
    metrics: tuple[str, ...]
    device: str

    def _lines(self) -> tuple[str, dict[str, str]]:
        sizes = [f"{size_text(n)} {dtype}" for dtype, n in self.bytes.items()]
        lines = {
            "Layers": f"{self.layers} ({len(self.frozen_layers)} frozen)",
            "Parameters": f"{self.parameters:,}",
            "  trainable": f"{self.trainable:,}",
            "  frozen": f"{self.frozen:,}",
            "  other state": f"{self.state:,}",
            "Weights": ", ".join(sizes) or "none",
            "Precision": self.precision,
            "Device": self.device,
        }
        if self.compiled:
            rate = self.learning_rate
            rate = f", learning rate {rate:.6g}" if isinstance(rate, float) else ""
            lines["Optimizer"] = (
                f"{self.optimizer}{rate}, {size_text(self.optimizer_bytes or 0)}"
            )
            lines["Loss"] = str(self.loss)
            lines["Metrics"] = ", ".join(self.metrics) or "none"
        return f"{self.name} ({self.type})", lines


def describe(model: Any) -> ModelInfo:
    """The figures of a built model."""
    groups: dict[str, int] = {"trainable": 0, "frozen": 0, "state": 0}
    sizes: dict[str, int] = {}
    devices: set[Any] = set()
    for _, weight, learns in iter_weights(model):
        value = weight.get_raw_value()
        fixed = isinstance(weight, nnx.Param) or "stored" in weight.get_metadata()
        kind = "trainable" if learns else "frozen" if fixed else "state"
        if not weight.get_metadata().get("carried"):
            groups[kind] += scalars(weight)
        dtype = np.dtype(value.dtype).name
        sizes[dtype] = sizes.get(dtype, 0) + value.nbytes
        devices |= value.devices()
    optimizer = model.optimizer
    return ModelInfo(
        name=model.name,
        type=type(model).__name__,
        layers=len(layer_paths(model)),
        parameters=sum(groups.values()),
        **groups,
        frozen_layers=tuple(frozen_paths(model)),
        bytes=sizes,
        optimizer_bytes=_optimizer_bytes(model),
        precision=model.precision.name,
        compiled=model.compiled,
        optimizer=None if optimizer is None else optimizer.name,
        learning_rate=_rate(optimizer),
        loss=_names(model.loss),
        metrics=tuple(_metric_names(model._training_session.settings or {})),
        device=", ".join(sorted(map(str, devices))) or device_name(),
    )


def _optimizer_bytes(model: Any) -> int | None:
    if model.optimizer is None:
        return None
    params = {
        path: jax.ShapeDtypeStruct(w.shape, w.dtype)
        for path, w, learns in iter_weights(model)
        if learns
    }
    state = jax.tree.leaves(jax.eval_shape(model.optimizer.init, params))
    return sum(int(np.prod(s.shape)) * np.dtype(s.dtype).itemsize for s in state)


def _rate(optimizer: Any) -> Any:
    try:
        return None if optimizer is None else optimizer.learning_rate
    except ExBurnError:  # a MultiOptimizer has several
        return None


def _names(loss: Any) -> Any:
    if loss is None or isinstance(loss, str):
        return loss
    if isinstance(loss, Mapping):
        return {key: _names(one) for key, one in loss.items()}
    if isinstance(loss, list | tuple):
        return [_names(one) for one in loss]
    return getattr(loss, "name", None) or getattr(loss, "__name__", str(loss))


def _metric_names(settings: Mapping[str, Any]) -> Iterator[str]:
    for metrics in (settings.get("metrics"), settings.get("weighted_metrics")):
        for one in jax.tree.leaves(metrics):
            yield str(_names(one))
