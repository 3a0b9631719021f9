"""NumPy's ``.npz`` files that multiply what they hold."""

import io
import struct
import zipfile

import numpy as np

BIG = 192 << 20  # bytes


def array(shape, dtype="<f4", content=b"", version=b"\x01\x00"):
    """An ``.npy`` file with this header."""
    about = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}"
    text = about.encode() + b" " * (-(len(about) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + content


def archive(folder, members, packing=zipfile.ZIP_DEFLATED):
    path = folder / "data.npz"
    with zipfile.ZipFile(path, "w", packing) as made:
        for name, data in members:
            made.writestr(name, data)
    return path


def good():
    file = io.BytesIO()
    np.save(file, np.ones((8, 4), "f4"))
    return file.getvalue()


def packed(folder):
    """Zeros, a thousand times as long as the file."""
    side = int((BIG // 4) ** 0.5)
    return archive(folder, [("x.npy", array((side, side), content=bytes(4 * side**2)))])


def many_packed(folder):
    part = array((2**22,), content=bytes(2**24))
    return archive(folder, [(f"x{number}.npy", part) for number in range(12)])


def long_shape(folder):
    return archive(folder, [("x.npy", array((2**31, 2**20)))])


def no_elements(folder):
    return archive(folder, [("x.npy", array((0, 2**62)))])


def negative(folder):
    return archive(folder, [("x.npy", array((-1, -8), content=bytes(32)))])


def nested(folder):
    """A header that is a program of brackets."""
    return archive(folder, [("x.npy", array("(" * 4000 + ")" * 4000))])


def objects(folder):
    return archive(folder, [("x.npy", array((2**30,), "|O", b"\x80\x04N."))])


def large_items(folder):
    return archive(folder, [("x.npy", array((1,), "|V2147483647"))])


def large_dictionary(folder):
    return archive(folder, [("x.npy", good())], zipfile.ZIP_LZMA)


def twice(folder):
    import warnings

    with warnings.catch_warnings(action="ignore"):
        return archive(folder, [("x.npy", good()), ("x.npy", good())])


def with_names(path, count, last):
    """The last member of an archive gets so many names, of its length."""
    data = path.read_bytes()
    end = data.rindex(b"PK\x05\x06")
    start = int.from_bytes(data[end + 16 : end + 20], "little")
    entry = data.rindex(b"PK\x01\x02", 0, end)
    names = (b"%0*d" % (len(last), number) for number in range(count))
    more = b"".join(data[entry:end].replace(last, name) for name in names)
    before = data[start:entry].count(b"PK\x01\x02")
    tail = bytearray(data[end:])
    tail[8:12] = struct.pack("<HH", *[min(before + count, 0xFFFF)] * 2)
    tail[12:16] = struct.pack("<I", entry - start + len(more))
    path.write_bytes(data[:entry] + more + tail)
    return path


def many(folder):
    """Names of members without end."""
    path = archive(folder, [("x" * 7 + ".npy", good())])
    return with_names(path, 150_000, b"x" * 7)


def overlapping(folder):
    """Two thousand members that are one."""
    content = bytes(range(256)) * 8192
    name, size = "x" * 4 + ".npy", len(content) // 4
    path = archive(folder, [(name, array((size,), content=content))])
    return with_names(path, 2000, b"x" * 4)


BOMBS = {
    make.__name__: make
    for make in (
        *(packed, many_packed, long_shape, no_elements, negative, nested, objects),
        *(large_items, large_dictionary, twice, many, overlapping),
    )
}
