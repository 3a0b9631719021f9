"""Tests of ``exburn.saving.gguf``."""

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from tests.saving.gguf_blocks import FORMS
from tests.saving.gguf_writer import gguf_bytes, text

from exburn.errors import FileFormatError
from exburn.saving.gguf import GGUFFile, GGUFSource
from exburn.saving.gguf_blocks import BLOCKS, decode
from exburn.saving.weight_sources import read_weights

HERE = Path(__file__).parent
FACTS = {"general.architecture": "llama", "llama.block_count": 2, "eps": 0.5}
FACTS |= {"flag": True, "words": ["a", "bc"], "numbers": [1, 2, 3]}
TENSORS = {"a": np.arange(6.0).reshape(2, 3), "b.weight": np.ones(5)}
RIGHT = gguf_bytes(FACTS, TENSORS)


@pytest.fixture
def opened(tmp_path):
    def run(data):
        (tmp_path / "model.gguf").write_bytes(data)
        with GGUFFile(tmp_path / "model.gguf", "load") as file:
            arrays = {name: file.read(name) for name in file.tensors}
            return file, arrays

    return run


@pytest.mark.parametrize("name", FORMS)
def test_numbers_are_those_of_gguf(name):
    with np.load(HERE / "gguf_blocks.npz") as recorded:
        kind = next(kind for kind, block in BLOCKS.items() if block.name == name)
        found = np.asarray(decode(recorded[name], kind), "float32")
        np.testing.assert_array_equal(found, recorded[f"{name}/numbers"])


def test_facts_and_tensors_are_read(opened, tmp_path):
    file, arrays = opened(RIGHT)
    assert file.facts["numbers"].tolist() == [1, 2, 3]
    assert {k: v for k, v in file.facts.items() if k != "numbers"} == {
        k: v for k, v in FACTS.items() if k != "numbers"
    }
    for name, array in TENSORS.items():
        np.testing.assert_array_equal(arrays[name], array)
    source = GGUFSource(GGUFFile(tmp_path / "model.gguf", "load"))
    assert source.shapes == {"a": (2, 3), "b.weight": (5,)}
    assert source.dtype("a") == np.float32
    half = ((4,), 1, np.arange(4, dtype="<f2").tobytes())
    assert opened(gguf_bytes({}, {"h": half}))[1]["h"].dtype == np.float16


def test_cut_files_and_flipped_bits_are_errors_or_other_numbers(opened):
    for size in range(len(RIGHT)):
        with pytest.raises(FileFormatError):
            opened(RIGHT[:size])
    for place in range(len(RIGHT)):
        for bit in (0, 7):
            data = bytearray(RIGHT)
            data[place] ^= 1 << bit
            try:
                opened(bytes(data))
            except FileFormatError:
                pass


HUGE = 1 << 61
BOMBS = {
    "no file of this kind": (b"GGML" + RIGHT[4:], "no GGUF file"),
    "another version": (gguf_bytes({}, {}, version=1), "version 1"),
    "big-endian": (gguf_bytes({}, {}, version=3 << 24), "little-endian"),
    "tensors": (gguf_bytes({}, {}, counts=(HUGE, 0)), "tensors, more than"),
    "facts": (gguf_bytes({}, {}, counts=(0, HUGE)), "facts, more than"),
    "a text": (
        gguf_bytes({"a": struct.pack("<IQ", 8, HUGE)}, {}),
        "bytes of a text, more than",
    ),
    "texts": (
        gguf_bytes({"a": struct.pack("<IIQ", 9, 8, HUGE)}, {}),
        "texts, more than",
    ),
    "numbers": (
        gguf_bytes({"a": struct.pack("<IIQ", 9, 4, HUGE)}, {}),
        "numbers, more than",
    ),
    "lists in lists": (
        gguf_bytes({"a": struct.pack("<IIQ", 9, 9, 1) * 9}, {}),
        "list of values of the kind 9",
    ),
    "an unknown kind": (gguf_bytes({"a": struct.pack("<I", 99)}, {}), "kind 99"),
    "no flag": (gguf_bytes({"a": struct.pack("<IB", 7, 2)}, {}), "neither 0 nor 1"),
    "no UTF-8": (
        gguf_bytes({"a": struct.pack("<IQ", 8, 1) + b"\xff"}, {}),
        "no UTF-8",
    ),
    "alignment": (gguf_bytes({"general.alignment": 3}, {}), "'general.alignment' is 3"),
    "axes": (gguf_bytes({}, {"a": ((1,) * 5, 0, b"\0" * 4)}), "5 axes"),
    "a shape": (gguf_bytes({}, {"a": ((1 << 40, 1 << 40), 0, b"")}), "ends before"),
    "no whole block": (gguf_bytes({}, {"a": ((31,), 8, b"\0" * 99)}), "whole blocks"),
    "an unknown form": (gguf_bytes({}, {"a": ((256,), 23, b"")}), "stored as IQ4_XS"),
    "an odd place": (gguf_bytes({}, {"a": ((1,), 0, b"\0" * 9, 1)}), "whole blocks"),
    "behind the end": (
        gguf_bytes({}, {"a": ((1,), 0, b"\0" * 4, 1 << 40)}),
        "ends before the end of 'a'",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_counts_are_compared_with_the_file_before_anything_is_made(name, opened):
    data, reason = BOMBS[name]
    tracemalloc.start()
    with pytest.raises(FileFormatError, match=reason):
        opened(data)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_names_are_said_once(opened):
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 2)
    one = text("a") + struct.pack("<Ii", 5, 1)
    with pytest.raises(FileFormatError, match="says 'a' twice"):
        opened(head + one + one)
    head = b"GGUF" + struct.pack("<IQQ", 3, 2, 0)
    one = text("a") + struct.pack("<IQIQ", 1, 1, 0, 0)
    with pytest.raises(FileFormatError, match="two tensors 'a'"):
        opened(head + one + one + b"\0" * 64)


def test_tensors_in_one_place_do_not_fill_the_memory(opened):
    data = b"\0" * (1 << 20)
    shape = (len(data) // 18 * 32,)
    many = {f"t{n}": (shape, 2, data if n == 0 else b"", 0) for n in range(200)}
    with pytest.raises(FileFormatError, match="would take"):
        opened(gguf_bytes({}, many))
    two = {f"t{n}": ((1,), 0, b"\0" * 4, 0) for n in range(2)}
    with pytest.raises(FileFormatError, match="'t0' and 't1' share bytes"):
        opened(gguf_bytes({}, two))


def test_read_weights_knows_such_files(tmp_path):
    (tmp_path / "model.gguf").write_bytes(RIGHT)
    with read_weights(tmp_path / "model.gguf") as weights:
        assert weights.shapes == {"a": (2, 3), "b.weight": (5,)}
        np.testing.assert_array_equal(weights["a"], TENSORS["a"])
