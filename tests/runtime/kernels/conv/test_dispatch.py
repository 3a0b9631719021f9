"""Tests of ``exburn.runtime.kernels.conv.dispatch``."""

import jax
import numpy as np
import pytest
from tests.runtime.kernels.conv.on_cpu import uses_xla

import exburn

pytestmark = pytest.mark.skipif(
    jax.default_backend() != "cpu", reason="they are for processors"
)


def test_a_program_for_other_platforms_keeps_the_convolutions(tmp_path):
    point = exburn.Input((8, 8, 6))
    model = exburn.Model(point, exburn.layers.DepthwiseConv2D(3)(point))
    texts = []
    for platforms in (["cpu"], ["cpu", "cuda"]):
        path = tmp_path / f"{len(platforms)}.stablehlo"
        model.export(path, platforms=platforms)
        program = jax.export.deserialize(bytearray(path.read_bytes()))
        texts.append(program.mlir_module())
    assert ["stablehlo.convolution" in text for text in texts] == [False, True]


def test_rows_may_be_unknown_in_an_exported_program(tmp_path):
    layers = exburn.layers
    point = exburn.Input((8, 8, 6))
    h = layers.Conv2D(8, 3, groups=2, padding="same")(point)
    h = layers.Conv2D(6, 1)(layers.DepthwiseConv2D(3)(h))
    model = exburn.Model(point, layers.Conv2DTranspose(3, 3, strides=2)(h))
    model.export(tmp_path / "m.stablehlo", platforms=["cpu"])
    program = jax.export.deserialize(bytearray((tmp_path / "m.stablehlo").read_bytes()))
    x = np.random.default_rng(0).standard_normal((5, 8, 8, 6)).astype(np.float32)
    np.testing.assert_allclose(program.call(x), model.predict(x, verbose=0), atol=1e-5)


def test_sizes_may_be_open():
    point = exburn.Input((None, None, 6))
    model = exburn.Model(point, exburn.layers.DepthwiseConv2D(3)(point))
    assert model.predict(np.ones((2, 9, 7, 6)), verbose=0).shape == (2, 7, 5, 6)


def test_the_plan_tells_and_a_switch_turns_it_off():
    x = np.ones((4, 8, 8, 6), np.float32)
    for allowed in (True, False):
        if not allowed:
            exburn.config.disable_convolution_forms()
        try:
            model = exburn.Sequential([exburn.Input(x.shape[1:])])
            model.add(exburn.layers.DepthwiseConv2D(3))
            model.add(exburn.layers.GlobalAveragePooling2D())
            model.compile("sgd", "mse")
            model.fit(x, x[:, 0, 0], verbose=0)
            taken = {d.choice: d.taken for d in model.explain_plan()}["convolutions"]
            assert taken.startswith("forms" if allowed else "XLA's")
            assert uses_xla(model, x) is not allowed
        finally:
            exburn.config.enable_convolution_forms()
