"""Requests and answers of the Open Inference Protocol, version 2.

Source: *Open Inference Protocol (V2)*, KServe; *Binary Tensor Data Extension*, Triton.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import orjson

from exburn.serving.http.binary import read_tensor, split_body, write_tensor
from exburn.serving.http.body import parse_object
from exburn.serving.http.datatypes import BYTES, DATATYPES, datatype_of, kind_of
from exburn.serving.http.failures import RequestFailure
from exburn.serving.http.images import decode_base64, decode_images, is_image
from exburn.serving.http.signature import Signature
from exburn.serving.http.tensor import Tensor

__all__ = ["InferenceRequest", "encode_answer", "parse_request"]

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
    """One request, read.

    Attributes:
        id: What the caller calls it.
        inputs: The arrays by name.
        outputs: Names that are asked for, with whether each is to come in binary;
            empty for all.
        binary: Whether outputs come in binary if nothing is said.
        timeout: Seconds that the caller gives it, or ``None``.
    """

    id: str
    inputs: dict[str, np.ndarray]
    outputs: dict[str, bool]
    binary: bool
    timeout: float | None

    @property
    def rows(self) -> int:
        """Rows of its first input."""
        first = next(iter(self.inputs.values()))
        return len(first) if first.ndim else 0


# ---------------------------------------------------------------------- requests
def parse_request(
    body: bytes,
    header_length: str | None,
    signature: Signature,
    max_rows: int | None = None,
    reserve: Callable[[int], None] = lambda size: None,
) -> InferenceRequest:
    """Reads a body.

    Args:
        body: The whole body.
        header_length: ``Inference-Header-Content-Length``, or ``None``.
        signature: What the model takes.
        max_rows: Most rows of a request.
        reserve: Takes memory for what grows by being read: images.

    Raises:
        RequestFailure: The body is not what the protocol or the model asks for.
    """
    if header_length == "0":
        return _parse_raw(body, signature, max_rows, reserve)
    text, tensors = split_body(body, header_length)
    message = parse_object(text)
    given = message.get("inputs")
    if type(given) is not list or not given:
        raise RequestFailure(400, "'inputs' must be a list of tensors")
    inputs: dict[str, np.ndarray] = {}
    at = 0
    for entry in given:
        name, array, at = _parse_input(entry, signature, tensors, at, max_rows, reserve)
        if name in inputs:
            raise RequestFailure(400, f"the input {name!r} is given twice")
        inputs[name] = array
    if at != len(tensors):
        raise RequestFailure(
            400, f"{len(tensors) - at} bytes are left behind the last binary tensor"
        )
    if len(inputs) != len(signature.inputs):
        missing = [name for name in signature.inputs if name not in inputs]
        raise RequestFailure(400, f"the input {missing[0]!r} is missing")
    parameters = _parameters(message)
    request_id = message.get("id", "")
    if type(request_id) is not str or len(request_id) > _MOST_ID:
        raise RequestFailure(400, f"'id' must be a string of {_MOST_ID} at most")
    binary = parameters.get("binary_data_output", False) is True
    outputs = _parse_outputs(message.get("outputs"), signature, binary)
    return InferenceRequest(
        request_id, inputs, outputs, binary, _timeout(parameters.get("timeout"))
    )


def _parse_raw(
    body: bytes,
    signature: Signature,
    max_rows: int | None,
    reserve: Callable[[int], None],
) -> InferenceRequest:
    """A body that is the one tensor of the model, or one image, and nothing else."""
    if len(signature.inputs) != 1:
        raise RequestFailure(400, "a body without JSON needs a model of one input")
    tensor = next(iter(signature.inputs.values()))
    data = memoryview(body)
    images = signature.images.get(tensor.name)
    if images is not None and is_image(body):
        file = np.empty(1, object)
        file[0] = body
        image = decode_images(tensor, file, images, reserve)
        return InferenceRequest("", {tensor.name: image}, {}, False, None)
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


def _parse_input(
    entry: Any,
    signature: Signature,
    tensors: memoryview,
    at: int,
    max_rows: int | None,
    reserve: Callable[[int], None],
) -> tuple[str, np.ndarray, int]:
    """Name and array of an input, and where the next binary one begins."""
    if type(entry) is not dict:
        raise RequestFailure(400, "each of 'inputs' must be an object")
    name: Any = entry.get("name")
    tensor = signature.inputs.get(name) if type(name) is str else None
    if tensor is None:
        known = ", ".join(map(repr, signature.inputs))
        raise RequestFailure(
            400, f"the model has no input {_short(name)}; its inputs: {known}"
        )
    images = signature.images.get(tensor.name)
    if images is not None and entry.get("datatype") == BYTES:
        files = Tensor(tensor.name, BYTES, (-1,))
        array, at = _parse_values(entry, files, tensors, at, max_rows, decode_base64)
        return name, decode_images(tensor, array, images, reserve), at
    if entry.get("datatype") != tensor.datatype:
        raise RequestFailure(
            400,
            f"input {name!r} is {tensor.datatype}, received "
            f"{_short(entry.get('datatype'))}",
        )
    array, at = _parse_values(entry, tensor, tensors, at, max_rows)
    return name, array, at


def _parse_values(
    entry: dict,
    tensor: Tensor,
    tensors: memoryview,
    at: int,
    max_rows: int | None,
    decode: Callable[[str, np.ndarray], np.ndarray] | None = None,
) -> tuple[np.ndarray, int]:
    """The array of an input, and where the next binary one begins.

    Args:
        decode: What texts in JSON stand for, where they are no texts.
    """
    name, shape = tensor.name, _parse_shape(entry.get("shape"), tensor)
    _check_rows(shape, max_rows)
    parameters = _parameters(entry)
    if "binary_data_size" in parameters:
        size = parameters["binary_data_size"]
        if type(size) is not int or size < 0 or size > len(tensors) - at:
            raise RequestFailure(
                400,
                f"input {name!r}: binary_data_size is {_short(size)}, but "
                f"{len(tensors) - at} bytes are left in the body",
            )
        if "data" in entry:
            raise RequestFailure(400, f"input {name!r} has both data and bytes")
        array = read_tensor(tensors[at : at + size], name, tensor.datatype, shape)
        at += size
        if tensor.datatype == BYTES and decode is None:
            array = _decode_all(name, array)
    elif "shared_memory_region" in parameters:
        raise RequestFailure(400, "this server has no shared memory with its clients")
    else:
        array = _parse_data(entry.get("data"), tensor, shape)
        if decode is not None:
            array = decode(name, array)
    return array, at


def _parse_shape(shape: Any, tensor: Tensor) -> tuple[int, ...]:
    whole = type(shape) is list and len(shape) <= _MOST_AXES
    if not whole or any(type(n) is not int or n < 0 for n in shape):
        raise RequestFailure(
            400, f"input {tensor.name!r}: 'shape' must be a list of sizes"
        )
    wanted = tensor.shape
    fits = len(shape) == len(wanted) and all(
        size in (-1, n) for size, n in zip(wanted, shape, strict=True)
    )
    if not fits:
        raise RequestFailure(
            400,
            f"input {tensor.name!r} has the shape {list(wanted)}, where -1 is any "
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
    found = set(map(type, flat))
    if not found <= types:
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


def _parse_outputs(given: Any, signature: Signature, binary: bool) -> dict[str, bool]:
    if given is None:
        return {}
    if type(given) is not list or any(type(entry) is not dict for entry in given):
        raise RequestFailure(400, "'outputs' must be a list of objects")
    outputs: dict[str, bool] = {}
    for entry in given:
        name, parameters = entry.get("name"), _parameters(entry)
        if type(name) is not str or name not in signature.outputs:
            known = ", ".join(map(repr, signature.outputs))
            raise RequestFailure(
                400, f"the model has no output {_short(name)}; its outputs: {known}"
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
