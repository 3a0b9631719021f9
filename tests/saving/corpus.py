"""Malformed and malicious model files, more than 300, made of one good file.

Each is a name and the bytes. ``sealed`` computes fitting digests for a changed file, as
an attacker can: then what stops it is not the digest.
"""

import base64
import copy
import hashlib
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator

import numpy as np

from exburn.saving.json_text import pack_text, unpack_text

Corpus = Iterator[tuple[str, bytes]]


class Parts:
    """A model file taken apart."""

    def __init__(self, data: bytes):
        (length,) = struct.unpack("<Q", data[:8])
        self.header = json.loads(data[8 : 8 + length])
        self.payload = data[8 + length :]
        packed = self.header["__metadata__"]["model"]
        self.about = json.loads(unpack_text(packed, "load_model", "good"))

    def tensors(self) -> dict:
        return {k: v for k, v in self.header.items() if k != "__metadata__"}


def sealed(header: dict, payload: bytes, about=None) -> bytes:
    """The file of these parts, with digests that fit."""
    header = copy.deepcopy(header)
    meta = header.pop("__metadata__")
    if about is not None:
        text = about if isinstance(about, str) else json.dumps(about)
        meta["model"] = pack_text(text)
    digests = []
    for entry in header.values():
        try:
            start, stop = entry["data_offsets"]
            digests.append(hashlib.sha256(payload[start:stop]).hexdigest())
        except (KeyError, TypeError, ValueError):
            digests.append("0" * 64)
    meta = {k: v for k, v in meta.items() if k not in ("digest", "format", "tensors")}
    meta = {
        "digest": "0" * 64,
        "format": "exburn-model-1",
        "tensors": "".join(digests),
        **meta,
    }
    text = json.dumps({"__metadata__": meta, **header}, separators=(",", ":"))
    return reseal(framed(text.encode())) + payload


def framed(text: bytes) -> bytes:
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def reseal(head: bytes) -> bytes:
    place = 8 + len(b'{"__metadata__":{"digest":"')
    digest = hashlib.sha256(head[:place] + head[place + 64 :]).hexdigest()
    return head[:place] + digest.encode() + head[place + 64 :]


# ---------------------------------------------------------------------- the container
def containers(good: bytes) -> Corpus:
    """Files whose outer form is wrong."""
    parts = Parts(good)
    raw_header = json.dumps(parts.header).encode()
    for size in (0, 1, 7, 8, 9, 15, 64, len(good) // 2, len(good) - 1):
        yield f"cut to {size} bytes", good[:size]
    yield "one byte more", good + b"\0"
    yield "a megabyte more", good + bytes(1 << 20)
    for length in (0, 1, 2, len(good), len(good) - 8, 2**24 + 1, 2**31, 2**62, 2**63):
        yield f"header of {length} bytes", struct.pack("<Q", length) + good[8:]
    yield "header of 2**64-1 bytes", b"\xff" * 8 + good[8:]
    yield "a length with the bytes swapped", good[7::-1] + good[8:]
    others = {
        "pickle": b"\x80\x04\x95\x17\0\0\0\0\0\0\0\x8c\x05posix\x8c\x06system\x93.",
        "marshal": b"\xe3\0\0\0\0",
        "elf": b"\x7fELF" + bytes(200),
        "gzip": b"\x1f\x8b\x08" + bytes(100),
        "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(500),
        "python": b"import os; os.system('true')\n" * 9,
        "html": b"<html><script>alert(1)</script></html>" * 9,
        "json": b'{"class_name": "Sequential", "config": {}}',
        "json list": b"[]" + b" " * 100,
        "zeros": bytes(4096),
        "ones": b"\xff" * 4096,
        "newlines": b"\n" * 4096,
    }
    yield from ((f"a file of {name}", data) for name, data in others.items())
    yield "a zip of other things", archive({"evil.py": b"import os"})
    yield "a zip that climbs", archive({"../../evil.py": b"import os"})
    texts = {
        "not JSON": b"{tensors}",
        "a list": b"[1, 2]",
        "a number": b"12345678",
        "a string": b'"tensors"',
        "null": b"null    ",
        "cut JSON": raw_header[: len(raw_header) // 2],
        "JSON twice": raw_header + raw_header,
        "invalid UTF-8": b'{"\xff\xfe": {}}',
        "UTF-16": raw_header.decode().encode("utf-16"),
        "a byte order mark": b"\xef\xbb\xbf" + raw_header,
        "a NUL": raw_header[:-1] + b"\0}",
        "single quotes": raw_header.replace(b'"', b"'"),
        "comments": b"/* */" + raw_header,
        "deep lists": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        "unclosed lists": b"[" * 1_000_000,
        "unclosed strings": b'{"' * 500_000,
        "a million numbers": b'{"a":[' + b"1," * 1_000_000 + b"1]}",
        "a million lists": b'{"a":[' + b"[]," * 1_000_000 + b"[]]}",
        "a million quotes": b'{"a":' + b'""' * 1_000_000 + b"}",
        "a long integer": b'{"a":' + b"9" * 100_000 + b"}",
        "backslashes": b'{"' + b"\\" * 1_000_001 + b'": 1}',
    }
    for name, text in texts.items():
        yield f"the header is {name}", framed(text) + parts.payload
    many = {
        f"t{i}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
        for i in range(60_000)
    }
    yield "sixty thousand tensors", framed(json.dumps(many).encode())
    entry = b'"t%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    text = b"{" + b",".join(entry % i for i in range(1_000_000)) + b"}"
    yield "a million tensors", framed(text)
    name = next(iter(parts.tensors()))
    one = json.dumps(parts.tensors()[name])
    doubled = raw_header[:-1] + f', "{name}": {one}}}'.encode()
    yield "a tensor's name twice", framed(doubled) + parts.payload
    doubled = raw_header[:-1] + b', "__metadata__": {}}'
    yield "metadata twice", framed(doubled) + parts.payload


def archive(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in files.items():
            target.writestr(name, data)
    return made.getvalue()


# ---------------------------------------------------------------------- the entries
def entries(good: bytes) -> Corpus:
    """Files whose list of tensors is wrong, under digests that fit."""
    parts = Parts(good)
    name = max(parts.tensors(), key=lambda n: parts.tensors()[n]["data_offsets"][1])
    entry = parts.header[name]
    start, stop = entry["data_offsets"]
    changes = {
        "dtype": ["f32", "F33", "", "object", "O", "F32,F32", 32, None, ["F32"], {}]
        + ["F64", "U8", "BF16", "float32", "V1000000000", "F4"],
        "shape": [None, 7, "7", {}, [-1], [1.5], ["7"], [True], [None], [[7]]]
        + [[2**62], [2**32, 2**32], [2**63], [10**30], [0], [1] * 33, [1] * 9999, []]
        + [[10**9], [1, 1]],
        "data_offsets": [None, 0, "0", {}, [], [0], [start], [start, stop, stop]]
        + [[stop, start], [-8, stop], [start, stop + 1], [start, stop - 1]]
        + [[start + 1, stop + 1], [0, stop - start], [0.0, 1.0], ["0", "9"]]
        + [[None, None], [True, True], [2**63, 2**63 + 8], [0, 2**62]],
    }
    for key, values in changes.items():
        for value in values:
            if value != entry[key]:
                header = copy.deepcopy(parts.header)
                header[name][key] = value
                text = str(value)[:40]
                yield f"{key} is {text}", sealed(header, parts.payload)
        header = copy.deepcopy(parts.header)
        del header[name][key]
        yield f"no {key}", sealed(header, parts.payload)
    for extra in ("byteorder", "external", "path", "url", "stride"):
        header = copy.deepcopy(parts.header)
        header[name][extra] = "/etc/passwd"
        yield f"a tensor with {extra}", sealed(header, parts.payload)
    for value in (None, 1, "x", [], [1], {"dtype": "F32"}):
        header = copy.deepcopy(parts.header)
        header[name] = value
        yield f"a tensor that is {value}", sealed(header, parts.payload)
    header = copy.deepcopy(parts.header)
    del header[name]
    yield "a tensor's bytes without a tensor", sealed(header, parts.payload)
    header["other"] = entry
    yield "a tensor under another name", sealed(header, parts.payload)
    header = copy.deepcopy(parts.header)
    header["/etc/passwd"] = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
    header["../up"] = header["/etc/passwd"]
    yield "a tensor named like a path", sealed(header, parts.payload)
    header["x" * 5000] = header["../up"]
    yield "a tensor with a long name", sealed(header, parts.payload)
    for value in (None, [], "x", 1):
        header = {**copy.deepcopy(parts.header), "__metadata__": value}
        text = json.dumps(header).encode()
        yield f"metadata that is {value}", framed(text) + parts.payload
    for key in ("model", "format", "tensors"):
        for value in (None, 1, {}, ["x"]):
            header = copy.deepcopy(parts.header)
            header["__metadata__"][key] = value
            text = json.dumps(header, separators=(",", ":")).encode()
            yield f"{key} is {value}", reseal(framed(text)) + parts.payload
    for value in ("", "0" * 64, "z" * 64 * len(parts.tensors()), "exburn"):
        header = copy.deepcopy(parts.header)
        header["__metadata__"]["tensors"] = value
        text = json.dumps(header, separators=(",", ":")).encode()
        data = reseal(framed(text)) + parts.payload
        yield f"digests of tensors are {value[:9]!r} ({len(value)})", data
    for value in ("exburn-model-2", "exburn-weights-1", "exburn-", "keras", ""):
        header = copy.deepcopy(parts.header)
        header["__metadata__"]["format"] = value
        text = json.dumps(header, separators=(",", ":")).encode()
        yield f"the format is {value!r}", reseal(framed(text)) + parts.payload
    header = copy.deepcopy(parts.header)
    del header["__metadata__"]
    yield "no metadata", framed(json.dumps(header).encode()) + parts.payload
    for place in (8 + 30, 8 + 200, len(good) - 1):
        data = bytearray(good)
        data[place] ^= 1
        yield f"a bit flipped at {place}", bytes(data)


# ---------------------------------------------------------------------- descriptions
def descriptions(good: bytes) -> Corpus:
    """Files whose JSON is not what it should be, under digests that fit."""
    parts = Parts(good)

    def made(about) -> bytes:
        return sealed(parts.header, parts.payload, about)

    texts = {
        "empty": "",
        "cut": json.dumps(parts.about)[:-1],
        "null": "null",
        "a list": "[]",
        "a number": "7",
        "code": "__import__('os').system('true')",
        "deep": '{"model":' + "[" * 5000 + "]" * 5000 + "}",
        "deeper than allowed": '{"model":' + "[" * 250 + "]" * 250 + "}",
        "twice the model": '{"model": {}, "model": {}}',
        "a long integer": '{"model": {"class_name": ' + "9" * 9999 + "}}",
        "half a million values": '{"model": [' + "0," * 500_000 + "0]}",
    }
    for name, text in texts.items():
        yield f"the description is {name}", made(text)
    whole = parts.header["__metadata__"]["model"]
    raw = base64.b85decode(whole)
    for name, packed in {
        "not packed": json.dumps(parts.about),
        "of other letters": "\u00e9" * 40,
        "packed and cut": whole[:-5],
        "packed with more behind it": base64.b85encode(raw + b"\0\0\0\0").decode(),
        "packed twice": base64.b85encode(zlib.compress(raw)).decode(),
        "17 MB of blanks": pack_text(" " * (17 << 20)),
        "no text": base64.b85encode(zlib.compress(b"\xff\xfe{}")).decode(),
    }.items():
        header = copy.deepcopy(parts.header)
        header["__metadata__"]["model"] = packed
        yield f"the description is {name}", sealed(header, parts.payload)
    for value in (None, 1, "Sequential", [], {}, {"class_name": "Sequential"}):
        yield f"the model is {value}", made({**parts.about, "model": value})
    for key, values in {
        "calls": [1, "x", [1], [["", 1]], [["", {"$evil": 1}]], [["", {}]]]
        + [[["", {"$spec": [[None] * 99, "float32"]}]]]
        + [[["", {"$tuple": [{"$tuple": [{"$spec": [[10**9] * 3, "O"]}]}, {}]}]]],
        "frozen": [1, "x", [], {}, {"layers": 1, "weights": 1}],
    }.items():
        for value in values:
            about = copy.deepcopy(parts.about)
            about["model"][key] = value
            if key == "calls":  # a graph has no calls, so they are of a layer in it
                about["model"][key] = value
            yield f"{key} is {str(value)[:40]}", made(about)
    for key, values in {
        "optimizer": [None, 1, "os.system", {"class_name": "os.system", "config": {}}]
        + [{"class_name": "Dense", "config": {"units": 2}}]
        + [{"class_name": "Adam", "config": {"learning_rate": "fast"}}]
        + [{"class_name": "Adam", "config": {"evil": 1}}]
        + [{"class_name": "OptaxOptimizer", "config": {"transformation": "adam"}}]
        + [{"class_name": "SGD", "config": {}}],
        "loss": ["os.system", "eval", 7, {"class_name": "eval", "config": {}}]
        + [{"class_name": "function", "config": "builtins.exec"}]
        + [{"class_name": "FunctionLoss", "config": {"fn": "print"}}],
        "metrics": ["os.system", {"class_name": "eval", "config": {}}, [[["x"]]]]
        + [[{"class_name": "function", "config": "getattr"}]]
        + [[{"class_name": "AUC", "config": {"num_thresholds": 10**9}}]],
        "seed": ["x", -1, 2**70, [1]],
        "steps_per_execution": ["x", -1, [1]],
        "evil": [1],
    }.items():
        for value in values:
            about = copy.deepcopy(parts.about)
            about["compile"][key] = value
            yield f"compiled with {key} {str(value)[:50]}", made(about)
    for value in (1, "x", [], {"evil": 1}):
        yield f"compile is {value}", made({**parts.about, "compile": value})
    numbers = {"seed": 0, "step": 0, "epochs": 0}
    wrong = [numbers | {name: value} for name in numbers for value in ("x", -1)]
    for value in (*wrong, {}, {"seed": 0}, [1], 7):
        yield f"training is {value}", made({**parts.about, "training": value})


def indices(good: bytes) -> Corpus:
    """Indices of models in parts that name what they must not."""
    names = (
        *("../evil.safetensors", "/etc/passwd", "/tmp/evil.safetensors", ""),
        *(
            "sub/evil.safetensors",
            "..",
            ".",
            "~/evil.safetensors",
            "missing.safetensors",
        ),
        *("http://evil/x.safetensors", "file:///etc/passwd", "\\\\host\\x.safetensors"),
        *("..\\evil.safetensors", "a\0.safetensors", "x.pkl", "evil.so", "/dev/zero"),
    )
    for name in names:
        shards = [{"file": name, "digest": "0" * 64}]
        yield f"an index of {name!r}", index({"metadata": {}, "shards": shards})
        text = json.dumps({"metadata": {}, "weight_map": {"w": name}}).encode()
        yield f"a plain index of {name!r}", text
    for shards in (
        None,
        1,
        "x",
        {},
        [],
        [1],
        [None],
        [{}],
        [{"file": "a.safetensors"}],
    ):
        content = {"metadata": {}, "shards": shards}
        yield f"an index whose shards are {shards}", index(content)
    many = [{"file": f"{i}.safetensors", "digest": ""} for i in range(100_000)]
    yield "an index of many files", index({"metadata": {}, "shards": many})
    for metadata in (None, 1, [], {"model": 1}):
        content = {"metadata": metadata, "shards": [{"file": "a.safetensors"}]}
        yield f"an index with metadata {metadata}", index(content)
    yield "an index with a wrong digest", index({"shards": []}).replace(b"0", b"1")
    yield "an index that is huge", b'{"digest":"' + b" " * (17 << 20)


def index(content: dict) -> bytes:
    content = {"digest": "0" * 64, "format": "exburn-index-1", **content}
    data = json.dumps(content, separators=(",", ":")).encode()
    place = len(b'{"digest":"')
    digest = hashlib.sha256(data[:place] + data[place + 64 :]).hexdigest()
    return data[:place] + digest.encode() + data[place + 64 :]


def zeros(header: dict) -> bytes:
    """The payload of a header's tensors, all zero."""
    stops = [e["data_offsets"][1] for k, e in header.items() if k != "__metadata__"]
    return np.zeros(max(stops, default=0), np.uint8).tobytes()
