"""Files of classes whose own code computes, or fails, while they are read."""

import numpy as np
import pytest

import exburn
from exburn import layers, ops
from exburn.core import registry
from exburn.errors import ModelFormatError, NotBuiltError

X = np.ones((2, 4), "float32")


@exburn.register(package="own_code")
class Normalized(layers.Layer):
    """Its ``build`` begins a weight with the norm of another."""

    def build(self, shape):
        self.w = self.add_weight((shape[-1], 3), "glorot_uniform", name="w")
        self.norm = self.add_weight((), "ones", name="norm")
        self.norm.assign(ops.sqrt(ops.sum(ops.square(self.w.value))))

    def call(self, x):
        return ops.matmul(x, self.w) / self.norm


@exburn.register(package="own_code")
class Failing(layers.Layer):
    error: Exception | None = None

    def build(self, shape):
        if Failing.error:
            raise Failing.error
        self.w = self.add_weight((shape[-1], 3), name="w")

    def call(self, x):
        return ops.matmul(x, self.w)


def saved(layer, folder):
    model = exburn.Sequential([exburn.Input((4,)), layer])
    model.set_weights([w + 0.5 for w in model.get_weights()])
    model.save(folder / "model.exburn")
    return model


def test_a_build_that_reads_a_weight(tmp_path):
    model = saved(Normalized(), tmp_path)
    loaded = exburn.load_model(tmp_path / "model.exburn")
    for mine, theirs in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    expected = model.predict(X, verbose=0)
    np.testing.assert_array_equal(loaded.predict(X, verbose=0), expected)


def test_it_reads_no_more_than_the_file_has():
    layer = Normalized()
    with registry.reading_file([(4, 2)]), pytest.raises(NotBuiltError):
        layer.build((None, 4))
    with registry.reading_file([(4, 3)]):
        Normalized().build((None, 4))


@pytest.mark.parametrize("error", [KeyError("nothing"), ValueError("too wide")])
def test_the_file_is_not_blamed_for_code(tmp_path, error, monkeypatch):
    saved(Failing(), tmp_path)
    monkeypatch.setattr(Failing, "error", error)
    with pytest.raises(ModelFormatError) as caught:
        exburn.load_model(tmp_path / "model.exburn")
    text = str(caught.value)
    assert "Failing.build, line" in text and "test_own_code.py" in text
    assert "damaged" not in text and "The file is sound" in text
    assert caught.value.__cause__ is error


def test_a_damaged_file_is_still_blamed(tmp_path):
    saved(Failing(), tmp_path)
    path = tmp_path / "model.exburn"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(exburn.errors.ExBurnError, match="damaged"):
        exburn.load_model(path)
