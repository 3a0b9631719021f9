"""Archives that unpack to far more than they are."""

import gzip
import io
import struct
import tarfile
import zipfile

from tests.bombs import npz

BIG = 192 << 20  # bytes


def header(name, size=0, kind=tarfile.REGTYPE, **more):
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    for key, value in more.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.GNU_FORMAT)


def packed(folder, parts):
    """The bytes as a ``.tar.gz``."""
    path = folder / "data.tar.gz"
    with gzip.open(path, "wb", 9) as file:
        for part in parts:
            file.write(part)
    return path


def plain(folder, data):
    path = folder / "data.tar"
    path.write_bytes(data)
    return path


def zeros(folder):
    """A file of zeros, a thousand times as long as the archive."""
    return packed(folder, [header("x", BIG), *[bytes(1 << 20)] * (BIG >> 20)])


def zeros_after_a_file(folder):
    """The same behind a file, so that it is met while members are counted."""
    content = [header("a", 4), b"text".ljust(512, b"\0"), header("x", BIG)]
    return packed(folder, [*content, *[bytes(1 << 20)] * (BIG >> 20)])


def many_files(folder):
    names = (header(f"{number}") for number in range(40_000))
    return packed(folder, names)


def long_name(folder):
    """A name of 192 MB."""
    start = header("././@LongLink", BIG, tarfile.GNUTYPE_LONGNAME)
    return packed(folder, [start, *[b"x" * (1 << 20)] * (BIG >> 20), header("x")])


def long_header(folder):
    start = header("x", BIG, tarfile.XHDTYPE)
    return packed(folder, [start, *[b"1 x=y\n" * (1 << 17)] * 256, header("x")])


def digits(folder):
    """Headers that an expression looks through in the square of the time."""
    size = 1 << 16
    part = header("x", size, tarfile.XHDTYPE) + b"1" * size + header("x")
    return packed(folder, [part] * 200)


def global_headers(folder):
    """Headers that count for all members, each of which gets a copy."""
    parts = []
    for number in range(60):
        text = b"".join(b"13 k%02d%04d=v\n" % (number, i) for i in range(4000))
        parts.append(header("x", len(text), tarfile.XGLTYPE))
        parts.append(text + bytes(-len(text) % 512))
    names = [header(f"{number}") for number in range(3000)]
    return packed(folder, parts + names)


def nested_headers(folder):
    part = header("x", 10, tarfile.XHDTYPE) + b"10 a=bcde\n".ljust(512, b"\0")
    return packed(folder, [part] * 5000 + [header("x")])


def sparse(folder):
    """A file of a terabyte of which nothing is there."""
    data = bytearray(header("x", 0, tarfile.GNUTYPE_SPARSE))
    data[386:398] = b"%011o\0" % 0
    data[398:410] = b"%011o\0" % 0
    data[483:495] = b"\x80" + (1 << 40).to_bytes(11, "big")
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data)
    return plain(folder, bytes(data) + bytes(1024))


def huge_size(folder):
    return plain(folder, header("x", 1 << 60) + bytes(2048))


def negative_size(folder):
    data = bytearray(header("x"))
    data[124:136] = b"\xff" * 12
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data)
    return plain(folder, bytes(data) + bytes(2048))


def pipe(folder):
    return plain(folder, header("x", 0, tarfile.FIFOTYPE) + bytes(1024))


def device(folder):
    about = {"devmajor": 1, "devminor": 5}
    return plain(folder, header("x", 0, tarfile.CHRTYPE, **about) + bytes(1024))


def link_to_itself(folder):
    links = [header("x", 0, tarfile.LNKTYPE, linkname="x")] * 3
    return plain(folder, b"".join(links) + bytes(1024))


def long_path(folder):
    name = "/".join(["d" * 200] * 400)
    start = header("././@LongLink", len(name) + 1, tarfile.GNUTYPE_LONGNAME)
    text = name.encode() + bytes(512 - len(name) % 512)
    return plain(folder, start + text + header("x") + bytes(1024))


def file_and_folder(folder):
    return plain(folder, header("x") + header("x/y") + bytes(1024))


def zipped(folder, members, packing=zipfile.ZIP_DEFLATED):
    path = folder / "data.zip"
    with zipfile.ZipFile(path, "w", packing) as file:
        for name, data in members:
            file.writestr(name, data)
    return path


def zip_of_zeros(folder):
    return zipped(folder, [("x", bytes(BIG))])


def zip_of_one_member(folder):
    """Two thousand names of one member."""
    path = zipped(folder, [("xxxx", bytes(range(256)) * 8192)])
    return npz.with_names(path, 2000, b"xxxx")


def zip_of_many_names(folder):
    return npz.with_names(zipped(folder, [("x" * 7, b"")]), 160_000, b"x" * 7)


def zip_of_a_dictionary(folder):
    return zipped(folder, [("x", b"text")], zipfile.ZIP_LZMA)


def zip_that_lies(folder):
    """A member that is longer than its entry says."""
    path = zipped(folder, [("x", bytes(BIG))])
    data = bytearray(path.read_bytes())
    size = struct.pack("<I", BIG)
    while (place := data.find(size)) >= 0:
        data[place : place + 4] = struct.pack("<I", 100)
    path.write_bytes(data)
    return path


def zip_within(folder):
    """An archive in an archive is a file: nobody unpacks it."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x", bytes(BIG))
    return zipped(folder, [("inner.zip", inner.getvalue())])


BOMBS = {
    make.__name__: make
    for make in (
        *(zeros, zeros_after_a_file, many_files, long_name, long_header, digits),
        *(global_headers, nested_headers, sparse, huge_size, negative_size, pipe),
        *(device, link_to_itself, long_path, file_and_folder, zip_of_zeros),
        *(zip_of_one_member, zip_of_many_names, zip_of_a_dictionary, zip_that_lies),
        *(zip_within,),
    )
}
