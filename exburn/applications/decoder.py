"""What decoders of text share: their folders have a tokenizer, too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from exburn.applications.pretrained import Pretrained
from exburn.core.checks import check_count
from exburn.errors import ArgumentError, FileFormatError
from exburn.layers import Input
from exburn.saving.pretrained_folder import local_source
from exburn.text import Tokenizer

_TOKENIZER = "tokenizer.json"


class Decoder(Pretrained):
    """Base of models that are given tokens and score the next one."""

    @classmethod
    def from_pretrained(cls, source: Any, *, dtype: Any = None, **changes: Any) -> Self:
        """The model of a folder with ``config.json`` and weights, and its tokenizer.

        Args: as of ``Pretrained.from_pretrained``.

        Raises:
            FileFormatError: The folder is of another family, damaged, or lacks weights.
            MissingFileError: There is no such folder, or a file is missing in it.
            DataError: The hub does not have it, or cannot be reached.
        """
        folder = Path(local_source(source, f"{cls.__name__}.from_pretrained"))
        model = super().from_pretrained(folder, dtype=dtype, **changes)
        if (path := folder / _TOKENIZER).is_file():
            model.tokenizer = Tokenizer.load(path, lazy=True)
        return model

    def save_pretrained(
        self, folder: Any, *, style: str | None = None, max_shard_size: Any = "5GB"
    ) -> Path:
        """Writes ``config.json``, ``model.safetensors`` and ``tokenizer.json``.

        Args: as of ``Pretrained.save_pretrained``.

        Raises:
            ArgumentError: The model has weights that no rule is for, as adapters.
            SaveError: The system refuses.
        """
        file = super().save_pretrained(
            folder, style=style, max_shard_size=max_shard_size
        )
        if self.tokenizer is not None:
            self.tokenizer.save(Path(folder, _TOKENIZER))
        return file


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


def check_config(op: str, config: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raises unless a ``config.json`` asks for what the network computes.

    Raises:
        FileFormatError: It asks for something else.
    """
    for key, value in wanted.items():
        if config.get(key, value) != value:
            raise FileFormatError(
                op, f"{key!r} must be {value!r}, the file has {config[key]!r}"
            )


def tokens() -> Any:
    """The input: token numbers, of any length."""
    return Input((None,), dtype="int32", name="tokens")
