"""A recurrent layer that reads its input in both directions."""

from __future__ import annotations

from itertools import chain
from typing import Any, Unpack

import jax.numpy as jnp
import numpy as np

from exburn.core import registry
from exburn.core.checks import check_choice
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions
from exburn.module.traversal import iter_modules, iter_weights

_MODES = ("concat", "sum", "mul", "ave")


@register_builtin
class Bidirectional(Layer):
    """Runs a recurrent layer forwards and a copy backwards, and joins the outputs.

    Args:
        layer: RNN, LSTM, GRU, SimpleRNN, ConvLSTM, or any layer with ``go_backwards``,
            ``return_sequences`` and ``return_state``. It is copied, not its weights.
        merge_mode: How the outputs are joined: ``"concat"``, ``"sum"``, ``"mul"``,
            ``"ave"``, or None for a tuple of both.
        weights: First values of the weights, those of the forward layer first.
        backward_layer: Layer for the other direction, with ``go_backwards=True``.

    Shape:
        x: [batch, time, in], states: those of the forward layer, then of the other →
        [batch, 2 * units], or [batch, time, 2 * units] with ``return_sequences``; with
        ``return_state`` then all states

    Raises:
        ArgumentError: ``merge_mode`` is none of the above; the layers do not differ in
            ``go_backwards``, or differ in what they return.

    Example:
        >>> import numpy as np
        >>> from exburn.layers import LSTM
        >>> layer = Bidirectional(LSTM(4, return_sequences=True))
        >>> layer(np.ones((2, 5, 3))).shape
        (2, 5, 8)

    Source: Schuster & Paliwal, *Bidirectional Recurrent Neural Networks*, 1997.
    """

    stateful: bool
    return_sequences: bool
    return_state: bool

    def __init__(
        self,
        layer: Any,
        merge_mode: str = "concat",
        weights: Any = None,
        backward_layer: Any = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        if not isinstance(layer, Layer):
            raise ArgumentError(
                "Bidirectional", f"a layer is needed, received {type(layer).__name__}"
            )
        if merge_mode is not None:
            merge_mode = check_choice(
                "Bidirectional", "merge_mode", merge_mode, (*_MODES, "none")
            )
        self.merge_mode = None if merge_mode == "none" else merge_mode
        self.forward_layer = _copy(layer, f"forward_{layer.name}")
        if backward_layer is None:
            name = f"backward_{layer.name}"
            backward_layer = _copy(layer, name, go_backwards=True)
        self.backward_layer = backward_layer
        for name in ("stateful", "return_sequences", "return_state"):
            values = [getattr(b, name, False) for b in self._both()]
            if values[0] != values[1]:
                raise ArgumentError(
                    "Bidirectional", f"the layers differ in {name}: {values}"
                )
            setattr(self, name, values[0])
        directions = [getattr(b, "go_backwards", False) for b in self._both()]
        if directions[0] == directions[1]:
            raise ArgumentError(
                "Bidirectional",
                "one of the layers must go backwards and the other not",
                {"forward_layer, backward_layer": directions},
            )
        for part in self._both():
            if hasattr(part, "zero_output_for_mask"):
                part.zero_output_for_mask = self.return_sequences
        if weights is not None and not isinstance(weights, list | tuple):
            raise ArgumentError(
                "Bidirectional",
                f"weights must be a list of arrays, received {weights!r}",
            )
        self._first = None if weights is None else _Weights(weights)
        self.supports_masking = True
        self.input_spec = layer.input_spec

    def _init_config(self):
        config = super()._init_config()
        if self.built or config.get("weights") is None:
            config.pop("weights", None)  # they are those of the layers
        if "layer" not in config:  # a user's class that makes its layers
            return config
        # With the layers as they are now, not as given.
        forward = _copy(self.forward_layer, config["layer"].name)
        backward = _copy(self.backward_layer, self.backward_layer.name)
        return config | {"layer": forward, "backward_layer": backward}

    def _both(self) -> tuple[Any, Any]:
        return self.forward_layer, self.backward_layer

    def build(self, sequences_shape):
        for part in self._both():
            if not part.built:
                part.build(sequences_shape)
        if self._first is not None:
            own = [w for part in self._both() for _, w, _ in iter_weights(part)]
            for weight, value in zip(own, self._first.values, strict=True):
                weight.assign(value)

    @property
    def states(self) -> tuple | None:
        """The states of both layers if they are stateful and built, else ``None``."""
        states: list[Any] = [getattr(b, "states", None) for b in self._both()]
        return None if None in states else tuple(chain.from_iterable(states))

    def reset_state(self) -> None:
        """Makes the states of stateful layers zero."""
        for part in self._both():
            part.reset_state()

    reset_states = reset_state

    def call(self, sequences, initial_state=None, mask=None, training=None):
        forward, backward = {}, {}
        for part, kwargs in zip(self._both(), (forward, backward), strict=True):
            if mask is not None and part._call_info.takes_mask:
                kwargs["mask"] = mask
            if part._call_info.takes_training:
                kwargs["training"] = training
        if initial_state is not None:
            half = len(initial_state) // 2
            forward["initial_state"] = list(initial_state[:half])
            backward["initial_state"] = list(initial_state[half:])
        y = self.forward_layer(sequences, **forward)
        z = self.backward_layer(sequences, **backward)
        states = ()
        if self.return_state:
            states = (*y[1:], *z[1:])
            y, z = y[0], z[0]
        if self.return_sequences:
            z = jnp.flip(z, axis=1)
        output = self._join(self.cast(y), self.cast(z))
        if self.merge_mode is None:
            return (*output, *states)
        return (output, *states) if states else output

    def _join(self, y, z):
        match self.merge_mode:
            case "concat":
                return jnp.concatenate([y, z], axis=-1)
            case "sum":
                return y + z
            case "mul":
                return y * z
            case "ave":
                return (y + z) / 2
        return y, z

    def compute_mask(self, inputs, mask=None):
        mask = mask[0] if isinstance(mask, list | tuple) else mask
        mask = mask if self.return_sequences else None
        return [mask, mask] if self.merge_mode is None else mask


class _Weights:
    """First values of weights; a plain object, so that they are no state."""

    def __init__(self, values: Any):
        self.values = [np.asarray(v) for v in values]


def _copy(layer: Layer, name: str, **changes) -> Any:
    """A layer of the same configuration, cells of one's own included."""
    own = {type(m).__name__: type(m) for _, m in iter_modules(layer)}
    # Cells that a file describes once would else be one for both directions.
    with registry.custom_objects(own), registry.sharing():
        config = {**layer.get_config(), "name": name, **changes}
        copy = type(layer).from_config(config)
    copy._own_policy = layer._own_policy
    return copy
