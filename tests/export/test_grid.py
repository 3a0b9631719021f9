"""Every layer in every format: equal, or an error that names it; nothing in silence."""

import gc

import jax
import numpy as np
import pytest
from tests.export.layer_models import CASES, model_of

import exburn
from exburn.errors import ExportError

PACKAGES = {
    "tflite": ("litert_converter", "ai_edge_litert"),
    "mlpackage": ("coremltools", "stablehlo_coreml"),
}
# What these formats cannot express.
REFUSED: dict[str, set[str]] = {"tflite": set(), "mlpackage": set()}


@pytest.mark.longest
@pytest.mark.parametrize("suffix", PACKAGES)
@pytest.mark.parametrize("name", CASES)
def test_a_layer_in_a_file(tmp_path, name, suffix):
    for package in PACKAGES[suffix]:
        pytest.importorskip(package)
    model, x = model_of(name)
    path = tmp_path / f"m.{suffix}"
    if name in REFUSED[suffix]:
        with pytest.raises(ExportError) as caught:
            model.export(path, samples=x)
        assert caught.value.layer
        assert caught.value.primitive
        return
    report = model.export(path, samples=x)
    assert report.error is not None
    assert report.error <= 1e-5
    if suffix == "tflite":
        found, wanted = exburn.predict(path, x), model.predict(x, verbose=0)
        np.testing.assert_allclose(
            found, wanted, atol=1e-5 * max(1, np.abs(wanted).max())
        )
    jax.clear_caches()
    gc.collect()
