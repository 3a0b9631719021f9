"""Floating-point policies: what parameters are stored in, and what is computed in."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from exburn.errors import DTypeError, unknown_name

__all__ = ["Precision", "get_precision", "set_precision", "standardize_dtype"]


@dataclasses.dataclass(frozen=True)
class Precision:
    """Dtypes of parameters, of the computation, and of a layer's outputs.

    Args:
        param: Dtype the weights are stored in.
        compute: Dtype inputs and weights are cast to before computing.
        output: Dtype of the result; ``None`` leaves it in ``compute``.

    Example:
        >>> Precision.of("mixed_bfloat16")
        Precision(param='float32', compute='bfloat16', output=None)

    Source: Micikevicius et al., *Mixed Precision Training*, 2018.
    """

    param: str = "float32"
    compute: str = "float32"
    output: str | None = None

    def __post_init__(self):
        for field in ("param", "compute", "output"):
            value = getattr(self, field)
            if value is None and field == "output":
                continue
            object.__setattr__(self, field, standardize_dtype(value))

    @classmethod
    def of(cls, policy: Any) -> Precision:
        """A policy from a name, a dtype, a config dict, another policy, or None."""
        if policy is None:
            return get_precision()
        if isinstance(policy, Precision):
            return policy
        if isinstance(policy, dict):
            return cls(**policy.get("config", policy))
        name = getattr(policy, "name", None) or str(policy)
        if name in ("mixed_bfloat16", "mixed_float16"):
            return cls("float32", name.removeprefix("mixed_"))
        try:
            dtype = standardize_dtype(policy)
        except DTypeError:
            known = [*_DTYPES, "mixed_bfloat16", "mixed_float16"]
            raise unknown_name("precision policy", policy, known) from None
        return cls(dtype, dtype)

    @property
    def name(self) -> str:
        """Keras' name of the policy, for example ``"mixed_bfloat16"``."""
        if self.param == self.compute:
            return self.param
        return f"mixed_{self.compute}"

    @property
    def compute_dtype(self) -> str:
        return self.compute

    @property
    def variable_dtype(self) -> str:
        return self.param


_DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "float16 bfloat16 float32 float64"
).split()


def standardize_dtype(dtype: Any) -> str:
    """The dtype's name.

    Example:
        >>> standardize_dtype(np.float32), standardize_dtype("half")
        ('float32', 'float16')
    """
    if isinstance(dtype, str) and dtype in _DTYPES:
        return dtype
    try:
        return jnp.dtype(dtype).name
    except TypeError as error:
        raise DTypeError(
            "dtype", "not a dtype", {"received": repr(dtype), "known": _DTYPES}
        ) from error


def is_float(dtype: Any) -> bool:
    """Whether the dtype is a real floating-point one, bfloat16 included."""
    return jnp.issubdtype(np.dtype(dtype), jnp.floating)


_precision = Precision()


def get_precision() -> Precision:
    """The policy that new layers take when they are given no ``dtype``."""
    return _precision


def set_precision(policy: Any) -> Precision:
    """Sets the policy of layers made from now on, and returns the one before.

    Example:
        >>> before = set_precision("mixed_bfloat16")
        >>> get_precision().compute
        'bfloat16'
        >>> _ = set_precision(before)
    """
    global _precision
    before, _precision = _precision, Precision.of(policy)
    return before
