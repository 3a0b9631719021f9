"""Folders that are read into few bits, and written from there with adapters merged."""

from pathlib import Path

import numpy as np
import pytest

import exburn
from exburn import applications, errors
from exburn.applications import GPT2, Llama
from exburn.module.traversal import iter_weights
from exburn.quantizers import AbsMaxQuantizer, Int8QuantizationConfig
from exburn.saving.weight_sources import read_weights

IDS = np.arange(12).reshape(2, 6) % 30
SIZES = {"layers": 2, "width": 32, "heads": 4}


def llama(dtype="float32", **options):
    sizes = {"key_value_heads": 2, "mlp_width": 48} | SIZES | options
    return Llama(30, **sizes, dtype=dtype)


def values(model):
    return {p: np.asarray(w.get_value()) for p, w, _ in iter_weights(model)}


@pytest.mark.parametrize("mode", ["int4", "nf4", "int8", "quantizer"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_reading_into_few_bits_is_reading_and_quantizing(tmp_path, mode, dtype):
    llama(dtype).save_pretrained(tmp_path)
    config = mode
    if mode == "quantizer":
        config = Int8QuantizationConfig(AbsMaxQuantizer(axis=0), None)
    read = applications.from_pretrained(tmp_path)
    chosen = lambda layer: isinstance(layer, exburn.layers.Dense)  # noqa: E731
    if mode == "quantizer":
        expected = read.quantize(config=config, filters=chosen)
        with pytest.raises(errors.ArgumentError, match="one scale for each output"):
            applications.from_pretrained(tmp_path, quantize=config)
        return
    expected = read.quantize(mode)
    packed = applications.from_pretrained(tmp_path, quantize=config)
    assert packed.changes == expected.changes
    ours, theirs = values(packed), values(expected)
    assert ours.keys() == theirs.keys()
    for path, value in theirs.items():
        assert ours[path].dtype == value.dtype
        assert ours[path].tobytes() == value.tobytes(), path
    np.testing.assert_array_equal(
        packed.predict(IDS, verbose=0), expected.predict(IDS, verbose=0)
    )


def test_no_more_than_one_weight_is_a_float(tmp_path, monkeypatch):
    llama().save_pretrained(tmp_path)
    made = []
    put = applications.pretrained.jax.device_put

    def counted(value):
        made.append((str(value.dtype), value.size))
        return put(value)

    monkeypatch.setattr(applications.pretrained.jax, "device_put", counted)
    model = applications.from_pretrained(tmp_path, quantize="int4")
    floats = [w for _, w, _ in iter_weights(model) if w.dtype == np.float32]
    assert sum(w.size for w in floats) < 200  # norms
    assert max(size for dtype, size in made if dtype == "float32") < 200
    assert max(size for dtype, size in made if dtype == "uint8") >= 16 * 32


def test_modes_that_store_nothing_are_refused(tmp_path):
    llama().save_pretrained(tmp_path)
    for mode in ("bfloat16", "gptq", "int5"):
        with pytest.raises(errors.ExBurnError, match=mode):
            applications.from_pretrained(tmp_path, quantize=mode)


@pytest.mark.parametrize("kind", ["lora", "dora"])
@pytest.mark.parametrize(
    "make", [llama, lambda d: GPT2(30, positions=16, **SIZES, dtype=d)]
)
@pytest.mark.parametrize("stored", [None, "int4"])
def test_a_folder_of_merged_weights(tmp_path, make, kind, stored):
    make("bfloat16").save_pretrained(tmp_path / "base")
    options = {"generation": None, "quantize": stored, "dtype": "float32"}
    model = applications.from_pretrained(tmp_path / "base", **options)
    model.add_lora(2, kind=kind)
    rng = np.random.default_rng(0)
    for path, weight, _ in iter_weights(model):
        if path.endswith("lora_b"):
            weight.assign(0.2 * rng.standard_normal(weight.shape))
    before, outputs = values(model), model.predict(IDS, verbose=0)
    with pytest.raises(errors.ArgumentError, match="merge=True"):
        model.save_pretrained(tmp_path / "merged")
    model.save_pretrained(tmp_path / "merged", merge=True)
    after = values(model)
    assert all((after[path] == value).all() for path, value in before.items())
    merged = applications.from_pretrained(
        tmp_path / "merged", generation=None, dtype="float32"
    )
    assert type(merged) is type(model) and merged.changes == []
    with read_weights(tmp_path / "merged" / "model.safetensors") as file:
        assert {file[name].dtype.name for name in file} == {"bfloat16"}  # as the base
    # of bfloat16's 8 bits
    np.testing.assert_allclose(
        merged.predict(IDS, verbose=0), outputs, atol=0.05 * np.abs(outputs).max()
    )


def test_a_model_without_a_folder_is_merged_in_its_own_dtype(tmp_path):
    model = llama()
    model.add_lora(2)
    layer = model.get_layer("block_0_gate")
    layer.lora_b.assign(np.ones(layer.lora_b.shape))
    outputs = model.predict(IDS, verbose=0)
    model.save_pretrained(tmp_path, merge=True)
    merged = applications.from_pretrained(tmp_path)
    np.testing.assert_allclose(merged.predict(IDS, verbose=0), outputs, atol=1e-5)
    # beside quantized weights alone it writes what they read as
    small = llama().quantize("nf4")
    small.save_pretrained(Path(tmp_path) / "nf4", merge=True)
    read = applications.from_pretrained(Path(tmp_path) / "nf4")
    np.testing.assert_allclose(
        read.predict(IDS, verbose=0), small.predict(IDS, verbose=0), atol=1e-5
    )


@pytest.mark.parametrize("mode", ["int4", "nf4"])
@pytest.mark.parametrize("tied", [False, True])
def test_bits_stay_while_adapters_learn(tmp_path, mode, tied):
    llama(tie_embeddings=tied).save_pretrained(tmp_path)
    model = applications.from_pretrained(tmp_path, quantize=mode, generation=None)
    model.add_lora(4)
    learns = {path: learns for path, _, learns in iter_weights(model)}
    assert {p.rpartition("/")[2] for p, one in learns.items() if one} == {
        "lora_a",
        "lora_b",
    }
    before = values(model)
    loss = exburn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(exburn.optimizers.AdamW(1e-2), loss)
    history = model.fit(IDS, np.roll(IDS, -1, 1), epochs=6, verbose=0).history["loss"]
    assert history[-1] < 0.9 * history[0]
    for path, value in values(model).items():
        assert learns[path] or value.tobytes() == before[path].tobytes()
    text = model.generate(IDS[:1, :3], 4)
    copy = model.clone()
    np.testing.assert_array_equal(copy.generate(IDS[:1, :3], 4), text)
