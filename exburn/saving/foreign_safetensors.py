"""Safetensors files as other libraries write them: names, order, no digests.

The bytes are those that the ``safetensors`` package writes for the same tensors: large
items first, equal ones by name.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from exburn.errors import ExBurnError
from exburn.module.variable import alive
from exburn.runtime.files.atomic import target_of
from exburn.runtime.files.ordinary import read_whole
from exburn.runtime.files.together import Changes, changing
from exburn.saving.header import CODES, MAX_HEADER, STORED_AS
from exburn.weights import Move, Rules

# Of the package, the last one first in a file.
_ORDER: tuple[str, ...] = (
    *("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "I16", "U16", "F16", "BF16"),
    *("I32", "U32", "F32", "C64", "F64", "I64", "U64"),
)
_METADATA = {"format": "pt"}  # which Hugging Face's libraries ask for


class ForeignTensors:
    """The tensors of a file, each made of a model's weights when it is written.

    Args:
        weights: The model's weights by path.
        rules: What becomes of them.
        dtypes: Dtypes of tensors by name, where they are not those of the weights, and
            can hold the numbers all the same.
        extra: Further tensors.

    Attributes:
        specs: Dtype and shape by name.
    """

    def __init__(
        self,
        weights: Mapping[str, Any],
        rules: Rules,
        dtypes: Mapping[str, np.dtype] | None = None,
        extra: Mapping[str, np.ndarray] | None = None,
    ):
        dtypes, extra = dtypes or {}, extra or {}
        self._weights, self._extra, self._dtypes = weights, extra, dtypes
        self._moves: dict[str, tuple[Move, int]] = {}
        self.specs: dict[str, tuple[np.dtype, tuple[int, ...]]] = {
            name: (array.dtype, array.shape) for name, array in extra.items()
        }
        for move in rules.save_plan(weights):
            specs = [weights[path].get_raw_value() for path in move.targets]
            # Arrays of one number, wherever one looks: their shapes are what counts.
            ghosts = tuple(
                np.broadcast_to(np.zeros((), np.dtype(spec.dtype)), spec.shape)
                for spec in specs
            )
            parts = move.transform.save(ghosts, len(move.sources))
            for place, (name, ghost) in enumerate(
                zip(move.sources, parts, strict=True)
            ):
                own = STORED_AS.get(ghost.dtype, ghost.dtype)
                self._moves[name] = move, place
                self.specs[name] = own, ghost.shape
                if dtypes.get(name, own) != own and self._fits(name, dtypes[name]):
                    self.specs[name] = dtypes[name], ghost.shape

    def _fits(self, name: str, dtype: np.dtype) -> bool:
        """Whether a tensor has the same numbers in another dtype."""
        (array,) = self.arrays([name])
        return np.array_equal(array, array.astype(dtype).astype(array.dtype))

    def in_order(self, names: list[str]) -> list[str]:
        def place(name: str) -> tuple[int, str]:
            return -_ORDER.index(CODES[self.specs[name][0]]), name

        return sorted(names, key=place)

    def arrays(self, names: list[str]) -> Iterator[np.ndarray]:
        """The arrays of these names; those of one rule are made once in a row."""
        last: Move | None = None
        parts: tuple[np.ndarray, ...] = ()
        for name in names:
            if name in self._extra:
                yield self._extra[name]
                continue
            move, place = self._moves[name]
            if move is not last:
                parts = ()
                values = tuple(
                    np.asarray(jax.device_get(alive(self._weights[p].get_value())))
                    for p in move.targets
                )
                parts, last = move.transform.save(values, len(move.sources)), move
            yield parts[place].astype(self.specs[name][0], copy=False)


def write_foreign(
    path: Any,
    weights: Mapping[str, Any],
    rules: Rules,
    *,
    max_shard_size: int | None = None,
    op: str = "save_weights",
) -> Path:
    """Writes a model's weights under another library's names.

    One tensor after another is fetched, changed and written. Several files have the
    names that Hugging Face gives them, and an index ``<path>.index.json``; all of them
    take their places together.

    Args:
        weights: The model's weights by path.
        rules: What becomes of them.
        max_shard_size: Bytes of the tensors in one file.

    Returns:
        The file, or the index of several.

    Raises:
        ArgumentError: There is no rule for a weight, or no such folder.
        SaveError: The system refuses; a file that was there is intact.
    """
    tensors = ForeignTensors(weights, rules)
    target = target_of(path, op)
    with changing(target.parent, op=op) as changes:
        name = add_foreign(changes, target.name, tensors, max_shard_size)
    return target.with_name(name)


def add_foreign(
    changes: Changes,
    name: str,
    tensors: ForeignTensors,
    max_shard_size: int | None = None,
    metadata: Mapping[str, str] | None = None,
) -> str:
    """Writes tensors as a part of what changes in a folder.

    Args:
        changes: What changes.
        name: The name of the file.
        tensors: What is written.
        max_shard_size: Bytes of the tensors in one file.
        metadata: Strings in the file.

    Returns:
        The name of the file, or that of the index of several.

    Raises:
        SaveError: The system refuses.
    """
    target = changes.folder / name
    metadata = _METADATA if metadata is None else metadata
    index = target.with_name(f"{name}.index.json")
    parts, old = _parts(tensors, max_shard_size), _shards_in(index)
    if len(parts) == 1:
        _write(changes, name, tensors, parts[0], metadata)
        for other in (index.name, *old):
            changes.remove(other)
        return name
    names = _shard_names(target, len(parts))
    for shard, part in zip(names, parts, strict=True):
        _write(changes, shard, tensors, part, metadata)
    total = sum(map(_bytes, tensors.specs.values()))
    where = {n: shard for shard, part in zip(names, parts, strict=True) for n in part}
    about = {"metadata": {"total_size": total}, "weight_map": where}
    text = json.dumps(about, indent=2, sort_keys=True) + "\n"
    changes.write(index.name, text.encode())
    for other in (name, *old):  # else a reader finds both
        changes.remove(other)
    return index.name


def _shard_names(target: Path, count: int) -> list[str]:
    """Names for the files: the usual ones, or others where one of these is in use.

    An index that is there goes on naming whole files until the new one replaces it.
    """
    for mark in ("", f"-{secrets.token_hex(4)}"):
        names = [
            f"{target.stem}{mark}-{number:05d}-of-{count:05d}.safetensors"
            for number in range(1, count + 1)
        ]
        if not any(os.path.lexists(target.with_name(name)) for name in names):
            break
    return names


def _bytes(spec: tuple[np.dtype, tuple[int, ...]]) -> int:
    return math.prod(spec[1]) * spec[0].itemsize


def _parts(tensors: ForeignTensors, limit: int | None) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    size = 0
    for name, spec in tensors.specs.items():
        if parts[-1] and limit is not None and size + _bytes(spec) > limit:
            parts.append([])
            size = 0
        parts[-1].append(name)
        size += _bytes(spec)
    return parts


def _write(
    changes: Changes,
    file: str,
    tensors: ForeignTensors,
    names: list[str],
    metadata: Mapping[str, str],
) -> None:
    names, place = tensors.in_order(names), 0
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    for name in names:
        dtype, shape = tensors.specs[name]
        stop = place + _bytes((dtype, shape))
        header[name] = {
            "dtype": CODES[dtype],
            "shape": list(shape),
            "data_offsets": [place, stop],
        }
        place = stop
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with changes.staging(file) as output:
        output.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.arrays(names):
            output.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def _shards_in(index: Path) -> set[str]:
    """Names of the files that an index of ours names; none if it is another's."""
    try:
        content = json.loads(read_whole(index, "save", MAX_HEADER))
        names = content["weight_map"].values()
        return {n for n in names if os.path.basename(n) == n and "-of-" in n}
    except (ExBurnError, ValueError, KeyError, TypeError, AttributeError):
        return set()
