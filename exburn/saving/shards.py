"""Tensors in safetensors files with digests: one file, or several with an index.

The index is written last and atomically, and names shards that nobody else names; so
at any moment it stands for either the old set or the new one. What a killed writer
leaves beside it is removed when the file is opened next.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import hashlib
import math
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from exburn.errors import ArgumentError, ModelFormatError
from exburn.module.variable import alive
from exburn.runtime.files.atomic import Staged, remove_leftovers, staging, target_of
from exburn.runtime.files.ordinary import ONCE, BytesSource, Source, status
from exburn.runtime.sharding import processes
from exburn.runtime.sharding.arrays import spans_processes, to_host
from exburn.saving.header import (
    MAX_HEADER,
    STORED_AS,
    TensorEntry,
    damage_error,
    make_header,
    parse_json,
    read_header,
    strings,
)
from exburn.saving.seal import document_format, open_document, seal_document

_INDEX = "exburn-index-1"
_SHARD = "exburn-shard-1"
_MOST_TENSORS = 8192  # in one file, so that no header grows too large
_MOST_SHARDS = 512
_ALIGNMENT = 64  # bytes
_THREADS = 2  # that compute digests while the disk is busy
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def byte_count(
    size: Any, op: str = "save", argument: str = "max_shard_size"
) -> int | None:
    """A number of bytes from ``"5GB"``, a number, or ``None`` for no limit.

    A plain number below 2**16 means gigabytes, as in Keras.

    Args:
        op, argument: What errors name.

    Raises:
        ArgumentError: It is none of these.

    Example:
        >>> byte_count("1.5MB"), byte_count(5), byte_count(None)
        (1500000, 5000000000, None)
    """
    if size is None:
        return None
    if isinstance(size, int | float) and not isinstance(size, bool) and size > 0:
        return int(size if size >= 2**16 else size * 10**9)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?B)\s*", str(size).upper())
    if match is None or not float(match[1]):
        raise ArgumentError(
            op, f"{argument} is a size such as '5GB', received {size!r}"
        )
    return int(float(match[1]) * _UNITS[match[2]])


# ---------------------------------------------------------------------- writing
def write_tensors(
    path: Any,
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str],
    *,
    format: str,
    max_shard_size: int | None = None,
    op: str = "save",
) -> Path:
    """Writes named arrays; the file that was there before survives any failure.

    Args:
        tensors: Arrays of NumPy or JAX; the latter are fetched one after another.
        metadata: Further strings.
        format: What the file is, ``exburn-…``.
        max_shard_size: Bytes of the tensors in one file; more go into several files,
            beside an index under the given name.

    Returns:
        The file that was written.

    Raises:
        SaveError: The system refuses.
        ArgumentError: The folder does not exist, or a folder is in the file's place.
    """
    target = target_of(path, op)
    metadata = {"format": format, **metadata}
    if any(map(spans_processes, tensors.values())):
        # All gather them, one after another; process 0 alone keeps them, and writes.
        tensors = {n: _gather(value) for n, value in tensors.items()}
        write = functools.partial(_write, target, tensors, metadata)
        processes.on_main(lambda: write(max_shard_size, op), op)
    else:
        _write(target, tensors, metadata, max_shard_size, op)
    return target


def _gather(value: Any) -> Any:
    host = to_host(value)
    return host if processes.is_main() else None


def _write(
    target: Path,
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str],
    limit: int | None,
    op: str,
) -> None:
    parts = _parts(tensors, limit)
    if len(parts) == 1:
        with staging(target, op=op) as output:
            _write_part(output, tensors, metadata)
    else:
        _write_parts(target, tensors, parts, metadata, op)
    remove_leftovers(target, _spare_shards(target))


def _parts(tensors: Mapping[str, Any], limit: int | None) -> list[list[str]]:
    """Names of the tensors of each file, in order, filled up one after another."""
    parts: list[list[str]] = [[]]
    size = 0
    for name, value in tensors.items():
        bytes_ = math.prod(value.shape) * np.dtype(value.dtype).itemsize
        full = limit is not None and size + bytes_ > limit
        if parts[-1] and (full or len(parts[-1]) >= _MOST_TENSORS):
            parts.append([])
            size = 0
        parts[-1].append(name)
        size += bytes_
    return parts


def _write_part(
    output: Staged | _MemoryFile,
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str],
) -> str:
    """One file; returns the digest of its header, and so of all that is in it."""
    # Large items first: then every tensor is aligned for who maps the file.
    ordered = dict(
        sorted(tensors.items(), key=lambda i: -np.dtype(i[1].dtype).itemsize)
    )
    specs = {}
    for name, value in ordered.items():
        dtype = np.dtype(value.dtype)
        specs[name] = (STORED_AS.get(dtype, dtype), tuple(value.shape))
    digest = hashlib.sha256().hexdigest()
    blank = {**metadata, "tensors": "0" * len(digest) * len(ordered)}
    output.write(make_header(specs, blank))
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        digests: list[concurrent.futures.Future[str]] = []
        for name, value in ordered.items():
            if len(digests) > _THREADS:  # no more copies of device memory than that
                digests[-_THREADS].result()
            array = np.ascontiguousarray(jax.device_get(alive(value))).reshape(-1)
            array = array.astype(specs[name][0], copy=False).view(np.uint8)
            digests.append(pool.submit(_digest, array))
            output.write(array)
    hashes = "".join(future.result() for future in digests)
    header = make_header(specs, {**metadata, "tensors": hashes})
    output.rewrite(header)
    return hashlib.sha256(header).hexdigest()


class _MemoryFile:
    """A file that is written in memory."""

    def __init__(self):
        self.data = bytearray()

    def write(self, data: Any) -> None:
        self.data += memoryview(data).cast("B")

    def rewrite(self, data: bytes) -> None:
        self.data[: len(data)] = data


def tensor_bytes(tensors: Mapping[str, Any], *, format: str) -> bytes:
    """The bytes of a file with named arrays, and their digests.

    Args:
        tensors: Arrays of NumPy or JAX.
        format: What it is, ``exburn-…``.
    """
    memory = _MemoryFile()
    _write_part(memory, tensors, {"format": format})
    return bytes(memory.data)


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.data).hexdigest()


def _write_parts(
    target: Path,
    tensors: Mapping[str, Any],
    parts: list[list[str]],
    metadata: Mapping[str, str],
    op: str,
) -> None:
    mark, many = secrets.token_hex(4), len(parts)
    files: list[Staged] = []
    try:
        shards = []
        for number, names in enumerate(parts, 1):
            name = f"{target.name}-{mark}-{number:05d}-of-{many:05d}.safetensors"
            files.append(Staged(target.with_name(name), op=op))
            part = {key: tensors[key] for key in names}
            digest = _write_part(files[-1], part, {"format": _SHARD})
            shards.append({"file": name, "digest": digest})
        index = {"metadata": dict(metadata), "shards": shards}
        for shard in files:
            shard.commit()
        head = Staged(target, op=op)
        files.append(head)
        head.write(seal_document(_INDEX, index))
        head.commit()
    except BaseException:
        spare = _spare_shards(target)  # the index may be in its place already
        for file in files:
            file.discard()
            with contextlib.suppress(OSError):  # the next opening removes the rest
                if spare(file.path.name):
                    os.unlink(file.path)
        raise
    for file in files:
        file.close()


def _spare_shards(target: Path) -> Callable[[str], bool]:
    """Whether a name is that of a shard of this file which its index does not name."""
    pattern = re.compile(
        re.escape(target.name) + r"-[0-9a-f]{8}-\d{5}-of-\d{5}\.safetensors"
    )

    def spare(name: str) -> bool:
        if not pattern.fullmatch(name):
            return False
        try:
            return name not in _shards_of(target)
        except ModelFormatError:
            return False  # a damaged index names nothing, but its shards may be saved

    return spare


def _shards_of(target: Path) -> list[str]:
    """Names of the shards of an index of ours; none for another kind of file."""
    if status(target) is None:
        return []
    with Source(target) as file:
        if not _is_index(file):
            return []
        return [name for name, _ in _read_index(file)[1]]


def _is_index(file: Source) -> bool:
    # The ninth byte of a safetensors file is the brace of its header.
    return file.read(0, 1) == b"{" != file.read(8, 1)


# ---------------------------------------------------------------------- reading
def _read_index(file: Source) -> tuple[dict[str, str], list[tuple[str, str | None]]]:
    """Metadata, and shards with their digests: our own index, or Hugging Face's."""
    op, path = file.op, file.path
    if file.size > MAX_HEADER:
        raise damage_error(op, path, "the index is too large")
    raw = file.read(0, file.size)
    own = bool(document_format(raw))
    if own:
        index = open_document(raw, _INDEX, op, path)
    else:
        index = parse_json(raw, op, path, "the index")
    entries = index.get("shards" if own else "weight_map", {})
    metadata = index.get("metadata", {}) if own else {}
    shards: list[tuple[Any, Any]]
    if own:
        shards = [(shard.get("file"), shard.get("digest")) for shard in entries]
    else:
        shards = [(name, None) for name in dict.fromkeys(entries.values())]
    if not 0 < len(shards) <= _MOST_SHARDS:
        raise damage_error(
            op, path, "an index names at least one file, and not thousands"
        )
    for name, digest in shards:
        _check_plain(name, ".safetensors", op, path)
        if own and not isinstance(digest, str):
            raise damage_error(op, path, f"{name} has no digest in the index")
    _check_distinct([name for name, _ in shards], op, path)
    return strings(op, path, metadata), shards


def _check_plain(name: Any, suffix: str, op: str, path: Any) -> None:
    plain = isinstance(name, str) and os.path.basename(name) == name
    if not plain or not name.endswith(suffix) or {*"\\\0"} & {*name}:
        raise damage_error(
            op,
            path,
            f"an index names only {suffix} files of its own folder",
            received=repr(name)[:200],
        )


def listed_files(path: Any, op: str, suffix: str) -> list[str]:
    """The files that an index of Hugging Face's names.

    Raises:
        ModelFormatError: It is damaged, or names files elsewhere.
    """
    with Source(path, op=op) as file:
        if file.size > MAX_HEADER:
            raise damage_error(op, path, "the index is too large")
        index = parse_json(file.read(0, file.size), op, path, "the index")
    table = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(table, dict) or not all(
        isinstance(name, str) for name in table.values()
    ):
        raise damage_error(op, path, "this is no index of a model in parts")
    names = list(dict.fromkeys(table.values()))
    if not 0 < len(names) <= _MOST_SHARDS:
        raise damage_error(
            op, path, "an index names at least one file, and not thousands"
        )
    for name in names:
        _check_plain(name, suffix, op, path)
    _check_distinct(names, op, path)
    return names


def _check_distinct(names: Sequence[str], op: str, path: Path) -> None:
    """Refuses files that are named twice, through links, too."""
    files = []
    for name in names:
        with contextlib.suppress(OSError):  # whoever opens it tells that
            facts = os.stat(path.with_name(name))
            files.append((facts.st_dev, facts.st_ino))
    if len({*files}) != len(files) or len({*names}) != len(names):
        raise damage_error(op, path, "an index names a file twice")


class TensorFile:
    """The tensors of a safetensors file, or of the files that an index names.

    Args:
        path: The file; or a `BytesSource`.

    Attributes:
        entries: What the tensors are, by name.
        metadata: The strings in the file.
        format: What the file says it is; ``""`` if it is not of ExBurn's making.
        sealed: Whether each header has a digest of itself, which fits.

    Raises:
        ModelFormatError: Something is wrong with a header.
        ArgumentError: There is no such file.
        LoadError: The system refuses to read it.
    """

    def __init__(self, path: Any, *, op: str = "load"):
        own = isinstance(path, BytesSource)
        self.op, self.path = op, Path("bytes" if own else os.path.realpath(path))
        self._files: list[Source] = []
        self._places: dict[str, tuple[Source, int, str | None]] = {}
        self.sealed = True
        self.entries: dict[str, TensorEntry] = {}
        try:
            self._open(path if own else Source(path, op=op))
        except BaseException:
            self.close()
            raise
        self.format = self.metadata.get("format", "")

    def _open(self, file: Source) -> None:
        self._files.append(file)
        if not _is_index(file):
            self.metadata = self._add(file, None)
            return
        if isinstance(file, BytesSource):
            raise damage_error(self.op, file.path, "bytes in memory name no files")
        try:
            self.metadata, shards = _read_index(file)
        except (AttributeError, TypeError) as error:  # another type than expected
            reason = "this is no index of a model in parts"
            raise damage_error(self.op, file.path, reason, cause=error) from error
        for name, digest in shards:
            try:
                part = Source(self.path.with_name(name), op=self.op)
            except ArgumentError as error:
                reason = f"the part {name} is missing"
                raise damage_error(self.op, file.path, reason) from error
            self._files.append(part)
            self._add(part, digest)

    def _add(self, file: Source, digest: str | None) -> dict[str, str]:
        header = read_header(file)
        if digest is not None:
            whole = hashlib.sha256(file.read(0, header.start)).hexdigest()
            if whole != digest:
                raise damage_error(
                    self.op, file.path, "this part belongs to another model"
                )
        self.sealed &= header.digest is not None
        digests = self._digests(header) if header.digest else {}
        for name, entry in header.entries.items():
            if name in self.entries:
                raise damage_error(self.op, file.path, f"tensor {name!r} occurs twice")
            self.entries[name] = entry
            self._places[name] = (file, header.start, digests.get(name))
        return header.metadata

    def _digests(self, header: Any) -> dict[str, str]:
        text, many = header.metadata.get("tensors", ""), len(header.entries)
        if len(text) != 64 * many:
            raise damage_error(self.op, self.path, "digests of tensors are missing")
        parts = [text[i : i + 64] for i in range(0, len(text), 64)]
        return dict(zip(header.entries, parts, strict=True))

    @property
    def has_digests(self) -> bool:
        """Whether the file says what its tensors' digests are."""
        return any(digest is not None for _, _, digest in self._places.values())

    def read(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """The arrays of these names, compared with their digests.

        Raises:
            ModelFormatError: The content does not fit its digest.
        """
        names = list(names)
        with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
            return dict(zip(names, pool.map(self.read_one, names), strict=True))

    def read_one(self, name: str, *, aligned: bool = False) -> np.ndarray:
        """The array of this name, as of ``read``.

        Args:
            aligned: Whether its memory begins where JAX, on a CPU, takes it as it is.
        """
        entry = self.entries[name]
        data = self._read(name, _ALIGNMENT if aligned else 1)
        return data.view(entry.dtype).reshape(entry.shape)

    def _read(self, name: str, alignment: int) -> np.ndarray:
        entry, (file, start, digest) = self.entries[name], self._places[name]
        size = entry.stop - entry.start
        data = np.empty(size + alignment - 1, np.uint8)
        first = -data.ctypes.data % alignment
        data = data[first : first + size]
        view, sha256 = data.data, hashlib.sha256()
        for at in range(0, len(view), ONCE):  # digested while it is in the cache
            part = view[at : at + ONCE]
            if file.read_into(start + entry.start + at, part) != len(part):
                raise damage_error(self.op, file.path, f"the file ends within {name!r}")
            if digest is not None:
                sha256.update(part)
        if digest is not None and sha256.hexdigest() != digest:
            reason = f"the content of {name!r} does not fit its digest"
            raise damage_error(self.op, self.path, reason)
        return data

    def clean(self) -> None:
        """Removes what killed writers of this file left behind."""
        remove_leftovers(self.path, _spare_shards(self.path))

    def close(self) -> None:
        for file in self._files:
            file.close()

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
