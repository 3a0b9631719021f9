"""The names that Keras code asks ``keras.backend`` for."""

from __future__ import annotations

import gc
from collections import Counter
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from exburn.config import (
    backend,
    epsilon,
    floatx,
    image_data_format,
    set_epsilon,
    set_floatx,
    set_image_data_format,
)
from exburn.core import random_keys
from exburn.core.missing_names import refuser
from exburn.core.precision import is_float, standardize_dtype
from exburn.core.symbolic_shapes import in_symbolic_scope
from exburn.errors.boundary import api_boundary
from exburn.module.symbolic_tensor import Symbol
from exburn.module.variable import Variable
from exburn.runtime.transfer import release_spare

__all__ = [
    "Variable",
    "backend",
    "clear_session",
    "epsilon",
    "floatx",
    "get_uid",
    "image_data_format",
    "in_symbolic_scope",
    "is_float_dtype",
    "is_int_dtype",
    "is_keras_tensor",
    "result_type",
    "set_epsilon",
    "set_floatx",
    "set_image_data_format",
    "standardize_dtype",
]

_uids: Counter[str] = Counter()


@api_boundary
def clear_session(free_memory: bool = True) -> None:
    """Begins anew: frees compiled programs, data that stay on the device for the next
    ``fit``, and what nobody refers to any more.

    Models that are made afterwards begin with other weights, and draw other numbers, as
    in Keras: tuners call this before each of their trials. Which ones follows from
    ``set_random_seed`` and from how often this was called since.

    Layers' names are unique within their model, so there are none to reset.

    Args:
        free_memory: Whether memory is freed.

    Example:
        >>> clear_session()
    """
    _uids.clear()
    random_keys.begin_session()
    if free_memory:
        release_spare()
        jax.clear_caches()
        gc.collect()


@api_boundary
def get_uid(prefix: str = "") -> int:
    """1, 2, 3 … for each prefix.

    Args:
        prefix: What is counted.

    Example:
        >>> get_uid("probe"), get_uid("probe")
        (1, 2)
    """
    _uids[prefix] += 1
    return _uids[prefix]


@api_boundary
def is_float_dtype(dtype: Any) -> bool:
    """Whether a dtype is a floating one.

    Args:
        dtype: A dtype, or its name.

    Example:
        >>> is_float_dtype("bfloat16"), is_float_dtype("int8")
        (True, False)
    """
    return is_float(standardize_dtype(dtype))


@api_boundary
def is_int_dtype(dtype: Any) -> bool:
    """Whether a dtype is an integer one, signed or not.

    Args:
        dtype: A dtype, or its name.

    Example:
        >>> is_int_dtype("uint8"), is_int_dtype("bool")
        (True, False)
    """
    return jnp.issubdtype(jnp.dtype(standardize_dtype(dtype)), jnp.integer)


@api_boundary
def is_keras_tensor(x: Any) -> bool:
    """Whether a value is a symbol: a tensor of a functional model under construction.

    Args:
        x: Any value.

    Example:
        >>> is_keras_tensor(jnp.ones(2))
        False
    """
    return isinstance(x, Symbol)


@api_boundary
def result_type(*dtypes: Any) -> str:
    """The dtype that operands of these dtypes are computed in.

    Args:
        *dtypes: Dtypes, or the Python types ``bool``, ``int`` and ``float``, which do
            not widen a dtype.

    Example:
        >>> result_type("int32", "bfloat16"), result_type("float16", float)
        ('bfloat16', 'float16')
    """
    if not dtypes:
        return floatx()
    weak = {bool: False, int: 0, float: 0.0}
    operands = [
        weak[d] if d in weak else jnp.dtype(standardize_dtype(d)) for d in dtypes
    ]
    return standardize_dtype(jnp.result_type(*operands))


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
