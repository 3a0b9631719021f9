"""What ``model.export`` refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError, FileFormatError, UnknownNameError

X = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def model():
    model = exburn.Sequential(
        [
            exburn.Input((4,)),
            layers.Dense(8, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(seed=0)
    return model


def test_what_export_refuses(model, tmp_path):
    pytest.importorskip("flatbuffers")
    with pytest.raises(UnknownNameError, match="stablehlo"):
        model.export(tmp_path / "model", format="tf_saved_model")
    with pytest.raises(ArgumentError, match="does not tell the format"):
        model.export(tmp_path / "model.bin")
    with pytest.raises(ArgumentError, match="no option 'platforms'"):
        model.export(tmp_path / "model.onnx", platforms=["cpu"])
    with pytest.raises(ArgumentError, match="dynamic must be"):
        model.export(tmp_path / "model.onnx", dynamic="time")
    (tmp_path / "bad.stablehlo").write_bytes(b"no program")
    with pytest.raises(FileFormatError, match=r"jax\.export"):
        exburn.predict(tmp_path / "bad.stablehlo", X)
    two = jax.export.export(jax.jit(jnp.add))(X, X)
    with pytest.raises(ArgumentError, match="other arguments"):
        exburn.predict(two, X)
