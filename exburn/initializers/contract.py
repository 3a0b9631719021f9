"""The base class of initializers, and the adapters of what is not one."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core import registry
from exburn.core.methods import overridable
from exburn.core.precision import standardize_dtype
from exburn.errors import ArgumentError, DTypeError, ShapeError


def _takes(fn: Callable, name: str) -> bool:
    parameters = inspect.signature(fn).parameters
    return name in parameters or any(
        p.kind is p.VAR_KEYWORD for p in parameters.values()
    )


def _ignoring_rng(call: Callable) -> Callable:
    """A ``__call__`` written for Keras, as the engine calls it."""

    @functools.wraps(call)
    def __call__(self, shape, dtype=None, *, rng=None, **kwargs):
        return call(self, shape, dtype=dtype, **kwargs)

    return __call__


class Initializer(registry.Configured):
    """Makes the first value of a weight, on the host.

    Subclass it and override ``__call__``; the signature of Keras,
    ``__call__(self, shape, dtype=None)``, is enough. One that also takes ``rng`` draws
    from the stream that belongs to the weight's path, so that the same seed gives the
    same weights whatever the order of building.

    Args of ``__call__``:
        shape: Sizes of the weight.
        dtype: Dtype of the result; float32 by default.
        rng: Generator to draw from. The engine passes one per weight.

    Example:
        >>> class Ramp(Initializer):
        ...     def __call__(self, shape, dtype=None):
        ...         return np.linspace(0, 1, shape[0], dtype=dtype)
        >>> Ramp()((3,), "float32", rng=np.random.default_rng(0)).tolist()
        [0.0, 0.5, 1.0]
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        call = cls.__dict__.get("__call__")
        if call is not None and not _takes(call, "rng"):
            cls.__call__ = _ignoring_rng(call)

    @overridable
    def __call__(
        self, shape, dtype=None, *, rng: np.random.Generator | None = None
    ) -> np.ndarray:
        raise ArgumentError(
            type(self).__name__,
            "an initializer must define __call__(self, shape, dtype=None)",
        )

    def clone(self) -> Initializer:
        """A new initializer with the same configuration."""
        return type(self).from_config(self.get_config())


@registry.register_builtin
class FunctionInitializer(Initializer):
    """Wraps a function that makes arrays.

    Args:
        fn: ``fn(shape, dtype)`` as in Keras, or ``fn(key, shape, dtype)`` as in
            ``jax.nn.initializers``. The names of its parameters tell which: either the
            first is called ``key``, or the second ``shape``. If it has a parameter
            ``rng``, it receives the NumPy generator of the weight.

    Raises:
        ShapeError: The function returned another shape than it was asked for.

    Example:
        >>> init = FunctionInitializer(jax.nn.initializers.he_normal())
        >>> init((3, 2), "float32").shape
        (3, 2)
        >>> FunctionInitializer(lambda shape, dtype: np.full(shape, 2, dtype))((2,))
        array([2., 2.], dtype=float32)
    """

    def __init__(self, fn: Callable[..., Any]):
        self.fn = fn
        try:
            parameters = inspect.signature(fn).parameters
        except ValueError:  # a builtin without a signature
            parameters = {}
        positional = [
            p.name
            for p in parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        self._keyed = positional[:1] != ["shape"] and (
            positional[:1] in (["key"], ["rng_key"], ["prng_key"])
            or positional[1:2] == ["shape"]
        )
        self._named_dtype = bool(parameters) and _takes(fn, "dtype")
        self._takes_dtype = not parameters or len(positional) > 1 + self._keyed
        self._takes_rng = not self._keyed and "rng" in parameters

    def __call__(self, shape, dtype=None, *, rng=None) -> np.ndarray:
        shape, dtype = as_shape(self, shape), as_dtype(self, dtype)
        args: list[Any] = [shape]
        if self._keyed:
            rng = fresh_generator() if rng is None else rng
            args.insert(0, jax.random.key(int(rng.integers(2**31))))
        named: dict[str, Any] = {"rng": rng} if self._takes_rng else {}
        if self._named_dtype:
            named["dtype"] = dtype
        elif self._takes_dtype:
            args.append(dtype)
        value = self.fn(*args, **named)
        value = np.asarray(value, dtype)
        if value.shape != shape:
            raise ShapeError(
                "initializer",
                f"{self.fn!r} returned shape {value.shape} where {shape} was asked for",
            )
        return value

    def get_config(self) -> dict[str, Any]:
        return {"fn": registry.serialize(self.fn)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> FunctionInitializer:
        return cls(registry.deserialize(config["fn"]))

    def __repr__(self) -> str:
        return f"FunctionInitializer({self.fn!r})"


@registry.register_builtin
class ArrayInitializer(Initializer):
    """Gives a weight the values of an array.

    Args:
        value: The values.

    Raises:
        ShapeError: The weight has another shape than the array.

    Example:
        >>> ArrayInitializer(np.eye(2))((2, 2)).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, value: Any):
        self.value = np.asarray(value)

    def __call__(self, shape, dtype=None, *, rng=None) -> np.ndarray:
        shape = as_shape(self, shape)
        if shape != self.value.shape:
            raise ShapeError(
                "initializer",
                f"the weight has shape {shape}, the array {self.value.shape}",
            )
        return self.value.astype(as_dtype(self, dtype))

    def get_config(self) -> dict[str, Any]:
        return {"value": registry.serialize(self.value)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> ArrayInitializer:
        return cls(registry.deserialize(config["value"]))

    def __repr__(self) -> str:
        return f"ArrayInitializer({self.value.dtype}{list(self.value.shape)})"


def as_shape(owner: Initializer, shape: Any) -> tuple[int, ...]:
    """The shape as a tuple of Python integers."""
    try:
        sizes = tuple(
            operator.index(d)
            for d in ((shape,) if isinstance(shape, int) else tuple(shape))
        )
    except TypeError:
        sizes = None
    if sizes is None or any(d < 0 for d in sizes):
        raise ShapeError(
            type(owner).__name__,
            f"the shape must consist of integers >= 0, received {shape!r}",
        )
    return sizes


def as_dtype(owner: Initializer, dtype: Any) -> np.dtype:
    """The dtype, with Keras' default."""
    try:
        return jnp.dtype(standardize_dtype(dtype or "float32"))
    except DTypeError as error:
        raise DTypeError(
            type(owner).__name__, f"{dtype!r} is no dtype", hint='Try "float32".'
        ) from error


def seeded_generator(seed: int) -> np.random.Generator:
    """The generator that belongs to a seed."""
    return np.random.Generator(np.random.Philox(key=seed % 2**128))


def fresh_generator() -> np.random.Generator:
    """A generator of its own for one call; ``set_random_seed`` decides which."""
    import random

    return seeded_generator(random.getrandbits(128))
