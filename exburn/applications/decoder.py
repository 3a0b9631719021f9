"""What decoders of text share: checks, and how the model is made."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from exburn.core import registry
from exburn.core.checks import check_count
from exburn.errors import ArgumentError, MissingFileError
from exburn.layers import Input
from exburn.models import Model
from exburn.module.layer.configuration import given_arguments

INITIALIZER = {
    "class_name": "RandomNormal",
    "config": {"mean": 0.0, "stddev": 0.02},
}


class Decoder(Model):
    """Base of models that are given tokens and score the next one."""

    def _make(
        self, inputs: Any, outputs: Any, name: str | None, weights: Any, dtype: Any
    ) -> None:
        """Makes the graph of the model, with the weights that the user names."""
        Model.__init__(self, inputs, outputs, name=name, dtype=dtype)
        if weights is not None:
            self.load_weights(weights)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, without the file of the weights."""
        meta = self._meta.value
        config = given_arguments(self, type(self), meta.args, meta.kwargs)
        with registry.leaving_functions():
            return registry.serialize(
                {k: v for k, v in config.items() if k != "weights"}
            )


def check_sizes(op: str, **sizes: Any) -> None:
    """Raises unless each is an integer of at least 1.

    Raises:
        ArgumentError: One is not.

    Example:
        >>> check_sizes("GPT2", layers=2, heads=4)
    """
    for name, value in sizes.items():
        check_count(op, name, value)


def check_heads(op: str, width: int, heads: int, key_value_heads: int) -> int:
    """The size of a head.

    Raises:
        ArgumentError: The numbers do not divide each other.

    Example:
        >>> check_heads("GPT2", 12, 4, 2)
        3
    """
    if width % heads:
        raise ArgumentError(
            op, f"width must be a multiple of heads, received {width} and {heads}"
        )
    if heads % key_value_heads:
        raise ArgumentError(
            op,
            "heads must be a multiple of key_value_heads, received "
            f"{heads} and {key_value_heads}",
        )
    return width // heads


def check_weights(op: str, weights: Any) -> None:
    """Raises unless there is such a file: before anything is built.

    Raises:
        ArgumentError, MissingFileError: There is not.
    """
    if weights is None:
        return
    if not isinstance(weights, str | os.PathLike):
        raise ArgumentError(op, f"weights must be a path or None, received {weights!r}")
    if not os.path.exists(os.path.expanduser(weights)):
        raise MissingFileError(op, f"there is no file {os.fspath(weights)!r}")


def check_config(op: str, config: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raises unless a ``config.json`` asks for what the network computes.

    Raises:
        ArgumentError: It asks for something else.
    """
    for key, value in wanted.items():
        if config.get(key, value) != value:
            raise ArgumentError(
                op, f"{key} must be {value!r}, the file has {config[key]!r}"
            )


def tokens() -> Any:
    """The input: token numbers, of any length."""
    return Input((None,), dtype="int32", name="tokens")
