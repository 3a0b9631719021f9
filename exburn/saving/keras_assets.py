"""What layers have in a ``.keras`` archive beside their weights: files of theirs."""

from __future__ import annotations

from typing import Any

import numpy as np

from exburn.layers import IntegerLookup, StringLookup, TextVectorization
from exburn.module.traversal import iter_modules
from exburn.saving.hdf5 import HDF5File
from exburn.saving.keras_archive import KerasArchive
from exburn.saving.keras_layout import config_groups, walk
from exburn.saving.own_storage import asset_name, has_own

_LOOKUPS = (IntegerLookup, StringLookup, TextVectorization)
_VOCABULARY = "vocabulary.txt"


def with_vocabularies(config: Any, file: HDF5File, archive: KerasArchive) -> None:
    """Puts into a configuration what its lookups had learned: graphs are made of it.

    Raises:
        ModelFormatError: A vocabulary is damaged.
    """
    inner = config.get("config") if isinstance(config, dict) else None
    for group, entry in config_groups(inner):
        name, settings = entry.get("class_name"), entry["config"]
        lookup = name in [kind.__name__ for kind in _LOOKUPS]
        if not lookup or settings.get("vocabulary") is not None:
            continue
        if (data := archive.asset(group, _VOCABULARY)) is not None:
            whole = name == IntegerLookup.__name__
            tokens, weights = _read_tokens(data, whole, group, file)
            settings["vocabulary"] = tokens
            if weights is not None:
                settings["idf_weights"] = weights.tolist()


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
    assets: dict[str, np.ndarray] = {}
    for group, part in walk(model, lambda group: not group or group in file.groups):
        if isinstance(part, _LOOKUPS):
            data = archive.asset(group, _VOCABULARY)
            if data is not None and not part.get_vocabulary(False):
                whole = isinstance(part, IntegerLookup)
                tokens, weights = _read_tokens(data, whole, group, file)
                part.set_vocabulary(tokens, weights)
        elif id(part) in paths and has_own(part, "load_assets"):
            for name, data in archive.assets(group).items():
                key = asset_name(paths[id(part)], name)
                assets[key] = np.frombuffer(data, np.uint8)
    return assets


def idf_weights(layer: Any, group: str) -> list[str]:
    """The arrays of a lookup's that are no weights of ours."""
    return [f"{group}/vars/idf_weights"] if isinstance(layer, _LOOKUPS) else []


def _read_tokens(
    data: bytes, whole: bool, group: str, file: HDF5File
) -> tuple[list, np.ndarray | None]:
    """The tokens of a file, and the weight of each if there are some."""
    try:
        lines = data.decode().splitlines()
        while lines and not lines[-1]:
            lines.pop()
        tokens = [int(line) for line in lines] if whole else lines
    except ValueError as error:
        raise file.damage_error(
            f"the vocabulary of {group!r} cannot be read", cause=error
        ) from error
    name = f"{group}/vars/idf_weights"
    if name not in file.shapes:
        return tokens, None
    return tokens, file.read(name)
