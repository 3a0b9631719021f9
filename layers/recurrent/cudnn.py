"""cuDNN's LSTM, which JAX offers for float32 on NVIDIA GPUs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn import activations
from exburn.errors import ArgumentError

__all__ = ["check_choice", "run_lstm", "why_not_lstm"]


def check_choice(op: str, use_cudnn: Any) -> Any:
    if use_cudnn not in ("auto", True, False):
        raise ArgumentError(
            op, f"use_cudnn is 'auto', True or False, received {use_cudnn!r}"
        )
    return use_cudnn


def why_not_lstm(layer, sequences, mask, training) -> str | None:
    """Why cuDNN cannot (or shall not) run the layer, or None if it does."""
    cell = layer.cell
    if layer.use_cudnn is False:
        return "use_cudnn is False"
    if jax.default_backend() != "gpu":
        return f"JAX runs on {jax.default_backend()}"
    if cell.compute_dtype != "float32":
        return f"the compute dtype is {cell.compute_dtype}, not float32"
    if cell.activation is not activations.tanh:
        return "the activation is not tanh"
    if cell.recurrent_activation is not activations.sigmoid:
        return "the recurrent activation is not sigmoid"
    if training and cell.recurrent_dropout:
        return "recurrent_dropout is on"
    if layer.unroll:
        return "unroll is on"
    if mask is not None:
        return "some steps are masked"
    if not all(isinstance(d, int) for d in sequences.shape):
        return "sizes are not known"
    return None


def _flat(w: dict) -> tuple[list, list]:
    """Kernels and biases of one direction, each as a vector in cuDNN's order."""
    units = w["recurrent_kernel"].shape[0]
    bias = w.get("bias", jnp.zeros(4 * units, jnp.float32))
    kernels = [w["kernel"].T.ravel(), w["recurrent_kernel"].T.ravel()]
    return kernels, [bias, jnp.zeros_like(bias)]


def _lstm(x, h, c, weights: list[dict]):
    """Runs one direction a dictionary of weights; ``h, c: [directions, batch, units]``."""
    from jax.experimental.rnn import lstm

    parts = [_flat(w) for w in weights]
    flat = [v for kernels, _ in parts for v in kernels]
    flat += [v for _, biases in parts for v in biases]
    lengths = jnp.full((x.shape[0],), x.shape[1], jnp.int32)
    return lstm(
        x,
        h,
        c,
        jnp.concatenate(flat),
        lengths,
        input_size=x.shape[-1],
        hidden_size=h.shape[-1],
        num_layers=1,
        dropout=0.0,
        bidirectional=len(weights) == 2,
    )


def run_lstm(layer, sequences, states, training):
    """What ``RNN._run_fused`` returns, by cuDNN."""
    w = layer.cell.loop_weights(sequences.shape[0], training)
    x = sequences
    if "input_mask" in w:
        x = x * w["input_mask"][:, None]
    if layer.go_backwards:
        x = jnp.flip(x, axis=1)
    h, c = layer.cell.carried(states)
    y, h, c = _lstm(x, h[None], c[None], [w])
    if layer.return_sequences and layer.go_backwards:
        y = jnp.flip(y, axis=1)  # in the order of time, as the loop returns it
    return (y if layer.return_sequences else h[0]), [h[0], c[0]]
