"""Weights that Keras has packed: integers and scales, as layers here hold them.

Keras' ``int8`` and ``ternary`` compute here as there, from the integers of the file.
Its other modes are refused by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from exburn.errors import ExBurnError, ModelFormatError
from exburn.layers import (
    Dense,
    EinsumDense,
    Embedding,
    ReversibleEmbedding,
    TernaryDense,
)
from exburn.module.variable import Weight
from exburn.quantizers import Int8QuantizationConfig, unpack_ternary
from exburn.quantizers.packing import TERNARY_PLACES

_MODES = ("int8", "ternary")
_WEIGHTS = ("kernel", "embeddings", "reverse_embeddings")


@dataclasses.dataclass
class PackedLayer:
    """A layer whose weights a file has packed.

    Attributes:
        layer: The layer, whose weights are exact until ``pack``.
        mode: Keras' mode.
        op: The operation named in errors.
        path: The file, for errors.
        arrays: Integers and scales of int8 that were read, by the names of weights.
    """

    layer: Any
    mode: str
    op: str
    path: Any
    arrays: dict[str, tuple[np.ndarray, np.ndarray]] = dataclasses.field(
        default_factory=dict
    )

    def sources(self) -> list[tuple[str, str | None]]:
        """The arrays of the file in order: a weight's name, and which part it is.

        The part is ``"values"`` or ``"scale"``; ``None`` of a weight that is exact.
        """
        layer = self.layer
        if isinstance(layer, Dense | EinsumDense):
            exact = [] if getattr(layer, "bias", None) is None else [("bias", None)]
            return [("kernel", "values"), *exact, ("kernel", "scale")]
        names = [n for n in _WEIGHTS[1:] if getattr(layer, n, None) is not None]
        return [(name, part) for name in names for part in ("values", "scale")]

    def stored_shape(self, name: str) -> tuple[int, ...]:
        """The shape that the integers of a weight have in the file."""
        shape = tuple(getattr(self.layer, name).shape)
        if self.mode == "ternary":
            return (*shape[:-1], -(-shape[-1] // len(TERNARY_PLACES)))
        return shape

    def decode(self, name: str, values: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """A weight that is packed to these integers and scales.

        Raises:
            ModelFormatError: They are of other dtypes or shapes.
        """
        shape = tuple(getattr(self.layer, name).shape)
        dtype = np.uint8 if self.mode == "ternary" else np.int8
        scale = np.asarray(scale).astype(np.float32)
        try:
            if values.dtype != dtype:
                raise ValueError(f"the integers are {values.dtype}")
            if not np.isfinite(scale).all():
                raise ValueError("a scale is infinite or no number")
            if self.mode == "ternary":
                whole = unpack_ternary(values, shape[-1], axis=-1)
                whole = np.asarray(whole, np.float32)
                # Its factor becomes the mean magnitude of all numbers, also of zeros.
                share = np.count_nonzero(whole) / max(whole.size, 1)
                return whole * (scale.reshape(()) / np.float32(share or 1))
            scale = self._align(name, scale)
            if np.broadcast_shapes(values.shape, scale.shape) != shape:
                raise ValueError(f"the scales are {scale.shape}")
            if (scale == 0).any():
                raise ValueError("a scale is zero")
        except (ExBurnError, ValueError, IndexError) as error:
            raise self._error("cannot be unpacked", error) from error
        self.arrays[name] = values, scale
        return values.astype(np.float32) / scale

    def _align(self, name: str, scale: np.ndarray) -> np.ndarray:
        """The scales beside the axes of the weight that they are of."""
        if isinstance(self.layer, EinsumDense):
            return _beside_kernel(self.layer.equation, scale)
        return scale[:, None] if name == "embeddings" else scale[None, :]

    def pack(self) -> None:
        """Packs the layer's weights, as they are in the file.

        Raises:
            ModelFormatError: Inputs would be rounded in a way that is not computed.
        """
        config_so_far = self.layer.quantization_config
        inputs = (
            "default" if config_so_far is None else config_so_far.activation_quantizer
        )
        try:
            if self.mode == "ternary":
                self.layer.quantize("ternary")
                return
            if inputs is not None and not _is_product(self.layer):
                raise ModelFormatError(
                    self.op,
                    f"of {self.layer.equation!r}, inputs are not rounded",
                )
            quantizer = _FixedIntegers(list(self.arrays.values()))
            config = Int8QuantizationConfig(quantizer, inputs)
            self.layer.quantize(config=config)
        except ExBurnError as error:
            raise self._error("cannot be packed here", error) from error
        rounds = config.activation_quantizer
        self.layer.quantization_config = Int8QuantizationConfig(None, rounds)

    def _error(self, reason: str, cause: Exception) -> ModelFormatError:
        return ModelFormatError(
            self.op,
            f"the weights of the layer {self.layer.name!r}, which Keras has packed in "
            f"its mode {self.mode!r}, {reason}",
            {"file": self.path, "cause": cause},
        )


class _FixedIntegers:
    """A quantizer of weights whose integers are known.

    Args:
        pairs: Integers and scales of each.
    """

    output_dtype = "int8"

    def __init__(self, pairs: list[tuple[np.ndarray, np.ndarray]]):
        self._pairs = pairs

    def __call__(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        exact = np.asarray(x, np.float32)  # perhaps rounded to half precision
        own = [pair for pair in self._pairs if pair[0].shape == exact.shape]
        return min(own, key=lambda pair: np.abs(pair[0] / pair[1] - exact).max())


def _is_product(layer: Any) -> bool:
    """Tells whether a layer multiplies rows by a matrix alone."""
    if not isinstance(layer, EinsumDense):
        return True
    inputs, _, output = layer.equation.replace(" ", "").partition("->")
    rows, kernel = inputs.split(",")
    return not {*rows} & {*kernel} & {*output}


def _beside_kernel(equation: str, scale: np.ndarray) -> np.ndarray:
    """Scales in the order of outputs, in that of the kernel of an ``EinsumDense``."""
    inputs, _, output = equation.replace(" ", "").partition("->")
    kernel, output = inputs.split(",")[1], output.replace("...", "")
    # Axes of "..." stand in front or behind, and have one scale.
    letters = output[-scale.ndim :] if scale.ndim <= len(output) else output
    if equation.replace(" ", "").partition("->")[2].endswith("..."):
        scale = scale.reshape(scale.shape[: len(letters)])
    else:
        scale = scale.reshape(scale.shape[scale.ndim - len(letters) :])
    letters_left = [letter for letter in kernel if letter in letters]
    beside = [i for i, letter in enumerate(letters) if letter not in kernel]
    scale = scale.squeeze(tuple(beside))
    order = [letter for letter in letters if letter in kernel]
    scale = scale.transpose([order.index(letter) for letter in letters_left])
    sizes = iter(scale.shape)
    return scale.reshape([next(sizes) if n in letters_left else 1 for n in kernel])


def packed_layer(
    layer: Any, start: str, shapes: Mapping[str, Any], op: str, path: Any
) -> PackedLayer | None:
    """How a file has packed the weights of a layer; ``None`` where it has not.

    The layer gets the policy of exact weights, until these are read and packed.

    Args:
        start: What the names of its arrays begin with.
        shapes: Shapes of the file's arrays by name.
        path: The file, for errors.

    Raises:
        ModelFormatError: In a mode that is not read, or in one that is not told.
    """
    kinds = Dense | EinsumDense | Embedding | ReversibleEmbedding | TernaryDense
    if not isinstance(layer, kinds):
        return None
    own = [getattr(layer, name, None) is not None for name in (*_WEIGHTS, "bias")]
    if sum(name.startswith(start) for name in shapes) <= sum(own):
        return None  # the file has them as they are
    policy = layer.dtype_policy
    mode = getattr(policy, "quantization_mode", None)
    weights = [getattr(layer, name, None) for name in _WEIGHTS]
    if any(w is not None and not isinstance(w, Weight) for w in weights):
        raise ModelFormatError(
            op,
            f"the weights of the layer {layer.name!r} are packed in the model and, by "
            "Keras, in the file",
            {"file": path},
            hint="exburn.load_model reads a .keras file of the whole model.",
        )
    if mode not in _MODES or isinstance(layer, TernaryDense):
        mode_text = "that the configuration does not tell"
        if mode is not None:
            mode_text = f"{policy.name!r}, which is not read of {type(layer).__name__}"
        raise ModelFormatError(
            op,
            f"Keras has packed the weights of the layer {layer.name!r}, in a mode "
            f"{mode_text}",
            {"file": path, "read are": ", ".join(_MODES)},
            hint="Save the model in Keras before model.quantize, and quantize it here.",
        )
    layer.dtype_policy = policy.plain
    return PackedLayer(layer, mode, op, path)
