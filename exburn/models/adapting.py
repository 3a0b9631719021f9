"""Low-rank adapters of a model: adding, merging, keeping them in files."""

from __future__ import annotations

import json
from typing import Any

from exburn.errors import ArgumentError, FileFormatError
from exburn.models import lora
from exburn.models.changes import add_record, records, remove_record, repeat
from exburn.models.network import Network
from exburn.models.session import require_idle
from exburn.runtime.files.atomic import path_of

_FORMAT = "exburn-lora-1"


def add_lora(
    self: Network, rank: int = 8, alpha: float | None = None, filter: Any = None
) -> list[str]:
    """Adds low-rank adapters and freezes everything else, in place.

    A weight W becomes ``W + alpha / rank * A B``, of which A and B are trained. B
    starts as zeros, so the outputs are the same at first. It holds from the next
    ``fit`` on, before or after ``compile``; the optimizer keeps slots for the
    adapters alone. Quantized weights can have adapters too.

    Args:
        rank: Columns of A and rows of B.
        alpha: Factor of the term, over the rank; ``rank`` by default.
        filter: Which layers: a name, path or pattern as for ``freeze``, a list of
            them, or a function called with each layer. By default all Dense,
            EinsumDense, Embedding and convolutional layers, those within attention
            too, whose weight is larger than its adapter would be.

    Returns:
        The paths of the layers that have an adapter now.

    Raises:
        ArgumentError: A number is out of range, the model has adapters already or
            is being trained, or no layer can have one.
        UnknownNameError: A pattern names no layer.
        NotBuiltError: The model has no weights yet.

    Example:
        >>> from exburn import Sequential
        >>> from exburn.layers import Dense, Input
        >>> model = Sequential([Input((64,)), Dense(128, "relu"), Dense(10)])
        >>> model.add_lora(rank=2)
        ['dense', 'dense_1']
        >>> sum(w.numpy().size for w in model.trainable_weights)
        660

    Source: Hu et al., *LoRA: Low-Rank Adaptation of Large Language Models*, 2021.
    """
    require_idle(self, "add_lora")
    record = lora.adapt(self, rank, alpha, filter)
    add_record(self, record)
    return list(record["layers"])


def merge_lora(self: Network) -> None:
    """Adds the adapters to the weights, and trains again what was trained before.

    Raises:
        ArgumentError: There are no adapters, or they are beside quantized weights.
    """
    require_idle(self, "merge_lora")
    adapters = _lora_records(self, "merge_lora")
    lora.check_mergeable(self, adapters)
    for record in adapters:
        lora.merge(self, record)
    remove_record(self, "lora")


def save_lora(self: Network, filepath: Any, overwrite: bool = True) -> None:
    """Writes the adapters alone to one small safetensors file, atomically.

    Args:
        filepath: The file; ``.safetensors`` is appended if it has no suffix.
        overwrite: Whether an existing file may be replaced.

    Raises:
        ArgumentError: There are no adapters, or such of several ranks; or the file
            may not be replaced.
        SaveError: The disk is full, or writing is not permitted.
    """
    from exburn.saving.shards import write_tensors

    record, *others = _lora_records(self, "save_lora")
    if others:
        raise ArgumentError(
            "save_lora",
            "the adapters were added in several ways",
            {"ranks": [r["rank"] for r in (record, *others)]},
            hint="Save the model: model.save(path); or add them by add_lora().",
        )
    path = path_of(filepath, ".safetensors", "save_lora")
    if path.exists() and not overwrite:
        raise ArgumentError(
            "save_lora",
            f"{path} exists and overwrite=False",
            hint="Choose another name, or pass overwrite=True.",
        )
    about = {key: record[key] for key in ("rank", "alpha", "layers")}
    arrays = {name: w.get_value() for name, w in lora.adapters(self)}
    metadata = {"lora": json.dumps(about)}
    write_tensors(path, arrays, metadata, format=_FORMAT, op="save_lora")


def load_lora(self: Network, filepath: Any) -> list[str]:
    """Reads adapters, adding them first if the model has none.

    Args:
        filepath: A file of ``save_lora``.

    Returns:
        The paths of the layers that have an adapter.

    Raises:
        ArgumentError: There is no such file.
        FileFormatError: It is damaged, or of another model; nothing is changed.
    """
    from exburn.saving.json_text import parse_json
    from exburn.saving.shards import TensorFile

    require_idle(self, "load_lora")
    path = path_of(filepath, ".safetensors", "load_lora", exists=True)
    with TensorFile(path, op="load_lora") as file:
        about = parse_json(
            file.metadata.get("lora", "null"), file.op, path, "the description"
        )
        if file.format != _FORMAT or not isinstance(about, dict):
            raise FileFormatError(
                "load_lora",
                f"{path} holds no adapters",
                {"format": file.format or "not of ExBurn's making"},
                hint="Write them with model.save_lora(path).",
            )
        about = {key: about.get(key) for key in ("rank", "alpha", "layers")}
        record = lora.checked_record(self, about)
        shapes = {name: entry.shape for name, entry in file.entries.items()}
        own = [r for r in records(self) if r["kind"] == "lora"]
        keys = ("rank", "alpha", "layers")
        other = any(r[key] != record[key] for r in own for key in keys)
        if other or shapes != lora.adapter_shapes(self, record):
            raise FileFormatError(
                "load_lora",
                "the adapters belong to another model",
                {"first in the file": ", ".join(list(shapes)[:3])},
            )
        arrays = file.read(shapes)
    if not own:
        lora.restore(self, record)
        add_record(self, record)
    for name, weight in lora.adapters(self):
        weight.assign(arrays[name])
    return list(record["layers"])


def _lora_records(model: Network, op: str) -> list[dict[str, Any]]:
    adapters = [r for r in records(model) if r["kind"] == "lora"]
    if not adapters:
        raise ArgumentError(
            op,
            "the model has no adapters",
            hint="Add them first: model.add_lora(rank=8).",
        )
    return adapters


def repeat_changes(self: Network, changes: Any) -> None:
    """Quantizes and adapts a fresh model as the records of another one say.

    Args:
        changes: The other model's ``changes``.

    Raises:
        FileFormatError: They do not fit this model.
    """
    repeat(self, changes)
