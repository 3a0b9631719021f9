"""What became of each weight when a file was loaded."""

import io

import numpy as np
import pytest

import exburn as keras
from exburn import layers
from exburn.errors import FileFormatError


def model_of(units=3, seed=0, name="last"):
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(units), layers.Dense(2, name=name)]
    )
    rng = np.random.default_rng(seed)
    model.set_weights([rng.random(w.shape) for w in model.get_weights()])
    return model


def test_the_report_tells_what_fits(tmp_path):
    source, target = model_of(units=5), model_of(seed=1, name="head")
    source.save_weights(tmp_path / "w.safetensors")
    before = target.get_weights()
    with pytest.raises(FileFormatError, match="another model"):
        target.load_weights(tmp_path / "w.safetensors")
    with pytest.raises(FileFormatError, match="another model"):
        target.load_weights(tmp_path / "w.safetensors", strict=True)
    with pytest.raises(FileFormatError, match="no weight of the model"):
        target.load_weights(tmp_path / "w.safetensors", skip_mismatch=True)
    assert all(map(np.array_equal, before, target.get_weights()))
    third = model_of(units=5, seed=3, name="head")
    report = third.load_weights(tmp_path / "w.safetensors", strict=False)
    assert not report.complete
    assert str(report).replace(str(tmp_path), "") == (
        "/w.safetensors: 2 loaded, 2 missing, 2 unexpected, 0 of another shape\n"
        "  head/kernel   missing      not in the file\n"
        "  head/bias     missing      not in the file\n"
        "  last/kernel   unexpected   not in the model\n"
        "  last/bias     unexpected   not in the model\n"
        "  dense/kernel  loaded\n"
        "  dense/bias    loaded"
    )
    assert np.array_equal(third.get_weights()[0], source.get_weights()[0])


def test_the_report_draws_itself(tmp_path):
    rich = pytest.importorskip("rich.console")
    model_of().save_weights(tmp_path / "w.safetensors")
    report = model_of().load_weights(tmp_path / "w.safetensors")
    console = rich.Console(file=io.StringIO(), width=100)
    console.print(report)
    text = console.file.getvalue()
    assert "dense/kernel" in text and "4 loaded, 0 missing" in " ".join(text.split())
