"""Floating-point policies: what parameters are stored in, and what is computed in."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from typing import Any, Self

import jax
import jax.numpy as jnp

from exburn.core.making import making
from exburn.core.precision.matmul import FLOAT8, check_matmul, matmuls_in
from exburn.core.precision.names import DTYPES, is_float, standardize_dtype
from exburn.errors import ArgumentError, DTypeError, unknown_name
from exburn.errors.boundary import api_boundary, guard_methods

__all__ = [
    "CLASSES",
    "DTypePolicy",
    "FloatDTypePolicy",
    "PrecisionPolicy",
    "default_precision",
    "get_precision",
    "set_precision",
]

#: What policies whose names are no dtypes compute in, and the precision of products.
_MIXED: dict[str, tuple[str, str | None]] = {
    "mixed_bfloat16": ("bfloat16", None),
    "mixed_float16": ("float16", None),
    "mixed_float8": ("bfloat16", FLOAT8),
}
#: The kinds of policies by name, as configurations name them.
CLASSES: dict[str, type[DTypePolicy]] = {}


@guard_methods
class DTypePolicy:
    """A policy by Keras' name of it.

    Args:
        name: A dtype, ``"mixed_bfloat16"``, ``"mixed_float16"`` or ``"mixed_float8"``;
            that of the process by default.

    Attributes:
        param: Dtype the weights are stored in.
        compute: Dtype inputs and weights are cast to before computing.
        output: Dtype of the result; ``None`` leaves it in ``compute``.
        matmul: Precision of matrix products; ``None`` leaves it to the process.

    Raises:
        UnknownNameError: Nothing has that name.
        DTypeError: It is a float of 8 bits or fewer.
        ArgumentError: It is no text.

    Example:
        >>> policy = DTypePolicy("mixed_bfloat16")
        >>> policy, policy.compute_dtype, policy == PrecisionPolicy(compute="bfloat16")
        (<DTypePolicy "mixed_bfloat16">, 'bfloat16', True)

    Source: ``keras.DTypePolicy``; Micikevicius et al., *Mixed Precision Training*,
    2018.
    """

    param: str
    compute: str
    output: str | None = None
    matmul: str | None = None
    quantization_mode: str | None = None

    def __init__(self, name: str | None = None):
        if name is None:
            name = get_precision().name
        if not isinstance(name, str):
            raise ArgumentError(
                type(self).__name__,
                f"a policy's name is text, such as 'mixed_float16', received {name!r}",
                hint="PrecisionPolicy(param=…, compute=…) takes dtypes.",
            )
        self.param, self.compute, self.matmul = _fields_of(name)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("exburn.core.precision."):
            CLASSES[cls.__name__] = cls

    @classmethod
    def of(cls, policy: Any) -> DTypePolicy:
        """A policy from a name, a dtype, a config dict, another policy, or None."""
        if policy is None:
            return get_precision()
        if isinstance(policy, DTypePolicy):
            return policy
        if isinstance(policy, dict):
            return _from_description(policy)
        name = policy if isinstance(policy, str) else getattr(policy, "name", None)
        if isinstance(name, str) and "_from_" in name:
            from exburn.core.precision.quantized import (
                parse_policy,  # it derives from this class
            )

            return parse_policy(name)
        if isinstance(name, str) and name in _MIXED:
            policy = name
        param, compute, matmul = _fields_of(policy)
        return PrecisionPolicy(param, compute, matmul=matmul)

    @property
    def name(self) -> str:
        """Keras' name of the policy, for example ``"mixed_bfloat16"``."""
        if self.matmul == FLOAT8:
            return "mixed_float8"
        if self.param == self.compute:
            return self.param
        return f"mixed_{self.compute}"

    @property
    def compute_dtype(self) -> str:
        return self.compute

    @property
    def variable_dtype(self) -> str:
        return self.param

    @property
    def plain(self) -> DTypePolicy:
        """The dtypes alone: without what a policy says of few bits, or of paths."""
        return self

    @property
    def inner(self) -> DTypePolicy:
        """The policy of the layers of a model that has this one."""
        return self.replace(output=None) if self.output else self

    def replace(self, **changes: Any) -> PrecisionPolicy:
        """A policy with some of its dtypes replaced."""
        return PrecisionPolicy(**{**self._fields, **changes})

    @property
    def _fields(self) -> dict[str, Any]:
        fields = ("param", "compute", "output", "matmul")
        return {field: getattr(self, field) for field in fields}

    def matmuls(self) -> AbstractContextManager[Any]:
        """A block whose matrix products have the policy's precision."""
        return matmuls_in(self.matmul)

    def convert_input(self, x: Any, autocast: bool, dtype: Any) -> Any:
        """A floating array or symbol in a dtype; integers, and what is no array, stay.

        Args:
            x: The value; what NumPy makes an array of becomes one of JAX.
            autocast: Whether floats are cast at all.
            dtype: Their dtype.

        Example:
            >>> policy = DTypePolicy("mixed_bfloat16")
            >>> policy.convert_input([1.0], True, "bfloat16")
            [1.0]
            >>> policy.convert_input(jnp.ones(1), True, "bfloat16").dtype.name
            'bfloat16'
        """
        if not hasattr(x, "dtype"):
            return x
        if not hasattr(x, "spec") and not isinstance(x, jax.Array):
            x = jnp.asarray(x)
        cast = autocast and is_float(x.dtype)
        return x.astype(standardize_dtype(dtype)) if cast else x

    @property
    def identifier(self) -> str | dict[str, Any]:
        """A name or fields, JSON-able, that ``DTypePolicy.of`` makes it from again.

        Example:
            >>> PrecisionPolicy.of("mixed_float16").identifier
            'mixed_float16'
            >>> PrecisionPolicy(output="float16").identifier
            {'param': 'float32', 'compute': 'float32', 'output': 'float16'}
        """
        if self.name in (*DTYPES, *_MIXED) and PrecisionPolicy.of(self.name) == self:
            return self.name
        return {field: v for field, v in self._fields.items() if v is not None}

    def get_config(self) -> dict[str, Any]:
        """The arguments of ``from_config`` that make the policy again."""
        identifier = self.identifier
        return {"name": identifier} if isinstance(identifier, str) else identifier

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """A policy from ``get_config``'s result."""
        return cls(**config)

    def _key(self) -> tuple:
        return (None, *self._fields.values())

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, DTypePolicy) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f'<{type(self).__name__} "{self.name}">'


@guard_methods
class FloatDTypePolicy(DTypePolicy):
    """Another name of :class:`DTypePolicy`.

    Args:
        name: Name of the policy, ``"mixed_bfloat16"``; the one in force by default.

    Example:
        >>> FloatDTypePolicy("mixed_bfloat16").compute_dtype
        'bfloat16'
    """

    def __repr__(self) -> str:
        return f'<DTypePolicy "{self.name}">'


@dataclasses.dataclass(frozen=True, eq=False)
class PrecisionPolicy(DTypePolicy):
    """Dtypes of parameters, of the computation, and of a layer's outputs.

    Args:
        param: Dtype the weights are stored in.
        compute: Dtype inputs and weights are cast to before computing.
        output: Dtype of the result; ``None`` leaves it in ``compute``. A model casts
            its own outputs only, not those of its layers.
        matmul: Precision of matrix products and convolutions within the layer:
            ``"tensorfloat32"``, ``"highest"`` … as for ``set_matmul_precision``, which
            decides where this is ``None``; or ``"float8"``: in training, products of
            bfloat16 with a kernel are those of both in 8 bits, where that pays.

    Raises:
        DTypeError: ``param``, ``compute`` or ``output`` is no dtype, or a float of
            8 bits or fewer.
        ArgumentError: ``matmul`` is ``"float8"``, and ``compute`` no bfloat16.
        UnknownNameError: ``matmul`` is no precision of JAX.

    Example:
        >>> PrecisionPolicy.of("mixed_bfloat16")
        PrecisionPolicy(param='float32', compute='bfloat16', output=None, matmul=None)
        >>> PrecisionPolicy(compute="bfloat16", output="float32").name
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
            _check_wide(getattr(self, field))
        if self.matmul is not None:
            check_matmul("PrecisionPolicy", self.matmul, FLOAT8)
        if self.matmul == FLOAT8 and self.compute != "bfloat16":
            raise ArgumentError(
                "PrecisionPolicy",
                f'matmul="float8" rounds products of bfloat16, not of {self.compute}',
                hint='compute="bfloat16", or the name "mixed_float8".',
            )

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return _from_fields(config)


CLASSES |= {"DTypePolicy": DTypePolicy}


def _fields_of(policy: Any) -> tuple[str, str, str | None]:
    """Dtypes of parameters and of the computation, and the precision of products.

    Args:
        policy: A policy's name, or a dtype.
    """
    if isinstance(policy, str) and policy in _MIXED:
        return "float32", *_MIXED[policy]
    try:
        dtype = standardize_dtype(policy)
    except DTypeError:
        names = [*DTYPES, *_MIXED]
        raise unknown_name("precision policy", policy, names) from None
    _check_wide(dtype)
    return dtype, dtype, None


def _check_wide(dtype: str) -> None:
    """Raises for floats of 8 bits or fewer, which no array of a layer has."""
    if is_float(dtype) and jnp.dtype(dtype).itemsize == 1:
        raise DTypeError(
            "PrecisionPolicy",
            f"layers neither store weights nor compute in {dtype}",
            hint="'mixed_float8' has products in 8 bits, quantize('float8') weights.",
        )


def _from_description(described: dict[str, Any]) -> DTypePolicy:
    """The policy of a description with or without the name of its class."""
    if "class_name" not in described:
        return _from_fields(described.get("config", described))
    cls, config = CLASSES.get(described["class_name"]), described.get("config")
    if cls is None:
        raise unknown_name("policy", described["class_name"], CLASSES)
    if cls in (PrecisionPolicy, DTypePolicy, FloatDTypePolicy):
        return _from_fields(config)
    return cls.from_config(config or {})


def _from_fields(config: Any) -> DTypePolicy:
    if isinstance(config, dict) and config.keys() == {"name"}:  # Keras'
        return PrecisionPolicy.of(config["name"])
    fields = [field.name for field in dataclasses.fields(PrecisionPolicy)]
    complete = isinstance(config, dict) and config and config.keys() <= set(fields)
    if not complete:
        raise DTypeError(
            "PrecisionPolicy", "not a policy", {"received": config, "known": fields}
        )
    return PrecisionPolicy(**config)


_precision: DTypePolicy = PrecisionPolicy()


@api_boundary
def get_precision() -> DTypePolicy:
    """The policy that new layers take when they are given no ``dtype``.

    Example:
        >>> import exburn
        >>> exburn.get_precision().name
        'float32'
    """
    inside = making.get().precision
    return _precision if inside is None else inside


def default_precision(policy: Any) -> AbstractContextManager[Any]:
    """Gives new layers this policy, not the process', in the block and thread."""
    return making.change(precision=PrecisionPolicy.of(policy))


@api_boundary
def set_precision(policy: Any) -> DTypePolicy:
    """Sets the policy of layers made from now on, and returns the one before.

    Args:
        policy: A policy, or its name.

    Example:
        >>> before = set_precision("mixed_bfloat16")
        >>> get_precision().compute
        'bfloat16'
        >>> _ = set_precision(before)
    """
    global _precision
    before, _precision = _precision, PrecisionPolicy.of(policy)
    return before
