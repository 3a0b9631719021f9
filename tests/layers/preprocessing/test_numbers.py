"""Normalization, Discretization and CategoryEncoding, beside Keras' layers."""

import keras
import numpy as np
import pytest
from tests.layers.check_layer import check_layer

from exburn import layers as L
from exburn.data import ArrayDataset, PyDataset, StreamDataset
from exburn.errors import ArgumentError, DataError, NotBuiltError, ShapeError

rng = np.random.default_rng(0)
FLAT = rng.normal(3, 2, (4, 6)).astype("float32")
SEQUENCE = rng.normal(-1, 4, (4, 8, 3)).astype("float32")


def adapted(layer, data):
    layer.adapt(data)
    return layer


# ------------------------------------------------------------------ normalization
@pytest.mark.parametrize("axis", [-1, 1, (1, 2), (-1, 1), None])
@pytest.mark.parametrize("invert", [False, True])
def test_normalization_as_in_keras(axis, invert):
    ours = adapted(L.Normalization(axis, invert=invert), SEQUENCE)
    theirs = adapted(keras.layers.Normalization(axis, invert=invert), SEQUENCE)
    np.testing.assert_allclose(ours(SEQUENCE), theirs(SEQUENCE), atol=1e-5)
    for a, b in zip(ours.weights, theirs.weights, strict=True):
        assert a.shape == b.shape and a.name == b.name
    assert ours.mean.shape == theirs.mean.shape and ours.variance.ndim == 3
    back = theirs(SEQUENCE) if invert else SEQUENCE  # what the statistics lead back to
    forth = SEQUENCE if invert else ours(SEQUENCE)
    np.testing.assert_allclose(
        forth * ours.variance**0.5 + ours.mean, back, rtol=1e-5, atol=1e-5
    )
    given = {"mean": 2.0, "variance": 3.0}
    ours = L.Normalization(axis and -1, invert=invert, **given)
    theirs = keras.layers.Normalization(axis and -1, invert=invert, **given)
    np.testing.assert_allclose(ours(SEQUENCE), theirs(SEQUENCE), atol=1e-6)


def test_given_statistics_of_several_axes():
    mean, variance = np.arange(24.0).reshape(8, 3), np.arange(1.0, 25).reshape(8, 3)
    options = {"axis": (1, 2), "mean": mean, "variance": variance}
    expected = keras.layers.Normalization(**options)(SEQUENCE)
    layer = L.Normalization(**options)
    np.testing.assert_allclose(layer(SEQUENCE), expected, atol=1e-5)
    copy = L.Normalization.from_config(layer.get_config())
    np.testing.assert_array_equal(copy(SEQUENCE), layer(SEQUENCE))
    np.testing.assert_allclose(layer.mean, mean[None])


class Batches(PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, i):
        return STREAM[i], np.zeros(len(STREAM[i]))


VALUES = (1e4 + rng.normal(size=(1000, 3)) * [0.1, 1, 10]).astype("float32")
STREAM = [VALUES[:700], VALUES[700:701], VALUES[701:]]


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


# ------------------------------------------------------------------ discretization
@pytest.mark.parametrize("mode", ["int", "one_hot", "multi_hot", "count"])
@pytest.mark.parametrize("x", [FLAT, FLAT[:, :1], FLAT[0]], ids=["2d", "column", "1d"])
def test_discretization_as_in_keras(mode, x):
    cuts = [0.0, 2.0, 3.5]
    ours = L.Discretization(cuts, output_mode=mode)
    theirs = keras.layers.Discretization(cuts, output_mode=mode)
    y = np.asarray(theirs(x))
    np.testing.assert_array_equal(ours(x), y)
    assert ours(x).dtype == y.dtype


def test_values_on_a_boundary_belong_above():
    assert L.Discretization([0.0, 1.0])(np.array([0.0, 1.0, -0.1])).tolist() == [
        1,
        2,
        0,
    ]
    integers = L.Discretization([2024.0], dtype="bfloat16")
    assert integers(np.array([2023, 2024])).tolist() == [0, 1]


@pytest.mark.parametrize("bins", [1, 2, 5, 10])
def test_bins_hold_the_same_share_of_the_data(bins):
    data = rng.normal(size=1000).astype("float32")
    layer = L.Discretization(num_bins=bins)
    layer.adapt([data[:313], data[313:]])
    assert len(layer.bin_boundaries) == bins - 1
    counts = np.bincount(layer(data), minlength=bins)
    assert np.abs(counts - 1000 / bins).max() <= 1
    copy = L.Discretization.from_config(layer.get_config())
    assert copy.bin_boundaries == layer.bin_boundaries and copy.num_bins == bins
    copy.adapt(data + 1)
    assert bins == 1 or copy.bin_boundaries != layer.bin_boundaries


def test_quantiles_are_those_that_keras_approximates():
    from keras.src.layers.preprocessing import discretization as theirs

    data = rng.normal(size=60).astype("float32")  # so few that Keras is exact as well
    summary = theirs.summarize(data, 0.01)
    layer = L.Discretization(num_bins=7)
    layer.adapt(data)
    np.testing.assert_allclose(
        layer.bin_boundaries, theirs.get_bin_boundaries(summary, 7), rtol=1e-5
    )


def test_discretization_contract_and_errors():
    check_layer(
        lambda **o: L.Discretization([0.0, 1.0], output_mode="one_hot", **o),
        FLAT,
        differentiable=False,
    )
    for wrong in ({}, {"bin_boundaries": [1.0], "num_bins": 2}):
        with pytest.raises(ArgumentError):
            L.Discretization(**wrong)
    with pytest.raises(ArgumentError, match="ascend"):
        L.Discretization([1.0, 0.0])
    with pytest.raises(ArgumentError, match="given"):
        L.Discretization([1.0]).adapt(FLAT)
    with pytest.raises(ArgumentError, match="output_mode"):
        L.Discretization([1.0], output_mode="two_hot")
    with pytest.raises(NotBuiltError, match="adapt"):
        L.Discretization(num_bins=3)(FLAT)


# ------------------------------------------------------------------ categories
@pytest.mark.parametrize("mode", ["one_hot", "multi_hot", "count"])
@pytest.mark.parametrize("shape", [(5,), (4, 1), (4, 3)], ids=str)
def test_categories_as_in_keras(mode, shape):
    x = rng.integers(0, 6, shape)
    theirs = np.asarray(keras.layers.CategoryEncoding(6, mode)(x))
    ours = L.CategoryEncoding(6, mode)(x)
    np.testing.assert_array_equal(ours, theirs)
    assert ours.dtype == theirs.dtype


def test_count_weights():
    x, weights = [[0, 1], [0, 0], [1, 2]], [[0.1, 0.2], [0.1, 0.1], [0.2, 0.3]]
    theirs = keras.layers.CategoryEncoding(4, "count")(
        x, count_weights=np.array(weights)
    )
    ours = L.CategoryEncoding(4, "count")
    np.testing.assert_allclose(ours(x, count_weights=weights), theirs, rtol=1e-6)
    with pytest.raises(ArgumentError, match="count"):
        L.CategoryEncoding(4)(x, count_weights=weights)


def test_categories_contract_and_errors():
    check_layer(
        lambda **o: L.CategoryEncoding(6, **o),
        rng.integers(0, 6, (4, 3)),
        differentiable=False,
    )
    with pytest.raises(DataError, match="position"):
        L.CategoryEncoding(3)([[0, 3]])
    with pytest.raises(DataError, match="-1"):
        L.CategoryEncoding(3)([[0, -1]])
    for wrong in ({}, {"num_tokens": 0}, {"num_tokens": 3, "sparse": True}):
        with pytest.raises(ArgumentError):
            L.CategoryEncoding(**wrong)
