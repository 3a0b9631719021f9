"""Models in pickles, as process pools and joblib make them: the bytes of their file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from exburn.module.copying import own_classes
from exburn.saving import load_model, save_model


def reduce_model(model: Any) -> tuple[Any, tuple[Any, ...]]:
    """What ``__reduce__`` returns: how to make an equal model.

    Classes of the user's go into the pickle by reference, as pickle does it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.exburn")
        save_model(model, path, max_shard_size=None)
        data = path.read_bytes()
    return _restore, (data, own_classes(model))


# Pickles name this function by its place.
def _restore(data: bytes, own: dict[str, type]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.exburn")
        path.write_bytes(data)
        return load_model(path, custom_objects=own)
