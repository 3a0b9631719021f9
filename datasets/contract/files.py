"""Reading the file formats of the downloaded data sets; none runs code."""

from __future__ import annotations

import gzip
import math
import os
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from exburn.datasets.contract.download import KERAS_FOLDER, fetch, locate
from exburn.datasets.prepare import generator
from exburn.errors import FileFormatError
from exburn.runtime.files.bounds import PACKED, ROOM, is_shape
from exburn.runtime.files.npz import NpzFile
from exburn.runtime.files.ordinary import check_ordinary
from exburn.runtime.files.tar_stream import open_tar

__all__ = ["Split", "keras_npz", "read_idx", "read_npz", "read_records", "shuffle_rows"]

Split = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

_MOST_RANK = 32
_IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(path: Path, *, op: str) -> np.ndarray:
    """An array from an ``idx`` file (MNIST's format), gzipped or not.

    Raises:
        FileFormatError: Not an idx file, or shorter or longer than its header says.
    """
    size = check_ordinary(path, op).st_size
    head, data = b"", b""
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as file:
            head = file.read(4)
            if len(head) == 4 and head[:2] == b"\0\0" and head[2] in _IDX_TYPES:
                head += file.read(4 * head[3])
                shape = _shape(head)
                dtype = np.dtype(_IDX_TYPES[head[2]])
                length = math.prod(shape) * dtype.itemsize
                whole = len(head) == 4 + 4 * head[3] and head[3] <= _MOST_RANK
                if whole and length <= PACKED * size + ROOM:
                    data = file.read(length + 1)
                    if len(data) == length and is_shape(shape, dtype.itemsize):
                        array = np.frombuffer(data, dtype).reshape(shape)
                        return array.astype(dtype.newbyteorder("="))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FileFormatError(
            op, f"{path.name} is not a whole gzip file", {"path": path, "cause": error}
        ) from error
    raise FileFormatError(
        op,
        f"{path.name} is not a whole idx file",
        {"path": path, "bytes": len(head + data), "first bytes": head[:4].hex(" ")},
    )


def _shape(head: bytes) -> tuple[int, ...]:
    """The sizes behind the first four bytes of an idx file."""
    return tuple(np.frombuffer(head, ">u4", (len(head) - 4) // 4, 4).tolist())


def read_npz(
    path: Path, names: Sequence[str], *, op: str, pickled: bool = False
) -> list[np.ndarray]:
    """Arrays by name from an ``npz`` file.

    Args:
        path: The file.
        names: Which arrays.
        op: The operation named in errors.
        pickled: Allow arrays of Python lists. These run code when they are read: only
            for a file whose SHA-256 has been checked.

    Raises:
        FileFormatError: Not an npz file, a missing array, or one that is pickled.
    """
    try:
        if not pickled:
            arrays = NpzFile(path, op)
            return [arrays.read(name) for name in names]
        with np.load(path, allow_pickle=pickled) as file:
            return [file[name] for name in names]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise FileFormatError(
            op,
            f"{path.name} is not an npz file with {', '.join(names)}",
            {"path": path, "cause": error},
        ) from error


def keras_npz(
    path: str | os.PathLike, origin: str, digest: str, names: Sequence[str], *, op: str
) -> list[np.ndarray]:
    """Arrays of one of the npz files that Keras hosts.

    ``path`` is a file of the user's, or else a name in the cache.

    Raises:
        DataError: The file can be neither found nor downloaded.
        FileFormatError: The file is not the expected one.
    """
    own = locate(path)
    if own is None:
        own = fetch(os.fspath(path), KERAS_FOLDER + origin, digest, op=op)
    return read_npz(own, names, op=op)


def read_records(
    path: Path, members: Sequence[str], labels: int, *, op: str
) -> tuple[np.ndarray, np.ndarray]:
    """Images and label bytes of CIFAR's binary version, straight from its archive.

    A record is ``labels`` bytes and 3 × 32 × 32 pixels, channels first.

    Shape: images ``[n, 32, 32, 3]``, labels ``[n, labels]``, uint8.

    Raises:
        FileFormatError: Not that archive, or a member of another length.
    """
    size, arrays = labels + 3072, {}
    limit = PACKED * check_ordinary(path, op).st_size + ROOM

    def refuse(reason: str) -> FileFormatError:
        return FileFormatError(op, f"{path.name}: {reason}", {"path": path})

    try:
        with open_tar(path, limit, refuse) as archive:
            for member in archive:
                name = member.name.rsplit("/", 1)[-1]
                if name in members and name not in arrays and member.isfile():
                    arrays[name] = np.frombuffer(archive.read(member), np.uint8)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise FileFormatError(
            op, f"{path.name} is not a whole tar.gz", {"path": path, "cause": error}
        ) from error
    for name in members:
        if name not in arrays or not arrays[name].size or arrays[name].size % size:
            raise FileFormatError(
                op,
                f"{path.name} lacks whole records of {size} bytes in {name}",
                {"path": path, "members": ", ".join(sorted(arrays))},
            )
    rows = np.concatenate([arrays[name].reshape(-1, size) for name in members])
    images = rows[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), rows[:, :labels].copy()


def shuffle_rows(train: tuple, test: tuple, seed: int | None) -> Split:
    """Both parts in a seeded order of rows; in the file's order if seed is None."""
    if seed is None:
        return train, test
    rng = generator(seed, "load_data")
    parts = []
    for x, y in (train, test):
        order = rng.permutation(len(x))
        parts.append((x[order], y[order]))
    return parts[0], parts[1]
