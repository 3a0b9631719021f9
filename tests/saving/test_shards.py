"""Tensors in safetensors files: one, or several with an index."""

import json

import jax
import numpy as np
import pytest
import safetensors
from tests.saving.models import sequential
from tests.saving.small import equal, small_model

import exburn
import exburn as keras
from exburn.module.traversal import iter_weights
from exburn.saving.json_text import unpack_text


@pytest.fixture(scope="module")
def models():
    old, new = small_model(), small_model()
    new.set_weights([w + 1 for w in new.get_weights()])
    return old, new


def test_parts_are_replaced_as_a_set(models, tmp_path):
    path = tmp_path / "m.exburn"
    models[0].save(path, max_shard_size="64B")
    first = {p.name for p in tmp_path.iterdir()}
    models[1].save(path, max_shard_size="64B")
    second = {p.name for p in tmp_path.iterdir()}
    assert len(first) == len(second) > 2 and first & second == {"m.exburn"}
    models[0].save(path)  # one file again
    assert {p.name for p in tmp_path.iterdir()} == {"m.exburn"}
    assert equal(exburn.load_model(path), models[0])


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def paths(model):
    return [path for path, _, _ in iter_weights(model)]


def test_the_file_is_a_safetensors_file_under_any_suffix(tmp_path):
    model = sequential()
    for name in ("m.exburn", "m.keras", "m.safetensors", "m"):
        model.save(tmp_path / name)
    assert {p.name for p in tmp_path.iterdir()} == {
        "m.exburn",
        "m.keras",
        "m.safetensors",
    }
    same(keras.load_model(tmp_path / "m").get_weights(), model.get_weights())
    same(keras.load_model(tmp_path / "m.keras").get_weights(), model.get_weights())
    with safetensors.safe_open(tmp_path / "m.keras", "numpy") as file:
        assert set(file.keys()) == set(paths(model))
        about = json.loads(unpack_text(file.metadata()["model"], "load", "m.keras"))
        assert about["model"]["class_name"] == "Sequential"
        same(file.get_tensor("dense/kernel"), model.get_weights()[0])
