"""Angles of rotary positions for texts longer than those of the first training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from exburn.core.checks import check_choice, check_count, check_flag, check_number
from exburn.errors import ArgumentError, ShapeError

_OP = "RotaryEmbedding"
_POSITIONS = "original_max_position_embeddings"
# What each kind needs, and what it may have beside that.
_KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "linear": (("factor",), ()),
    "dynamic": (("factor", _POSITIONS), ()),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor", _POSITIONS), ()),
    "yarn": (
        ("factor", _POSITIONS),
        tuple("attention_factor beta_fast beta_slow mscale mscale_all_dim".split())
        + ("truncate",),
    ),
    "longrope": (
        ("short_factor", "long_factor", _POSITIONS),
        ("factor", "attention_factor"),
    ),
}


@dataclasses.dataclass(frozen=True)
class RotaryScaling:
    """How angles grow with positions, under the names of ``transformers``.

    Attributes:
        rope_type: ``"linear"``: positions are divided by ``factor``. ``"dynamic"``: the
            base grows with a text beyond the first context. ``"llama3"``: long waves
            are divided, short ones are not. ``"yarn"``: so, with a ramp between them.
            ``"longrope"``: each wave is divided by a number of its own.
        factor: How many times longer texts become.
        original_max_position_embeddings: Tokens of the texts of the first training.
        low_freq_factor, high_freq_factor: Turns within that context, below which a
            wave of ``"llama3"`` is long and above which it is short.
        beta_fast, beta_slow: Turns between which the ramp of ``"yarn"`` lies.
        truncate: Whether the ends of that ramp are whole numbers.
        mscale, mscale_all_dim: Make ``attention_factor``, if both are there.
        attention_factor: Factor of cosine and sine; by ``factor`` if None.
        short_factor, long_factor: The divisors of ``"longrope"``, for texts within the
            first context and beyond.
    """

    rope_type: str
    factor: float | None = None
    original_max_position_embeddings: int | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: float | None = None
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()

    @classmethod
    def of(cls, options: Any) -> RotaryScaling:
        """The scaling that a mapping of the attributes describes.

        Raises:
            ArgumentError: There is no such kind, it needs another entry or does not
                have one, or a value is out of range.

        Example:
            >>> RotaryScaling.of({"rope_type": "linear", "factor": 4}).factor
            4.0
        """
        if not isinstance(options, Mapping) or "rope_type" not in options:
            raise ArgumentError(
                _OP,
                "scaling must be a mapping with a 'rope_type', such as "
                f"{{'rope_type': 'linear', 'factor': 4.0}}, received {options!r}",
            )
        kind = check_choice(_OP, "rope_type", options["rope_type"], tuple(_KINDS))
        needed, further = _KINDS[kind]
        values = {key: value for key, value in options.items() if value is not None}
        wrong = [name for name in needed if name not in values]
        extra = values.keys() - {"rope_type", *needed, *further}
        if kind == "longrope" and not {"factor", "attention_factor"} & values.keys():
            wrong = [*wrong, "factor"]
        if wrong or extra:
            raise ArgumentError(
                _OP,
                f"{kind!r} scaling of positions needs {', '.join(needed)}"
                + (f" and may have {', '.join(further)}" if further else ""),
                {"missing": wrong, "not taken": sorted(map(str, extra))},
            )
        checked: Any = {name: _CHECKS[name](name, v) for name, v in values.items()}
        scaling = cls(**checked)
        scaling._check_order()
        return scaling

    def _check_order(self) -> None:
        """Raises unless the numbers fit together.

        Raises:
            ArgumentError: They do not.
        """
        if self.rope_type == "llama3":
            low, high = self.low_freq_factor, self.high_freq_factor
            if not low < high:  # type: ignore[operator]
                raise ArgumentError(
                    _OP,
                    f"low_freq_factor < high_freq_factor, received {low} and {high}",
                )
        if self.beta_fast < self.beta_slow:
            raise ArgumentError(
                _OP,
                f"beta_slow <= beta_fast, received {self.beta_slow} and "
                f"{self.beta_fast}",
            )
        if len(self.short_factor) != len(self.long_factor):
            raise ArgumentError(
                _OP,
                "short_factor and long_factor have one number for each pair of turned "
                "features",
                {"received": (len(self.short_factor), len(self.long_factor))},
            )

    @property
    def depends_on_length(self) -> bool:
        """Whether the angles of a token depend on the length of its text."""
        return self.rope_type == "dynamic" or self.turning_length is not None

    @property
    def turning_length(self) -> int | None:
        """The length beyond which all of a text's angles jump; ``None`` for none."""
        jumps = self.rope_type == "longrope" and self.short_factor != self.long_factor
        return self._context if jumps else None

    @property
    def magnitude(self) -> float:
        """The factor of cosine and sine."""
        if self.attention_factor is not None:
            return self.attention_factor
        if self.rope_type == "longrope" and self._times > 1:
            return math.sqrt(1 + math.log(self._times) / math.log(self._context))
        if self.rope_type == "yarn":
            if self.mscale and self.mscale_all_dim:
                above = _log_factor(self._times, self.mscale)
                return above / _log_factor(self._times, self.mscale_all_dim)
            return _log_factor(self._times, 1.0)
        return 1.0

    def speeds(self, base: float, size: int, lengths: Any = None) -> Any:
        """Angles of a step, ``[size / 2]``; of lengths ``[…, 1]``: ``[…, size / 2]``.

        Args:
            base: Of the geometric series without scaling.
            size: Number of features that are turned.
            lengths: Tokens of the texts, where ``depends_on_length``.

        Raises:
            ShapeError: ``"longrope"`` has factors for another number of features.
        """
        plain = base ** (-np.arange(0, size, 2) / size)
        if self.rope_type == "linear":
            return _single(plain / self._times)
        if self.rope_type == "llama3":
            return _single(self._by_wavelength(plain))
        if self.rope_type == "yarn":
            return _single(self._by_ramp(plain, base, size))
        if self.rope_type == "longrope":
            if len(self.short_factor) != size // 2:
                raise ShapeError(
                    _OP,
                    f"short_factor and long_factor must have {size // 2} numbers, one "
                    f"for each pair of turned features, not {len(self.short_factor)}",
                )
            short, long = (
                _single(plain / np.array(factors))
                for factors in (self.short_factor, self.long_factor)
            )
            if self.turning_length is None:
                return short
            return jnp.where(lengths > self._context, long, short)
        # The base of the series grows: base · growth^(size / (size - 2)).
        lengths = jnp.asarray(lengths, jnp.float32)
        beyond = jnp.maximum(lengths, self._context) - self._context
        growth = 1 + self._times * beyond / self._context
        powers = -np.arange(0, size, 2) / max(size - 2, 1)
        return _single(plain) * growth ** _single(powers)

    def _by_wavelength(self, plain: np.ndarray) -> np.ndarray:
        """Speeds of ``"llama3"``."""
        low, high = float(self.low_freq_factor or 0), float(self.high_freq_factor or 0)
        turns = self._context * plain / (2 * math.pi)  # within the first context
        share = np.clip((turns - low) / (high - low), 0, 1)
        return (1 - share) * plain / self._times + share * plain

    def _by_ramp(self, plain: np.ndarray, base: float, size: int) -> np.ndarray:
        """Speeds of ``"yarn"``."""

        def feature(turns: float) -> float:
            """The pair that turns so often within the first context."""
            waves = self._context / (turns * 2 * math.pi)
            return size * math.log(waves) / (2 * math.log(base))

        low, high = feature(self.beta_fast), feature(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, size - 1)
        high = high + 0.001 if low == high else high
        divided = np.clip((np.arange(size // 2) - low) / (high - low), 0, 1)
        return plain / self._times * divided + plain * (1 - divided)

    @property
    def _times(self) -> float:
        return float(self.factor or 1.0)

    @property
    def _context(self) -> int:
        return self.original_max_position_embeddings or 1


def _single(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float32)


def _log_factor(factor: float, scale: float) -> float:
    """The factor of cosine and sine that the paper of YaRN found by trial."""
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _text(name: str, value: Any) -> str:
    return value


def _positive(name: str, value: Any) -> float:
    return check_number(_OP, name, value, open_low=True)


def _scale(name: str, value: Any) -> float:
    return check_number(_OP, name, value)  # 0: as if it were not there


def _count(name: str, value: Any) -> int:
    return check_count(_OP, name, value, 2)  # whose logarithm is not 0


def _flag(name: str, value: Any) -> bool:
    return check_flag(_OP, name, value)


def _numbers(name: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ArgumentError(_OP, f"{name} is a list of numbers, received {value!r}")
    return tuple(_positive(name, number) for number in value)


_CHECKS = {field.name: _positive for field in dataclasses.fields(RotaryScaling)} | {
    "rope_type": _text,
    _POSITIONS: _count,
    "truncate": _flag,
    "mscale": _scale,
    "mscale_all_dim": _scale,
    "short_factor": _numbers,
    "long_factor": _numbers,
}
