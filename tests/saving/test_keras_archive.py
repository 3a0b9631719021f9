"""Archives of Keras that attack, or are damaged."""

import io
import zipfile

import pytest

import exburn
from exburn import layers as exburn_layers
from exburn.errors import FileFormatError

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


def archive(weights, compression=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as file:
        file.writestr("model.weights.h5", weights)
    return stream.getvalue()


def damaged():
    data = bytearray(archive(bytes(range(256)) * 40))
    data[70:90] = bytes([255]) * 20
    return bytes(data)


HDF5 = b"\x89HDF\r\n\x1a\n" + bytes(5000)
ARCHIVES = {
    "a bomb": lambda: archive(bytes(300 << 20)),
    "an empty HDF5 file": lambda: archive(HDF5, zipfile.ZIP_STORED),
    "a cut archive": lambda: archive(HDF5, zipfile.ZIP_STORED)[:-20],
    "a damaged stream": damaged,
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_hostile_archives_are_refused(name, tmp_path):
    path, ours = tmp_path / "m.keras", dense(exburn, exburn_layers)
    path.write_bytes(ARCHIVES[name]())
    with pytest.raises(FileFormatError):
        ours.load_weights(path)
