"""Data for a model that begins on the host."""

import subprocess
import sys

import numpy as np
import pytest
from tests.models.lookups import (
    LABELS,
    NUMBERS,
    TEXTS,
    VOCABULARY,
    WORDS,
    Y,
    looking_up,
    mapped,
    plain,
)

import exburn
from exburn import layers as L

MINE, THEIRS = [WORDS, NUMBERS], [mapped(WORDS), NUMBERS]


def batches(words, size=10):
    for start in range(0, len(words), size):
        part = slice(start, start + size)
        yield (words[part], NUMBERS[part]), Y[part]


def test_loaders_are_encoded_batch_by_batch():
    runs = [
        model.fit(batches(words), verbose=0, validation_data=(x, Y)).history
        for model, words, x in (
            (looking_up(), WORDS.astype("S"), MINE),
            (plain(), mapped(WORDS), THEIRS),
        )
    ]
    assert runs[0] == runs[1]


class Loader(exburn.utils.PyDataset):
    def __len__(self):
        return 7

    def __getitem__(self, index):
        part = slice(10 * index, 10 * index + 10)
        return {"word": WORDS[part].tolist(), "n": NUMBERS[part]}, Y[part]


def test_loaders_may_give_lists_of_strings_by_name():
    model = looking_up()
    word, number = model.inputs
    named = exburn.Model({"word": word, "n": number}, model.outputs[0])
    expected = model.predict(MINE, verbose=0)
    np.testing.assert_array_equal(named.predict(Loader(), verbose=0), expected)
    only = exburn.Model(word, L.StringLookup(vocabulary=VOCABULARY)(word))
    lists = (WORDS[i : i + 35].tolist() for i in (0, 35))
    np.testing.assert_array_equal(only.predict(lists, verbose=0), mapped(WORDS))


def sentiment(begin):
    vectorize = L.TextVectorization()
    vectorize.adapt(TEXTS)
    rest = [L.Embedding(16, 4), L.GlobalAveragePooling1D(), L.Dense(2)]
    model = exburn.Sequential([*begin, vectorize, *rest])
    model.compile(exburn.optimizers.Adam(0.05), "cross_entropy", seed=0)
    return model


@pytest.mark.filterwarnings("ignore::exburn.errors.RecompileWarning")
def test_a_batch_is_padded_to_its_own_longest_text():
    model = sentiment([exburn.Input((), dtype="string")])
    vectorize, *rest = model.layers
    model.fit(TEXTS, LABELS, epochs=6, batch_size=6, verbose=0)
    found = model.predict(TEXTS[:8], batch_size=2, verbose=0)
    for start in range(0, 8, 2):  # a mean over the padding, too, as in Keras
        x = vectorize(TEXTS[start : start + 2])
        for layer in rest:
            x = layer(x)
        np.testing.assert_allclose(found[start : start + 2], x, rtol=1e-5)
    good, bad = model.predict(["good", "bad"], verbose=0).argmax(-1)
    assert (good, bad) == (1, 0)


def test_the_order_of_rows_is_that_of_arrays():
    model = sentiment([exburn.Input((), dtype="string")])
    seen = []
    model.layers[0].standardize = lambda texts: seen.append(texts) or texts
    model.fit(TEXTS, LABELS, epochs=2, batch_size=12, verbose=0)
    epochs = [np.concatenate(seen[-6:-3]), np.concatenate(seen[-3:])]
    assert [sorted(epoch) for epoch in epochs] == [sorted(TEXTS)] * 2
    assert list(epochs[0]) != list(epochs[1])
    assert all(list(epoch) != list(TEXTS) for epoch in epochs)


def test_loaders_are_known_where_nothing_else_has_imported_their_adapters():
    code = """
import exburn
model = exburn.Sequential([exburn.Input((1,)), exburn.layers.Dense(1)])
from exburn.models.encoding import read_dataset
batches = iter([exburn.ops.ones((2, 1))])
assert read_dataset(model, batches, op="predict").peek()[0].shape == (2, 1)
"""
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
