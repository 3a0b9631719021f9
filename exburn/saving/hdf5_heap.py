"""The heap of an HDF5 file, where texts of any length lie, read without HDF5.

An array of texts holds references into the heap, and HDF5 copies what each refers to.
Many references to one long text would fill the memory, and HDF5 does not tell an
attribute's lengths before it has read them. So the long texts are listed here, and the
references to each are counted in the file's bytes.

Source: *HDF5 File Format Specification*, version 3.0, III.E, "Global Heap".
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator

__all__ = ["SHORT", "referenced_bytes"]

SHORT = 1024  # bytes: names of layers and weights are no longer
_COLLECTION = struct.Struct("<4sB3xQ")  # signature, version, bytes of the collection
_OBJECT = struct.Struct("<HH4xQ")  # index, count of references, bytes
_REFERENCE = struct.Struct("<QI")  # address of the collection, index
_MOST = 64  # long texts: a model has its configuration, and few others
_VISITS = 1 << 18  # entries of collections that are looked at; of names, a few thousand


def referenced_bytes(data: bytes | mmap.mmap) -> int | None:
    """Bytes that all references to texts longer than `SHORT` stand for together.

    Args:
        data: The file, or a memory map of it, with addresses of 8 bytes from its start.

    Returns:
        The bytes; ``None`` if there are more texts, or long ones, than a model's file
        has.

    Example:
        >>> referenced_bytes(b"a file without texts")
        0
    """
    lengths: dict[tuple[int, int], int] = {}
    for visit, (start, index, length) in enumerate(_texts(data)):
        if length > SHORT:
            lengths[start, index] = length
        if visit >= _VISITS or len(lengths) > _MOST:
            return None
    return sum(
        length * _count(data, _REFERENCE.pack(*place))
        for place, length in lengths.items()
    )


def _texts(data: bytes | mmap.mmap) -> Iterator[tuple[int, int, int]]:
    """Address of its collection, index there and bytes of each text of the heap.

    Whatever looks like a collection is read as one: too much is listed, never too
    little. A visit of a place that is none yields a text without bytes.
    """
    start = data.find(b"GCOL")
    while start >= 0:
        yield start, 0, 0
        if start + _COLLECTION.size <= len(data):
            _, version, size = _COLLECTION.unpack_from(data, start)
            if version == 1 and start + size <= len(data):
                for index, length in _objects(data, start, start + size):
                    yield start, index, length
        start = data.find(b"GCOL", start + 1)


def _objects(
    data: bytes | mmap.mmap, start: int, end: int
) -> Iterator[tuple[int, int]]:
    """Index and bytes of each object of a collection; index 0 is free space."""
    place = start + _COLLECTION.size
    while place + _OBJECT.size <= end:
        index, _, length = _OBJECT.unpack_from(data, place)
        if index == 0 and length < _OBJECT.size:
            return
        yield index, length if index else 0
        # The length of free space is that with its header.
        place += _OBJECT.size + -(-length // 8) * 8 if index else length


def _count(data: bytes | mmap.mmap, pattern: bytes) -> int:
    """Number of places where a pattern stands."""
    count, place = 0, data.find(pattern)
    while place >= 0:
        count += 1
        place = data.find(pattern, place + 1)
    return count
