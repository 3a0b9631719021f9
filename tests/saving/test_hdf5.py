"""HDF5 files that attack, that are damaged, and without h5py."""

import zipfile

import h5py
import keras
import numpy as np
import pytest

import exburn
from exburn import layers as exburn_layers
from exburn.errors import FileFormatError, MissingDependencyError, ModelFormatError
from exburn.saving import read_weights
from exburn.saving.hdf5 import HDF5File

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


def test_h5py_is_named_when_it_is_missing(tmp_path, monkeypatch):
    import sys

    theirs, ours = pair(dense)
    theirs.save_weights(tmp_path / "m.weights.h5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingDependencyError, match=r"exburn\[keras\]"):
        ours.load_weights(tmp_path / "m.weights.h5")


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


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("packing", [None, "gzip"])
@pytest.mark.parametrize("chunks", [None, (3, 2), (1, 1), (8, 4)])
def test_filters_of_hdf5_are_read(chunks, packing, checksum, shuffle, tmp_path):
    """In chunks with an edge, of one number, and as large as the array."""
    array = np.random.default_rng(0).random((8, 4)).astype("f4")
    options = {"compression": packing, "fletcher32": checksum, "shuffle": shuffle}
    path = tmp_path / "m.weights.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset(KERNEL, (8, 4), "f4", chunks=chunks, **options)
        data[:] = array
        if chunks == (3, 2) and packing:  # a chunk that no filter has touched
            data.id.write_direct_chunk((0, 0), array[:3, :2].tobytes(), 0b111)
    with read_weights(path) as found:
        np.testing.assert_array_equal(found[KERNEL], array)


def test_zeros_that_pack_well_are_read_up_to_their_room(tmp_path):
    path = tmp_path / "m.weights.h5"
    with h5py.File(path, "w") as file:
        zeros = np.zeros((1000, 1000), "f4")
        file.create_dataset(KERNEL, data=zeros, compression="gzip")
    with read_weights(path) as found:
        assert found[KERNEL].shape == (1000, 1000)


def test_a_bit_of_the_attributes_that_is_another_is_told(tmp_path):
    """What HDF5 raises of them is an error with a type, wherever it raises it."""
    path, errors = tmp_path / "m.weights.h5", set()
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = ["one", "two"]
        file.attrs["count"] = 3
    data = path.read_bytes()
    start = data.index(b"layer_names") - 40
    for bit in range(0, 8 * 160, 7):
        flipped = bytearray(data)
        flipped[start + bit // 8] ^= 1 << bit % 8
        try:
            with HDF5File(path, "load", 10, bytes(flipped)) as file:
                file.texts("layer_names")
                file.text("count0")
                file.attributes("")
        except ModelFormatError as error:
            errors.add(str(error))
    assert len(errors) > 5
