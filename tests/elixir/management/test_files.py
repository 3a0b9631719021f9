"""A model's weights written down, and read back."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from tests.elixir.networks import X, Y, make

import exburn
from exburn import layers
from exburn.errors import (
    ArgumentError,
    FileFormatError,
    ShapeError,
    UnknownNameError,
)


@pytest.mark.long
def test_params_there_and_back(tmp_path):
    one, other = make(), make()
    one.fit(X, Y, verbose=0)
    routes = {
        "bytes": lambda: exburn.deserialize_params(other, exburn.serialize_params(one)),
        "json": lambda: exburn.import_params(
            other, exburn.export_params(one, format="json"), format="json"
        ),
        "file": lambda: exburn.import_params(
            other, exburn.export_params(one, tmp_path / "p.json")
        ),
        "safetensors": lambda: exburn.import_params(
            other, exburn.export_params(one, tmp_path / "p.safetensors")
        ),
    }
    for name, route in routes.items():
        exburn.update_params(
            other, {k: np.zeros(v.shape) for k, v in exburn.parameters(other).items()}
        )
        assert route() is other
        for a, b in zip(one.get_weights(), other.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)


def test_json_is_json_and_keeps_every_bit():
    made = exburn.Sequential([exburn.Input((3,)), layers.Dense(1, dtype="bfloat16")])
    odd = np.array([[np.nan], [np.inf], [1 / 3]], np.float32)
    exburn.update_params(made, {"dense/kernel": odd})
    text = exburn.export_params(made, format="json")

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    entry = json.loads(text, parse_constant=refuse)["dense/kernel"]
    assert entry["type"] == "bfloat16" and entry["shape"] == [3, 1]
    before = exburn.parameters(made)["dense/kernel"]
    exburn.update_params(made, {"dense/kernel": np.zeros((3, 1))})
    exburn.import_params(made, text, format="json")
    after = exburn.parameters(made)["dense/kernel"]
    assert np.asarray(before).tobytes() == np.asarray(after).tobytes()
    # The names of types that Nx writes are understood as well.
    nx = text.replace('"bfloat16"', '"bf16"')
    assert exburn.import_params(made, nx, format="json") is made


@pytest.mark.long_cases("int4")
@pytest.mark.longest_cases("int8", "float16")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int8", "int4"])
def test_bytes_of_every_dtype(dtype, tmp_path):
    made = make()
    if dtype != "float32":
        made = made.quantize(dtype)
    bits = [np.asarray(v).tobytes() for v in exburn.parameters(made).values()]
    contents = exburn.serialize_params(made)
    for weight in made.weights:
        weight.set_value(jnp.zeros_like(weight.get_value()))
    exburn.deserialize_params(made, contents)
    assert bits == [np.asarray(v).tobytes() for v in exburn.parameters(made).values()]
    path = str(exburn.export_params(made, tmp_path / "p.json"))
    assert exburn.import_params(made, path, format="json") is made


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [-1]},
        {"shape": ["3"]},
        {"shape": [3.0]},
        {"shape": [4]},
        {"data": [1, 2]},
        {"data": [None, 1, 2]},
        {"data": ["one", 1, 2]},
        {"data": [[1, 2, 3]]},
        {"type": "s8", "data": [1.5, 1, 2]},
        {"type": "s8", "data": [300, 1, 2]},
        {"type": "object"},
        {"type": "complex64"},
        {"type": 5},
    ],
    ids=str,
)
def test_damaged_entries(model, changes):
    before = model.get_weights()
    entries = json.loads(exburn.export_params(model, format="json"))
    entries["out/bias"] |= changes
    with pytest.raises((FileFormatError, ShapeError)):
        exburn.import_params(model, json.dumps(entries))
    for a, b in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_damaged_params(model, tmp_path):
    data = exburn.serialize_params(model)
    before = model.get_weights()
    bad = [
        (lambda: exburn.deserialize_params(model, b"nonsense"), FileFormatError),
        (lambda: exburn.deserialize_params(model, data[:-5]), FileFormatError),
        (lambda: exburn.import_params(model, "[1]", format="json"), FileFormatError),
        (lambda: exburn.import_params(model, "{}", format="json"), FileFormatError),
        (
            lambda: exburn.import_params(
                model,
                '{"a": {"shape": [2], "type": "f32", "data": [1]}}',
                format="json",
            ),
            FileFormatError,
        ),
        (lambda: exburn.import_params(model, tmp_path / "no.json"), ArgumentError),
        (lambda: exburn.export_params(model, format="elixir_terms"), UnknownNameError),
        (lambda: exburn.export_params(model, tmp_path / "p.bin"), UnknownNameError),
    ]
    for call, error in bad:
        with pytest.raises(error):
            call()
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
