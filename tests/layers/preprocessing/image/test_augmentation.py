"""What holds for every random layer on images."""

import json

import jax
import numpy as np
import pytest
from tests.layers.check_layer import check_layer, pure
from tests.layers.preprocessing.cases import AUGMENTATIONS, CORRECTIONS, make
from tests.layers.preprocessing.image.some import BATCH, MIXING, augment, one

from exburn import Input, key_scope
from exburn import layers as L
from exburn.core import registry
from exburn.errors import ArgumentError, ShapeError

EVERY = [*AUGMENTATIONS, *CORRECTIONS]

IDLE = [
    L.RandomRotation(0),
    L.RandomZoom(0),
    L.RandomTranslation(0, 0),
    L.RandomShear(0, 0),
    L.RandomPerspective((1.0, 1.0), scale=0),
    L.RandomElasticTransform(0.0),
    L.RandomErasing(0.0),
    L.RandomBrightness(0),
    L.RandomContrast(0),
    L.RandomInvert(0),
    L.RandAugment(num_ops=0),
    L.RandomPosterization(8),
    L.RandomHue(0),
    L.RandomSaturation((0.5, 0.5)),
    L.RandomColorDegeneration(0),
    L.RandomGrayscale(0),
    L.RandomColorJitter(),
    L.RandomGaussianBlur(0.0),
    L.RandomSharpness((0.5, 0.5)),
    L.RandomCrop(8, 6),
]


@pytest.mark.parametrize("name", EVERY)
def test_shape_dtype_and_values(name):
    y = augment(one(name), BATCH)
    crop = name == "RandomCrop"
    assert y.shape == ((6, 5, 4, 3) if crop else BATCH.shape)
    assert y.dtype == np.float32
    assert np.isfinite(y).all()
    assert y.min() >= -1e-5 and y.max() <= 1 + 1e-5
    if not crop:
        assert not np.allclose(y, BATCH)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_every_image_has_its_own_parameters(name):
    same = np.repeat(BATCH[:1], 6, 0)
    y = augment(one(name), same)
    if name in MIXING:  # equal images mix to themselves
        np.testing.assert_allclose(y, same, atol=1e-6)
    else:
        assert len(np.unique(y.reshape(6, -1).round(4), axis=0)) > 1


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_inference_changes_nothing(name):
    x = BATCH if name != "RandomCrop" else BATCH[:, :5, :4]
    y = one(name)(x, training=False)
    np.testing.assert_allclose(y, x, atol=1e-6)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_the_key_decides(name):
    first = augment(one(name), BATCH, seed=2)
    np.testing.assert_array_equal(augment(one(name), BATCH, seed=2), first)
    assert not np.array_equal(augment(one(name), BATCH, seed=1), first)


@pytest.mark.parametrize("name", EVERY)
def test_configuration(name):
    layer = make(name, seed=5) if name in AUGMENTATIONS else make(name)
    text = json.dumps(registry.serialize(layer))
    copy = registry.deserialize(json.loads(text))
    assert type(copy) is type(layer)
    assert copy.get_config() == layer.get_config()
    plain = {k: v for k, v in vars(layer).items() if isinstance(v, float | tuple | str)}
    assert plain.items() <= vars(copy).items()


def test_the_contract_of_layers():
    # a call outside of a model augments, so the copy of `config` would differ
    def rotation(**options):
        return make("RandomRotation", **options)

    check_layer(rotation, BATCH[:4], random=True, config=False)


@pytest.mark.parametrize("name", [n for n in EVERY if n != "RandomCrop"])
def test_unknown_sizes(name):
    symbol = Input((None, None, 3))
    assert one(name)(symbol, training=True).shape == (None, None, None, 3)
    assert one(name)(symbol).dtype == "float32"


def test_nothing_happens_at_factor_zero():
    x = np.rint(BATCH * 255)

    @jax.jit
    def run(key):
        with key_scope(key):
            return [layer(x, training=True) for layer in IDLE]

    for layer, y in zip(IDLE, run(jax.random.key(0)), strict=True):
        np.testing.assert_allclose(y, x, atol=2e-3, err_msg=layer.name)


def test_labels_and_masks_follow():
    x = BATCH * 255
    labels = np.arange(6)
    masks = (x[..., :1] > 128).astype("int32")
    data = {"images": x, "labels": labels, "segmentation_masks": masks}
    y = L.RandomFlip()(data)
    np.testing.assert_array_equal(y["labels"], labels)
    np.testing.assert_array_equal(
        y["segmentation_masks"], (y["images"][..., :1] > 128).astype("int32")
    )
    assert not np.array_equal(y["segmentation_masks"], masks)
    data["segmentation_masks"] = masks[..., 0]  # without an axis of channels
    y = L.RandomRotation(0.3, interpolation="nearest")(data)
    np.testing.assert_array_equal(
        y["segmentation_masks"], (y["images"][..., 0] > 128).astype("int32")
    )
    y = L.RandomBrightness(0.3)(data)
    np.testing.assert_array_equal(y["segmentation_masks"], masks[..., 0])
    y = L.RandAugment()(data)
    assert set(np.unique(y["segmentation_masks"])) <= {0, 1}


@pytest.mark.parametrize("name", MIXING)
def test_padding_rows_take_no_part(name):
    layer = make(name)
    x = np.concatenate([np.ones((4, 6, 6, 3)), np.full((3, 6, 6, 3), np.nan)])
    rows = np.arange(7) < 4
    function, state = pure(layer, training=True, row_mask=jax.numpy.asarray(rows))
    run = jax.jit(function)
    for seed in range(5):
        y, _, _ = run(state, jax.random.key(seed), x.astype("float32"))
        np.testing.assert_allclose(y[:4], 1, rtol=1e-6)


def test_errors():
    for make_wrong in (
        lambda: L.RandomRotation("a lot"),
        lambda: L.RandomRotation(2.0),
        lambda: L.RandomZoom((0.1, 0.2, 0.3)),
        lambda: L.RandomFlip("sideways"),
        lambda: L.RandomTranslation(0.1, 0.1, fill_mode="mean"),
        lambda: L.RandomBrightness(0.1, value_range=(1, 0)),
        lambda: L.RandomPosterization(9),
        lambda: L.RandomGaussianBlur(kernel_size=4),
        lambda: L.RandomGrayscale((0.1, 0.2)),
        lambda: L.MixUp(0),
        lambda: L.RandomErasing(fill_value=(1, 2)),
        lambda: L.RandAugment(num_ops=-1),
        lambda: L.RandomZoom(-1.0),
    ):
        with pytest.raises(ArgumentError):
            make_wrong()
    with pytest.raises(ShapeError, match="rank"):
        L.RandomFlip()(np.ones((3, 3)))
    with pytest.raises(ShapeError, match="3 channels"):
        L.RandomHue(0.5)(np.ones((2, 4, 4, 1)))
    with pytest.raises(ArgumentError, match="'mask'.*\n.*segmentation_masks"):
        L.RandomFlip()({"images": BATCH, "mask": BATCH})
    with pytest.raises(ArgumentError, match="mask"):
        L.AugMix()({"images": BATCH, "segmentation_masks": BATCH[..., :1]})
