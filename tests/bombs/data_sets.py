"""Files of data sets that multiply what they hold."""

import gzip
import struct

from tests.bombs import archives

BIG = 192 << 20  # bytes


def idx(folder, shape, content=b"", kind=8):
    path = folder / "images.gz"
    head = bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
    with gzip.open(path, "wb", 9) as file:
        file.write(head + content)
    return path


def zeros(folder):
    return idx(folder, (BIG,), bytes(BIG))


def more_than_told(folder):
    return idx(folder, (2,), bytes(BIG))


def long_shape(folder):
    return idx(folder, (2**32 - 1,) * 3)


def no_elements(folder):
    return idx(folder, (0, 2**32 - 1, 2**32 - 1), kind=14)


def long_rank(folder):
    return idx(folder, (1,) * 255, bytes(1))


IDX = {
    make.__name__: make
    for make in (zeros, more_than_told, long_shape, no_elements, long_rank)
}


def records(folder):
    """A member of zeros, of the name that is looked for."""
    start = archives.header("data_batch_1.bin", BIG)
    return archives.packed(folder, [start, *[bytes(1 << 20)] * (BIG >> 20)])


def many_records(folder):
    """The same member many times."""
    part = archives.header("data_batch_1.bin", 1 << 20)
    return archives.packed(folder, [part, bytes(1 << 20)] * (BIG >> 20))


RECORDS = {make.__name__: make for make in (records, many_records)}
RECORDS |= {name: archives.BOMBS[name] for name in ("long_name", "sparse", "huge_size")}
