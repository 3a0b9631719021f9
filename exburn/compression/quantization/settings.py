"""How a model or layer is quantized: modes, configurations and policies, checked."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp

from exburn.compression.quantization.scheme import Scheme
from exburn.core.precision import DTypePolicy, QuantizedDTypePolicy
from exburn.core.precision.quantized import parse_policy
from exburn.errors import ArgumentError, unknown_name
from exburn.quantizers import (
    AbsMaxQuantizer,
    AWQConfig,
    Float8QuantizationConfig,
    GPTQConfig,
    Int4QuantizationConfig,
    Int8QuantizationConfig,
    NF4QuantizationConfig,
    QuantizationConfig,
    TernaryQuantizationConfig,
)

CASTS = ("float16", "bfloat16")
PACKED = ("int8", "int8_dynamic", "int4", "nf4", "float8", "ternary")
RANGED = ("int8", "int4", "float8")  # with which activations may have fixed ranges
_BLOCK, _STATIC = 64, "_static"

#: Modes that choose weights on data, and what tells them of it.
CALIBRATED: dict[str, type] = {"gptq": GPTQConfig, "awq": AWQConfig}


@dataclasses.dataclass(frozen=True)
class QuantizationSettings:
    """How a model is quantized.

    Attributes:
        dtype: ``"float16"``, ``"bfloat16"``, ``"int8"``, ``"int8_dynamic"``,
            ``"int4"``, ``"nf4"``, ``"float8"``, ``"ternary"``, ``"gptq"`` or ``"awq"``;
            with ``"_static"`` behind it, activations have fixed ranges.
        block_size: Weights that share a scale, or -1 for all that an output sums; of
            int4, nf4, gptq and awq.
        compute_dtype: Dtype of the computation; unchanged if None.
        scales: Dtype of the scales.
        quantizer: Rounds weights in the place of the scheme's own way.
        bits: Bits of a weight; of gptq and awq.
        config: The configuration of gptq or awq that says this, if there was one.
    """

    dtype: str
    block_size: int | None = None
    compute_dtype: str | None = None
    scales: str = "bfloat16"
    quantizer: Any = None
    bits: int = 4
    config: Any = None

    @classmethod
    def of(
        cls,
        mode: Any = None,
        block_size: int | None = None,
        compute_dtype: Any = None,
        config: Any = None,
        *,
        op: str = "quantize",
    ) -> QuantizationSettings:
        """The settings of a mode, or of a configuration.

        Raises:
            UnknownNameError: There is no such ``mode`` or ``compute_dtype``.
            ArgumentError: ``block_size`` is out of range, or given without blocks; mode
                and configuration contradict each other, or there is neither; or a
                quantizer of inputs is not the one there is.
        """
        if isinstance(config, str):  # as Keras
            mode, config = config, None
        if config is not None:
            _check_config(mode, config, block_size, op)
            return cls.of_config(config, compute_dtype, op)
        if mode is None:
            raise ArgumentError(op, "give a mode, such as 'int8', or a config")
        if isinstance(mode, str) and mode in CALIBRATED:
            kind = CALIBRATED[mode].__name__
            raise ArgumentError(
                op,
                f"mode {mode!r} chooses weights on data, which is not there",
                hint=f"Give config={kind}(dataset=…, tokenizer=…); quantize('int4') "
                "needs none.",
            )
        return cls._of_mode(mode, block_size, compute_dtype, op)

    @classmethod
    def _of_mode(cls, mode: Any, block_size: Any, compute_dtype: Any, op: str):
        name = dtype_name(mode)
        if name not in (*CASTS, *PACKED):
            raise unknown_name("mode", mode, (*CASTS, *PACKED), op=op)
        if name in ("int4", "nf4"):
            block_size = _BLOCK if block_size is None else block_size
            whole = isinstance(block_size, int) and not isinstance(block_size, bool)
            if not whole or (block_size < 2 and block_size != -1):
                raise ArgumentError(
                    op,
                    "block_size must be an integer ≥ 2, or -1 for all that an output "
                    f"sums, received {block_size!r}",
                )
        elif block_size is not None:
            raise ArgumentError(
                op,
                "only int4 and nf4 have blocks, received "
                f"block_size={block_size!r} and {name}",
            )
        compute_dtype = _compute_dtype(compute_dtype, op)
        if compute_dtype is not None and name in CASTS and compute_dtype != name:
            raise ArgumentError(
                op,
                f"{name} is computed in {name}, received "
                f"compute_dtype={compute_dtype!r}",
            )
        scales = "float32" if name == "nf4" else "bfloat16"
        return cls(name, block_size, compute_dtype, scales)

    @classmethod
    def of_config(
        cls, config: Any, compute_dtype: Any = None, op: str = "quantize"
    ) -> QuantizationSettings:
        """The settings of one of Keras' configurations."""
        mode, block_size = config.mode, None
        if mode in CALIBRATED:
            return cls(
                mode,
                config.group_size,
                _compute_dtype(compute_dtype, op),
                "float32",
                bits=config.weight_bits,
                config=config,
            )
        rounds_inputs = config.activation_quantizer is not None
        if rounds_inputs and not _is_row_by_row(config.activation_quantizer, mode):
            raise ArgumentError(
                op,
                "inputs are rounded to int8 row by row, from -127 to 127, or not at "
                f"all, received {config.activation_quantizer!r} for {mode}",
                hint="activation_quantizer=None leaves them exact.",
            )
        if mode == "int8" and rounds_inputs:
            mode = "int8_dynamic"
        if mode == "int4":
            size = getattr(config, "block_size", None)
            block_size = -1 if size is None else size
        if mode == "nf4":
            settings = cls._of_mode(mode, config.block_size, compute_dtype, op)
            scales = "uint8" if config.double_quantization else settings.scales
            return dataclasses.replace(settings, scales=scales)
        settings = cls._of_mode(mode, block_size, compute_dtype, op)
        if config.weight_quantizer is None:
            return settings
        return dataclasses.replace(
            settings, scales="float32", quantizer=config.weight_quantizer
        )

    @classmethod
    def of_policy(cls, policy: Any, config: Any = None) -> QuantizationSettings:
        """The settings of a layer that is made with a quantized policy."""
        mode, block = policy.quantization_mode, getattr(policy, "block_size", None)
        if config is not None and config.mode == mode:
            return cls.of_config(config)
        if mode == "int8":
            return cls.of_config(Int8QuantizationConfig())
        if mode in CALIBRATED:
            return cls(
                mode, policy.group_size, scales="float32", bits=policy.weight_bits
            )
        if mode == "nf4":
            return cls._of_mode(mode, block, None, "quantize")
        return cls(mode, (block or -1) if mode == "int4" else None)

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> QuantizationSettings:
        """The settings of what a file tells was done to a model."""
        dtype, block_size = record["dtype"], record.get("block_size")
        compute_dtype = record.get("compute_dtype")
        if dtype in CALIBRATED:
            kind, bits = CALIBRATED[dtype], record["bits"]
            config = kind(None, None, weight_bits=bits, group_size=block_size)
            settings = cls.of_config(config, compute_dtype)
            return dataclasses.replace(settings, config=None)  # the layers have it
        settings = cls.of(dtype.removesuffix(_STATIC), block_size, compute_dtype)
        if dtype.endswith(_STATIC):
            settings = settings.with_ranges()
        return dataclasses.replace(
            settings, scales=record.get("scales", settings.scales)
        )

    def with_ranges(self) -> QuantizationSettings:
        """The same with activations that are rounded within fixed ranges."""
        if self.dtype not in RANGED:
            raise ArgumentError(
                "quantize",
                f"activations have ranges with {', '.join(RANGED)}, not with "
                f"{self.dtype}",
            )
        name = f"{self.dtype}{_STATIC}"
        return dataclasses.replace(self, dtype=name, scales="float32")

    @property
    def storage(self) -> str:
        """How weights are stored: the mode without what is said of activations."""
        return self.dtype.removesuffix("_dynamic").removesuffix(_STATIC)

    @property
    def is_static(self) -> bool:
        """Whether activations are rounded within fixed ranges."""
        return self.dtype.endswith(_STATIC)

    @property
    def uses_calibration(self) -> bool:
        """Whether weights are chosen on data."""
        return self.dtype in CALIBRATED

    @property
    def casts(self) -> bool:
        """Whether the weights stay arrays, of a shorter floating dtype."""
        return self.dtype in CASTS

    def scheme(
        self, shape: tuple[int, ...], summed: tuple[int, ...], dtype: Any
    ) -> Scheme:
        """How a weight of this shape is stored."""
        stored = self.storage
        if self.uses_calibration:
            stored = "int8" if self.bits == 8 else "int4"
        return Scheme(
            stored,
            shape,
            summed,
            self.block_size,
            self.dtype == "int8_dynamic",
            jnp.dtype(dtype).name,
            "float32" if stored == "ternary" else self.scales,
            self.dtype if self.uses_calibration else None,
            self.bits,
            self.is_static,
        )


def config_of(
    settings: QuantizationSettings, before: Any = None
) -> QuantizationConfig | None:
    """Keras' configuration that says the same; ``None`` for a cast.

    Args:
        before: The configuration that a layer has, which is kept if it is of a mode
            whose settings do not tell all of it.
    """
    if settings.uses_calibration:
        kind, config = CALIBRATED[settings.dtype], settings.config
        if config is not None:  # without data and layers, which a file cannot hold
            fields = {**config.get_config(), "quantization_layer_structure": None}
            return type(config).from_config(fields)
        if isinstance(before, kind):
            return before
        return kind(
            None, None, weight_bits=settings.bits, group_size=settings.block_size
        )
    if settings.dtype.startswith("int8"):
        inputs = AbsMaxQuantizer() if settings.dtype == "int8_dynamic" else None
        return Int8QuantizationConfig(settings.quantizer, inputs)
    if settings.storage == "int4":
        size = None if settings.block_size == -1 else settings.block_size
        return Int4QuantizationConfig(settings.quantizer, None, size)
    if settings.storage == "nf4":
        double = settings.scales == "uint8"
        return NF4QuantizationConfig(settings.block_size or _BLOCK, double)
    if settings.storage == "ternary":
        return TernaryQuantizationConfig()
    return Float8QuantizationConfig() if settings.storage == "float8" else None


def policy_of(scheme: Scheme, source: DTypePolicy) -> QuantizedDTypePolicy:
    """The policy, as Keras names it, of a layer whose weights are stored so."""
    mode = scheme.mode
    if scheme.method is not None:
        mode = f"{mode}/{scheme.bits}/{scheme.block_size}"
    elif scheme.in_halves:
        mode = f"{mode}/{scheme.block_size}"
    policy = parse_policy(f"{mode}_from_float32")
    return type(policy)(mode, source)


def dtype_name(dtype: Any) -> Any:
    """The name of a mode, or of a dtype that stands for one."""
    if isinstance(dtype, str):
        return {"float8_e4m3fn": "float8", "half": "float16"}.get(dtype, dtype)
    try:
        name = jnp.dtype(dtype).name
    except TypeError:
        return dtype
    return {"float8_e4m3fn": "float8"}.get(name, name)


def _compute_dtype(dtype: Any, op: str) -> str | None:
    """The name of the dtype of computations, checked."""
    if dtype is None:
        return None
    names, name = ("float32", *CASTS), dtype_name(dtype)
    if name not in names:
        raise unknown_name("compute dtype", name, names, op=op)
    return name


def _check_config(mode: Any, config: Any, block_size: Any, op: str) -> None:
    if not isinstance(config, QuantizationConfig):
        raise ArgumentError(
            op,
            f"config must be a QuantizationConfig, received {config!r}",
            hint="Make one of exburn.quantizers, such as Int8QuantizationConfig().",
        )
    if mode is not None and config.mode != mode:
        raise ArgumentError(
            op,
            f"mode {mode!r} and the config contradict each other, which is for "
            f"{config.mode!r}",
            hint="Give one of them.",
        )
    if block_size is not None:
        raise ArgumentError(
            op,
            "the size of blocks is said twice",
            {"block_size": block_size, "config": config},
            hint="Int4QuantizationConfig(block_size=…) alone.",
        )


def _is_row_by_row(quantizer: Any, mode: str) -> bool:
    """Whether a quantizer of inputs does what the products here do."""
    return (
        mode == "int8"
        and type(quantizer) is AbsMaxQuantizer
        and quantizer.axis in (None, (-1,))
        and quantizer.value_range == (-127, 127)
        and quantizer.output_dtype == "int8"
    )
