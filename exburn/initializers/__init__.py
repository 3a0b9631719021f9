"""Initial values of weights, made on the host by NumPy.

``get("glorot_uniform")`` finds one by name, configuration, class, object, array, or
function; the engine calls it with the shape, the dtype and a generator that belongs to
the weight's path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from exburn.core import registry
from exburn.core.missing_names import refuser
from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary
from exburn.initializers.constants import Constant, Identity, Ones, Zeros
from exburn.initializers.contract import (
    ArrayInitializer,
    FunctionInitializer,
    Initializer,
)
from exburn.initializers.householder import Orthogonal
from exburn.initializers.random import *
from exburn.initializers.scaling import *
from exburn.initializers.windows import STFT, window

# fmt: off
__all__ = [
    "ArrayInitializer", "Constant", "FunctionInitializer", "GlorotNormal",
    "GlorotUniform", "HeNormal", "HeUniform", "Identity", "IdentityInitializer",
    "Initializer", "LecunNormal", "LecunUniform", "Ones", "Orthogonal",
    "OrthogonalInitializer", "RandomInitializer", "RandomNormal", "RandomUniform",
    "STFT", "STFTInitializer", "TruncatedNormal", "VarianceScaling", "Zeros",
    "compute_fans", "constant", "deserialize", "get", "glorot_normal", "glorot_uniform",
    "he_normal", "he_uniform", "identity", "lecun_normal", "lecun_uniform", "ones",
    "orthogonal", "random_normal", "random_uniform", "serialize", "stft",
    "truncated_normal", "variance_scaling", "window", "zeros",
]
# fmt: on

constant = Constant
glorot_normal = GlorotNormal
glorot_uniform = GlorotUniform
he_normal = HeNormal
he_uniform = HeUniform
identity = IdentityInitializer = Identity
lecun_normal = LecunNormal
lecun_uniform = LecunUniform
ones = Ones
orthogonal = OrthogonalInitializer = Orthogonal
random_normal = RandomNormal
random_uniform = RandomUniform
stft = STFTInitializer = STFT
truncated_normal = TruncatedNormal
variance_scaling = VarianceScaling
zeros = Zeros

_names: dict[str, type[Initializer]] = {
    name: value
    for name, value in list(globals().items())
    if isinstance(value, type)
    and issubclass(value, Initializer)
    and value not in (Initializer, RandomInitializer)
}
_names |= {"normal": RandomNormal, "uniform": RandomUniform, "one": Ones, "zero": Zeros}


_catalogue = registry.Catalogue("initializer", _names, Initializer)


@api_boundary
def get(identifier: Any) -> Any:
    """The initializer that an identifier stands for.

    Args:
        identifier: A name (``"he_normal"``, ``"HeNormal"``), a configuration, a class,
            an initializer, an array of values, or a function ``f(shape, dtype)`` as in
            Keras or ``f(key, shape, dtype)`` as in ``jax.nn.initializers``.

    Returns:
        An :class:`Initializer`, or ``None`` for ``None``.

    Raises:
        UnknownNameError: Nothing has that name.
        ArgumentError: The identifier is none of the above.

    Example:
        >>> get("he_normal")
        HeNormal(seed=None, input_axes=None, output_axes=None)
        >>> get({"class_name": "Constant", "config": {"value": 2.0}})
        Constant(value=2.0)
    """
    if identifier is None or isinstance(identifier, Initializer):
        return identifier
    if isinstance(identifier, str):
        return _adapt(_catalogue.lookup(identifier))
    if isinstance(identifier, Mapping):
        return deserialize(identifier)
    return _adapt(identifier)


@api_boundary
def serialize(initializer: Any) -> Any:
    """The configuration that :func:`deserialize` reads back.

    Args:
        initializer: An initializer.

    Example:
        >>> serialize(Constant(2.0))["config"]
        {'value': 2.0}
    """
    return registry.serialize(initializer)


@api_boundary
def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The initializer of a configuration (ExBurn's or Keras') or a name.

    Args:
        config: What :func:`serialize` returned, or a name.
        custom_objects: Further classes and functions by name.

    Example:
        >>> deserialize({"class_name": "Orthogonal", "config": {"gain": 2.0}})
        Orthogonal(seed=None, gain=2.0)
    """
    with registry.custom_objects(custom_objects):
        if not isinstance(config, Mapping):
            return get(config)
        return _adapt(_catalogue.from_config(config))


def _adapt(value: Any) -> Initializer:
    if isinstance(value, type):
        value = value()
    if isinstance(value, Initializer):
        return value
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return ArrayInitializer(np.asarray(value))
    if callable(value):
        return FunctionInitializer(value)
    raise ArgumentError(
        "initializers.get",
        f"{value!r} is no initializer",
        hint="Pass a name, a configuration, an Initializer, an array or a function.",
    )


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
