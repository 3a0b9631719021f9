"""Weights alone: several formats in, a report out, and nothing changed on errors."""

import io
import json
import pickle
import zipfile

import numpy as np
import pytest
import safetensors.numpy

import exburn as keras
from exburn import layers
from exburn.errors import ArgumentError, FileFormatError, ShapeError
from exburn.module.traversal import iter_weights


def model_of(units=3, seed=0, name="last"):
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(units), layers.Dense(2, name=name)]
    )
    rng = np.random.default_rng(seed)
    model.set_weights([rng.random(w.shape) for w in model.get_weights()])
    return model


def named(model):
    return {path: np.asarray(w) for path, w, _ in iter_weights(model)}


def equal(a, b):
    return all(map(np.array_equal, a.get_weights(), b.get_weights()))


def safetensors_index(model, path):
    parts = {"a.safetensors": {}, "b.safetensors": {}}
    for i, (name, value) in enumerate(named(model).items()):
        parts["ab"[i % 2] + ".safetensors"][name] = value
    for part, tensors in parts.items():
        safetensors.numpy.save_file(tensors, path.with_name(part))
    places = {name: part for part, tensors in parts.items() for name in tensors}
    path.write_text(json.dumps({"metadata": {}, "weight_map": places}))


WRITERS = {
    "save_weights": lambda m, p: m.save_weights(p),
    "save": lambda m, p: m.save(p),
    "save in parts": lambda m, p: m.save(p, max_shard_size="40B"),
    "weights in parts": lambda m, p: m.save_weights(p, max_shard_size="40B"),
    "plain safetensors": lambda m, p: safetensors.numpy.save_file(named(m), p),
    "Hugging Face's index": safetensors_index,
    "npz by names": lambda m, p: np.savez(p.open("wb"), **named(m)),
    "npz by order": lambda m, p: np.savez(p.open("wb"), *m.get_weights()),
    "compressed npz": lambda m, p: np.savez_compressed(p.open("wb"), **named(m)),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("name", WRITERS)
def test_every_format_is_read_whatever_its_suffix(name, tmp_path):
    model, other = model_of(seed=1), model_of(seed=2)
    path = tmp_path / "weights.bin"
    WRITERS[name](model, path)
    report = other.load_weights(path)
    assert equal(model, other)
    assert report.complete and report.loaded == list(named(model))


def test_keras_suffix_is_accepted_for_what_is_ours(tmp_path):
    model, other = model_of(seed=1), model_of(seed=2)
    model.save_weights(tmp_path / "m.weights.h5")
    other.load_weights(tmp_path / "m.weights.h5")
    assert equal(model, other)
    for name in ("m.h5", "m.keras", "m.npz"):
        with pytest.raises(ArgumentError, match="safetensors"):
            model.save_weights(tmp_path / name)


def test_another_shape_is_an_error_or_left_out(tmp_path):
    source, target = model_of(units=5), model_of(seed=1)
    source.save_weights(tmp_path / "w.safetensors")
    with pytest.raises(ShapeError, match=r"dense/kernel has shape \(4, 3\)"):
        target.load_weights(tmp_path / "w.safetensors")
    report = target.load_weights(tmp_path / "w.safetensors", skip_mismatch=True)
    assert report.loaded == ["last/bias"]
    assert report.mismatched["dense/kernel"] == ((4, 3), (4, 5))


def test_dtypes_are_converted_to_those_of_the_model(tmp_path):
    model = model_of()
    tensors = {k: v.astype(np.float64) for k, v in named(model).items()}
    safetensors.numpy.save_file(tensors, tmp_path / "w.safetensors")
    other = model_of(seed=4)
    other.load_weights(tmp_path / "w.safetensors")
    assert equal(model, other) and other.get_weights()[0].dtype == np.float32


class Evil:
    def __reduce__(self):
        return (pytest.fail, ("a pickle ran",))


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode()
    text += b" " * (63 - (len(text) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def zipped(files, method=zipfile.ZIP_DEFLATED):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, data in files:
            archive.writestr(name, data)
    return made.getvalue()


def fake(descr="'<f4'", shape="(4, 3)", data=bytes(48), order="False"):
    head = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"
    return npy(head, data)


def hostile_archives():
    whole = {f"{k}.npy": None for k in named(model_of())}
    name = next(iter(whole))
    rows = {
        "objects": fake("'|O'", "(1,)", pickle.dumps([Evil()])),
        "a pickle": pickle.dumps(Evil()),
        "a huge shape": fake(shape="(1000000000, 1000000000)"),
        "a shape without data": fake(data=b""),
        "more data than the shape": fake(data=bytes(1 << 20)),
        "a negative shape": fake(shape="(-4, -3)"),
        "a header that is code": npy("__import__('os').system('true')"),
        "a deep header": npy("(" * 5000 + ")" * 5000),
        "fields": fake("[('a', '<f4')]"),
        "complex numbers": fake("'<c8'", data=bytes(96)),
        "text": fake("'<U4'", "(4,)", bytes(64)),
        "a void of a gigabyte": fake("'|V1000000000'", "(1,)", b""),
        "nothing": b"",
        "a bomb": bytes(100 << 20),
    }
    for what, data in rows.items():
        yield what, zipped([(name, data)])
    yield "a name twice", zipped([("a.npy", fake()), ("a", fake())])
    good = zipped([(name, fake())])
    yield "a cut zip", good[:-30]
    flipped = bytearray(good)
    flipped[60] ^= 255
    yield "a damaged member", bytes(flipped)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("data"), [pytest.param(d, id=n) for n, d in hostile_archives()]
)
def test_hostile_archives_are_refused(data, tmp_path):
    path, model = tmp_path / "w.npz", model_of()
    path.write_bytes(data)
    before = model.get_weights()
    for strict in (True, False):
        with pytest.raises(FileFormatError):
            model.load_weights(path, strict=strict)
    assert all(map(np.array_equal, before, model.get_weights()))
