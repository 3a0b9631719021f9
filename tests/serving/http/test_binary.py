import numpy as np
import pytest

from exburn.serving.http.binary import read_tensor, split_body, write_tensor
from exburn.serving.http.datatypes import DATATYPES
from exburn.serving.http.failures import RequestFailure


@pytest.mark.parametrize("datatype", DATATYPES)
def test_arrays_come_back_whatever_their_place_in_the_body(datatype):
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(DATATYPES[datatype])
    data = write_tensor(array.T)  # not contiguous
    for offset in (0, 1):
        body = memoryview(b"{" * offset + data)[offset:]
        read = read_tensor(body, "x", datatype, (3, 2))
        assert read.dtype == array.dtype and read.flags.aligned
        np.testing.assert_array_equal(read, array.T)
    with pytest.raises(RequestFailure, match="bytes, received"):
        read_tensor(memoryview(data[:-1]), "x", datatype, (3, 2))


def test_texts_are_lengths_and_bytes():
    texts = np.array([["ä", ""], ["b", b"\xff"]], object)
    data = write_tensor(texts)
    assert data[:6] == b"\x02\0\0\0\xc3\xa4"
    read = read_tensor(memoryview(data), "t", "BYTES", (2, 2))
    assert read.tolist() == [["ä".encode(), b""], [b"b", b"\xff"]]
    for wrong in (data[:-1], data + b"1", b"\xff" * 16, data[:9], b""):
        with pytest.raises(RequestFailure, match="input 't'"):
            read_tensor(memoryview(wrong), "t", "BYTES", (2, 2))


def test_huge_shapes_take_no_memory():
    with pytest.raises(RequestFailure, match="more bytes"):
        read_tensor(memoryview(b"1234"), "t", "BYTES", (2**62, 2**62))


def test_a_bool_is_zero_or_one():
    with pytest.raises(RequestFailure, match="0 or 1"):
        read_tensor(memoryview(b"\x02"), "b", "BOOL", (1,))


def test_the_body_is_split_behind_its_json():
    assert split_body(b"{}123", None) == (b"{}123", b"")
    text, tensors = split_body(b"{}123", "2")
    assert (text, bytes(tensors)) == (b"{}", b"123")
    for wrong in ("6", "-1", "x", "", "1e3", "٣", "9" * 30):
        with pytest.raises(RequestFailure) as caught:
            split_body(b"{}123", wrong)
        assert caught.value.status == 400
