"""Digests in documents, in lines, and at the end of other bytes."""

import json

import pytest

from exburn.errors import FileFormatError, MissingFileError
from exburn.saving.seal import (
    document_format,
    open_bytes,
    open_document,
    open_line,
    read_document,
    seal_bytes,
    seal_document,
    seal_line,
)

FORMAT = "exburn-sweep-1"
CONTENT = {"lanes": [{"rate": 0.1, "name": "a\x1bé"}], "none": None, "nan": 1e-300}


def flips(data):
    """The data with one bit flipped, for every bit."""
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            yield bytes(damaged)


def read(data):
    return open_document(data, FORMAT, "load", "sweep.json")


@pytest.mark.parametrize("indent", [None, 1, 2])
def test_a_document_is_read_and_every_flipped_bit_of_it_is_found(indent):
    data = seal_document(FORMAT, CONTENT, indent=indent)
    assert read(data) == CONTENT and document_format(data) == FORMAT
    assert json.loads(data).keys() == {"digest", "format", *CONTENT}
    for damaged in flips(data):
        with pytest.raises(FileFormatError, match="damaged"):
            read(damaged)


@pytest.mark.parametrize("cut", [0, 1, 20, 90, 120, -1])
def test_a_document_that_is_cut_or_longer(cut):
    data = seal_document(FORMAT, CONTENT)
    for wrong in (data[:cut], data + b" ", b" " + data, data + data):
        with pytest.raises(FileFormatError, match="damaged"):
            read(wrong)


def test_documents_of_other_formats_are_none_of_this_one():
    for data in (b"{}", b"[]", b"", b"7", seal_document("exburn-run-1", CONTENT)):
        with pytest.raises(FileFormatError, match="not of the format exburn-sweep-1"):
            read(data)


def test_a_document_of_a_stranger_takes_little_memory():
    """Digests keep nobody from writing a bomb: what is in it is counted first."""
    for many in ([[]] * 300_000, "deep"):
        content = {"a": many}
        if many == "deep":
            for _ in range(200):
                content = {"a": content}
        with pytest.raises(FileFormatError, match="too large or too deeply nested"):
            read(seal_document(FORMAT, content))


def test_a_file_that_is_a_document(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(seal_document(FORMAT, CONTENT))
    assert read_document(path, FORMAT, "load") == CONTENT
    with pytest.raises(FileFormatError, match="at most 9 are read"):
        read_document(path, FORMAT, "load", most_bytes=9)
    with pytest.raises(MissingFileError):
        read_document(tmp_path / "b.json", FORMAT, "load")


def test_a_line_is_read_and_every_flipped_bit_of_it_is_found():
    line = seal_line({"loss": 0.5, "name": "é"})
    assert b"\n" not in line and open_line(line) == {"loss": 0.5, "name": "é"}
    assert open_line(seal_line({})) == {}
    for wrong in (*flips(line), line[:-1], line + b"}", b"", b'{"loss":0.5}'):
        assert open_line(wrong) is None


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_other_bytes_are_read_without_their_digest(kind):
    assert bytes(open_bytes(kind(seal_bytes(b"program")))) == b"program"
    assert open_bytes(b"no digest at all") == b"no digest at all"
    assert open_bytes(seal_bytes(b"")) == b""


def test_every_flipped_bit_of_other_bytes_is_found_or_changes_nothing():
    whole = seal_bytes(b"program")
    mark = range(7, 7 + len(b"exburn sha256:"))
    for number, damaged in enumerate(flips(whole)):
        if number // 8 in mark:  # the digest fits all the same
            assert open_bytes(damaged) == b"program"
            continue
        with pytest.raises(FileFormatError, match="damaged"):
            open_bytes(damaged)
