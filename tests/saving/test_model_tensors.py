"""Arrays of a model that its file keeps as tensors."""

import jax
import numpy as np
import pytest
import safetensors

import exburn as keras
from exburn import layers


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@keras.register(package="tests")
class OfWords(keras.Model):
    """Keeps the layer that makes numbers of its texts beside the network."""

    def __init__(self, prepare, **kwargs):
        super().__init__(**kwargs)
        self.prepare = prepare
        self.embed = layers.Embedding(prepare.vocabulary_size(), 2)

    def call(self, ids):
        return self.embed(ids)


def test_long_vocabularies_are_kept_beside_the_weights(tmp_path):
    prepare = layers.StringLookup(vocabulary=[f"wort{i}ü" for i in range(5000)])
    model, path = OfWords(prepare), tmp_path / "m.exburn"
    texts = np.array([["wort7ü", "nothing"]])
    outputs = model(prepare(texts))
    model.save(path)
    loaded = keras.load_model(path)
    assert loaded.prepare.get_vocabulary() == prepare.get_vocabulary()
    same(outputs, loaded(loaded.prepare(texts)))
    with safetensors.safe_open(path, "numpy") as file:
        assert len(file.metadata()["model"]) < 5000
        assert "/words/0" in file.keys()


TABLE = np.linspace(-1, 1, 3000 * 100, dtype="float32").reshape(3000, 100)


@pytest.mark.parametrize(
    "given, copies",
    [
        ({"weights": [TABLE]}, 1),
        ({"embeddings_initializer": keras.initializers.Constant(TABLE)}, 2),
    ],
)
def test_a_table_that_is_given_is_no_part_of_the_description(tmp_path, given, copies):
    """Such files were megabytes of JSON, and large tables could not be saved."""
    table = layers.Embedding(3000, 100, trainable=False, **given)
    model = keras.Sequential([keras.Input((4,), dtype="int32"), table])
    path = tmp_path / "m.exburn"
    model.save(path)
    assert path.stat().st_size < copies * TABLE.nbytes + 10_000
    loaded = keras.load_model(path).layers[0]
    np.testing.assert_array_equal(loaded.embeddings, TABLE)
    assert loaded.embeddings_initializer((3000, 100)).shape == TABLE.shape
    assert loaded.get_config() == table.get_config()
    assert "weights" not in table.get_config()


def test_a_table_is_in_the_configuration_until_it_is_a_weight():
    layer = layers.Embedding(3000, 100, weights=[TABLE])
    made = layers.Embedding.from_config(layer.get_config())
    made.build((None,))
    np.testing.assert_array_equal(made.get_weights()[0], TABLE)
