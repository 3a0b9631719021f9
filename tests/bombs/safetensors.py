"""Safetensors files, indices, and files of ours, that multiply what they hold."""

import copy
import json
import struct

from tests.saving.corpus import Parts, sealed

import exburn
from exburn import layers
from exburn.saving.seal import seal_document

MOST = 16 << 20  # bytes of a header


def entry(shape, start=0, stop=0, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def file(folder, header, content=b"", name="model.safetensors"):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = folder / name
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)
    return path


def long_shape(folder):
    return file(folder, {"x": entry([2**31, 2**20])})


def long_shape_and_place(folder):
    return file(folder, {"x": entry([2**31, 2**20], 0, 2**53)})


def no_elements(folder):
    return file(folder, {"x": entry([0, 2**62])})


def long_rank(folder):
    return file(folder, {"x": entry([1] * 100_000, 0, 4)}, bytes(4))


def one_place_for_many(folder):
    entries = {f"x{n}": entry([2**20], 0, 2**22) for n in range(3900)}
    return file(folder, entries, bytes(2**22))


def long_header(folder):
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 2**62) + b"{}" + bytes(100))
    return path


def many_tensors(folder):
    entries = (f'"{n}":{json.dumps(entry([0]))}' for n in range(200_000))
    return file(folder, b"{" + ",".join(entries).encode() + b"}")


def many_lists(folder):
    return file(folder, b'{"x":[' + b"[]," * 4_000_000 + b"[]]}")


def deep(folder):
    return file(folder, b"[" * 4_000_000 + b"]" * 4_000_000)


def long_number(folder):
    return file(folder, b'{"x":' + b"9" * 4_000_000 + b"}")


def long_name(folder):
    return file(folder, {"x" * 3_000_000: entry([1], 0, 4)}, bytes(4))


def long_name_twice(folder):
    name = b'"' + b"x" * 3_000_000 + b'":1'
    return file(folder, b"{" + name + b"," + name + b"}")


def wide_text(folder):
    text = {"__metadata__": {"x": "\U0001f600" + "x" * 8_000_000}}
    return file(folder, json.dumps(text, ensure_ascii=False).encode())


def blanks(folder):
    return file(folder, b"{}" + b" " * (MOST - 2))


BOMBS = {
    make.__name__: make
    for make in (
        *(long_shape, long_shape_and_place, no_elements, long_rank, long_header),
        *(one_place_for_many, many_tensors, many_lists, deep, long_number, long_name),
        *(long_name_twice, wide_text, blanks),
    )
}


# ---------------------------------------------------------------------- indices
def index(folder, names, weight_map=None):
    listed = {f"x{n}": name for n, name in enumerate(names)}
    about = {"metadata": {}, "weight_map": listed if weight_map is None else weight_map}
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps(about))
    return path


def one_file_of_many_names(folder):
    """Five hundred links to one file, each with a header of 16 MB."""
    blanks(folder)
    names = [f"part-{number}.safetensors" for number in range(500)]
    for name in names:
        (folder / name).symlink_to("model.safetensors")
    return index(folder, names)


def one_file_many_times(folder):
    blanks(folder)
    shards = [{"file": "model.safetensors", "digest": "0" * 64}] * 500
    path = folder / "model.exburn"
    about = {"metadata": {}, "shards": shards}
    path.write_bytes(seal_document("exburn-index-1", about))
    return path


def itself(folder):
    return index(folder, ["model.safetensors.index.json"])


def many_files(folder):
    return index(folder, [f"{number}.safetensors" for number in range(90_000)])


def nested_map(folder):
    return index(folder, [], {"x": {"y": [["z"]] * 10_000}})


INDICES = {
    make.__name__: make
    for make in (
        *(one_file_of_many_names, one_file_many_times, itself, many_files),
        *(nested_map,),
    )
}


# ---------------------------------------------------------------------- models of ours
def _changed(folder, change):
    """A model of ours with another description, whose digests fit."""
    path = folder / "model.exburn"
    start = exburn.Input((4,), name="x")
    dense = layers.Dense(4, name="n")
    exburn.Model(start, dense(dense(start)), name="m").save(path)
    parts = Parts(path.read_bytes())
    parts.about["model"] = change(parts.about["model"])
    path.write_bytes(sealed(parts.header, parts.payload, parts.about))
    return path


def doubled(model, levels):
    """A model that calls the layer of the one given twice, so many levels deep."""
    for level in range(levels):
        outer = copy.deepcopy(model)
        called = outer["config"]["layers"][1]
        nodes = called["inbound_nodes"]
        called.clear()
        called |= model | {"name": "n", "inbound_nodes": nodes}
        called["config"]["name"] = "n"
        outer["config"]["name"] = f"m{level}"
        model = outer
    return model


def doubling(folder):
    """Models in models, each of which calls the one in it twice."""
    return _changed(folder, lambda model: doubled(model, 20))


OWN = {"doubling": doubling}
