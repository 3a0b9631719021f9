"""Weights of Keras' own files: the same model there and here predicts the same."""

import os

os.environ["KERAS_BACKEND"] = "jax"  # before the peer is imported

import io
import zipfile

import h5py
import keras
import numpy as np
import pytest

import exburn
from exburn import layers as exburn_layers
from exburn.errors import FileFormatError, MissingDependencyError, ModelFormatError

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras


def stack(k, shape, *layers):
    return k.Sequential([k.Input(shape), *layers])


def dense(k, L):
    return stack(
        k,
        (8,),
        L.Dense(4, name="foo"),
        L.BatchNormalization(),
        L.Dropout(0.2),
        L.PReLU(),
        L.Dense(3),
    )


def recurrent(k, L):
    i = k.Input((5, 6))
    x = L.Bidirectional(L.LSTM(4, return_sequences=True))(i)
    x = L.MultiHeadAttention(2, 3)(x, x)
    x = L.GRU(3)(x)
    return k.Model(i, L.Dense(2, name="a")(L.Dense(2, name="z")(x)))


def nested(k, L):
    inner = stack(k, (4,), L.Dense(5), L.Dense(4))
    i = k.Input((4,))
    other = k.Model(i, L.LayerNormalization()(L.Dense(3)(i)))
    i = k.Input((4,))
    return k.Model(i, other(inner(inner(i))))


def subclass(k, L):
    class Net(k.Model):
        def __init__(self):
            super().__init__()
            self.many = [L.Dense(3), L.Dense(4)]
            self.before = L.Dense(2)
            self.dict = {"x": L.Dense(2)}
            self.rnn = L.RNN([L.LSTMCell(3), L.GRUCell(2)])
            self.z = L.Dense(2)

        def call(self, x):
            x = self.before(self.many[1](self.many[0](x)))
            return self.z(self.rnn(self.dict["x"](x)[:, None]))

    net = Net()
    net(np.ones((2, 4), np.float32))
    return net


def convolutions(k, L):
    return stack(
        k,
        (8, 8, 3),
        L.Conv2D(4, 3),
        L.SeparableConv2D(3, 3),
        L.DepthwiseConv2D(2),
        L.Conv2DTranspose(2, 2),
        L.GroupNormalization(1),
        L.Flatten(),
        L.Dense(2),
    )


def embedding(k, L):
    i = k.Input((5,))
    x = L.TimeDistributed(L.Dense(4))(L.Embedding(10, 4)(i))
    return k.Model(i, L.GroupQueryAttention(4, 2, 1)(x, x))


def branches(k, L):
    """Layers of one class, made in another order than they are called in."""
    i = k.Input((4,))
    b, a = L.Dense(4)(i), L.Dense(4)(i)
    c = L.Dense(4)(L.Dense(4)(b))
    x = L.Dense(4)(k.ops.tanh(L.Add()([a, c])) * 2)
    return k.Model(i, [L.Concatenate()([x, L.Dense(4)(a)]), L.Dense(1)(b)])


MODELS = {
    f.__name__: f
    for f in (dense, recurrent, nested, subclass, convolutions, embedding, branches)
}


def pair(make):
    """The model in Keras, with weights of its own, and in ExBurn."""
    theirs, ours = make(keras, keras.layers), make(exburn, exburn_layers)
    rng = np.random.default_rng(0)
    fresh = [
        w if "uint" in str(w.dtype) else rng.random(w.shape).astype(w.dtype)
        for w in theirs.get_weights()
    ]
    theirs.set_weights(fresh)
    return theirs, ours


QUICK = ("dense", "branches")


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.long) for n in MODELS],
)
def test_weights_of_keras_predict_the_same(name, tmp_path):
    theirs, ours = pair(MODELS[name])
    shape = theirs.input_shape[1:] if name != "subclass" else (4,)
    x = np.random.default_rng(1).integers(0, 10, (3, *shape))
    x = x if name == "embedding" else (x / 10).astype(np.float32)
    expected = theirs.predict(x, verbose=0)
    empty = ours.get_weights()
    for path in (tmp_path / "m.weights.h5", tmp_path / "m.keras"):
        theirs.save_weights(path) if path.suffix == ".h5" else theirs.save(path)
        ours.set_weights(empty)
        report = ours.load_weights(path)
        assert report.complete, report
        outputs = ours.predict(x, verbose=0)
        for a, b in zip(listed(expected), listed(outputs), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5)


def keeping(k, L):
    """A model with layers that store more than weights, and under other names."""

    class Table(L.Layer):
        table = None

        def build(self, shape):
            self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")
            self.inner = L.Dense(2)

        def call(self, x):
            return self.inner(x * self.scale)

        def save_own_variables(self, store):
            super().save_own_variables(store)
            store["table"] = self.table

        def load_own_variables(self, store):
            self.table = np.array(store["table"])
            super().load_own_variables({"0": store["0"]})

    class Named(L.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

        def call(self, x):
            return x * self.scale

        def save_own_variables(self, store):
            store["the_scale"] = np.array(self.scale)

        def load_own_variables(self, store):
            self.scale.assign(store["the_scale"])

    return stack(k, (3,), Table(), L.Dense(4), Named())


@pytest.mark.parametrize("name", ["m.keras", "m.weights.h5"])
def test_layers_are_given_what_they_stored_in_files_of_keras(name, tmp_path):
    theirs = keeping(keras, keras.layers)
    theirs.layers[0].table = np.arange(5.0)
    for weight in theirs.weights:
        weight.assign(np.random.default_rng(0).random(tuple(weight.shape)))
    write = theirs.save if name.endswith(".keras") else theirs.save_weights
    write(tmp_path / name)
    ours = keeping(exburn, exburn_layers)
    report = ours.load_weights(tmp_path / name)
    assert report.complete and len(report.loaded) == len(ours.weights)
    np.testing.assert_array_equal(ours.layers[0].table, np.arange(5.0))
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-5)


def test_what_a_layer_stored_may_not_grow_beyond_measure(tmp_path):
    theirs = keeping(keras, keras.layers)
    theirs.layers[0].table = np.zeros(1)
    theirs.save_weights(path := tmp_path / "m.weights.h5")
    with h5py.File(path, "a") as file:
        group = next(g for g in file["layers"].values() if "table" in g["vars"])
        del group["vars/table"]
        chunks = {"chunks": (1 << 20,), "compression": "gzip"}
        group["vars"].create_dataset("table", (1 << 27,), "f8", **chunks)
    with pytest.raises(ModelFormatError, match="would take 1073741824 bytes"):
        keeping(exburn, exburn_layers).load_weights(path)


def listed(value):
    return value if isinstance(value, list | tuple) else [value]


def test_weights_of_a_trained_model_and_of_another_dtype(tmp_path):
    theirs, ours = pair(dense)
    theirs.compile("adam", "mse")
    theirs.fit(np.ones((4, 8)), np.ones((4, 3)), verbose=0)
    theirs.save_weights(tmp_path / "m.weights.h5")
    assert ours.load_weights(tmp_path / "m.weights.h5").complete
    half = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(2, dtype="bfloat16")]
    )
    half.save_weights(tmp_path / "h.weights.h5")
    ours = exburn.Sequential([exburn.Input((4,)), exburn_layers.Dense(2)])
    ours.load_weights(tmp_path / "h.weights.h5")
    np.testing.assert_array_equal(
        ours.get_weights()[0], np.asarray(half.get_weights()[0], np.float32)
    )


def test_the_report_names_what_is_not_there(tmp_path):
    theirs, _ = pair(dense)
    theirs.save_weights(tmp_path / "m.weights.h5")
    ours = stack(exburn, (8,), exburn_layers.Dense(4), exburn_layers.Dense(7))
    with pytest.raises(FileFormatError, match="another model"):
        ours.load_weights(tmp_path / "m.weights.h5")
    report = ours.load_weights(tmp_path / "m.weights.h5", skip_mismatch=True)
    assert report.loaded == ["dense/kernel", "dense/bias"]
    assert report.mismatched["dense_1/bias"] == ((7,), (3,))
    assert "layers/batch_normalization/vars/0" in report.unexpected


def test_h5py_is_named_when_it_is_missing(tmp_path, monkeypatch):
    import sys

    theirs, ours = pair(dense)
    theirs.save_weights(tmp_path / "m.weights.h5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingDependencyError, match=r"exburn\[keras\]"):
        ours.load_weights(tmp_path / "m.weights.h5")


# ---------------------------------------------------------------------- attacks
@pytest.fixture(scope="module")
def good_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "m.weights.h5"
    L = keras.layers
    stack(keras, (8,), L.Dense(4), L.Dense(3)).save_weights(path)
    return path.read_bytes()


KERNEL = "layers/dense/vars/0"


def external(file, secret):
    del file[KERNEL]
    file[KERNEL] = h5py.ExternalLink(str(secret), "/x")


def soft(file, secret):
    del file[KERNEL]
    file[KERNEL] = h5py.SoftLink("/layers/dense/vars/1")


def external_storage(file, secret):
    del file[KERNEL]
    file.create_dataset(KERNEL, (8, 4), "f4", external=[(str(secret), 0, 128)])


def virtual(file, secret):
    del file[KERNEL]
    layout = h5py.VirtualLayout((8, 4), "f4")
    layout[:] = h5py.VirtualSource(str(secret), "x", shape=(8, 4))
    file.create_virtual_dataset(KERNEL, layout)


def objects(file, secret):
    del file[KERNEL]
    file.create_dataset(KERNEL, (8, 4), h5py.special_dtype(vlen=bytes))


def compound(file, secret):
    del file[KERNEL]
    file.create_dataset(KERNEL, (8, 4), [("a", "f4"), ("b", "f4")])


def huge(file, secret):
    del file[KERNEL]
    file.create_dataset(KERNEL, (10**9, 10**9), "f4", chunks=(1024, 1024))


def bomb(file, secret):
    del file[KERNEL]
    file.create_dataset(
        KERNEL, (8, 4), "f4", maxshape=(None, None), chunks=(8192, 8192), compression=9
    )


def cycle(file, secret):
    file["layers/dense/again"] = file["layers"]


def unknown_filter(file, secret):
    del file[KERNEL]
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk((8, 4))
    plan.set_filter(32_001, h5py.h5z.FLAG_OPTIONAL, (1,))
    space = h5py.h5s.create_simple((8, 4))
    group = file["layers/dense/vars"]
    h5py.h5d.create(group.id, b"0", h5py.h5t.IEEE_F32LE, space, plan)


def named_type(file, secret):
    file["layers/type"] = np.dtype("f4")


def region(file, secret):
    del file[KERNEL]
    file.create_dataset(KERNEL, (8, 4), h5py.ref_dtype)


def opaque(file, secret):
    del file[KERNEL]
    file.create_dataset(KERNEL, (8, 4), "V4")


def empty(file, secret):
    del file[KERNEL]
    file.create_dataset(KERNEL, dtype="f4", data=h5py.Empty("f4"))


def many_groups(file, secret):
    for number in range(5200):
        file.create_group(f"layers/x{number}")


def fan(file, secret):
    """2**40 paths through 40 groups."""
    file.create_group("fan/0")
    for number in range(1, 41):
        for name in "ab":
            file[f"fan/{number}/{name}"] = file[f"fan/{number - 1}"]


ATTACKS = (external, soft, external_storage, virtual, objects, compound, huge, bomb)
ATTACKS += (cycle, unknown_filter, named_type, region, opaque, empty, many_groups, fan)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("form", ["h5", "keras"])
def test_hostile_hdf5_is_refused(attack, form, good_file, tmp_path):
    ours = stack(exburn, (8,), exburn_layers.Dense(4), exburn_layers.Dense(3))
    path, secret = tmp_path / "m.weights.h5", tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["x"] = np.ones((8, 4), np.float32)
    path.write_bytes(good_file)
    with h5py.File(path, "a") as file:
        attack(file, secret)
    if form == "keras":
        data, path = path.read_bytes(), tmp_path / "m.keras"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("model.weights.h5", data)
    before = ours.get_weights()
    for strict in (True, False) if attack is not huge else (True,):
        with pytest.raises((FileFormatError, ValueError)):
            ours.load_weights(path, strict=strict)
    assert all(map(np.array_equal, before, ours.get_weights()))


def archives():
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.weights.h5", bytes(300 << 20))
    yield "a bomb", made.getvalue()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("model.weights.h5", b"\x89HDF\r\n\x1a\n" + bytes(5000))
    yield "an empty HDF5 file", made.getvalue()
    yield "a cut archive", made.getvalue()[:-20]
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.weights.h5", bytes(range(256)) * 40)
    data = bytearray(made.getvalue())
    data[70:90] = bytes([255]) * 20
    yield "a damaged stream", bytes(data)


@pytest.mark.parametrize("data", [pytest.param(d, id=n) for n, d in archives()])
def test_hostile_archives_are_refused(data, tmp_path):
    path, ours = tmp_path / "m.keras", dense(exburn, exburn_layers)
    path.write_bytes(data)
    with pytest.raises(FileFormatError):
        ours.load_weights(path)


def test_damaged_hdf5_is_refused_or_read_whole(good_file, tmp_path):
    ours = stack(exburn, (8,), exburn_layers.Dense(4), exburn_layers.Dense(3))
    path = tmp_path / "m.weights.h5"
    data, rng = good_file, np.random.default_rng(0)
    for _ in range(60):
        bad = bytearray(data)
        for place in rng.integers(0, min(len(bad), 4096), 3):
            bad[place] = rng.integers(256)
        path.write_bytes(bad)
        try:
            ours.load_weights(path, strict=False)
        except (FileFormatError, ValueError) as error:
            assert type(error).__module__ == "exburn.errors"
