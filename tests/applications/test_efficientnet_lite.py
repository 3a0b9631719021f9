"""EfficientNet-Lite: sizes, names, padding. Its outputs: ``test_real_packages.py``."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from exburn import applications
from exburn.applications import EfficientNetLite, EfficientNetLite0
from exburn.errors import ArgumentError

TINY = {"width": 0.25, "depth": 0.3, "size": 32, "classes": 3}


def test_numbers_of_weights_are_those_of_timm():
    # timm 1.0: efficientnet_lite0 to 4 with all buffers but num_batches_tracked
    model = EfficientNetLite0()
    assert sum(w.numpy().size for w in model.trainable_weights) == 4_652_008
    assert model.input_shape == (None, None, None, 3)


@pytest.fixture(scope="module")
def model():
    return EfficientNetLite(**TINY)


def test_a_folder_is_written_as_it_was_read(model, tmp_path):
    model.save_pretrained(tmp_path)
    found = load_file(tmp_path / "model.safetensors")
    assert found["conv_stem.weight"].shape == (32, 3, 3, 3)
    assert found["blocks.1.0.conv_dw.weight"].shape[1:] == (1, 3, 3)
    assert found["classifier.weight"].shape == (3, 1280)
    again = EfficientNetLite.from_pretrained(tmp_path)
    for one, two in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)


def test_folders_of_timm_tell_the_size(tmp_path):
    for name, size, padding in (
        ("efficientnet_lite1", 240, "symmetric"),
        ("tf_efficientnet_lite4", 300, "same"),
    ):
        config = {"architecture": name, "num_classes": 10}
        told = EfficientNetLite.arguments_of(config, tmp_path)
        assert (told["size"], told["padding"], told["classes"]) == (size, padding, 10)
        made = EfficientNetLite(**(told | {"width": 0.25, "depth": 0.3}))
        written = made.config_for("timm")
        assert written["num_classes"] == 10
        assert written["architecture"].startswith(name.rstrip("0123456789"))


def test_zeros_of_torch_and_of_tensorflow_lie_elsewhere(model):
    x = np.random.default_rng(0).normal(size=(1, 32, 32, 3)).astype("float32")
    other = EfficientNetLite(**TINY, padding="same")
    other.set_weights(model.get_weights())
    assert not np.allclose(model(x), other(x), atol=1e-6)
    with pytest.raises(ArgumentError, match="padding"):
        EfficientNetLite(**TINY, padding="valid")
    assert applications.efficientnet_lite.EfficientNetLite is EfficientNetLite
