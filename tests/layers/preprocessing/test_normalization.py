"""Tests of ``exburn.layers.preprocessing.normalization``."""

import numpy as np
import pytest
from tests.golden import keras
from tests.layers.check_layer import check_layer
from tests.layers.preprocessing.numbers import FLAT, SEQUENCE, VALUES, rng

from exburn import layers as L
from exburn.data import ArrayDataset, PyDataset, StreamDataset
from exburn.errors import ArgumentError, DataError, ShapeError


def adapted(layer, data):
    layer.adapt(data)
    return layer


class Batches(PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, i):
        return STREAM[i], np.zeros(len(STREAM[i]))


STREAM = [VALUES[:700], VALUES[700:701], VALUES[701:]]


@pytest.mark.parametrize("axis", [-1, 1, (1, 2), (-1, 1), None])
@pytest.mark.parametrize("invert", [False, True])
def test_normalization_as_in_keras(axis, invert, golden):
    ours = adapted(L.Normalization(axis, invert=invert), SEQUENCE)

    def of_keras():
        peer = adapted(keras.layers.Normalization(axis, invert=invert), SEQUENCE)
        weights = [(tuple(w.shape), w.name) for w in peer.weights]
        given = keras.layers.Normalization(
            axis and -1, invert=invert, mean=2.0, variance=3.0
        )
        return peer(SEQUENCE), weights, tuple(peer.mean.shape), given(SEQUENCE)

    theirs, weights, shape, with_given = golden(of_keras)
    np.testing.assert_allclose(ours(SEQUENCE), theirs, atol=1e-5)
    assert [(w.shape, w.name) for w in ours.weights] == weights
    assert ours.mean.shape == shape and ours.variance.ndim == 3
    back = theirs if invert else SEQUENCE  # what the statistics lead back to
    forth = SEQUENCE if invert else ours(SEQUENCE)
    np.testing.assert_allclose(
        forth * ours.variance**0.5 + ours.mean, back, rtol=1e-5, atol=1e-5
    )
    given = {"mean": 2.0, "variance": 3.0}
    ours = L.Normalization(axis and -1, invert=invert, **given)
    np.testing.assert_allclose(ours(SEQUENCE), with_given, atol=1e-6)


def test_given_statistics_of_several_axes(golden):
    mean, variance = np.arange(24.0).reshape(8, 3), np.arange(1.0, 25).reshape(8, 3)
    options = {"axis": (1, 2), "mean": mean, "variance": variance}
    expected = golden(lambda: keras.layers.Normalization(**options)(SEQUENCE))
    layer = L.Normalization(**options)
    np.testing.assert_allclose(layer(SEQUENCE), expected, atol=1e-5)
    copy = L.Normalization.from_config(layer.get_config())
    np.testing.assert_array_equal(copy(SEQUENCE), layer(SEQUENCE))
    np.testing.assert_allclose(layer.mean, mean[None])


@pytest.mark.parametrize(
    "data",
    [
        VALUES,
        STREAM,
        iter(STREAM),
        ((x, None) for x in STREAM),
        ArrayDataset(VALUES, np.zeros(1000)),
        StreamDataset(lambda epoch: iter(STREAM), batches=3),
        Batches(),
    ],
    ids="array list iterator pairs dataset stream PyDataset".split(),
)
def test_statistics_are_exact_however_the_data_comes(data):
    layer = adapted(L.Normalization(), data)
    exact = VALUES.astype("float64")
    np.testing.assert_allclose(layer.mean, exact.mean(0)[None], rtol=1e-7)
    np.testing.assert_allclose(layer.variance, exact.var(0)[None], rtol=1e-6)
    assert int(layer.count.numpy()) == 1000


def test_steps_and_blocks():
    layer = L.Normalization()
    layer.adapt(
        iter([np.ones((2, 1)), np.zeros((2, 1)), np.full((2, 1), 9.0)]), steps=2
    )
    assert layer.mean.tolist() == [[0.5]]
    large = rng.normal(size=(2_000_000, 1)).astype("float32")  # more than one block
    layer.adapt(large)
    variance = large.var(0, dtype="float64", keepdims=True)
    np.testing.assert_allclose(layer.variance, variance, rtol=1e-6)


def test_one_dimension_and_integers():
    layer = adapted(L.Normalization(axis=None), np.array([1, 2, 3, 4, 5]))
    np.testing.assert_allclose(layer(np.array([[3], [5]])), [[0], [2**0.5]], rtol=1e-6)
    years = np.array([[1990], [2024]], "int32")
    half = adapted(L.Normalization(dtype="mixed_bfloat16"), years)
    assert half(years).astype("float32").tolist() == [[-1], [1]]


def test_constant_features_do_not_divide_by_zero():
    layer = adapted(L.Normalization(), np.full((5, 2), 7.0))
    assert layer(np.full((5, 2), 7.0)).tolist() == [[0, 0]] * 5


@pytest.mark.parametrize("how", ["given", "adapted"])
def test_normalization_contract(how):
    def make(**options):
        if how == "given":
            return L.Normalization(mean=1.0, variance=4.0, **options)
        return L.Normalization(axis=(1, 2), **options)

    check_layer(make, SEQUENCE, free=(1,) if how == "given" else (), half=True)


def test_normalization_errors():
    with pytest.raises(ArgumentError):
        L.Normalization(mean=1.0)
    with pytest.raises(ArgumentError):
        L.Normalization(mean=[1.0], variance=[1.0, 2.0])
    with pytest.raises(ArgumentError, match="given"):
        L.Normalization(mean=1.0, variance=1.0).adapt(FLAT)
    with pytest.raises(ShapeError, match="batch axis"):
        L.Normalization().adapt(np.arange(5.0))
    with pytest.raises(DataError, match="finite"):
        L.Normalization().adapt(np.array([[1.0], [np.nan]]))
    with pytest.raises(DataError, match="empty"):
        L.Normalization().adapt([])
    with pytest.raises(DataError, match="dictionary"):
        L.Normalization().adapt(iter([{"a": FLAT}]))
    with pytest.raises(ShapeError, match="fit"):
        L.Normalization().adapt([FLAT, FLAT[:, :2]])
    layer = adapted(L.Normalization(), FLAT)
    with pytest.raises(ShapeError, match="size 6"):
        layer(FLAT[:, :5])
    with pytest.raises(ShapeError, match="known"):
        L.Normalization().compute_output_shape((None, None))
