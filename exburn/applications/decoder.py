"""What decoders of text share."""

from __future__ import annotations

from typing import Any

from exburn.applications.generation_files import GENERATION, generation_entries
from exburn.applications.text_model import TextModel
from exburn.core.checks import check_count
from exburn.errors import ArgumentError
from exburn.layers import Input
from exburn.losses import SparseCategoricalCrossentropy
from exburn.module.variable import Static
from exburn.text.defaults import GenerationDefaults


class Decoder(TextModel):
    """Base of models that are given tokens and score the next one.

    Subclasses have ``generation`` among the arguments of their constructor, and pass it
    to ``_set_generation``.

    Args:
        generation: What ``generate`` does where a call says nothing: a mapping of
            ``end_tokens``, ``do_sample``, ``temperature``, ``top_k``, ``top_p``,
            ``min_p``, ``repetition_penalty``, ``max_new_tokens`` and ``max_length``;
            folders tell it.

    Shape:
        x: [batch, time] of integers → [batch, time, vocabulary_size]
    """

    further = (GENERATION,)

    def _set_generation(self, defaults: Any) -> None:
        """Takes what ``generate`` does where a call says nothing.

        Raises:
            ArgumentError: A value is out of range, or a name unknown.
        """
        self._generation = Static(GenerationDefaults.of(defaults))

    def default_loss(self) -> SparseCategoricalCrossentropy:
        """The loss that ``compile`` takes without ``loss=``: of the next tokens."""
        return SparseCategoricalCrossentropy(from_logits=True)

    @property
    def generation(self) -> GenerationDefaults:
        """What ``generate`` does where a call says nothing."""
        return self._generation.value

    def further_files(self, style: str) -> dict[str, dict[str, Any]]:
        entries = generation_entries(self.generation)
        return {GENERATION: entries} if entries else {}


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


def tokens() -> Any:
    """The input: token numbers, of any length."""
    return Input((None,), dtype="int32", name="tokens")
