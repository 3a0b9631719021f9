"""Layers inside the functions of ``tf.data``."""

import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from tests.core import small_tensorflow
from tests.core.small_tensorflow import GraphTensor

import exburn
from exburn import errors, layers, utils

IMAGES = np.random.default_rng(0).random((4, 8, 6, 3), dtype=np.float32)
WORDS = np.array([[b"a"], [b"c"], [b"b"], [b"a"]], object)


def text_layer(**options):
    layer = layers.TextVectorization(**options)
    layer.adapt(["the cat", "a dog sat"])
    return layer


def feature_space():
    space = utils.FeatureSpace(
        {"n": utils.FeatureSpace.float(), "w": utils.FeatureSpace.string_categorical()},
        output_mode="concat",
    )
    space.adapt({"n": np.ones((4, 1), "float32"), "w": np.array([["a"]] * 4)})
    return space


#: Layers, the arrays that they are mapped over, and the shape that the graph is told.
CASES = {
    "resizing": (lambda: layers.Resizing(4, 5), IMAGES, (None, 4, 5, 3)),
    "flip": (lambda: layers.RandomFlip(seed=1), IMAGES, (None, 8, 6, 3)),
    "contrast": (layers.AutoContrast, IMAGES, (None, 8, 6, 3)),
    "rescaling": (lambda: layers.Rescaling(2.0), IMAGES, (None, 8, 6, 3)),
    "pipeline": (
        lambda: layers.Pipeline([layers.CenterCrop(4, 4), layers.RandomFlip()]),
        IMAGES,
        (None, 4, 4, 3),
    ),
    "stack": (
        lambda: exburn.Sequential([layers.Resizing(4, 4), layers.Rescaling(2.0)]),
        IMAGES,
        (None, 4, 4, 3),
    ),
    "lookup": (lambda: layers.StringLookup(vocabulary=["a", "b"]), WORDS, (None, 1)),
    "strict lookup": (
        lambda: layers.IntegerLookup(vocabulary=[7, 8], num_oov_indices=0),
        np.array([7, 8, 7]),
        (None,),
    ),
    "back to words": (
        lambda: layers.StringLookup(vocabulary=["a", "b"], invert=True),
        np.array([1, 2]),
        (None,),
    ),
    "encoding": (lambda: layers.CategoryEncoding(3), np.array([[1], [2]]), (None, 3)),
    "hashing": (lambda: layers.Hashing(7), WORDS, (None, 1)),
    "bins": (lambda: layers.Discretization([0.5]), IMAGES, (None, 8, 6, 3)),
    "texts": (text_layer, WORDS[:, 0], (None, None)),
    "texts of a length": (
        lambda: text_layer(output_sequence_length=5),
        WORDS[:, 0],
        (None, 5),
    ),
    "features": (
        feature_space,
        {"n": np.ones((4, 1), "float32"), "w": WORDS},
        (None, 3),
    ),
}


@pytest.fixture
def tensorflow(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", small_tensorflow.module())


def as_graph(data, batched=True):
    """Tensors of a graph like arrays, of an unknown number of rows."""
    return jax.tree.map(
        lambda x: GraphTensor((None if batched else len(x), *x.shape[1:]), x.dtype),
        data,
    )


def eager(layer, data):
    texts = jax.tree.map(
        lambda x: np.vectorize(bytes.decode)(x) if x.dtype == object else x, data
    )
    return np.asarray(layer(texts))


@pytest.mark.parametrize("name", CASES)
def test_a_layer_becomes_a_node_of_the_graph(tensorflow, name):
    make, data, shape = CASES[name]
    layer = make()
    node = layer(as_graph(data))
    assert tuple(node.shape) == shape
    found = node.function(jax.tree.leaves(data))
    expected = eager(layer, data)
    if found.dtype == object:
        expected = np.vectorize(str.encode, otypes=[object])(expected)
    assert found.shape == expected.shape
    if name not in ("flip", "pipeline"):  # which draw
        np.testing.assert_array_equal(found, expected)


def test_dictionaries_keep_their_parts(tensorflow):
    data = {"images": IMAGES, "labels": np.eye(4, dtype="float32")}
    nodes = layers.MixUp(seed=1)(as_graph(data))
    assert set(nodes) == {"images", "labels"}
    assert tuple(nodes["labels"].shape) == (None, 4)
    labels = nodes["labels"].function(jax.tree.leaves(data))
    np.testing.assert_allclose(labels.sum(-1), 1, rtol=1e-5)


def test_known_sizes_stay_and_nothing_is_drawn_by_the_trials(tensorflow):
    exburn.utils.set_random_seed(3)
    node = layers.RandomFlip()(as_graph(IMAGES, batched=False))
    assert tuple(node.shape) == IMAGES.shape
    first = exburn.random.uniform((2,))
    exburn.utils.set_random_seed(3)
    np.testing.assert_array_equal(first, exburn.random.uniform((2,)))


def test_tensors_that_are_not_dense_are_refused(tensorflow):
    ragged = GraphTensor((None, None), "int64")
    ragged.to_tensor = lambda: None
    with pytest.raises(errors.DTypeError, match="to_tensor"):
        layers.CategoryEncoding(3)(ragged)
    with pytest.raises(errors.ArgumentError, match="set_shape"):
        layers.Rescaling(2.0)(GraphTensor(None, "float32"))


def test_an_error_of_the_layer_is_told(tensorflow):
    with pytest.raises(errors.ShapeError, match="rank"):
        layers.Resizing(4, 4)(GraphTensor((None, 3), "float32"))


SCRIPT = """
import sys, numpy as np
sys.path.append({packages!r})
import tensorflow as tf
from exburn.utils import Stream
from tests.core.test_tensorflow_graphs import CASES, eager
for name, (make, data, shape) in CASES.items():
    layer = make()
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(2).map(layer)
    assert tuple(dataset.element_spec.shape) == shape, (name, dataset.element_spec)
    parts = [np.asarray(x) for x in dataset]
    if name not in ("flip", "pipeline", "texts", "back to words"):
        found = np.concatenate(parts)
        np.testing.assert_allclose(found, eager(layer, data), rtol=1e-6)
numbers, labels = np.arange(6.0, dtype="float32"), np.arange(6)
stream = Stream(lambda epoch: iter(numbers), 6)
dataset = tf.data.Dataset.from_tensor_slices(labels)
try:
    tf.data.Dataset.zip((stream, dataset))
except TypeError as error:
    assert "tf.data.Dataset" in str(error), error
else:
    raise AssertionError("it takes streams now: say so in docs/from_keras/")
pairs = list(Stream.zip(stream, dataset))
made = tf.data.Dataset.from_generator(
    lambda: iter(stream), output_signature=tf.TensorSpec((), tf.float32)
)
for own in (pairs, tf.data.Dataset.zip((made, dataset))):
    assert [(float(a), int(b)) for a, b in own] == [(n, n) for n in range(6)], own
print("as expected")
"""


def test_with_tensorflow(tmp_path):
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(tmp_path)]
    subprocess.run([*pip, "tensorflow-cpu"], check=True, timeout=900)
    for package in ("numpy", "ml_dtypes", "h5py"):  # ours come first
        assert (tmp_path / package).exists()
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT.format(packages=str(tmp_path))],
        env={"PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.stdout.strip().endswith("as expected"), run.stderr[-2000:]
