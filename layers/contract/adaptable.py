"""What layers with a large weight have in common: it can be adapted."""

from __future__ import annotations

from typing import Any, Unpack

from exburn.core import lazy_names, registry
from exburn.core.annotations import Identifier
from exburn.core.checks import check_count
from exburn.errors import ArgumentError
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions, UnregularizedOptions
from exburn.quantizers import QuantizationConfig


class AdaptableOptions(UnregularizedOptions, total=False):
    """Options of layers that list ``activity_regularizer`` themselves."""

    lora_rank: int | None
    lora_alpha: float | None
    quantization_config: Any


class AdaptableLayerOptions(AdaptableOptions, total=False):
    """Keyword arguments that every layer with an adapter takes."""

    activity_regularizer: Identifier


class Adaptable(Layer):
    """Base of layers that take an adapter beside their weight.

    Args:
        lora_rank: Adds an adapter of this rank as the weights are made; see
            :meth:`enable_lora`.
        lora_alpha: Factor of the adapter's term, over the rank; the rank by default.
        quantization_config: How weights are packed if ``dtype`` is a quantized policy:
            a configuration of ``exburn.quantizers``. That of ``quantize`` afterwards.

    Raises:
        ArgumentError: A number is out of range, or there is no such configuration.
    """

    def __init__(
        self,
        *,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        quantization_config: Any = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        self.quantization_config = _check_config(
            type(self).__name__, quantization_config
        )
        if lora_rank is not None:
            lora_rank = check_count(type(self).__name__, "lora_rank", lora_rank)
        self.lora_rank, self.lora_alpha = lora_rank, lora_alpha

    enable_lora = lazy_names.enable_lora

    def _adapt(self) -> None:
        """Adds the adapter that was asked for; the end of ``build``."""
        if self.lora_rank is not None:
            self.enable_lora(self.lora_rank, lora_alpha=self.lora_alpha)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if self.built or self.lora_rank is None:
            # An adapter that is there is told by the model's `changes`.
            for name in ("lora_rank", "lora_alpha"):
                config.pop(name, None)
        if self.quantization_config is not None:
            described = registry.serialize(self.quantization_config)
            config["quantization_config"] = described
        return config


def _check_config(op: str, config: Any) -> QuantizationConfig | None:
    """The configuration, which may be described."""
    value = registry.deserialize(config) if isinstance(config, dict) else config
    if value is not None and not isinstance(value, QuantizationConfig):
        raise ArgumentError(
            op,
            "quantization_config is one of exburn.quantizers, such as "
            f"Int8QuantizationConfig(), received {config!r}",
            hint='layer.quantize("int8") needs none.',
        )
    return value
