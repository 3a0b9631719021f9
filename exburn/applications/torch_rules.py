"""Rules for the weights of PyTorch's layers, as parts of a network's table of rules.

Each gives the entries of one layer: ``source`` is a pattern of its name in the file,
``target`` its path in the model.
"""

from __future__ import annotations

from exburn.weights import split_heads, transpose

__all__ = ["attention_output", "batch_norm", "dense", "heads", "norm"]

Entries = list[tuple]


def dense(source: str, target: str) -> Entries:
    """Rules for a linear layer.

    Example:
        >>> [entry[:2] for entry in dense("fc", "top")]
        [('fc.weight', 'top/kernel'), ('fc.bias', 'top/bias')]
    """
    return [
        (f"{source}.weight", f"{target}/kernel", transpose),
        (f"{source}.bias", f"{target}/bias"),
    ]


def norm(source: str, target: str) -> Entries:
    """Rules for a layer normalization."""
    return [
        (f"{source}.weight", f"{target}/gamma"),
        (f"{source}.bias", f"{target}/beta"),
    ]


def batch_norm(source: str, target: str) -> Entries:
    """Rules for a batch normalization."""
    return [
        *norm(source, target),
        (f"{source}.running_mean", f"{target}/moving_mean"),
        (f"{source}.running_var", f"{target}/moving_variance"),
        (f"{source}.num_batches_tracked", None),
    ]


def heads(source: str, target: str) -> Entries:
    """Rules for a linear layer to all heads of an attention, which we have apart."""
    return [
        (f"{source}.weight", f"{target}/kernel", transpose >> split_heads),
        (f"{source}.bias", f"{target}/bias", split_heads),
    ]


def attention_output(source: str, target: str) -> Entries:
    """Rules for the linear layer behind the heads of an attention."""
    return [
        (f"{source}.weight", f"{target}/kernel", transpose >> split_heads(axis=0)),
        (f"{source}.bias", f"{target}/bias"),
    ]
