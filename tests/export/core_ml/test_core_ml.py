"""Core ML packages, written on Linux and computed there by their definitions."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ExportError

X = np.random.default_rng(0).standard_normal((3, 8, 8, 3)).astype(np.float32)


@pytest.fixture
def core_ml():
    for package in ("coremltools", "stablehlo_coreml"):
        pytest.importorskip(package)


def test_a_package_has_the_model_s_names(tmp_path, core_ml):
    import coremltools

    model = exburn.Sequential(
        [
            exburn.Input((8, 8, 3), name="image"),
            layers.Conv2D(8, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(4, activation="softmax", name="kind"),
        ]
    )
    path = tmp_path / "m.mlpackage"
    report = model.export(path, samples=X)
    assert report.format == "coreml"
    assert report.error < 1e-5
    assert "not Core ML" in report.checked
    spec = coremltools.models.MLModel(str(path), skip_model_load=True).get_spec()
    (entry,), (output,) = spec.description.input, spec.description.output
    assert entry.name == "image"
    assert list(entry.type.multiArrayType.shape) == [1, 8, 8, 3]
    assert output.name == "kind"


def test_an_operation_that_cannot_be_expressed_names_its_layer(tmp_path, core_ml):
    spectrum = layers.Lambda(lambda x: exburn.ops.fft((x, x * 0))[0], name="spectrum")
    model = exburn.Sequential([exburn.Input((8,)), layers.Dense(8), spectrum])
    with pytest.raises(ExportError) as caught:
        model.export(tmp_path / "m.mlpackage")
    assert caught.value.layer == "spectrum"
    assert caught.value.primitive == "complex"
    assert not list(tmp_path.iterdir())
