"""Folders that other libraries read, written from a model of theirs."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exburn.errors import ArgumentError, ExBurnError, FileFormatError, unknown_name
from exburn.models.lora import merged_weights
from exburn.module.traversal import iter_weights
from exburn.runtime.files.together import changing, make_folder
from exburn.saving.foreign_safetensors import ForeignTensors, add_foreign
from exburn.saving.pretrained_folder import COMPANIONS, CONFIG, WEIGHTS, read_config
from exburn.saving.shards import byte_count

_HALVES = {"BF16": "bfloat16", "F16": "float16"}


@dataclasses.dataclass(frozen=True)
class FolderOrigin:
    """What of a folder no weight and no argument holds, so that it is written again.

    Attributes:
        style: Of the names: one of ``styles``.
        names: Of the tensors that became weights.
        dtypes: Dtypes of the tensors by name.
        extra: Tensors that no weight was made of.
        config: What ``config.json`` says.
        text: Its text.
        metadata: Strings in the file.
        files: What the further files say, by their names.
        texts: Their texts.
    """

    style: str
    names: frozenset[str]
    dtypes: Mapping[str, np.dtype]
    extra: Mapping[str, np.ndarray]
    config: Mapping[str, Any]
    text: str
    metadata: Mapping[str, str] | None
    files: Mapping[str, Mapping[str, Any]]
    texts: Mapping[str, str]


def save_pretrained(
    self: Any,
    folder: Any,
    *,
    style: str | None = None,
    max_shard_size: Any = "5GB",
    merge: bool = False,
) -> Path:
    """Writes ``config.json`` and ``model.safetensors`` as other libraries do.

    A model of ``from_pretrained`` whose weights nobody has changed is written byte
    by byte as it was read: with the dtypes of its tensors and those that no weight
    is made of. The files take their places together: after a kill at any moment
    the folder holds the old model or the new one. What else is in the folder stays,
    but for files that describe the inputs of a model of another kind.

    Args:
        folder: The folder, which is made if need be.
        style: One of ``styles``; by default that of the folder that it comes from.
        max_shard_size: Size from which on the tensors go into several files.
        merge: Whether weights in few bits are written as floats, and weights with
            the active adapter as their sum; in the folder's dtype. The model stays
            as it is. One weight after another is made.

    Returns:
        The file of weights, or the index of several.

    Raises:
        ArgumentError: The model has weights that no rule is for, as adapters and
            weights in few bits without ``merge``.
        SaveError: The system refuses.
    """
    op = "save_pretrained"
    origin: FolderOrigin | None = self._origin and self._origin.value
    style = style or (origin.style if origin else self.styles[0])
    if style not in self.styles:
        raise unknown_name("style", style, self.styles, op=op)
    source = origin if origin is not None and origin.style == style else None
    config = self.config_for(style)
    rules, forms, metadata = self.weight_rules(style), {}, None
    contents = {CONFIG: config, **self.further_files(style)}
    alike = source is not None and (
        _agree(kind_of(config), source.config)
        or _reads_alike(self, {CONFIG: source.config, **source.files}, contents)
    )
    if source is not None and alike:
        rules = rules.written_as(source.names)
        extra = _extra(self, source, _weights(self, merge, origin))
        forms = {"dtypes": source.dtypes, "extra": extra}
        metadata = source.metadata
    target = make_folder(folder, op)
    weights = _weights(self, merge, origin)
    if lost := [name for name in weights if not rules.knows(name)]:
        raise ArgumentError(
            op,
            "the folder's names have none for some of the weights",
            {"weights": ", ".join(lost[:4])},
            hint="save_pretrained(folder, merge=True) writes adapters and weights "
            "in few bits as plain weights, save_adapter(folder) an adapter alone. "
            "model.save(path) writes any model.",
        )
    tensors = ForeignTensors(weights, rules, **forms)
    dtype = common_dtype(tensors.specs.values()) or "float32"
    texts = {**_texts(self, source, contents, dtype), **self.text_files()}
    size = byte_count(max_shard_size, op)
    with changing(target, op=op) as changes:
        stale = {*self.further, *_of_another(target, config, op)}
        name = add_foreign(changes, WEIGHTS, tensors, size, metadata)
        for file, text in {**dict.fromkeys(sorted(stale)), **texts}.items():
            if text is None:
                changes.remove(file)
            else:
                changes.write(file, text.encode())
    return target / name


def _weights(model: Any, merge: bool, origin: FolderOrigin | None) -> dict[str, Any]:
    """The weights to write, by path."""
    if not merge:
        return {name: w for name, w, _ in iter_weights(model, carried=False)}
    dtypes = {} if origin is None else origin.dtypes
    return merged_weights(model, common_dtype((dtype, ()) for dtype in dtypes.values()))


def _extra(
    model: Any, origin: FolderOrigin, weights: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """The tensors that no weight was made of; copies of a weight follow it."""
    extra = dict(origin.extra)
    if model.shared_table is None:
        return extra
    pattern, path = model.shared_table
    for name, array in origin.extra.items():
        if re.fullmatch(pattern, name):
            extra[name] = np.asarray(weights[path]).astype(array.dtype)
    return extra


def _texts(
    model: Any,
    origin: FolderOrigin | None,
    contents: Mapping[str, Mapping[str, Any]],
    dtype: str,
) -> dict[str, str]:
    """The JSON files: those of the folder, if they say the same of the model.

    Args:
        origin: The folder that the model comes from, in this style.
        contents: What the files are to say, by their names.
        dtype: What the weights are written as.
    """
    texts = {name: json_text(value) for name, value in contents.items()}
    if origin is None or not origin.text:
        return texts
    old = {CONFIG: origin.config, **origin.files}
    merged = {**old, **{n: {**old.get(n, {}), **v} for n, v in contents.items()}}
    for files in (old, merged):
        if _reads_alike(model, files, contents):
            sources = {CONFIG: origin.text, **origin.texts}
            texts = {
                name: sources[name] if value == old.get(name) else json_text(value)
                for name, value in files.items()
            }
            contents = files
            break
    config = dict(contents[CONFIG])
    keys = [k for k in ("dtype", "torch_dtype") if isinstance(config.get(k), str)]
    named = dict.fromkeys(keys, dtype)
    if not _agree(named, config):
        texts[CONFIG] = json_text(config | named)
    return texts


def _reads_alike(
    model: Any, files: Mapping[str, Any], others: Mapping[str, Any]
) -> bool:
    """Whether two folders describe the same model."""

    def read(contents: Mapping[str, Any]) -> dict[str, Any]:
        further = {name: v for name, v in contents.items() if name != CONFIG}
        return model.arguments_of(contents[CONFIG], further)

    try:
        return read(files) == read(others)
    except FileFormatError:  # the old entries and the new ones contradict
        return False


def kind_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a configuration says the model is."""
    keys = ("model_type", "architectures", "architecture")
    return {key: config[key] for key in keys if key in config}


def common_dtype(
    specs: Iterable[tuple[np.dtype | None, Sequence[int]]],
) -> str | None:
    """The half precision that most of the numbers have; ``None`` for float32.

    Args:
        specs: Dtype and shape of each tensor.
    """
    count: Counter[str] = Counter()
    for dtype, shape in specs:
        if dtype is not None:
            count[dtype.name] += int(np.prod(shape, dtype=object))
    most = max(count, key=lambda name: count[name], default="")
    return most if most in _HALVES.values() else None


def _of_another(folder: Path, config: Mapping[str, Any], op: str) -> tuple[str, ...]:
    """Files of a folder that say something of another model, if it holds one.

    Args:
        folder: The folder.
        config: What ``config.json`` is to say.
        op: The operation named in errors.
    """
    keys = ("model_type", "architecture")
    try:
        old, _ = read_config(folder, op)
    except ExBurnError:  # there is none, or none that can be read
        return ()
    same = [old.get(key) for key in keys] == [config.get(key) for key in keys]
    return () if same else COMPANIONS


def _agree(config: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether two configurations say the same, where both say something."""
    return all(others.get(key, value) == value for key, value in config.items())


def json_text(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"
