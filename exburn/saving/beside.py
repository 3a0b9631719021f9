"""What lies beside a model in its file, and which ``load_model`` passes over.

It is JSON in the metadata, and tensors whose names begin with ``/beside/``. Its kind
says who reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from exburn.runtime.files.ordinary import HDF5, ZIP, Source
from exburn.saving.json_text import damage_error, parse_json
from exburn.saving.shards import TensorFile

_PREFIX = "/beside/"
_ENTRY = "beside"  # of the metadata


class Beside(NamedTuple):
    """What lies beside a model: JSON values and arrays by name, and their kind."""

    kind: str
    settings: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]

    def metadata(self) -> dict[str, str]:
        """The entry of a file's metadata."""
        return {_ENTRY: json.dumps({"kind": self.kind, "settings": self.settings})}

    def tensors(self) -> dict[str, np.ndarray]:
        """The arrays by their names in a file."""
        return {_PREFIX + name: array for name, array in self.arrays.items()}


def read_beside(path: Any, op: str) -> Beside | None:
    """What lies beside the model of a file; ``None`` if there is nothing.

    Raises:
        ModelFormatError: The file is damaged.
        ArgumentError: There is no such file.
    """
    with Source(path, op=op) as file:
        start = file.read(0, 8)
    if start.startswith(ZIP) or start == HDF5:  # of Keras
        return None
    with TensorFile(path, op=op) as file:
        text = file.metadata.get(_ENTRY)
        if text is None or not file.sealed:
            return None
        about = parse_json(text.encode(), op, path, "what lies beside the model")
        is_sound = isinstance(about, dict) and isinstance(about.get("kind"), str)
        if not is_sound or not isinstance(about.get("settings"), dict):
            raise damage_error(op, path, "what lies beside the model is nothing known")
        names = [name for name in file.entries if name.startswith(_PREFIX)]
        arrays = {name.removeprefix(_PREFIX): file.read_one(name) for name in names}
    return Beside(about["kind"], about["settings"], arrays)
