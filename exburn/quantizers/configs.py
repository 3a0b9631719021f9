"""What ``quantize`` is told beside the mode: configurations under Keras' names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from exburn.core import registry
from exburn.core.checks import check_count
from exburn.errors import ArgumentError
from exburn.errors.boundary import guard_methods
from exburn.quantizers.rounding import AbsMaxQuantizer

__all__ = [
    "Float8QuantizationConfig",
    "Int4QuantizationConfig",
    "Int8QuantizationConfig",
    "QuantizationConfig",
    "TernaryQuantizationConfig",
]


@guard_methods
class QuantizationConfig:
    """Base of configurations: how weights, and inputs, are rounded.

    Args:
        weight_quantizer: Rounds weights, as ``values, scale = quantizer(weight)`` with
            ``weight ≈ values / scale``; the layers' own way if None.
        activation_quantizer: Rounds inputs, row by row; they stay exact if None.

    Attributes:
        mode: The mode of ``quantize`` that it belongs to; each subclass has one.

    Example:
        >>> class Ours(QuantizationConfig):
        ...     mode = "int8"
        >>> Ours(AbsMaxQuantizer(axis=0)).get_config()["activation_quantizer"] is None
        True

    Source: ``keras.quantizers.QuantizationConfig``.
    """

    mode: str

    def __init__(self, weight_quantizer: Any = None, activation_quantizer: Any = None):
        self.weight_quantizer = weight_quantizer
        self.activation_quantizer = activation_quantizer

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able."""
        return {
            "weight_quantizer": registry.serialize(self.weight_quantizer),
            "activation_quantizer": registry.serialize(self.activation_quantizer),
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Makes a configuration from ``get_config``'s result."""
        return cls(**{key: registry.deserialize(v) for key, v in config.items()})

    @staticmethod
    def weight_quantizer_or_default(config: Any, default: Any) -> Any:
        """The quantizer of a configuration, or the default if there is none."""
        quantizer = None if config is None else config.weight_quantizer
        return default if quantizer is None else quantizer

    @staticmethod
    def activation_quantizer_or_default(config: Any, default: Any) -> Any:
        """The quantizer of a configuration, the default without a configuration."""
        return default if config is None else config.activation_quantizer

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in vars(self).items())
        return f"{type(self).__name__}({shown})"


@guard_methods
class Int8QuantizationConfig(QuantizationConfig):
    """Weights, and by default inputs, in 8-bit integers.

    Args:
        weight_quantizer: As of :class:`QuantizationConfig`; its values are int8.
        activation_quantizer: ``AbsMaxQuantizer()`` by default; ``None`` leaves inputs
            exact.

    Raises:
        ArgumentError: The weights' quantizer gives other values.

    Example:
        >>> import numpy as np
        >>> from exburn.layers import Dense
        >>> layer = Dense(64)
        >>> layer.build((None, 32))
        >>> layer.quantize(config=Int8QuantizationConfig(activation_quantizer=None))
        >>> layer.kernel.scheme.dynamic, layer.dtype_policy.name
        (False, 'int8_from_float32')

    Source: ``keras.quantizers.Int8QuantizationConfig``.
    """

    mode = "int8"

    def __init__(
        self, weight_quantizer: Any = None, activation_quantizer: Any = "default"
    ):
        if isinstance(activation_quantizer, str) and activation_quantizer == "default":
            activation_quantizer = AbsMaxQuantizer()
        super().__init__(weight_quantizer, activation_quantizer)
        _check_values(self, None)


@guard_methods
class Int4QuantizationConfig(QuantizationConfig):
    """Weights in 4-bit integers.

    Args:
        weight_quantizer: As of :class:`QuantizationConfig`; its values are int8 from -8
            to 7. It needs ``block_size=None``.
        activation_quantizer: Must be ``None``, which ``"default"`` stands for: inputs
            stay exact.
        block_size: Weights that share a scale; ``None`` or -1 takes all that an output
            sums.

    Raises:
        ArgumentError: The size is out of range, the quantizer gives other values, or
            both are given.

    Example:
        >>> Int4QuantizationConfig().block_size
        128

    Source: ``keras.quantizers.Int4QuantizationConfig``.
    """

    mode = "int4"

    def __init__(
        self,
        weight_quantizer: Any = None,
        activation_quantizer: Any = "default",
        block_size: int | None = 128,
    ):
        if isinstance(activation_quantizer, str) and activation_quantizer == "default":
            activation_quantizer = None
        super().__init__(weight_quantizer, activation_quantizer)
        if block_size not in (None, -1):
            block_size = check_count(type(self).__name__, "block_size", block_size)
            if weight_quantizer is not None or activation_quantizer is not None:
                raise ArgumentError(
                    type(self).__name__,
                    "blocks are rounded in their own way, not by a quantizer",
                    {"block_size": block_size},
                    hint="Leave the quantizers out, or give block_size=None.",
                )
        self.block_size = block_size
        _check_values(self, (-8, 7))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "block_size": self.block_size}


@guard_methods
class Float8QuantizationConfig(QuantizationConfig):
    """Weights in 8-bit floats (e4m3).

    Example:
        >>> Float8QuantizationConfig().mode
        'float8'

    Source: ``keras.quantizers.Float8QuantizationConfig``.
    """

    mode = "float8"

    def __init__(self):
        super().__init__()

    def get_config(self) -> dict[str, Any]:
        return {}


@guard_methods
class TernaryQuantizationConfig(QuantizationConfig):
    """Weights of Dense and TernaryDense as -1, 0 and 1, with one factor.

    Example:
        >>> TernaryQuantizationConfig().mode
        'ternary'

    Source: ``keras.quantizers.TernaryQuantizationConfig``, of Keras 3.16.
    """

    mode = "ternary"

    def __init__(self):
        super().__init__()

    def get_config(self) -> dict[str, Any]:
        return {}


def _check_values(config: QuantizationConfig, value_range: Any) -> None:
    """Refuses a quantizer of weights whose values do not fit the bits."""
    quantizer = config.weight_quantizer
    if quantizer is None:
        return
    op = type(config).__name__
    if quantizer.output_dtype != "int8":
        raise ArgumentError(
            op,
            "the weights' quantizer must give int8, received "
            f"output_dtype={quantizer.output_dtype!r}",
        )
    if value_range is not None and tuple(quantizer.value_range) != value_range:
        raise ArgumentError(
            op,
            f"the weights' quantizer must give values from {value_range[0]} to "
            f"{value_range[1]}, received value_range={tuple(quantizer.value_range)}",
        )


for _cls in (
    QuantizationConfig,
    Int8QuantizationConfig,
    Int4QuantizationConfig,
    Float8QuantizationConfig,
    TernaryQuantizationConfig,
):
    registry.register_builtin(_cls)
