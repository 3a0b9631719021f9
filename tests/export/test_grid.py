"""Every layer in LiteRT and Core ML: equal, or an error that names it."""

import gc

import jax
import numpy as np
import pytest
from tests.export.catalogue import CASES, draw, randomize

import exburn
from exburn.errors import ExportError

PACKAGES = {
    "tflite": ("litert_converter", "ai_edge_litert"),
    "mlpackage": ("coremltools", "stablehlo_coreml"),
}
# What these formats, or their converters, cannot express.
REFUSED: dict[str, set[str]] = {
    "tflite": {
        "op fourier",
        "op while",
        "op integers",
        "op segment sum",
        "op searchsorted",
    },
    "mlpackage": {
        "op fourier",
        "mel spectrogram",
        "op argsort",
        "op tile",
        "op integers",
    }
    | {"op extract patches", "op searchsorted", "op unfold"},
}


@pytest.mark.parametrize("suffix", PACKAGES)
@pytest.mark.parametrize("name", CASES)
def test_a_layer_in_a_file(tmp_path, name, suffix):
    for package in PACKAGES[suffix]:
        pytest.importorskip(package)
    model = randomize(CASES[name]())
    x, path = draw(model, 3), tmp_path / f"m.{suffix}"
    specs = jax.tree.leaves(model.program_inputs)
    known = all(isinstance(n, int) for spec in specs for n in spec.shape[1:])
    how = {"samples": x, "rtol": 1e-5, "batch_size": 3}
    how |= {} if known else {"dynamic": None}
    if name in REFUSED[suffix]:
        with pytest.raises(ExportError) as caught:
            model.export(path, **how)
        assert caught.value.primitive
        assert caught.value.layer is not None
        assert not list(tmp_path.iterdir())
        return
    report = model.export(path, **how)
    assert report.error is not None
    if suffix == "tflite" and known:
        found, wanted = exburn.predict(path, x), model.predict(x, verbose=0)
        found = jax.tree.leaves(found)
        for got, want in zip(found, jax.tree.leaves(wanted), strict=True):
            scale = max(1, np.abs(want).max(initial=0))
            np.testing.assert_allclose(got, want, atol=2e-5 * scale)
    jax.clear_caches()
    gc.collect()
