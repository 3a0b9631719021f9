"""What layers have in a ``.keras`` archive beside their weights: files of theirs."""

from __future__ import annotations

from typing import Any

import numpy as np

from exburn.layers import IntegerLookup, StringLookup, TextVectorization
from exburn.saving.hdf5 import HDF5File
from exburn.saving.keras_archive import KerasArchive
from exburn.saving.keras_layout import walk
from exburn.saving.own_storage import asset_name, has_own
from exburn.traversal import iter_modules

__all__ = ["idf_weights", "read_assets"]

_LOOKUPS = (IntegerLookup, StringLookup, TextVectorization)
_VOCABULARY = "vocabulary.txt"


def read_assets(
    model: Any, file: HDF5File, archive: KerasArchive
) -> dict[str, np.ndarray]:
    """Gives lookups the vocabularies that they had learned.

    Returns:
        The files of the user's layers, for their ``load_assets``.

    Raises:
        ModelFormatError: A vocabulary is damaged.
    """
    paths = {id(module): path for path, module in iter_modules(model)}
    found: dict[str, np.ndarray] = {}
    for group, part in walk(model, lambda group: not group or group in file.groups):
        if isinstance(part, _LOOKUPS):
            if _VOCABULARY in (files := archive.assets(group)):
                _teach(part, files[_VOCABULARY], group, file)
        elif id(part) in paths and has_own(part, "load_assets"):
            for name, data in archive.assets(group).items():
                key = asset_name(paths[id(part)], name)
                found[key] = np.frombuffer(data, np.uint8)
    return found


def idf_weights(layer: Any, group: str) -> list[str]:
    """The arrays of a lookup's that are no weights of ours."""
    return [f"{group}/vars/idf_weights"] if isinstance(layer, _LOOKUPS) else []


def _teach(layer: Any, data: bytes, group: str, file: HDF5File) -> None:
    try:
        lines = data.decode().splitlines()
        while lines and not lines[-1]:
            lines.pop()
        tokens = [int(t) for t in lines] if isinstance(layer, IntegerLookup) else lines
        weights = [n for n in idf_weights(layer, group) if n in file.shapes]
        for name in weights:
            file.check_length(name)
        layer.set_vocabulary(tokens, *(file.read(name) for name in weights))
    except ValueError as error:
        raise file.damaged(
            f"the vocabulary of {layer.name!r} cannot be read", cause=error
        ) from error
