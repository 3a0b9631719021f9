"""Pure functions with parameters as a layer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Unpack

from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.layers.contract.pure import PureLayer
from exburn.module.layer_options import LayerOptions

_CALL = ("params", "state", "rng", "inputs", "training")
_INIT = ("rng", "inputs", "training")


@register_builtin
class JaxLayer(PureLayer):
    """Wraps a model that is written as pure functions of JAX: Haiku's, or one's own.

    The functions say by the names of their parameters what they take, in any order::

        init_fn(rng, inputs, training) -> params          # or (params, state)
        call_fn(params, state, rng, inputs, training) -> outputs  # or (outputs, state)

    ``inputs`` is needed, the others are not. A ``call_fn`` with ``state`` returns the
    new one beside its outputs, and ``init_fn`` the first one beside the parameters. It
    is kept while the layer trains.

    Args:
        call_fn: What the layer computes.
        init_fn: Makes the parameters, when the shape of the inputs is known: ``rng`` is
            a key of :func:`jax.random.PRNGKey`, unknown sizes of ``inputs`` are 1.
        params: The parameters, any pytree, instead of ``init_fn``. Its floats are
            trained, other arrays are not.
        state: The state, any pytree.
        seed: Seed of ``init_fn``; one from the global seed by default.
        native_serialization_platforms: For Keras code: an export says itself where it
            runs.
        **kwargs: ``name``, ``dtype``, ``trainable``. Floating parameters are given in
            the compute dtype.

    Shape:
        x: what ``call_fn`` takes → what it returns

    Raises:
        ArgumentError: A function takes an argument of another name, or no ``inputs``;
            ``call_fn`` takes ``params`` or ``state``, and nothing makes them; a new
            state is not of the form of the old one. Saving raises it for functions that
            were not registered with ``exburn.register``.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> def init_fn(rng, inputs):
        ...     return {"w": jax.random.normal(rng, (inputs.shape[-1], 2))}
        >>> def call_fn(params, inputs):
        ...     return inputs @ params["w"]
        >>> layer = JaxLayer(call_fn, init_fn)
        >>> layer(jnp.ones((3, 4))).shape, layer.params["w"].shape
        ((3, 2), (4, 2))
    """

    def __init__(
        self,
        call_fn: Callable[..., Any],
        init_fn: Any = None,
        params: Any = None,
        state: Any = None,
        seed: Any = None,
        native_serialization_platforms: Any = None,
        **kwargs: Unpack[LayerOptions],
    ):
        takes = _names("call_fn", call_fn, _CALL)
        super().__init__(takes, params, state, seed, **kwargs)
        self.call_fn, self.init_fn = call_fn, init_fn
        self._init_takes = () if init_fn is None else _names("init_fn", init_fn, _INIT)
        needed = [name for name in ("params", "state") if name in takes]
        if init_fn is None and params is None and state is None and needed:
            raise ArgumentError(
                "JaxLayer",
                f"call_fn takes {' and '.join(needed)}, and nothing makes them",
                hint="Give init_fn=, or params= and state=.",
            )

    def _first(self, rng, inputs):
        if self.init_fn is None:
            return None, None
        values = {"rng": rng, "inputs": inputs, "training": True}
        result = self.init_fn(*(values[name] for name in self._init_takes))
        if "state" not in self._takes:
            return result, None
        return _pair("init_fn", "params", result)

    def _outputs(self, values):
        result = self.call_fn(*(values[name] for name in self._takes))
        return _pair("call_fn", "outputs", result) if "state" in self._takes else result

    def _init_config(self) -> dict[str, Any]:
        config = super()._init_config()
        if self.init_fn is not None:  # it makes the weights whose values files have
            config |= {"params": None, "state": None}
        return config


def _names(kind: str, function: Any, names_in_use: tuple[str, ...]) -> tuple[str, ...]:
    """The parameters of a function, which are all known and hold the inputs."""
    if not callable(function):
        raise ArgumentError("JaxLayer", f"{kind} is a function, received {function!r}")
    names = tuple(inspect.signature(function).parameters)
    wrong = [name for name in names if name not in names_in_use]
    if wrong or "inputs" not in names:
        text = f"has a parameter {wrong[0]!r}" if wrong else "has no parameter 'inputs'"
        raise ArgumentError(
            "JaxLayer", f"{kind} {text}", {"known names": ", ".join(names_in_use)}
        )
    return names


def _pair(function: str, what: str, result: Any) -> tuple[Any, Any]:
    """What a function returned, if it is two things: the second is the state."""
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise ArgumentError(
            "JaxLayer",
            f"{function} returns ({what}, state) where call_fn takes state, "
            f"received {type(result).__name__}",
        )
    return result[0], result[1]
