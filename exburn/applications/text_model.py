"""Pretrained models of text: their folders have a tokenizer, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from exburn.applications.pretrained import Pretrained
from exburn.saving.pretrained_folder import local_source
from exburn.text import Tokenizer
from exburn.text.folder import TOKENIZER, TOKENIZER_FILES


class TextModel(Pretrained):
    """Base of pretrained models that are given token numbers.

    Args:
        vocabulary_size: Number of tokens.
        layers: Number of blocks.
        width: Number of features.
        heads: Number of heads, which divide them.
        positions: Number of tokens that a text may have.
        dropout: Share of features that is dropped in training.
        attention_dropout: Share of the weights of attention that is.
        activation: Between a block's dense layers.
        epsilon: Of the normalizations.
        weights: A file, a folder, or the name of a repository on a hub, whose sizes are
            these; ``None`` for random ones. ``from_pretrained`` takes the sizes from
            the folder.

    Raises:
        ArgumentError: A size is no integer >= 1, or the heads do not divide the width.
        FileFormatError: The weights are of another model.
        MissingFileError: There is no such file or folder.
    """

    @classmethod
    def from_pretrained(
        cls, source: Any, *, dtype: Any = None, quantize: Any = None, **changes: Any
    ) -> Self:
        """The model of a folder with ``config.json`` and weights, and its tokenizer.

        Args: as of ``Pretrained.from_pretrained``.

        Raises:
            FileFormatError: The folder is of another family, damaged, or lacks weights.
            MissingFileError: There is no such folder, or a file is missing in it.
            DataError: The hub does not have it, or cannot be reached.
        """
        folder = Path(local_source(source, f"{cls.__name__}.from_pretrained"))
        model = super().from_pretrained(
            folder, dtype=dtype, quantize=quantize, **changes
        )
        if (folder / TOKENIZER).is_file():
            model.tokenizer = Tokenizer.load(folder, lazy=True)
        return model

    def text_files(self) -> dict[str, str | None]:
        if self.tokenizer is None:  # then a user has put some there, perhaps
            return {}
        return {**dict.fromkeys(TOKENIZER_FILES), **self.tokenizer.files()}
