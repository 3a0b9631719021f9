"""Configurations of ``quantize`` under Keras' names; GPTQ and AWQ have data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from exburn.core import registry
from exburn.core.checks import check_count, check_flag, check_number
from exburn.errors import ArgumentError
from exburn.errors.boundary import guard_methods
from exburn.quantizers.rounding import AbsMaxQuantizer

__all__ = [
    "AWQConfig",
    "Float8QuantizationConfig",
    "GPTQConfig",
    "Int4QuantizationConfig",
    "Int8QuantizationConfig",
    "NF4QuantizationConfig",
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
class NF4QuantizationConfig(QuantizationConfig):
    """Weights as 4-bit codes of 16 numbers that are dense where normal weights are.

    The numbers, and with ``double_quantization`` the scales, are those of
    ``bitsandbytes``.

    Args:
        block_size: Weights that share a scale, their largest magnitude; -1 takes all
            that an output sums.
        double_quantization: Whether the scales are rounded to 8 bits, too: 0.52 bytes a
            weight instead of 0.56.

    Raises:
        ArgumentError: The size is no integer >= 2, or -1.

    Example:
        >>> from exburn.layers import Dense
        >>> layer = Dense(64, use_bias=False)
        >>> layer.build((None, 128))
        >>> layer.quantize(config=NF4QuantizationConfig(double_quantization=True))
        >>> layer.kernel.nbytes
        4232

    Source: Dettmers et al., *QLoRA: Efficient Finetuning of Quantized LLMs*, 2023.
    """

    mode = "nf4"

    def __init__(self, block_size: int = 64, double_quantization: bool = False):
        super().__init__()
        op = type(self).__name__
        if block_size != -1:
            block_size = check_count(op, "block_size", block_size, least=2)
        self.block_size = block_size
        self.double_quantization = check_flag(
            op, "double_quantization", double_quantization
        )

    def get_config(self) -> dict[str, Any]:
        double = self.double_quantization
        return {"block_size": self.block_size, "double_quantization": double}


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
    NF4QuantizationConfig,
    Float8QuantizationConfig,
    TernaryQuantizationConfig,
):
    registry.register_builtin(_cls)


class _Calibrated(QuantizationConfig):
    """What both are told: data, and the layers that it goes through."""

    def __init__(
        self,
        dataset: Any,
        tokenizer: Any,
        weight_bits: int,
        num_samples: int,
        sequence_length: int,
        group_size: int,
        quantization_layer_structure: Mapping[str, Any] | None,
        known_bits: tuple[int, ...],
    ):
        super().__init__()
        op = type(self).__name__
        if weight_bits not in known_bits:
            names = ", ".join(map(str, known_bits))
            raise ArgumentError(
                op, f"weight_bits must be one of {names}, received {weight_bits!r}"
            )
        if group_size != -1:
            group_size = check_count(op, "group_size", group_size)
        self.dataset, self.tokenizer = dataset, tokenizer
        self.weight_bits, self.group_size = int(weight_bits), group_size
        self.num_samples = check_count(op, "num_samples", num_samples)
        self.sequence_length = check_count(op, "sequence_length", sequence_length)
        self.quantization_layer_structure = quantization_layer_structure

    def dtype_policy_string(self) -> str:
        """The mode of the layers' dtype policies: ``"gptq/4/128"``."""
        return f"{self.mode}/{self.weight_bits}/{self.group_size}"

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments but for the data, which is needed only once."""
        return {
            "dataset": None,
            "tokenizer": None,
            "weight_bits": self.weight_bits,
            "num_samples": self.num_samples,
            "sequence_length": self.sequence_length,
            "group_size": self.group_size,
            "quantization_layer_structure": self.quantization_layer_structure,
        }


@guard_methods
class GPTQConfig(_Calibrated):
    """Weights are rounded input by input, and the others make up for the errors.

    With the inputs ``X`` of a layer on the data, ``H = 2 XᵀX / rows + damping`` and
    ``H⁻¹ = UᵀU``, each error ``w_j - q_j`` changes the weights behind it:
    ``w_k -= (w_j - q_j) * U_jk / U_jj``.

    Args:
        dataset: Strings, or arrays of token numbers: an iterable, read to its end.
        tokenizer: Makes numbers of a string, by its ``tokenize`` or called; may be
            ``None`` if there are no strings.
        weight_bits: 2, 3, 4 or 8.
        num_samples: Windows of tokens that are taken of the data.
        calibration_batch_size: Windows that go through a block at once: more take less
            time and more memory.
        per_channel: Whether each output has scales of its own.
        sequence_length: Tokens of a window.
        hessian_damping: Share of H's mean diagonal that is added to it, 0 to 1.
        group_size: Weights of an output that share a scale and a zero point, or -1 for
            all.
        symmetric: Whether the zero point is in the middle.
        activation_order: Whether the largest inputs are rounded first.
        quantization_layer_structure: ``{"pre_block_layers": […], "sequential_blocks":
            […]}``: layers, or functions, that the tokens go through first, and the
            layers of the model that are rounded, one after the other. By default that
            of ``model.get_quantization_layer_structure``.

    Raises:
        ArgumentError: A value is out of range.

    Example:
        >>> import numpy as np
        >>> from exburn import Input, Sequential
        >>> from exburn.layers import Dense, Embedding
        >>> model = Sequential([Input((16,)), Embedding(50, 32), Dense(32, "gelu")])
        >>> config = GPTQConfig(
        ...     dataset=[np.arange(50)],
        ...     tokenizer=None,
        ...     sequence_length=16,
        ...     group_size=-1,
        ...     quantization_layer_structure={
        ...         "pre_block_layers": model.layers[:1],
        ...         "sequential_blocks": model.layers[1:],
        ...     },
        ... )
        >>> model.quantize("gptq", config=config).layers[1].dtype_policy.name
        'gptq/4/-1_from_float32'

    Source: ``keras.quantizers.GPTQConfig``; Frantar et al., *GPTQ: Accurate
    Post-Training Quantization for Generative Pre-trained Transformers*, 2023.
    """

    mode = "gptq"

    def __init__(
        self,
        dataset: Any,
        tokenizer: Any,
        *,
        weight_bits: int = 4,
        num_samples: int = 128,
        calibration_batch_size: int = 8,
        per_channel: bool = True,
        sequence_length: int = 512,
        hessian_damping: float = 0.01,
        group_size: int = 128,
        symmetric: bool = False,
        activation_order: bool = False,
        quantization_layer_structure: Mapping[str, Any] | None = None,
    ):
        super().__init__(
            dataset=dataset,
            tokenizer=tokenizer,
            weight_bits=weight_bits,
            num_samples=num_samples,
            sequence_length=sequence_length,
            group_size=group_size,
            quantization_layer_structure=quantization_layer_structure,
            known_bits=(2, 3, 4, 8),
        )
        op = type(self).__name__
        self.calibration_batch_size = check_count(
            op, "calibration_batch_size", calibration_batch_size
        )
        damping = check_number(op, "hessian_damping", hessian_damping, 0, 1)
        self.hessian_damping = damping
        self.per_channel = check_flag(op, "per_channel", per_channel)
        self.symmetric = check_flag(op, "symmetric", symmetric)
        self.activation_order = check_flag(op, "activation_order", activation_order)

    def get_config(self) -> dict[str, Any]:
        own = (
            *("calibration_batch_size", "per_channel", "hessian_damping"),
            *("symmetric", "activation_order"),
        )
        return {**super().get_config(), **{name: getattr(self, name) for name in own}}


@guard_methods
class AWQConfig(_Calibrated):
    """Weights of large inputs get a finer grid than the others of their group.

    The weights of an input are multiplied by ``s = mean|x| ** r / w ** (1 - r)``, ``w``
    their mean magnitude within their groups, before they are rounded to 4 bits, and
    divided by it when they are read. Of ``num_grid_points + 1`` numbers ``r`` from 0 to
    1, each layer takes that with the least error.

    Args:
        dataset, tokenizer, num_samples, sequence_length: As of :class:`GPTQConfig`.
        weight_bits: 4.
        group_size: As of :class:`GPTQConfig`.
        num_grid_points: Numbers ``r`` that are tried besides 0.
        apply_clip: Whether the largest weights of a group are cut off where that brings
            the layer's outputs nearer to the exact ones.
        quantization_layer_structure: As of :class:`GPTQConfig`.

    Raises:
        ArgumentError: A value is out of range.

    Example:
        >>> AWQConfig(None, None, group_size=64).dtype_policy_string()
        'awq/4/64'

    Source: ``keras.quantizers.AWQConfig``; Lin et al., *AWQ: Activation-aware Weight
    Quantization for On-Device LLM Compression and Acceleration*, 2024.
    """

    mode = "awq"

    def __init__(
        self,
        dataset: Any,
        tokenizer: Any,
        *,
        weight_bits: int = 4,
        num_samples: int = 128,
        sequence_length: int = 512,
        group_size: int = 128,
        num_grid_points: int = 20,
        apply_clip: bool = True,
        quantization_layer_structure: Mapping[str, Any] | None = None,
    ):
        super().__init__(
            dataset=dataset,
            tokenizer=tokenizer,
            weight_bits=weight_bits,
            num_samples=num_samples,
            sequence_length=sequence_length,
            group_size=group_size,
            quantization_layer_structure=quantization_layer_structure,
            known_bits=(4,),
        )
        points = check_count(type(self).__name__, "num_grid_points", num_grid_points)
        self.num_grid_points = points
        self.apply_clip = check_flag(type(self).__name__, "apply_clip", apply_clip)

    def get_config(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("num_grid_points", "apply_clip")}
        return {**super().get_config(), **own}


registry.register_builtin(GPTQConfig)
registry.register_builtin(AWQConfig)
