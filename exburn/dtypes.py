"""Floating-point policies: what parameters are stored in, and what is computed in."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.errors import DTypeError, unknown_name
from exburn.scoped import scoped

__all__ = [
    "Precision",
    "default_precision",
    "get_matmul_precision",
    "get_precision",
    "set_matmul_precision",
    "set_precision",
    "standardize_dtype",
]

_MIXED = ("mixed_bfloat16", "mixed_float16")
# JAX's names, from the fastest to the most exact; "default" is the device's own choice.
_MATMUL = ("default", "bfloat16", "tensorfloat32", "high", "highest", "float32")


@dataclasses.dataclass(frozen=True)
class Precision:
    """Dtypes of parameters, of the computation, and of a layer's outputs.

    Args:
        param: Dtype the weights are stored in.
        compute: Dtype inputs and weights are cast to before computing.
        output: Dtype of the result; ``None`` leaves it in ``compute``. A model casts
            its own outputs only, not those of its layers.
        matmul: Precision of matrix products and convolutions within the layer:
            ``"tensorfloat32"``, ``"highest"`` … as for ``set_matmul_precision``, which
            decides where this is ``None``.

    Raises:
        DTypeError: ``param``, ``compute`` or ``output`` is no dtype.
        UnknownNameError: ``matmul`` is no precision of JAX.

    Example:
        >>> Precision.of("mixed_bfloat16")
        Precision(param='float32', compute='bfloat16', output=None, matmul=None)
        >>> Precision(compute="bfloat16", output="float32").name
        'mixed_bfloat16'

    Source: Micikevicius et al., *Mixed Precision Training*, 2018.
    """

    param: str = "float32"
    compute: str = "float32"
    output: str | None = None
    matmul: str | None = None

    def __post_init__(self):
        for field in ("param", "compute", "output"):
            value = getattr(self, field)
            if value is None and field == "output":
                continue
            object.__setattr__(self, field, standardize_dtype(value))
        if self.matmul is not None:
            _check_matmul("Precision", self.matmul)

    @classmethod
    def of(cls, policy: Any) -> Precision:
        """A policy from a name, a dtype, a config dict, another policy, or None."""
        if policy is None:
            return get_precision()
        if isinstance(policy, Precision):
            return policy
        if isinstance(policy, dict):
            return cls._of_config(policy.get("config", policy))
        name = getattr(policy, "name", None) or str(policy)
        if name in _MIXED:
            return cls("float32", name.removeprefix("mixed_"))
        try:
            dtype = standardize_dtype(policy)
        except DTypeError:
            known = [*_DTYPES, *_MIXED]
            raise unknown_name("precision policy", policy, known) from None
        return cls(dtype, dtype)

    @classmethod
    def _of_config(cls, config: Any) -> Precision:
        if isinstance(config, dict) and config.keys() == {"name"}:  # Keras'
            return cls.of(config["name"])
        fields = [field.name for field in dataclasses.fields(cls)]
        known = isinstance(config, dict) and config and config.keys() <= set(fields)
        if not known:
            raise DTypeError(
                "Precision", "not a policy", {"received": config, "known": fields}
            )
        return cls(**config)

    @property
    def name(self) -> str:
        """Keras' name of the policy, for example ``"mixed_bfloat16"``."""
        if self.param == self.compute:
            return self.param
        return f"mixed_{self.compute}"

    def get_config(self) -> dict[str, str]:
        """What ``from_config`` makes this policy from again."""
        known = self.identifier
        return {"name": known} if isinstance(known, str) else known

    @classmethod
    def from_config(cls, config: dict[str, str]) -> Precision:
        """A policy from ``get_config``'s result."""
        return cls._of_config(config)

    @property
    def identifier(self) -> str | dict[str, str]:
        """What ``Precision.of`` makes this policy from again; JSON-able.

        Example:
            >>> Precision.of("mixed_float16").identifier
            'mixed_float16'
            >>> Precision(output="float16").identifier
            {'param': 'float32', 'compute': 'float32', 'output': 'float16'}
        """
        if self.name in (*_DTYPES, *_MIXED) and Precision.of(self.name) == self:
            return self.name
        fields = dataclasses.asdict(self).items()
        return {field: value for field, value in fields if value is not None}

    @property
    def inner(self) -> Precision:
        """The policy of the layers of a model that has this one."""
        return dataclasses.replace(self, output=None) if self.output else self

    def matmuls(self) -> AbstractContextManager[Any]:
        """A block whose matrix products have the policy's precision."""
        if self.matmul is None:
            return contextlib.nullcontext()
        return jax.default_matmul_precision(self.matmul)

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


# Python's types have 32 bits, as in Keras; to NumPy they have 64.
_PYTHON = {int: "int32", "int": "int32", float: "float32", "float": "float32"}


def standardize_dtype(dtype: Any) -> str:
    """The dtype's name.

    Example:
        >>> standardize_dtype(np.float32), standardize_dtype("half")
        ('float32', 'float16')
        >>> standardize_dtype(int), standardize_dtype("float")
        ('int32', 'float32')
    """
    if isinstance(dtype, str) and dtype in _DTYPES:
        return dtype
    if isinstance(dtype, str | type) and dtype in _PYTHON:
        return _PYTHON[dtype]
    try:
        made = jnp.dtype(dtype)
        if made.fields is not None:  # a record: np.dtype([]) and np.dtype({…}) are
            raise TypeError("a record of several fields")
        return made.name
    except TypeError as error:
        raise DTypeError(
            "dtype", "not a dtype", {"received": repr(dtype), "known": _DTYPES}
        ) from error


def is_float(dtype: Any) -> bool:
    """Whether the dtype is a real floating-point one, bfloat16 included."""
    return jnp.issubdtype(np.dtype(dtype), jnp.floating)


def lowest_of(dtype: Any) -> Any:
    """What no value of the dtype is below, as a NumPy scalar of it.

    Example:
        >>> lowest_of("int8"), lowest_of("bool"), lowest_of("float32")
        (np.int8(-128), np.False_, np.float32(-inf))
    """
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return dtype.type(False)
    return dtype.type(-np.inf if is_float(dtype) else np.iinfo(dtype).min)


_precision = Precision()
_inside: contextvars.ContextVar[Precision | None] = contextvars.ContextVar(
    "exburn_precision", default=None
)


def get_precision() -> Precision:
    """The policy that new layers take when they are given no ``dtype``."""
    return _inside.get() or _precision


def default_precision(policy: Any) -> AbstractContextManager[Any]:
    """In the block, in this thread, new layers take this policy, not the process'."""
    return scoped(_inside, Precision.of(policy))


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


def get_matmul_precision() -> str | None:
    """What :func:`set_matmul_precision` set; ``None`` leaves it to the device."""
    return jax.config.values["jax_default_matmul_precision"]


def set_matmul_precision(precision: str | None) -> str | None:
    """Sets how exactly float32 matrices are multiplied, and returns what was before.

    It holds for convolutions too, and for programs compiled from now on; those that
    were compiled already compile again. A layer's ``Precision(matmul=…)`` goes first.

    Args:
        precision: ``"tensorfloat32"`` (10 bits of mantissa on NVIDIA's tensor cores),
            ``"highest"`` or ``"float32"`` (all 23), ``"bfloat16"`` (7), ``"high"``
            (three bfloat16 passes on a TPU), ``"default"`` or ``None``: the device's
            choice, which on a GPU is tensorfloat32.

    Raises:
        UnknownNameError: JAX has no such precision.

    Example:
        >>> before = set_matmul_precision("highest")
        >>> get_matmul_precision()
        'highest'
        >>> _ = set_matmul_precision(before)
    """
    before = get_matmul_precision()
    if precision is not None:
        _check_matmul("set_matmul_precision", precision)
    jax.config.update("jax_default_matmul_precision", precision)
    return before


def _check_matmul(op: str, precision: Any) -> None:
    if precision not in _MATMUL:
        raise unknown_name("matmul precision", precision, _MATMUL, op=op)
