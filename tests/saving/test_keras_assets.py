"""What layers have in a ``.keras`` archive beside their weights."""

import io
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

import exburn
from exburn import layers as exburn_layers
from exburn.errors import ModelFormatError

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation", "ignore:You are saving your model as an HDF5"
)
KL, ops = keras.layers, keras.ops
DATA = np.random.default_rng(0).random((8, 6), np.float32)


def test_learned_states_of_preprocessing(tmp_path):
    layer = KL.Normalization()
    layer.adapt(DATA)
    bins = KL.Discretization([0.2, 0.5])
    start = keras.Input((6,))
    theirs = keras.Model(start, [layer(start), bins(start)])
    for form in ("keras", "h5"):
        theirs.save(path := tmp_path / f"m.{form}")
        pairs = zip(exburn.load_model(path)(DATA), theirs(DATA), strict=True)
        for mine, other in pairs:
            np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


def test_vocabularies_that_lookups_had_learned(tmp_path):
    """Keras needs TensorFlow for a lookup: what it writes is put into its file."""

    def net(k, L):
        class Net(k.Model):
            def __init__(self, **kwargs):
                super().__init__(**kwargs)
                self.dense = L.Dense(2)
                if k is exburn:
                    self.words = L.StringLookup()
                    self.years = L.IntegerLookup()
                    self.text = L.TextVectorization(output_mode="tf_idf")

            def call(self, x):
                return self.dense(x)

            def get_config(self):
                return {"name": self.name}

        return Net

    theirs = net(keras, KL)()
    theirs(DATA)
    theirs.save(path := tmp_path / "m.keras")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    data = io.BytesIO(members["model.weights.h5"])
    with h5py.File(data, "a") as file:
        for name in ("words", "years", "text", "text/_lookup_layer"):
            file.create_group(f"{name}/vars")
        for name in ("text", "text/_lookup_layer"):
            file[f"{name}/vars/idf_weights"] = np.float32([0.5, 1.0, 2.0])
    members["model.weights.h5"] = data.getvalue()
    words = {"words": "[UNK]\nb\na", "years": "-1\n7\n9", "text": "[UNK]\nx\ny"}
    for name, lines in words.items():
        members[f"assets/{name}/vocabulary.txt"] = lines.encode()
    path.write_bytes(packed(members))
    ours = exburn.load_model(path, {"Net": net(exburn, exburn_layers)})
    assert ours.words(["a", "c"]).tolist() == [2, 0]
    assert ours.years([9, 1]).tolist() == [2, 0]
    np.testing.assert_allclose(ours.text(["x x z"]), [[0.5, 2.0, 0.0]])
    members["assets/years/vocabulary.txt"] = b"seven"
    path.write_bytes(packed(members))
    with pytest.raises(ModelFormatError, match="vocabulary of 'years'"):
        exburn.load_model(path, {"Net": net(exburn, exburn_layers)})


def test_a_graph_over_a_learned_vocabulary():
    """The file is of Keras 3.15 on TensorFlow: IntegerLookup, Embedding, Dense."""
    path = Path(__file__).parent / "keras2" / "integers.keras"
    model = exburn.load_model(path)
    assert model.layers[1].get_vocabulary() == [-1, 1, 3, 2]
    expected = [[0.01242718, -0.08981751], [0.01989827, 0.0013983]]
    computed = model.predict(np.array([[1, 2], [3, 1]]), verbose=0)
    np.testing.assert_allclose(computed, expected, rtol=1e-5)


def packed(members, more=(), compression=zipfile.ZIP_STORED):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as archive:
        for name, data in [*members.items(), *more]:
            archive.writestr(name, data)
    return made.getvalue()
