"""Low-rank adapters of a model: adding, choosing, merging, keeping them in files."""

from __future__ import annotations

import json
from typing import Any

from exburn.errors import ArgumentError, FileFormatError, unknown_name
from exburn.models import lora
from exburn.models.changes import (
    add_record,
    forget_adapters,
    records,
    remove_adapter_records,
    repeat,
)
from exburn.models.network import Network
from exburn.models.session import require_idle
from exburn.module.variable import Static
from exburn.runtime.files.atomic import path_of

_FORMATS = ("exburn-lora-1", "exburn-lora-2")  # of plain adapters, and of all kinds


def add_lora(
    self: Network,
    rank: int = 8,
    alpha: float | None = None,
    filter: Any = None,
    *,
    kind: str = "lora",
    dropout: float = 0.0,
    name: str = "default",
) -> list[str]:
    """Adds low-rank adapters and freezes everything else, in place.

    A weight W becomes ``W + alpha / rank * A B``, of which A and B are trained. B
    starts as zeros, so the outputs are the same at first. It holds from the next
    ``fit`` on, before or after ``compile``; the optimizer keeps slots for the
    adapters alone. Quantized weights can have adapters too. With another name, a
    model has several: the new one is active, the others rest until ``set_adapter``.

    Args:
        rank: Columns of A and rows of B.
        alpha: Factor of the term, over the rank; ``rank`` by default.
        filter: Which layers: a name, path or pattern as for ``freeze``, a list of
            them, or a function called with each layer. By default all Dense,
            EinsumDense, Embedding and convolutional layers, those within attention
            too, whose weight is larger than its adapter would be; experts are to be
            named.
        kind: ``"lora"``; ``"rslora"``, whose term is divided by the root of the rank;
            or ``"dora"``, which also trains the magnitude of each output's weights.
        dropout: Share of the inputs of Dense and EinsumDense that the term does not
            see in training; those of an Embedding are never dropped.
        name: The adapter's.

    Returns:
        The paths of the layers that have this adapter now.

    Raises:
        ArgumentError: A number is out of range, the model has an adapter of that name
            already or is being trained, or no layer can have one.
        UnknownNameError: A pattern names no layer, or there is no such kind.
        NotBuiltError: The model has no weights yet.

    Example:
        >>> from exburn import Sequential
        >>> from exburn.layers import Dense, Input
        >>> model = Sequential([Input((64,)), Dense(128, "relu"), Dense(10)])
        >>> model.add_lora(rank=2)
        ['dense', 'dense_1']
        >>> sum(w.numpy().size for w in model.trainable_weights)
        660

    Source: Hu et al., *LoRA: Low-Rank Adaptation of Large Language Models*, 2021;
    Kalajdzievski, *A Rank Stabilization Scaling Factor for Fine-Tuning with LoRA*,
    2023; Liu et al., *DoRA: Weight-Decomposed Low-Rank Adaptation*, 2024.
    """
    require_idle(self, "add_lora")
    record = lora.adapt(self, rank, alpha, filter, kind, dropout, name)
    add_record(self, record)
    return list(record["layers"])


def set_adapter(self: Network, name: str | None) -> None:
    """Lets the adapter of a name be computed and trained; all others rest.

    Args:
        name: One of ``adapter_names``; with ``None`` none is active.

    Raises:
        UnknownNameError: There is no adapter of that name.
        BusyError: The model is being trained.

    Example:
        >>> from exburn import Sequential
        >>> from exburn.layers import Dense, Input
        >>> model = Sequential([Input((64,)), Dense(10)])
        >>> for task in ("french", "german"):
        ...     _ = model.add_lora(rank=2, name=task)
        >>> model.set_adapter("french")
        >>> model.adapter_names, model.active_adapter
        (['french', 'german'], 'french')
    """
    require_idle(self, "set_adapter")
    if name is not None:
        _require_adapter(self, "set_adapter", name)
    lora.activate(self, name)


def remove_adapter(self: Network, name: str) -> None:
    """Takes an adapter away; after the last, what was trained before is so again.

    Args:
        name: One of ``adapter_names``.

    Raises:
        UnknownNameError: There is no adapter of that name.
        BusyError: The model is being trained.
    """
    require_idle(self, "remove_adapter")
    _require_adapter(self, "remove_adapter", name)
    remove_adapter_records(self, name)


def _require_adapter(model: Network, op: str, name: Any) -> None:
    names = lora.adapter_names(model)
    if name not in names:
        raise unknown_name("adapter", name, names, op=op)


def merge_lora(self: Network, *, keep: bool = False) -> None:
    """Adds the active adapter to the weights, and trains again what was trained before.

    Args:
        keep: Whether ``unmerge_lora`` can undo it: the host's memory then has the
            weights as they were, until the end of the process.

    Raises:
        ArgumentError: There are no adapters, they are beside quantized weights, or
            others rest beside the same weights.
    """
    require_idle(self, "merge_lora")
    adapters = _lora_records(self, "merge_lora")
    lora.check_mergeable(self)
    before = lora.MergedAdapter.of(self, adapters) if keep else None
    lora.merge(self)
    lora.thaw(self, adapters)
    forget_adapters(self)
    if before is not None:
        self._merged_lora = Static(before.after(self))


def unmerge_lora(self: Network) -> None:
    """Undoes ``merge_lora(keep=True)``: weights and adapters are the same bytes again.

    Raises:
        ArgumentError: Nothing was merged so, or the weights have changed since.
    """
    require_idle(self, "unmerge_lora")
    stored = vars(self).get("_merged_lora")
    if stored is None or stored.value is None:
        raise ArgumentError(
            "unmerge_lora",
            "the model keeps no weights from before a merge",
            hint="model.merge_lora(keep=True) does; files and processes do not.",
        )
    records = stored.value.undo(self)
    for record in records:
        add_record(self, record)
    self._merged_lora = Static(None)


def save_lora(
    self: Network, filepath: Any, overwrite: bool = True, *, name: str | None = None
) -> None:
    """Writes the adapters alone to one small safetensors file, atomically.

    Args:
        filepath: The file; ``.safetensors`` is appended if it has no suffix.
        overwrite: Whether an existing file may be replaced.
        name: Which adapter; the active one by default.

    Raises:
        ArgumentError: There are no adapters, or such of several ranks; or the file
            may not be replaced.
        UnknownNameError: There is no adapter of that name.
        SaveError: The disk is full, or writing is not permitted.
    """
    from exburn.saving.shards import write_tensors

    adapters = _lora_records(self, "save_lora")
    if name is None and (name := lora.active_name(self)) is None:
        raise ArgumentError(
            "save_lora", "no adapter is active", hint="Say which: name=…."
        )
    _require_adapter(self, "save_lora", name)
    record, *others = (r for r in adapters if r["name"] == name)
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
    options = {key: record[key] for key in ("method", "dropout")}
    plain = options == {"method": "lora", "dropout": 0}
    arrays = {path: w.get_value() for path, w in lora.adapter_weights(self, name)}
    metadata = {"lora": json.dumps(about if plain else about | options)}
    format = _FORMATS[0 if plain else 1]
    write_tensors(path, arrays, metadata, format=format, op="save_lora")


def load_lora(self: Network, filepath: Any, *, name: str = "default") -> list[str]:
    """Reads adapters, adding them first if the model has none of that name.

    Args:
        filepath: A file of ``save_lora``.
        name: The adapter's in this model; it is active then.

    Returns:
        The paths of the layers that have this adapter.

    Raises:
        ArgumentError: There is no such file.
        FileFormatError: It is damaged, or of another model; nothing is changed.
    """
    from exburn.saving.json_text import parse_json
    from exburn.saving.shards import TensorFile

    require_idle(self, "load_lora")
    lora.check_name("load_lora", name)
    path = path_of(filepath, ".safetensors", "load_lora", exists=True)
    with TensorFile(path, op="load_lora") as file:
        about = parse_json(
            file.metadata.get("lora", "null"), file.op, path, "the description"
        )
        has_adapters = file.format in _FORMATS and file.sealed
        if not has_adapters or not isinstance(about, dict):
            raise FileFormatError(
                "load_lora",
                f"{path} holds no adapters",
                {"format": file.format or "not of ExBurn's making"},
                hint="Write them with model.save_lora(path).",
            )
        keys = ("rank", "alpha", "layers", "method", "dropout")
        about = {key: about[key] for key in keys if key in about}
        record = lora.checked_record(self, about | {"name": name})
        shapes = {name: entry.shape for name, entry in file.entries.items()}
        own = [r for r in records(self) if r["kind"] == "lora" and r["name"] == name]
        other = any(r[key] != record[key] for r in own for key in keys)
        if other or shapes != lora.adapter_shapes(self, record):
            raise FileFormatError(
                "load_lora",
                "the adapters belong to another model",
                {"first in the file": ", ".join(list(shapes)[:3])},
            )
        arrays = file.read(shapes)
    if own:
        lora.activate(self, name)
    else:
        add_record(self, lora.restore(self, record))
    for place, weight in lora.adapter_weights(self, name):
        weight.assign(arrays[place])
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
