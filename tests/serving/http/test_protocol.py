import json

import jax.numpy as jnp
import numpy as np
import orjson
import pytest
from tests.serving.http.conftest import tensor

from exburn.serving.http.failures import RequestFailure
from exburn.serving.http.protocol import (
    encode_answer,
    parse_request,
    read_tensor,
    split_body,
    write_tensor,
)
from exburn.serving.http.tensor import DATATYPES, Tensor

X = np.array([[1, 2.5], [3, -4]], np.float32)
GOOD = tensor("x", X)


class Takes:
    """A signature of inputs of one row shape."""

    def __init__(self, *datatypes, shape=(-1, 2)):
        names = ["x", "y", "z"][: len(datatypes)]
        self.inputs = {
            name: Tensor(name, datatype, shape)
            for name, datatype in zip(names, datatypes, strict=True)
        }
        self.outputs = {"out": None, "more": None}
        self.images = {}


def parse(message, signature=None, **options):
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    header = options.pop("header", None)
    return parse_request(body, header, signature or Takes("FP32"), **options)


def test_data_may_be_flat_or_nested():
    for data in (X.ravel().tolist(), X.tolist()):
        request = parse({"id": "7", "inputs": [{**GOOD, "data": data}]})
        np.testing.assert_array_equal(request.inputs["x"], X)
        assert (request.id, request.rows, request.inputs["x"].dtype) == ("7", 2, "f4")


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("BOOL", [True, False]),
        ("UINT8", [0, 255]),
        ("UINT64", [0, 2**64 - 1]),
        ("INT8", [-128, 127]),
        ("INT64", [-(2**63), 2**63 - 1]),
        ("FP16", [-65504.0, 0.5]),
        ("BF16", [1.5, -3e38]),
        ("FP32", [3.4e38, 1]),
        ("FP64", [1.7e308, 0.1]),
        ("BYTES", ["ä", ""]),
    ],
)
def test_every_datatype_is_read_exactly(datatype, data):
    entry = tensor("x", [[0, 0]], datatype, data=data)
    array = parse({"inputs": [entry]}, Takes(datatype)).inputs["x"]
    assert array.dtype == Takes(datatype).inputs["x"].dtype
    assert array.tolist()[0] == np.array(data, array.dtype).tolist()


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("BOOL", [1, 0]),
        ("UINT8", [0, 256]),
        ("UINT8", [0, -1]),
        ("UINT64", [0, 2**64]),
        ("INT32", [1.0, 2]),
        ("INT32", [True, 2]),
        ("INT32", [2**31, 2]),
        ("FP16", [65520.0, 0]),
        ("FP32", [1e39, 0]),
        ("FP32", [-1e39, 0]),
        ("FP32", ["1", 0]),
        ("FP32", [None, 0]),
        ("FP32", [True, 0]),
        ("FP32", [{}, 0]),
        ("FP32", [[1, 2], 0]),
        ("FP32", [1]),
        ("FP32", [1, 2, 3]),
        ("FP32", [[1, 2], [3]]),
        ("FP32", [[[1, 2]]]),
        ("FP32", []),
        ("FP32", 1),
        ("FP32", "12"),
        ("FP32", None),
        ("BYTES", [1, 2]),
        ("BYTES", ["a", None]),
    ],
)
def test_other_values_are_refused(datatype, data):
    entry = tensor("x", [[0, 0]], datatype, data=data)
    with pytest.raises(RequestFailure, match="input 'x'") as caught:
        parse({"inputs": [entry]}, Takes(datatype))
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"[1",
        b"\xff\xfe",
        json.dumps({"inputs": [GOOD]}).replace("2.5", "NaN").encode(),
        json.dumps({"inputs": [GOOD]}).replace("2.5", "1e999").encode(),
        b"[" * 100_000,
        [],
        {},
        {"inputs": {}},
        {"inputs": []},
        {"inputs": [1]},
        {"inputs": [{}]},
        {"inputs": [GOOD, GOOD]},
        {"inputs": [{**GOOD, "name": "y"}]},
        {"inputs": [{**GOOD, "name": ["x"]}]},
        {"inputs": [{**GOOD, "datatype": "FP64"}]},
        {"inputs": [{**GOOD, "datatype": None}]},
        {"inputs": [{**GOOD, "shape": [4]}]},
        {"inputs": [{**GOOD, "shape": [2, 3]}]},
        {"inputs": [{**GOOD, "shape": [-2, -2]}]},
        {"inputs": [{**GOOD, "shape": [2.0, 2]}]},
        {"inputs": [{**GOOD, "shape": [True, 2]}]},
        {"inputs": [{**GOOD, "shape": [2**62, 2]}]},
        {"inputs": [{**GOOD, "shape": [1] * 1000}]},
        {"inputs": [{**GOOD, "shape": "22"}]},
        {"inputs": [{**GOOD, "shape": [0, 2], "data": []}]},
        {"inputs": [{**GOOD, "parameters": []}]},
        {"inputs": [{**GOOD, "parameters": {"binary_data_size": 8}}]},
        {"inputs": [{**GOOD, "parameters": {"shared_memory_region": "a"}}]},
        {"inputs": [GOOD], "id": 7},
        {"inputs": [GOOD], "id": "7" * 1000},
        {"inputs": [GOOD], "parameters": {"timeout": "soon"}},
        {"inputs": [GOOD], "outputs": {}},
        {"inputs": [GOOD], "outputs": ["out"]},
        {"inputs": [GOOD], "outputs": [{"name": "none"}]},
        {
            "inputs": [GOOD],
            "outputs": [{"name": "out", "parameters": {"classification": 2}}],
        },
    ],
)
def test_what_is_no_request_is_the_callers_fault(message):
    with pytest.raises(RequestFailure) as caught:
        parse(message)
    assert caught.value.status == 400
    assert len(caught.value.message) < 400


OPEN = (-1, -1, 3)


@pytest.mark.parametrize(
    "shape",
    [
        [2**62, 0, 3],
        [10**9, 0, 3],
        [2**62, 2**62, 3],
        [1, 2**62, 3],
        [2**64 - 1, 0, 3],
        [1, 2**64 - 1, 3],
    ],
)
@pytest.mark.parametrize("datatype", ["FP32", "BOOL", "BYTES"])
@pytest.mark.parametrize("binary", [False, True])
def test_a_shape_is_of_no_more_values_than_the_body_may_hold(shape, datatype, binary):
    """Also where one of its sizes is 0: rows of nothing are batches, too."""
    entry = {"name": "x", "datatype": datatype, "shape": shape}
    said = {"parameters": {"binary_data_size": 0}} if binary else {"data": []}
    body = json.dumps({"inputs": [entry | said]})
    with pytest.raises(RequestFailure, match="more values than a body") as caught:
        parse(body.encode(), Takes(datatype, shape=OPEN), header=str(len(body)))
    assert caught.value.status == 400 and len(caught.value.message) < 400


def test_a_row_may_be_empty_where_sizes_are_open():
    entry = {"name": "x", "datatype": "FP32", "shape": [2, 0, 3], "data": []}
    array = parse({"inputs": [entry]}, Takes("FP32", shape=OPEN)).inputs["x"]
    assert array.shape == (2, 0, 3)


# What may stand for a number, or for anything else.
ODD = {
    "0": 0,
    "-1": -1,
    "2**62": 2**62,
    "2**63": 2**63,
    "2**64": 2**64,
    "-2**63 - 1": -(2**63) - 1,
    "10**400": 10**400,
    "0.5": 0.5,
    "1e308": 1e308,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "true": True,
    "null": None,
    "text": "1",
    "long text": "1" * 500,
    "surrogate": "\ud800",
    "list": [1],
    "nested list": [[[1]]],
    "object": {"a": 1},
}
INPUT = tensor("x", X)
BINARY = {"name": "x", "datatype": "FP32", "shape": [2, 2]}
PLACES = {
    "shape": lambda v: {"inputs": [{**INPUT, "shape": v}]},
    "rows": lambda v: {"inputs": [{**INPUT, "shape": [v, 2]}]},
    "a size": lambda v: {"inputs": [{**INPUT, "shape": [2, v]}]},
    "data": lambda v: {"inputs": [{**INPUT, "data": v}]},
    "a value": lambda v: {"inputs": [{**INPUT, "data": [v, 1, 2, 3]}]},
    "a nested value": lambda v: {"inputs": [{**INPUT, "data": [[v, 1], [2, 3]]}]},
    "a nested row": lambda v: {"inputs": [{**INPUT, "data": [v, [2, 3]]}]},
    "name": lambda v: {"inputs": [{**INPUT, "name": v}]},
    "datatype": lambda v: {"inputs": [{**INPUT, "datatype": v}]},
    "parameters of an input": lambda v: {"inputs": [{**INPUT, "parameters": v}]},
    "binary_data_size": lambda v: {
        "inputs": [{**BINARY, "parameters": {"binary_data_size": v}}]
    },
    "an input": lambda v: {"inputs": [v]},
    "inputs": lambda v: {"inputs": v},
    "id": lambda v: {"inputs": [INPUT], "id": v},
    "parameters": lambda v: {"inputs": [INPUT], "parameters": v},
    "timeout": lambda v: {"inputs": [INPUT], "parameters": {"timeout": v}},
    "binary_data_output": lambda v: {
        "inputs": [INPUT],
        "parameters": {"binary_data_output": v},
    },
    "outputs": lambda v: {"inputs": [INPUT], "outputs": v},
    "an output": lambda v: {"inputs": [INPUT], "outputs": [v]},
    "name of an output": lambda v: {"inputs": [INPUT], "outputs": [{"name": v}]},
    "parameters of an output": lambda v: {
        "inputs": [INPUT],
        "outputs": [{"name": "out", "parameters": v}],
    },
    "binary_data": lambda v: {
        "inputs": [INPUT],
        "outputs": [{"name": "out", "parameters": {"binary_data": v}}],
    },
    "message": lambda v: v,
}


@pytest.mark.parametrize("place", PLACES)
def test_whatever_stands_in_a_place_is_read_or_refused(place):
    """Never another error than the caller's."""
    names = set()
    for name, value in ODD.items():
        body = json.dumps(PLACES[place](value)).encode()
        for header in (None, str(len(body))):
            try:
                request = parse(body, Takes("FP32"), header=header)
            except RequestFailure as failure:
                assert failure.status == 400 and len(failure.message) < 400, name
            else:
                assert request.inputs["x"].shape == (2, 2)
                names.add(name)
    numbers = {"0", "-1", "2**62", "2**63", "2**64", "-2**63 - 1", "0.5"}
    optional = {"null"}
    assert names <= {
        "a value": numbers,
        "a nested value": numbers,
        "id": {"text", "long text"},
        "timeout": {"0", "2**62", "2**63", "2**64", "null"},
        "parameters": optional | {"object"},
        "parameters of an input": optional | {"object"},
        "parameters of an output": optional | {"object"},
        "binary_data_output": set(ODD),
        "binary_data": set(ODD),
        "outputs": optional,
    }.get(place, set()), place


@pytest.mark.parametrize(
    "value", ["-1", "+1", "1.5", "0x1", "1e0", "", " ", "x", "²", "9" * 400, "1,1"]
)
def test_the_length_of_the_json_is_a_whole_number(value):
    with pytest.raises(RequestFailure) as caught:
        parse({"inputs": [GOOD]}, header=value)
    assert caught.value.status == 400 and len(caught.value.message) < 400


def test_each_input_is_needed_and_rows_are_limited():
    with pytest.raises(RequestFailure, match="'y' is missing"):
        parse({"inputs": [GOOD]}, Takes("FP32", "FP32"))
    with pytest.raises(RequestFailure) as caught:
        parse({"inputs": [GOOD]}, max_rows=1)
    assert caught.value.status == 413


def test_a_long_string_among_numbers_takes_no_more_memory_than_itself():
    data = ["x" * 1_000_000, *[1.0] * 99_999]  # as an array of strings: 400 GB
    with pytest.raises(RequestFailure, match="numbers"):
        parse({"inputs": [tensor("x", X, shape=[50_000, 2], data=data)]})


def binary(*arrays, **message):
    """A body of binary tensors, and the length of its JSON."""
    parts = [np.ascontiguousarray(array).tobytes() for array in arrays]
    entries = []
    for name, array, part in zip("xyz", arrays, parts, strict=False):
        entry = tensor(name, array, parameters={"binary_data_size": len(part)})
        del entry["data"]
        entries.append(entry)
    text = json.dumps({"inputs": entries, **message}).encode()
    return b"".join([text, *parts]), str(len(text))


def test_binary_tensors_follow_the_json():
    body, length = binary(X, X * 2)
    request = parse(body, Takes("FP32", "FP32"), header=length)
    np.testing.assert_array_equal(request.inputs["x"], X)
    np.testing.assert_array_equal(request.inputs["y"], X * 2)
    for wrong, said in (
        (body[:-1], length),
        (body + b"1", length),
        (body, "3"),
        (body.replace(b'_size": 16', b'_size": 15'), length),
        (body.replace(b'_size": 16', b'_size": "6'), length),
        (body.replace(b'_size": 16', b'_size": -1'), length),
        (body, None),
    ):
        with pytest.raises(RequestFailure) as caught:
            parse(wrong, Takes("FP32", "FP32"), header=said)
        assert caught.value.status == 400


def test_a_body_without_json_is_the_one_tensor():
    request = parse(X.tobytes(), header="0")
    np.testing.assert_array_equal(request.inputs["x"], X)
    assert request.binary
    text = parse("ä".encode(), Takes("BYTES", shape=(-1, 1)), header="0")
    assert text.inputs["x"].tolist() == [["ä"]]
    for body, takes in (
        (X.tobytes()[:-1], Takes("FP32")),
        (b"", Takes("FP32")),
        (X.tobytes(), Takes("FP32", "FP32")),
        (X.tobytes(), Takes("FP32", shape=(-1, -1))),
        (b"\xff", Takes("BYTES", shape=(-1, 1))),
    ):
        with pytest.raises(RequestFailure):
            parse(body, takes, header="0")


def test_outputs_are_those_that_are_asked_for():
    outputs = {"out": X, "more": np.array([[True], [False]])}
    request = parse({"id": "a", "inputs": [GOOD]})
    body, length = encode_answer(request, outputs, "m", "2")
    assert length is None
    assert json.loads(body) == {
        "model_name": "m",
        "model_version": "2",
        "id": "a",
        "outputs": [
            {
                "name": "out",
                "datatype": "FP32",
                "shape": [2, 2],
                "data": [1.0, 2.5, 3.0, -4.0],
            },
            {
                "name": "more",
                "datatype": "BOOL",
                "shape": [2, 1],
                "data": [True, False],
            },
        ],
    }
    wanted = [{"name": "more"}, {"name": "out", "parameters": {"binary_data": True}}]
    request = parse({"inputs": [GOOD], "outputs": wanted})
    body, length = encode_answer(request, outputs, "m", "2")
    message = orjson.loads(body[:length])
    assert [o["name"] for o in message["outputs"]] == ["more", "out"]
    assert body[length:] == X.tobytes()
    request = parse({"inputs": [GOOD], "parameters": {"binary_data_output": True}})
    body, length = encode_answer(request, outputs, "m", "2")
    assert body[length:] == X.tobytes() + b"\x01\x00"


@pytest.mark.parametrize(
    ("array", "data"),
    [
        (np.asarray(jnp.array([1.5, -2], jnp.bfloat16)), [1.5, -2.0]),
        (np.array([1.5], np.float16), [1.5]),
        (np.array(["ä", b"b"], object), ["ä", "b"]),
        (np.arange(6).reshape(2, 3).T, [0, 3, 1, 4, 2, 5]),
    ],
)
def test_every_kind_of_output_is_written(array, data):
    request = parse({"inputs": [GOOD], "outputs": [{"name": "out"}]})
    body, _ = encode_answer(request, {"out": array}, "null", "1")
    assert json.loads(body)["outputs"][0]["data"] == data


@pytest.mark.parametrize("dtype", ["float16", "float32", jnp.bfloat16])
def test_nan_is_said_in_binary_alone(dtype):
    array = np.array([1, np.nan], dtype)
    request = parse({"inputs": [GOOD], "outputs": [{"name": "out"}]})
    with pytest.raises(RequestFailure, match="binary_data") as caught:
        encode_answer(request, {"out": array}, "m", "1")
    assert caught.value.status == 400
    request = parse({"inputs": [GOOD], "parameters": {"binary_data_output": True}})
    body, length = encode_answer(request, {"out": array}, "m", "1")
    assert body[length:] == array.tobytes()


def test_the_clients_timeout_is_in_microseconds():
    message = {"inputs": [GOOD], "parameters": {"timeout": 1500}}
    assert parse(message).timeout == 0.0015
    assert parse({"inputs": [GOOD], "parameters": {"timeout": 0}}).timeout is None


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
