"""Tests of ``exburn.layers.contract.adapting``."""

import numpy as np
import pytest
from tests.layers.preprocessing.trained import compiled

import exburn
from exburn import layers as L
from exburn.errors import DTypeError


def test_adapting_again_is_seen_without_a_new_trace():
    normalize = L.Normalization()
    normalize.adapt(np.zeros((3, 2)) + [[0.0], [1.0], [2.0]])
    model = compiled([exburn.Input((2,)), normalize])
    x = np.ones((4, 2), "float32")
    assert np.abs(model.predict(x, verbose=0)).max() < 1e-6
    normalize.adapt(np.array([[1.0, 1.0], [3.0, 3.0]]))
    np.testing.assert_allclose(model.predict(x, verbose=0), -1, rtol=1e-6)
    assert model.trace_counts["predict"] == 1


# A layer, the column that it learns from and is called on.
FROM_FRAMES = {
    "StringLookup": (lambda: L.StringLookup(), "town"),
    "IntegerLookup": (lambda: L.IntegerLookup(), "age"),
    "TextVectorization": (lambda: L.TextVectorization(), "town"),
    "Normalization": (lambda: L.Normalization(axis=None), "age"),
    "Discretization": (lambda: L.Discretization(num_bins=2), "age"),
    "Hashing": (lambda: L.Hashing(3), "town"),
    "Rescaling": (lambda: L.Rescaling(2.0), "age"),
}


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("case", FROM_FRAMES)
def test_layers_take_columns_and_frames(case, library):
    package = pytest.importorskip(library)
    make, name = FROM_FRAMES[case]
    columns = {"town": ["Delft", "Ghent", "Delft"], "age": [2, 4, 9]}
    frame = (package.table if library == "pyarrow" else package.DataFrame)(columns)
    results = []
    for data in (np.array(columns[name], object if name == "town" else None),
                 frame[name]):  # fmt: skip
        layer = make()
        if hasattr(layer, "adapt"):
            layer.adapt(data)
        results.append(np.asarray(layer(data)))
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_frame_is_all_of_its_columns(library):
    package = pytest.importorskip(library)
    columns = {"a": [1.0, 2.0], "b": [3, 5]}
    frame = (package.table if library == "pyarrow" else package.DataFrame)(columns)
    array = np.array([[1.0, 3], [2, 5]], np.float32)
    ours, theirs = L.Normalization(), L.Normalization()
    ours.adapt(frame)
    theirs.adapt(array)
    np.testing.assert_array_equal(ours(frame), theirs(array))
    dense = L.Dense(2)
    np.testing.assert_array_equal(dense(frame), dense(array))
    gap = (package.table if library == "pyarrow" else package.DataFrame)(
        {"a": [1.0, None], "b": ["x", "y"]}
    )
    for use in (ours.adapt, dense):
        with pytest.raises(DTypeError, match="2 columns|'b'.*holds strings"):
            use(gap)
