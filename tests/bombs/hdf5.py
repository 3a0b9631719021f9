"""HDF5 files of Keras, and ``.keras`` archives, that multiply what they hold."""

import functools
import json
import struct
import zipfile
import zlib

import h5py
import numpy as np
from tests.bombs.npz import with_names

MEMBER = "model.weights.h5"
_KERNELS = {False: "layers/dense/vars/0", True: "model_weights/dense/dense/kernel:0"}
LONG, BIG = 4 << 20, 192 << 20  # bytes
_NAMED = b"x" * 8  # a text that is made to stand for another one


def config(inputs, units):
    """A model of one layer, as Keras 3 describes it."""
    entry = {"batch_shape": [None, inputs], "dtype": "float32", "name": "entry"}
    dense = {"name": "dense", "units": units, "activation": "linear"}
    layers = [
        {"module": "keras.layers", "class_name": "InputLayer", "config": entry},
        {"module": "keras.layers", "class_name": "Dense", "config": dense},
    ]
    inner = {"name": "model", "layers": layers}
    return {"module": "keras", "class_name": "Sequential", "config": inner}


def weights(path, inputs, units, legacy):
    """A file of weights of that model; legacy ones have its description, too."""
    with h5py.File(path, "w") as file:
        if legacy:
            file.attrs["keras_version"] = "2.15.0"
            file.attrs["model_config"] = json.dumps(config(inputs, units))
            root = file.create_group("model_weights")
            root.attrs["layer_names"] = np.array([b"dense"])
            names = [b"dense/kernel:0", b"dense/bias:0"]
            root.create_group("dense").attrs["weight_names"] = np.array(names)
        kernel = _KERNELS[legacy]
        bias = f"{kernel[:-1]}1" if not legacy else kernel.replace("kernel", "bias")
        file.create_dataset(kernel, (inputs, units), "f4")
        file.create_dataset(bias, data=np.zeros(units, "f4"))
        if inputs * units < 1000:
            file[kernel][:] = 1
    return kernel


def without_content(file, kernel):
    """Arrays of 3.6 GB whose numbers nobody has written."""
    del file[kernel]
    file.create_dataset(kernel, (30_000, 30_000), "f4")


def chunks_without_content(file, kernel):
    del file[kernel]
    file.create_dataset(kernel, (30_000, 30_000), "f4", chunks=(500, 500))


def many_without_content(file, kernel):
    for number in range(1000):
        file.create_dataset(f"{kernel.rpartition('/')[0]}/{number + 2}", (2**22,), "f4")


def packed(file, kernel):
    """A gigabyte of zeros, packed to a megabyte."""
    del file[kernel]
    shape, step = (2**14, 2**14), (2**9, 2**9)
    data = file.create_dataset(kernel, shape, "f4", chunks=step, compression="gzip")
    chunk = zlib.compress(bytes(4 * 2**18), 9)
    for row in range(0, 2**14, 2**9):
        for column in range(0, 2**14, 2**9):
            data.id.write_direct_chunk((row, column), chunk)


def long_chunk(file, kernel):
    """A chunk that unpacks to a thousand times a chunk."""
    del file[kernel]
    chunked = {"chunks": (8, 4), "compression": "gzip"}
    data = file.create_dataset(kernel, (8, 4), "f4", **chunked)
    data.id.write_direct_chunk((0, 0), zlib.compress(bytes(BIG), 9))


def doubly_packed(file, kernel):
    del file[kernel]
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk((8, 4))
    plan.set_deflate(9)
    plan.set_deflate(9)
    space = h5py.h5s.create_simple((8, 4))
    group, _, name = kernel.rpartition("/")
    kind = h5py.h5t.IEEE_F32LE
    data = h5py.h5d.create(file[group].id, name.encode(), kind, space, plan)
    data.write_direct_chunk((0, 0), zlib.compress(zlib.compress(bytes(BIG), 9), 9))


def tiny_chunks(file, kernel):
    """Chunks of one number, sixteen million of them, none of which is there."""
    del file[kernel]
    file.create_dataset(kernel, (2**12, 2**12), "f4", chunks=(1, 1))


def one_array_of_many_names(file, kernel):
    group = file[kernel].parent
    data = group.create_dataset("2", data=np.ones(2**20, "f4"))
    for number in range(3, 3900):
        group[str(number)] = data


def one_group_of_many_names(file, kernel):
    group = file[kernel].parent
    for number in range(3900):
        file[f"layers/dense_{number}"] = group


def no_elements(file, kernel):
    del file[kernel]
    file.create_dataset(kernel, (0, 2**61), "f4", chunks=(1, 2), maxshape=(None, None))


def deep(file, kernel):
    group = file
    for _ in range(2000):
        group = group.create_group("g")


def many_entries(file, kernel):
    for number in range(20_000):
        file.create_group(f"layers/x{number}")


EDITS = (
    *(without_content, chunks_without_content, many_without_content, packed),
    *(long_chunk, doubly_packed, tiny_chunks, one_array_of_many_names),
    *(one_group_of_many_names, no_elements, deep, many_entries),
)


def _shared(path, write):
    """Texts of a file that all become the first one, of 4 MB.

    Texts lie in heaps. Where one is used, there are its length, heap and number.
    """
    with h5py.File(path, "a") as file:
        write(file, b"y" * LONG)
    data = bytearray(path.read_bytes())
    heaps = {place.to_bytes(8, "little") for place in _places(data, b"GCOL")}

    def references(length):
        start = struct.pack("<I", length)
        return [p for p in _places(data, start) if bytes(data[p + 4 : p + 12]) in heaps]

    (long,) = references(LONG)
    for place in references(len(_NAMED)):
        data[place : place + 16] = data[long : long + 16]
    path.write_bytes(data)


def _places(data, part):
    place = data.find(part)
    while place >= 0:
        yield place
        place = data.find(part, place + 1)


def _listing(file):
    """The group that lists layers, which it does anew."""
    group = file["model_weights"] if "model_weights" in file else file
    if "layer_names" in group.attrs:
        del group.attrs["layer_names"]
    return group


def one_text_in_a_list(file, text):
    texts = np.array([text, *[_NAMED] * 3900], object)
    attributes = _listing(file).attrs
    attributes.create("layer_names", texts, dtype=h5py.string_dtype())


def one_text_in_many_lists(file, text):
    attributes = _listing(file).attrs
    for number in range(900):
        name = f"layer_names{number}"
        kind = h5py.string_dtype()
        attributes.create(name, _NAMED if number else text, dtype=kind)


def one_text_at_many_arrays(file, text):
    group = _listing(file).require_group("layers/dense/vars")
    for number in range(200):
        data = group.create_dataset(f"{number + 2}", (3,), "V2")
        kind = h5py.string_dtype()
        data.attrs.create("dtype", _NAMED if number else text, dtype=kind)


PATCHES = (one_text_in_a_list, one_text_in_many_lists, one_text_at_many_arrays)
_LARGE = (without_content, chunks_without_content)


def _file(path, edit, legacy):
    sizes = (30_000, 30_000) if edit in _LARGE else (8, 4)
    kernel = weights(path, *sizes, legacy)
    if edit in PATCHES:
        _shared(path, edit)
        return path
    with h5py.File(path, "a", libver="latest") as file:
        edit(file, kernel)
    return path


def weight_file(edit, folder):
    return _file(folder / "model.weights.h5", edit, legacy=False)


def legacy_file(edit, folder):
    return _file(folder / "model.h5", edit, legacy=True)


def archive(edit, folder):
    sizes = (30_000, 30_000) if edit in _LARGE else (8, 4)
    data = weight_file(edit, folder).read_bytes()
    return _archive(folder, config(*sizes), data)


def _archive(folder, about, data, packing=zipfile.ZIP_STORED, **members):
    path = folder / "model.keras"
    with zipfile.ZipFile(path, "w", packing) as made:
        made.writestr("metadata.json", json.dumps({"keras_version": "3.15.0"}))
        text = about if isinstance(about, str) else json.dumps(about)
        made.writestr("config.json", text)
        made.writestr(MEMBER, data)
        for name, text in members.items():
            made.writestr(name, text)
    return path


def _good(folder):
    weights(folder / "good.h5", 8, 4, legacy=False)
    return (folder / "good.h5").read_bytes()


def packed_member(folder):
    data = _good(folder) + bytes(BIG)
    return _archive(folder, config(8, 4), data, zipfile.ZIP_DEFLATED)


def packed_description(folder):
    about = json.dumps(config(8, 4)) + " " * BIG
    return _archive(folder, about, _good(folder), zipfile.ZIP_DEFLATED)


def packed_vocabularies(folder):
    about, names = config(8, 4), ("text_vectorization", "text_vectorization_1")
    about["config"]["layers"][1:1] = [
        {"class_name": "TextVectorization", "config": {"name": name}} for name in names
    ]
    assets = {f"assets/layers/{n}/vocabulary.txt": bytes(BIG // 2) for n in names}
    return _archive(folder, about, _good(folder), zipfile.ZIP_DEFLATED, **assets)


def large_dictionary(folder):
    """A packing whose reader makes room for gigabytes that the file asks for."""
    return _archive(folder, config(8, 4), _good(folder), zipfile.ZIP_LZMA)


def many_members(folder):
    last = "x" * 6
    path = _archive(folder, config(8, 4), _good(folder), **{f"assets/{last}": b""})
    return with_names(path, 150_000, last.encode())


WHOLE = (packed_member, packed_description, packed_vocabularies, large_dictionary)
WHOLE += (many_members,)
WEIGHTS = {e.__name__: functools.partial(weight_file, e) for e in (*EDITS, *PATCHES)}
LEGACY = {e.__name__: functools.partial(legacy_file, e) for e in (*EDITS, *PATCHES)}
ARCHIVES = {e.__name__: functools.partial(archive, e) for e in (*EDITS, *PATCHES)}
ARCHIVES |= {make.__name__: make for make in WHOLE}
