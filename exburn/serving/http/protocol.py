"""Requests and answers of the Open Inference Protocol, version 2.

Source: *Open Inference Protocol (V2)*, KServe; *Binary Tensor Data Extension*, Triton.

Tensors may come as bytes, by the protocol's binary tensor extension: the JSON part of a
body comes first, as long as ``Inference-Header-Content-Length`` says, and then the
tensors, row by row, in little endian. A text is its length in four bytes and its bytes.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import orjson

from exburn.serving.http.body import parse_object
from exburn.serving.http.failures import RequestFailure
from exburn.serving.http.images import decode_base64, decode_images, is_image
from exburn.serving.http.signature import Signature
from exburn.serving.http.tensor import BYTES, DATATYPES, Tensor, datatype_of, kind_of

_MOST_AXES = 32
_MOST_ID = 256
_TYPES = {  # of Python, in JSON that holds values of a kind
    "float": ({float, int}, "numbers"),
    "integer": ({int}, "whole numbers"),
    "boolean": ({bool}, "true and false"),
    "text": ({str}, "strings"),
}


_LARGEST = {
    name: float(jnp.finfo(dtype).max)
    for name, dtype in DATATYPES.items()
    if kind_of(name) == "float"
}


@dataclasses.dataclass(slots=True)
class InferenceRequest:
    """A request that was read.

    Attributes:
        outputs: Names that are asked for, with whether each is to come in binary;
            empty for all.
        binary: Whether outputs come in binary if nothing is said.
        timeout: Seconds that the caller gives it, or ``None``.
        files: Inputs that are still image files, by name; see ``decode_images``.
        parameters: All that the request says beside its tensors.
    """

    id: str
    inputs: dict[str, np.ndarray]
    outputs: dict[str, bool]
    binary: bool
    timeout: float | None
    files: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows of its first input."""
        first = next(iter((self.inputs or self.files).values()))
        return len(first) if first.ndim else 0

    def decode_images(
        self,
        signature: Signature,
        reserve: Callable[[int], None],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Makes arrays of the image files; takes a while."""
        while self.files:
            name, files = next(iter(self.files.items()))
            tensor, images = signature.inputs[name], signature.images[name]
            array = decode_images(tensor, files, images, reserve, check)
            self.inputs[name] = array
            del self.files[name]


# ---------------------------------------------------------------------- requests
def parse_request(
    body: bytes,
    header_length: str | None,
    signature: Signature,
    max_rows: int | None = None,
) -> InferenceRequest:
    """Reads a body. Image files in it are not decoded yet.

    Args:
        header_length: ``Inference-Header-Content-Length``, or ``None``.
    """
    if header_length == "0":
        return _parse_raw(body, signature, max_rows)
    text, tensors = split_body(body, header_length)
    message = parse_object(text)
    parameters = _parameters(message)
    request_id = message.get("id", "")
    if type(request_id) is not str or len(request_id) > _MOST_ID:
        raise RequestFailure(400, f"'id' must be a string of {_MOST_ID} at most")
    timeout = _timeout(parameters.get("timeout"))
    binary = parameters.get("binary_data_output", False) is True
    outputs = _parse_outputs(message.get("outputs"), signature, binary)
    reader = _InputReader(signature, tensors, len(body), max_rows)
    inputs, files = reader.read_all(message.get("inputs"))
    return InferenceRequest(
        request_id, inputs, outputs, binary, timeout, files, parameters
    )


def _parse_raw(
    body: bytes, signature: Signature, max_rows: int | None
) -> InferenceRequest:
    """A body that is the one tensor of the model, or one image, and nothing else."""
    if len(signature.inputs) != 1:
        raise RequestFailure(400, "a body without JSON needs a model of one input")
    tensor = next(iter(signature.inputs.values()))
    data = memoryview(body)
    if tensor.name in signature.images and is_image(body):
        file = np.empty(1, object)
        file[0] = body
        return InferenceRequest("", {}, {}, False, None, {tensor.name: file})
    if tensor.datatype == BYTES:
        if math.prod(tensor.shape[1:]) != 1:
            raise RequestFailure(400, "a body without JSON is one text")
        text = np.empty((1,) * len(tensor.shape), object)
        text.reshape(-1)[0] = _decode(tensor.name, body)
        return InferenceRequest("", {tensor.name: text}, {}, False, None)
    if -1 in tensor.shape[1:]:
        raise RequestFailure(400, "a body without JSON needs a model of fixed sizes")
    row = math.prod(tensor.shape[1:]) * tensor.dtype.itemsize
    if row == 0 or len(body) % row:
        raise RequestFailure(
            400,
            f"a row has {row} bytes, and the body {len(body)}, which is no multiple",
        )
    shape = (len(body) // row, *tensor.shape[1:])
    _check_rows(shape, max_rows)
    array = read_tensor(data, tensor.name, tensor.datatype, shape)
    return InferenceRequest("", {tensor.name: array}, {}, True, None)


class _InputReader:
    """Reads the inputs of a request, one after the other, and the bytes behind it.

    Args:
        tensors: What follows the JSON part of the body.
        most: Bytes of the body: as many values as it may hold.
    """

    def __init__(
        self,
        signature: Signature,
        tensors: memoryview,
        most: int,
        max_rows: int | None,
    ):
        self._signature, self._tensors, self._at = signature, tensors, 0
        self._most, self._max_rows = most, max_rows

    def read_all(
        self, entries: Any
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The arrays by name, and the image files."""
        if type(entries) is not list or not entries:
            raise RequestFailure(400, "'inputs' must be a list of tensors")
        inputs: dict[str, np.ndarray] = {}
        files: dict[str, np.ndarray] = {}
        for entry in entries:
            if type(entry) is not dict:
                raise RequestFailure(400, "each of 'inputs' must be an object")
            tensor = self._find(entry.get("name"))
            name, datatype = tensor.name, entry.get("datatype")
            if name in inputs or name in files:
                raise RequestFailure(400, f"the input {name!r} is given twice")
            if name in self._signature.images and datatype == BYTES:
                texts = Tensor(name, BYTES, (-1,))
                files[name] = self._read(entry, texts, decode_base64)
            elif datatype == tensor.datatype:
                inputs[name] = self._read(entry, tensor)
            else:
                raise RequestFailure(
                    400,
                    f"input {name!r} is {tensor.datatype}, received {_short(datatype)}",
                )
        left = len(self._tensors) - self._at
        if left:
            raise RequestFailure(
                400, f"{left} bytes are left behind the last binary tensor"
            )
        missing = [n for n in self._signature.inputs if n not in {*inputs, *files}]
        if missing:
            raise RequestFailure(400, f"the input {missing[0]!r} is missing")
        return inputs, files

    def _find(self, name: Any) -> Tensor:
        inputs = self._signature.inputs
        tensor = inputs.get(name) if type(name) is str else None
        if tensor is None:
            names = ", ".join(map(repr, inputs))
            raise RequestFailure(
                400, f"the model has no input {_short(name)}; its inputs: {names}"
            )
        return tensor

    def _read(
        self,
        entry: dict,
        tensor: Tensor,
        decode: Callable[[str, np.ndarray], np.ndarray] | None = None,
    ) -> np.ndarray:
        """The array of an input.

        Args:
            decode: What texts in JSON stand for, where they are no texts.
        """
        name, shape = tensor.name, _parse_shape(entry.get("shape"), tensor)
        _check_rows(shape, self._max_rows)
        # Also where another size is 0: rows of nothing would be batches without end.
        if math.prod(size or 1 for size in shape) > self._most:
            raise RequestFailure(
                400,
                f"input {name!r}: the shape {_short(list(shape))} is of more values "
                f"than a body of {self._most} bytes holds",
            )
        parameters = _parameters(entry)
        if "binary_data_size" in parameters:
            data = self._take(name, parameters["binary_data_size"])
            if "data" in entry:
                raise RequestFailure(400, f"input {name!r} has both data and bytes")
            array = read_tensor(data, name, tensor.datatype, shape)
            if tensor.datatype == BYTES and decode is None:
                array = _decode_all(name, array)
        elif "shared_memory_region" in parameters:
            raise RequestFailure(
                400, "this server has no shared memory with its clients"
            )
        else:
            array = _parse_data(entry.get("data"), tensor, shape)
            if decode is not None:
                array = decode(name, array)
        return array

    def _take(self, name: str, size: Any) -> memoryview:
        """The next bytes behind the JSON part."""
        left = len(self._tensors) - self._at
        if type(size) is not int or size < 0 or size > left:
            raise RequestFailure(
                400,
                f"input {name!r}: binary_data_size is {_short(size)}, but "
                f"{left} bytes are left in the body",
            )
        self._at += size
        return self._tensors[self._at - size : self._at]


def _parse_shape(shape: Any, tensor: Tensor) -> tuple[int, ...]:
    whole = type(shape) is list and len(shape) <= _MOST_AXES
    if not whole or any(type(n) is not int or n < 0 for n in shape):
        raise RequestFailure(
            400, f"input {tensor.name!r}: 'shape' must be a list of sizes"
        )
    sizes = tensor.shape
    fits = len(shape) == len(sizes) and all(
        size in (-1, n) for size, n in zip(sizes, shape, strict=True)
    )
    if not fits:
        raise RequestFailure(
            400,
            f"input {tensor.name!r} has the shape {list(sizes)}, where -1 is any "
            f"size, received {_short(shape)}",
        )
    return tuple(shape)


def _check_rows(shape: tuple[int, ...], max_rows: int | None) -> None:
    if not shape or shape[0] == 0:
        raise RequestFailure(400, "a request must have a row at least")
    if max_rows is not None and shape[0] > max_rows:
        raise RequestFailure(
            413, f"a request may have {max_rows} rows, received {shape[0]}"
        )


def _parse_data(data: Any, tensor: Tensor, shape: tuple[int, ...]) -> np.ndarray:
    """An array from JSON: flat, or nested as the shape says.

    Types are looked at before NumPy sees the list, which would read a string as a
    number, and make each of a million zeros as large as the one long string among them.
    """
    if type(data) is not list:
        raise RequestFailure(400, f"input {tensor.name!r}: 'data' must be a list")
    flat = data
    if flat and type(flat[0]) is list:
        flat = _flatten(data, tensor.name, shape)
    if len(flat) != math.prod(shape):
        raise RequestFailure(
            400,
            f"input {tensor.name!r}: {len(flat)} values for the shape {list(shape)}",
        )
    types, words = _TYPES[kind_of(tensor.datatype)]
    kinds = set(map(type, flat))
    if not kinds <= types:
        other = next(v for v in flat if type(v) not in types)
        raise RequestFailure(
            400,
            f"input {tensor.name!r} of {tensor.datatype} must hold {words}, "
            f"received {_short(other)} among them",
        )
    if tensor.datatype == BYTES:
        texts = np.empty(len(flat), object)
        texts[:] = flat
        return texts.reshape(shape)
    try:
        with np.errstate(over="ignore"):
            array = np.array(flat, tensor.dtype)
    except OverflowError:
        raise _too_large(tensor) from None
    if kind_of(tensor.datatype) == "float":
        most = _LARGEST[tensor.datatype]  # JSON itself has no infinity
        if flat and (max(flat) > most or min(flat) < -most):
            raise _too_large(tensor)
    return array.reshape(shape)


def _too_large(tensor: Tensor) -> RequestFailure:
    return RequestFailure(
        400, f"input {tensor.name!r}: a number is beyond what {tensor.datatype} holds"
    )


def _flatten(data: list, name: str, shape: tuple[int, ...]) -> list:
    flat = [data]
    for size in shape:
        if any(type(part) is not list or len(part) != size for part in flat):
            raise RequestFailure(
                400, f"input {name!r}: 'data' is not nested as {list(shape)} says"
            )
        flat = list(itertools.chain.from_iterable(flat))
    return flat


def _parse_outputs(entries: Any, signature: Signature, binary: bool) -> dict[str, bool]:
    if entries is None:
        return {}
    if type(entries) is not list or any(type(entry) is not dict for entry in entries):
        raise RequestFailure(400, "'outputs' must be a list of objects")
    outputs: dict[str, bool] = {}
    for entry in entries:
        name, parameters = entry.get("name"), _parameters(entry)
        if type(name) is not str or name not in signature.outputs:
            names = ", ".join(map(repr, signature.outputs))
            raise RequestFailure(
                400, f"the model has no output {_short(name)}; its outputs: {names}"
            )
        if parameters.get("classification"):
            raise RequestFailure(400, "this server does not sort outputs into classes")
        outputs[name] = parameters.get("binary_data", binary) is True
    return outputs


def _parameters(message: dict) -> dict[str, Any]:
    parameters = message.get("parameters")
    if parameters is None:
        return {}
    if type(parameters) is not dict:
        raise RequestFailure(400, "'parameters' must be an object")
    return parameters


def _timeout(microseconds: Any) -> float | None:
    """Seconds, from the parameter of Triton's clients."""
    if microseconds is None or microseconds == 0:
        return None
    if type(microseconds) is not int or microseconds < 0:
        raise RequestFailure(400, "'timeout' must be a number of microseconds")
    return microseconds / 1e6


def _decode_all(name: str, texts: np.ndarray) -> np.ndarray:
    flat = texts.reshape(-1)
    for i, text in enumerate(flat):
        flat[i] = _decode(name, text)
    return texts


def _decode(name: str, text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise RequestFailure(400, f"input {name!r}: a text is not UTF-8") from None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


# ---------------------------------------------------------------------- answers
def encode_answer(
    request: InferenceRequest,
    outputs: Mapping[str, np.ndarray],
    model: str,
    version: str,
) -> tuple[bytes, int | None]:
    """The body of an answer.

    Returns:
        The body, and the length of its JSON part if tensors follow.

    Raises:
        RequestFailure: JSON cannot say a value: NaN, or infinity.
    """
    asked = request.outputs or dict.fromkeys(outputs, request.binary)
    tensors, parts = [], []
    for name, binary in asked.items():
        array = outputs[name]
        tensor: dict[str, Any] = {
            "name": name,
            "datatype": datatype_of(array.dtype),
            "shape": array.shape,
        }
        if binary:
            data = write_tensor(array)
            tensor["parameters"] = {"binary_data_size": len(data)}
            parts.append(data)
        else:
            tensor["data"] = _json_values(array, tensor["datatype"])
        tensors.append(tensor)
    message: dict[str, Any] = {"model_name": model, "model_version": version}
    if request.id:
        message["id"] = request.id
    message["outputs"] = tensors
    text = orjson.dumps(message, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" in text:  # what orjson makes of a NaN
        _check_sayable(outputs, asked)
    if not parts:
        return text, None
    return b"".join([text, *parts]), len(text)


def _json_values(array: np.ndarray, datatype: str) -> Any:
    """The values as orjson writes them, flat."""
    if datatype == BYTES:
        return [v.decode() if isinstance(v, bytes) else v for v in array.reshape(-1)]
    if datatype == "BF16":
        array = array.astype(np.float32)
    return np.ascontiguousarray(array).reshape(-1)


def _check_sayable(
    outputs: Mapping[str, np.ndarray], asked: Mapping[str, bool]
) -> None:
    for name, binary in asked.items():
        array = outputs[name]
        floats = array.dtype.kind not in "OSUTiub"
        if floats and not binary and not np.isfinite(array).all():
            raise RequestFailure(
                400,
                f"output {name!r} holds NaN or infinity, which JSON cannot say: ask "
                'for it with "parameters": {"binary_data": true}',
            )


_LENGTH = struct.Struct("<I")


def split_body(body: bytes, header_length: str | None) -> tuple[bytes, memoryview]:
    """The JSON part of a body and its tensors."""
    if header_length is None:
        return body, memoryview(b"")
    if not header_length.isascii() or not header_length.isdigit():
        raise RequestFailure(
            400, "Inference-Header-Content-Length must be a whole number of bytes"
        )
    length = int(header_length[:20])
    if length > len(body):
        raise RequestFailure(
            400,
            f"Inference-Header-Content-Length is {length}, but the body has "
            f"{len(body)} bytes",
        )
    return body[:length], memoryview(body)[length:]


def read_tensor(
    data: memoryview, name: str, datatype: str, shape: Sequence[int]
) -> np.ndarray:
    """The array that bytes hold; it shares their memory."""
    count = math.prod(shape)
    if datatype == BYTES:
        return _read_texts(data, name, count).reshape(shape)
    dtype = DATATYPES[datatype]
    if len(data) != count * dtype.itemsize:
        raise RequestFailure(
            400,
            f"input {name!r} of {datatype} and shape {list(shape)} needs "
            f"{count * dtype.itemsize} bytes, received {len(data)}",
        )
    if datatype == "BOOL":
        array = np.frombuffer(data, np.uint8)
        if array.size and array.max() > 1:
            raise RequestFailure(400, f"input {name!r}: a BOOL is the byte 0 or 1")
        return array.view(bool).reshape(shape)
    array = np.frombuffer(data, dtype)
    if sys.byteorder == "big":
        array = array.byteswap()
    elif not array.flags.aligned:
        array = array.copy()
    return array.reshape(shape)


def _read_texts(data: memoryview, name: str, count: int) -> np.ndarray:
    if count > len(data) // _LENGTH.size:  # each has a length at least
        raise RequestFailure(400, f"input {name!r}: {count} texts need more bytes")
    texts = np.empty(count, object)
    at, end = 0, len(data)
    for i in range(count):
        if at + _LENGTH.size > end:
            raise RequestFailure(400, f"input {name!r}: text {i} has no length")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if length > end - at:
            raise RequestFailure(
                400, f"input {name!r}: text {i} is cut off: {length} bytes were said"
            )
        texts[i] = bytes(data[at : at + length])
        at += length
    if at != end:
        raise RequestFailure(
            400, f"input {name!r}: {end - at} bytes are left behind {count} texts"
        )
    return texts


def write_tensor(array: np.ndarray) -> Any:
    """The bytes of an array, as the extension writes them."""
    if array.dtype.kind in "OSUT":
        encoded = [_encode(value) for value in array.reshape(-1).tolist()]
        return b"".join(
            part for text in encoded for part in (_LENGTH.pack(len(text)), text)
        )
    array = np.ascontiguousarray(array)
    if sys.byteorder == "big":
        array = array.byteswap()
    return array.tobytes()


def _encode(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
