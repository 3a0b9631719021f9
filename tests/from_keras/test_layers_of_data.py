"""Section "Layers" of docs/from_keras/: layers that prepare images and strings.

Keras' augmentations compile each of their operations by itself: many checks are long.
"""

import importlib.util

import jax
import numpy as np
import pytest
from tests.from_keras.page import says

import exburn

keras = pytest.importorskip("keras")
BOTH = pytest.mark.parametrize("library", [exburn, keras], ids=["exburn", "keras"])
pytestmark = pytest.mark.filterwarnings(  # Keras'
    "ignore:__array__ implementation",
    "ignore:Explicitly requested dtype int64",
)
RNG = np.random.default_rng(0)
IMAGES = RNG.uniform(50, 200, (4, 8, 8, 3)).astype("float32")
ALIKE = np.repeat(IMAGES[:1], 6, 0)
WORDS = np.array([["a"], ["b"], ["z"]])
NO_TENSORFLOW = importlib.util.find_spec("tensorflow") is None


def needs_tensorflow(make):
    """What Keras' layers of strings say without TensorFlow."""
    if NO_TENSORFLOW:
        with pytest.raises(ImportError, match=r"(?i)tensorflow"):
            make(keras)


def versions(images):
    """How many different images there are."""
    rows = np.asarray(images).reshape(len(images), -1)
    return len(np.unique(rows.round(3), axis=0))


# -------------------------------------------------------------------------- images
@says("Image layers that are random give floats at inference")
@BOTH
def test_images_at_inference(library):
    ours, whole = library is exburn, IMAGES.astype("uint8")
    for layer in (library.layers.RandomContrast(0.1), library.layers.RandomHue(0.1)):
        kind = layer(whole, training=False).dtype
        assert kind == ("float32" if ours else "uint8")
    crop = library.layers.RandomCrop(4, 4)(IMAGES, training=False)
    if ours:
        np.testing.assert_allclose(crop, exburn.ops.image.resize(IMAGES, (4, 4)))
    else:
        np.testing.assert_array_equal(crop, IMAGES)


@says("`Equalization` works at inference, too")
@BOTH
def test_equalization(library):
    layer, two = library.layers.Equalization(bins=8), IMAGES[:2]
    together = np.asarray(layer(two, training=True))
    ours = library is exburn
    assert np.allclose(together[:1], layer(two[:1], training=True)) == ours
    assert np.array_equal(layer(two, training=False), two) == (not ours)


@says("Normalizations of integers give floats, not rounded ones")
@BOTH
def test_normalizations_of_integers(library):
    y = library.layers.RMSNormalization()(np.array([[1, 2, 3, 4]]))
    assert (y.dtype == "float32") == (library is exburn)
    y = np.asarray(library.layers.LayerNormalization()(np.array([[1, 2, 3, 4]])))
    assert np.array_equal(y, y.round()) == (library is keras)


@says("Means of windows of 8-bit integers do not overflow")
@BOTH
def test_means_of_bytes(library):
    bright = np.full((1, 4, 4, 1), 200, "uint8")
    mean = np.asarray(library.layers.AveragePooling2D(2)(bright))
    assert np.all(mean == (200 if library is exburn else 800 % 256 / 4))


@says("Augmentations draw per image")
@BOTH
def test_what_is_drawn_for_each_image(library):
    layers, ours = library.layers, library is exburn
    library.utils.set_random_seed(0)
    crops = layers.RandomCrop(4, 4)(ALIKE, training=True)
    assert (versions(crops) > 1) == ours
    blur = layers.RandomGaussianBlur(factor=(1.0, 1.0), kernel_size=3, sigma=(0.3, 1))
    assert (versions(blur(ALIKE, training=True)) > 2) == ours
    if not ours:  # one scale, one order of operations, one alpha for all
        data = {"images": ALIKE, "labels": np.eye(6)}
        elastic = layers.RandomElasticTransform(1.0, (0.1, 0.9))
        drawn = elastic.get_random_transformation(data, training=True)
        assert drawn["distortion_factor"].size == 1
        drawn = layers.RandAugment(num_ops=2).get_random_transformation(data)
        assert drawn["layer_idxes"].shape == (2,)


@says("RandomFlip decides each axis separately")
@BOTH
def test_flips_along_two_axes(library):
    corner = np.zeros((64, 2, 2, 1), "float32")
    corner[:, 0, 0] = 1
    library.utils.set_random_seed(0)
    turned = np.asarray(library.layers.RandomFlip()(corner, training=True))
    assert versions(turned) == (4 if library is exburn else 2)


@says("RandomContrast, RandomSaturation, RandomShear and RandomPosterization")
@BOTH
def test_what_keras_documents(library):
    layers, ours = library.layers, library is exburn
    library.utils.set_random_seed(0)
    many = np.repeat(ALIKE, 4, 0)
    contrast = np.asarray(layers.RandomContrast(0.5)(many, training=True))
    spread = contrast.std((1, 2)) / many.std((1, 2))
    assert (spread.min() < 0.9) == ours and spread.max() > 1.1
    full = layers.RandomSaturation((1.0, 1.0), value_range=(0, 255))
    colours = np.asarray(full(ALIKE, training=True))
    assert (colours.min() >= -1e-3) == ours
    assert tuple(layers.RandomShear(0.3).x_factor) == (0.0 if ours else -0.3, 0.3)
    values = np.unique(layers.RandomPosterization(3)(ALIKE, training=True))
    assert set(values) <= set(range(0, 256, 32))
    assert (96 in values) == ours  # Keras keeps two bits of three


@says("MixUp and CutMix need one-hot labels")
@BOTH
def test_labels_of_mixtures(library):
    data = {"images": IMAGES, "labels": np.arange(4)}
    for layer in (library.layers.MixUp(), library.layers.CutMix()):
        if library is exburn:
            with pytest.raises(exburn.errors.DTypeError, match="one-hot"):
                layer(data, training=True)
        else:
            assert layer(data, training=True)["labels"].shape == (4, 4)


@says("An eager call of a model with augmentations in it augments")
@BOTH
def test_an_eager_call_augments(library):
    layer = library.layers.RandomRotation(0.3)
    model = library.Sequential([library.Input((8, 8, 3)), layer])
    assert not np.allclose(model(IMAGES), IMAGES)
    np.testing.assert_allclose(model(IMAGES, training=False), IMAGES, atol=1e-3)


# ------------------------------------------------------------------ bounding boxes
def convert(boxes, source, target, height, width):
    function = keras.utils.bounding_boxes.convert_format
    return np.array(function(np.array(boxes), source, target, height, width))


def scene(form="xyxy", size=(24, 48), box=(20, 8, 30, 16), n=2):
    """Dark images with a bright box, and where it is."""
    images = np.zeros((n, *size, 3), "float32")
    left, top, right, bottom = box
    images[:, top:bottom, left:right] = 1
    boxes = convert(np.tile(np.float32(box), (n, 1, 1)), "xyxy", form, *size)
    labels = np.arange(n, dtype="int32")[:, None]
    return {"images": images, "bounding_boxes": {"boxes": boxes, "labels": labels}}


def gap(layer, form="xyxy", **where):
    """How far boxes are from what they hold, in pixels."""
    out = layer(scene(form, **where), training=True)
    images = np.asarray(out["images"])[..., 0]
    boxes = out["bounding_boxes"]["boxes"]
    boxes = convert(boxes, form, "xyxy", *images.shape[1:])
    gaps = []
    for image, (box,) in zip(images, boxes, strict=True):
        rows, columns = np.nonzero(image > 0.3)
        tight = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        gaps.append(np.abs(box - tight).max())
    return max(gaps)


@says("Bounding boxes follow what they hold, in every format")
@pytest.mark.parametrize(
    "name, args, form, where, close",
    [
        ("RandomCrop", (40, 60), "xyxy", {}, False),
        ("RandomRotation", ((0.05, 0.05),), "rel_xywh", {}, False),
        ("RandomPerspective", ((1.0, 1.0), 0.3), "rel_xywh", {}, False),
        ("RandomShear", ((0.3, 0.3),), "xyxy", {}, False),
        (
            "RandomShear",
            ((0.3, 0.3),),
            "xyxy",
            {"size": (36, 36), "box": (14, 14, 22, 20)},
            True,
        ),
    ],
)
def test_boxes_follow(name, args, form, where, close):
    """``close``: whether Keras' boxes are where they should be."""
    found = []
    for library in (exburn, keras):
        library.utils.set_random_seed(3)
        fill = {"fill_mode": "constant"} if name[6] in "RS" else {}
        layer = getattr(library.layers, name)(*args, bounding_box_format=form, **fill)
        found.append(gap(layer, form, **where))
    assert found[0] < 1 and (found[1] < 1) == close


@says("`RandAugment` moves bounding boxes in the order of its operations")
def test_the_order_of_operations():
    layer = keras.layers.RandAugment(num_ops=2, bounding_box_format="xyxy")
    drawn = layer.get_random_transformation(scene())
    names = list(drawn["transforms"])
    pair = [names.index(f"random_{name}") for name in ("translation", "rotation")]
    results = []
    for order in (pair, pair[::-1]):
        chosen = {**drawn, "layer_idxes": np.array(order)}
        images = layer.transform_images(scene()["images"], chosen)
        boxes = layer.transform_bounding_boxes(scene()["bounding_boxes"], chosen)
        results.append((np.asarray(images), np.asarray(boxes["boxes"])))
    (first, box), (second, other) = results
    assert not np.allclose(first, second) and np.array_equal(box, other)


@says("`RandAugment` moves bounding boxes in the order of its operations")
def test_boxes_after_several_operations():
    layer = exburn.layers.RandAugment(num_ops=3, factor=0.1, bounding_box_format="xyxy")
    data = scene(size=(60, 90), box=(35, 20, 55, 35), n=6)
    data["segmentation_masks"] = data["images"][..., :1]  # where images went
    out = layer(data, training=True)
    for mask, (box,) in zip(
        np.asarray(out["segmentation_masks"])[..., 0],
        np.asarray(out["bounding_boxes"]["boxes"]),
        strict=True,
    ):
        rows, columns = np.nonzero(mask > 0.3)
        tight = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        assert np.abs(box - tight).max() < 14  # upright boxes around turned ones


@says("`RandomFlip` cuts bounding boxes off at all edges")
@BOTH
def test_boxes_beyond_the_edges(library):
    data = scene()
    data["bounding_boxes"]["boxes"][:] = [-4, -4, 60, 60]
    layer = library.layers.RandomFlip("vertical", bounding_box_format="xyxy")
    boxes = np.asarray(layer(data, training=True)["bounding_boxes"]["boxes"])
    assert boxes.min() == 0
    assert (boxes[..., 2].max() == 48) == (library is exburn)


@says("`MixUp` joins the labels of bounding boxes along the boxes")
@BOTH
def test_boxes_of_mixtures(library):
    layer = library.layers.MixUp(bounding_box_format="xyxy")
    data = {**scene(n=4), "labels": np.eye(4, dtype="float32")}
    both = layer(data, training=True)["bounding_boxes"]
    shapes = both["boxes"].shape, both["labels"].shape
    assert shapes == ((4, 2, 4), (4, 2) if library is exburn else (8, 1))


@says("`MaxNumBoundingBoxes` needs no `bounding_box_format`")
def test_numbers_of_boxes():
    out = exburn.layers.MaxNumBoundingBoxes(3)(scene())["bounding_boxes"]
    assert out["boxes"].shape == (2, 3, 4)
    with pytest.raises(ValueError, match="format"):
        keras.layers.MaxNumBoundingBoxes(3)(scene())


@says("`RandomElasticTransform` and `CutMix` refuse bounding boxes")
@pytest.mark.parametrize("name", ["RandomElasticTransform", "CutMix"])
def test_boxes_that_cannot_follow(name):
    data = {**scene(), "labels": np.eye(2, dtype="float32")}
    for library, error in (
        (exburn, exburn.errors.ArgumentError),
        (keras, NotImplementedError),
    ):
        with pytest.raises(error):
            layer = getattr(library.layers, name)(bounding_box_format="xyxy")
            layer(data, training=True)


@says("A dictionary of images has no entries of other names")
def test_other_entries():
    data = {"images": IMAGES, "extra": np.ones(4)}
    assert "extra" in keras.layers.RandomFlip()(data, training=True)
    with pytest.raises(exburn.errors.ArgumentError, match="extra"):
        exburn.layers.RandomFlip()(data, training=True)


@says("`utils.bounding_boxes.compute_ciou` takes relative boxes")
def test_overlaps_of_relative_boxes():
    a, b = np.float32([[[0, 0, 0.5, 0.5]], [[0, 0, 0.5, 0.6]]])
    size = (10, 20)
    given = {"bounding_box_format": "rel_xyxy", "image_shape": (*size, 3)}
    found = exburn.utils.bounding_boxes.compute_ciou(a, b, **given)
    a, b = (convert(boxes, "rel_xyxy", "xyxy", *size) for boxes in (a, b))
    wanted = keras.utils.bounding_boxes.compute_ciou(a, b, "xyxy")
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    with pytest.raises(ValueError, match="image_shape"):
        keras.utils.bounding_boxes.compute_ciou(a, b, **given)


# ------------------------------------------------------------- strings and columns
def lookup(library, **options):
    return library.layers.StringLookup(vocabulary=["a", "b"], **options)


@says("Lookups of strings and `TextVectorization` run on the host")
def test_where_lookups_stand():
    layers = exburn.layers
    word = exburn.Input((1,), dtype="string")
    found = exburn.Model(word, layers.Embedding(4, 2)(lookup(exburn)(word)))
    assert found.predict(WORDS, verbose=0).shape == (3, 1, 2)
    text = layers.TextVectorization(vocabulary=["a", "b"], output_sequence_length=2)
    begun = exburn.Sequential([text, layers.Embedding(5, 2)])
    assert begun.predict(WORDS, verbose=0).shape == (3, 2, 2)
    x = exburn.Input((1,))
    with pytest.raises(exburn.errors.GraphError, match="has weights"):
        exburn.Model(x, layers.Hashing(3)(layers.Dense(1)(x)))

    class Inside(exburn.Model):
        def __init__(self):
            super().__init__()
            self.words, self.table = lookup(exburn), layers.Embedding(4, 2)

        def call(self, x):
            return self.table(self.words(x))

    with pytest.raises(exburn.errors.DTypeError, match="in front"):
        Inside()(WORDS)
    needs_tensorflow(lookup)


@says("A `train_step` of your own gets the numbers of its strings")
def test_strings_in_steps_and_outputs():
    seen = []

    class Net(exburn.Model):
        def train_step(self, state, data):
            seen.append(data[0])
            return super().train_step(state, data)

    word = exburn.Input((1,), dtype="string")
    numbers = lookup(exburn, name="words")(word)
    net = Net(word, exburn.layers.Embedding(4, 1)(numbers)[:, 0])
    net.compile("sgd", "mse")
    net.fit(WORDS, np.ones((3, 1)), verbose=0)
    assert seen[0].keys() == {"words"} and seen[0]["words"].dtype == "int32"
    number = exburn.Input((1,), dtype="int32")
    with pytest.raises(exburn.errors.GraphError, match="output"):
        exburn.Model(number, lookup(exburn, invert=True)(number))


@says("`Hashing` gives Keras' buckets")
def test_buckets():
    """Beside what Keras' documentation shows."""
    layers, given = exburn.layers, np.array([["A"], ["B"], ["C"], ["D"], ["E"]])
    plain = layers.Hashing(3)(given)
    assert plain[:, 0].tolist() == [1, 0, 1, 1, 2] and plain.dtype == "int32"
    salted = layers.Hashing(3, salt=[133, 137])(given)
    assert salted[:, 0].tolist() == [1, 2, 1, 0, 2]
    words = layers.StringLookup(vocabulary=["a", "b", "c", "d"], num_oov_indices=2)
    found = words(np.array([["a", "c", "d"], ["m", "z", "b"]]))
    assert found.tolist() == [[2, 4, 5], [0, 1, 3]]
    needs_tensorflow(lambda library: library.layers.Hashing(3)(given))


@says("`Discretization` has exact quantiles")
def test_quantiles():
    data = np.arange(1000.0) ** 2
    layer = exburn.layers.Discretization(num_bins=4)
    layer.adapt(data)
    wanted = np.quantile(data, [0.25, 0.5, 0.75], method="inverted_cdf")
    np.testing.assert_array_equal(layer.bin_boundaries, wanted)
    needs_tensorflow(lambda lib: lib.layers.Discretization(num_bins=4).adapt(data))


@says("Of samples with several axes `multi_hot` and `count`")
@BOTH
def test_encodings_of_several_axes(library):
    ids = np.array([[[0, 1, 2], [3, 4, 0]]])
    layer = library.layers.CategoryEncoding(5, output_mode="count")
    found = np.asarray(layer(ids)).tolist()
    joined = [[0, 3], [1, 4], [2, 0]] if library is keras else ids[0]
    assert found == [[[float(i in row) for i in range(5)] for row in joined]]


@says("`utils.FeatureSpace` needs no TensorFlow")
def test_columns_of_tables():
    kinds = exburn.utils.FeatureSpace
    table = {"x": np.array([1.0, 2.0, 3.0]), "c": np.array(["a", "b", "b"])}
    halves = [jax.tree.map(lambda v, s=s: v[s], table) for s in (slice(2), slice(2, 3))]

    def space(data):
        features = {"x": kinds.float_normalized(), "c": kinds.string_categorical()}
        made = kinds(features=features)
        made.adapt(data)
        return made

    wider = {**table, "more": [1, 2, 3]}
    results = [space(data)(table) for data in (table, halves, wider)]
    assert all(isinstance(found, np.ndarray) for found in results)
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-5)
    with pytest.raises(exburn.errors.DataError, match="more"):
        space(table)(wider)
    theirs = keras.utils.FeatureSpace
    needs_tensorflow(lambda _: theirs(features={"c": theirs.string_categorical()}))
