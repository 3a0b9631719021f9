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
