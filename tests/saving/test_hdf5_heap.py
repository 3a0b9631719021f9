"""References to long texts of HDF5 files are counted without reading them."""

import io

import h5py
import numpy as np
import pytest

from exburn.saving.hdf5 import HDF5File
from exburn.saving.hdf5_heap import SHORT, referenced_bytes


def file_of(**attributes):
    """The bytes of a file with a megabyte of weights and these attributes."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["weights"] = np.ones(1 << 18, "float32")
        for name, value in attributes.items():
            file.attrs[name] = value
    return buffer.getvalue()


NAMES = [f"dense_{number}/kernel" for number in range(2000)]


def test_each_reference_to_a_long_text_counts():
    long = "c" * 5000
    assert referenced_bytes(file_of(model_config=long, names=NAMES)) == 5000
    assert referenced_bytes(file_of(a=long, b=long, short="d" * SHORT)) == 10_000


def test_one_text_behind_many_references_counts_as_often():
    data = file_of(names=["c" * 2000, "short  text", "short  text"])
    collection = data.index(b"GCOL").to_bytes(8, "little")
    places = [collection + n.to_bytes(4, "little") for n in (1, 2, 3)]
    assert [data.count(place) for place in places] == [1, 1, 1]
    assert referenced_bytes(data) == 2000
    assert referenced_bytes(data.replace(places[0], places[2])) == 4000


@pytest.mark.parametrize(
    "data",
    (
        b"GCOL",
        b"GCOL\x01\0\0\0" + b"\xff" * 8,
        b"GCOL\x01\0\0\0" + (64).to_bytes(8, "little") + b"\0" * 48,
    ),
    ids=("cut", "longer than the file", "free space of no bytes"),
)
def test_what_is_no_collection_has_no_texts(data):
    assert referenced_bytes(data) == 0


def test_a_file_of_more_long_texts_than_a_model_has_is_told():
    assert referenced_bytes(file_of(texts=["t" * 2000] * 65)) is None
    assert referenced_bytes(b"GCOL" * (1 << 19)) is None


@pytest.mark.parametrize("archived", (False, True))
def test_many_names_in_a_file_of_megabytes_are_read(tmp_path, archived):
    """The names of a large model are many, and its file is large."""
    path, data = tmp_path / "model.h5", file_of(layer_names=NAMES, config="c" * 500_000)
    path.write_bytes(data)
    with HDF5File(path, "load", 10, data if archived else None) as file:
        assert file.texts("layer_names") == NAMES
