"""Policies of layers whose weights are stored in few bits."""

from __future__ import annotations

from typing import Any, Self

from exburn.core.checks import check_integer
from exburn.core.precision.policies import DTypePolicy, PrecisionPolicy, get_precision
from exburn.errors import ArgumentError, unknown_name
from exburn.errors.boundary import guard_methods

MODES = ("int8", "float8", "int4", "nf4", "ternary", "gptq", "awq")


@guard_methods
class QuantizedDTypePolicy(DTypePolicy):
    """Weights in few bits, with inputs and outputs as of another policy.

    A layer that is made with one packs its weights as soon as they have values; one
    that ``quantize`` has packed says so by its ``dtype_policy``.

    Args:
        mode: ``"int8"``, ``"int4"``, ``"nf4"``, ``"float8"``, ``"ternary"``.
        source_name: The other policy, or its name; that of the process by default.

    Raises:
        UnknownNameError: There is no such mode, or no policy of that name.

    Example:
        >>> policy = QuantizedDTypePolicy("int8", "mixed_bfloat16")
        >>> policy, policy.quantization_mode, policy.compute_dtype
        (<QuantizedDTypePolicy "int8_from_mixed_bfloat16">, 'int8', 'bfloat16')
        >>> PrecisionPolicy.of("int8_from_mixed_bfloat16") == policy
        True

    Source: ``keras.dtype_policies.QuantizedDTypePolicy``.
    """

    def __init__(self, mode: str, source_name: Any = None):
        self._mode = mode
        self.quantization_mode = self._checked_mode(mode)
        source = PrecisionPolicy.of(source_name) if source_name else get_precision()
        self._source = source.plain
        self.param, self.compute = self._source.param, self._source.compute
        self.output, self.matmul = self._source.output, self._source.matmul

    def _checked_mode(self, mode: str) -> str:
        if mode not in MODES:
            raise unknown_name("quantization mode", mode, MODES)
        return mode

    @property
    def name(self) -> str:
        return f"{self._mode}_from_{self._source.name}"

    @property
    def plain(self) -> DTypePolicy:
        return self._source

    @property
    def identifier(self) -> dict[str, Any]:
        return {"class_name": type(self).__name__, "config": self.get_config()}

    def get_config(self) -> dict[str, Any]:
        return {"mode": self._mode, "source_name": self._source.identifier}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**config)

    def _key(self) -> tuple:
        return (type(self), self._mode, *self._fields.values())


@guard_methods
class QuantizedFloat8DTypePolicy(QuantizedDTypePolicy):
    """Weights in 8-bit floats.

    Args:
        mode: ``"float8"``.
        source_name: The policy of inputs and outputs, or its name.
        amax_history_length: Of Keras' float8, which trains with exact weights that are
            rounded in each step; here it is kept, and weights are stored in 8 bits.

    Raises:
        ArgumentError: The length is no integer.

    Example:
        >>> QuantizedFloat8DTypePolicy("float8", "float32").get_config()
        {'mode': 'float8', 'source_name': 'float32', 'amax_history_length': 1024}

    Source: ``keras.dtype_policies.QuantizedFloat8DTypePolicy``.
    """

    default_amax_history_length = 1024

    def __init__(
        self, mode: str, source_name: Any = None, amax_history_length: int = 1024
    ):
        super().__init__(mode, source_name)
        self.amax_history_length = check_integer(
            type(self).__name__, "amax_history_length", amax_history_length
        )

    def get_config(self) -> dict[str, Any]:
        own = {"amax_history_length": self.amax_history_length}
        return {**super().get_config(), **own}

    def _key(self) -> tuple:
        return (*super()._key(), self.amax_history_length)


class _InBlocks(QuantizedDTypePolicy):
    """A mode with numbers behind it: ``"int4/64"``, ``"gptq/4/128"``."""

    family: str
    bits: tuple[int, ...] = ()  # that a second number may be; none if empty
    weight_bits = 4

    @property
    def mode(self) -> str:
        """The mode without its numbers."""
        return self.family

    def _checked_mode(self, mode: str) -> str:
        family, *numbers = mode.split("/") if isinstance(mode, str) else [mode]
        form = f"{self.family}{'/<weight_bits>' if self.bits else ''}/<block_size>"
        try:
            sizes = [int(number) for number in numbers]
        except ValueError:
            sizes = []
        if family != self.family or len(sizes) != 1 + bool(self.bits):
            raise ArgumentError(
                type(self).__name__, f"a mode has the form {form!r}, received {mode!r}"
            )
        if self.bits:
            if sizes[0] not in self.bits:
                bits = ", ".join(map(str, self.bits))
                raise ArgumentError(
                    type(self).__name__,
                    f"weights of {self.family} have {bits} bits, received {sizes[0]}",
                )
            self.weight_bits = sizes[0]
        if sizes[-1] < -1 or sizes[-1] == 0:
            raise ArgumentError(
                type(self).__name__,
                "a block has a positive size, or -1 for all that an output sums, "
                f"received {sizes[-1]}",
            )
        self._size = sizes[-1]
        return self.family


@guard_methods
class Int4DTypePolicy(_InBlocks):
    """Weights in 4 bits, of which so many share a scale.

    Args:
        mode: ``"int4/<block_size>"``; a size of -1 takes all that an output sums.
        source_name: The policy of inputs and outputs, or its name.

    Raises:
        ArgumentError: The mode has another form, or the size is out of range.

    Example:
        >>> Int4DTypePolicy("int4/64", "float32").block_size
        64

    Source: ``keras.dtype_policies.Int4DTypePolicy``.
    """

    family = "int4"

    @property
    def block_size(self) -> int:
        return self._size


@guard_methods
class NF4DTypePolicy(_InBlocks):
    """Weights as 4-bit codes of 16 numbers; see ``quantizers.NF4QuantizationConfig``.

    Args:
        mode: ``"nf4/<block_size>"``.
        source_name: The policy of inputs and outputs, or its name.

    Raises:
        ArgumentError: The mode has another form, or the size is out of range.

    Example:
        >>> NF4DTypePolicy("nf4/64", "float32").block_size
        64
    """

    family = "nf4"

    @property
    def block_size(self) -> int:
        return self._size


@guard_methods
class GPTQDTypePolicy(_InBlocks):
    """Weights in few bits that were chosen on data; see ``quantizers.GPTQConfig``.

    Args:
        mode: ``"gptq/<weight_bits>/<group_size>"``.
        source_name: The policy of inputs and outputs, or its name.

    Raises:
        ArgumentError: The mode has another form, or a number is out of range.

    Example:
        >>> policy = GPTQDTypePolicy("gptq/4/128", "float32")
        >>> policy.weight_bits, policy.group_size
        (4, 128)

    Source: ``keras.dtype_policies.GPTQDTypePolicy``.
    """

    family, bits = "gptq", (2, 3, 4, 8)

    @property
    def group_size(self) -> int:
        return self._size


@guard_methods
class AWQDTypePolicy(_InBlocks):
    """Weights in 4 bits, scaled by the inputs' size; see ``quantizers.AWQConfig``.

    Args:
        mode: ``"awq/4/<group_size>"``.
        source_name: The policy of inputs and outputs, or its name.

    Raises:
        ArgumentError: The mode has another form, or a number is out of range.

    Example:
        >>> AWQDTypePolicy("awq/4/128", "float32").name
        'awq/4/128_from_float32'

    Source: ``keras.dtype_policies.AWQDTypePolicy``.
    """

    family, bits = "awq", (4,)

    @property
    def group_size(self) -> int:
        return self._size


def parse_policy(name: str) -> QuantizedDTypePolicy:
    """The policy of a name such as ``"int4/64_from_float32"``.

    Raises:
        UnknownNameError, ArgumentError: It names none.
    """
    mode, *sources = name.split("_from_")
    if len(sources) != 1 or not sources[0]:
        raise unknown_name(
            "precision policy", name, [f"{mode}_from_float32" for mode in MODES]
        )
    family = mode.split("/")[0]
    kinds: dict[str, Any] = {
        "float8": QuantizedFloat8DTypePolicy,
        "gptq": GPTQDTypePolicy,
        "awq": AWQDTypePolicy,
        "int4": Int4DTypePolicy if "/" in mode else QuantizedDTypePolicy,
        "nf4": NF4DTypePolicy if "/" in mode else QuantizedDTypePolicy,
    }
    return kinds.get(family, QuantizedDTypePolicy)(mode, sources[0])
