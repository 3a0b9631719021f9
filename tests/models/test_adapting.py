"""Low-rank adapters of a model: added, merged, and alone in files."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from tests.models.adapted import make, same, weights

import exburn
from exburn import errors, layers


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    return (data.data[:600] / 16).astype(np.float32), data.target[:600]


@pytest.fixture(scope="module")
def trained(digits):
    model = make()
    model.fit(*digits, epochs=3, verbose=0)
    return model


def test_adapters_alone_in_a_file(trained, digits, tmp_path):
    model = trained.clone()
    model.compile("adam", "cross_entropy", seed=0)
    model.add_lora(2, alpha=4)
    model.fit(*digits, epochs=1, verbose=0)
    model.save_lora(tmp_path / "adapter")
    assert (tmp_path / "adapter.safetensors").stat().st_size < 20_000
    with pytest.raises(errors.ArgumentError, match="exists"):
        model.save_lora(tmp_path / "adapter", overwrite=False)
    fresh = trained.clone()
    assert fresh.load_lora(tmp_path / "adapter") == ["a", "b", "head"]
    wanted = model.predict(digits[0], verbose=0)
    assert (fresh.predict(digits[0], verbose=0) == wanted).all()
    small = trained.quantize("int8")  # the same adapters beside stored weights
    small.load_lora(tmp_path / "adapter")
    np.testing.assert_allclose(
        small.predict(digits[0], verbose=0), wanted, atol=0.05 * wanted.std()
    )


def test_files_that_do_not_fit_change_nothing(trained, tmp_path):
    model = trained.clone()
    model.add_lora(2)
    model.save_lora(tmp_path / "adapter.safetensors")
    model.save_weights(tmp_path / "weights.safetensors")
    other = exburn.Sequential([exburn.Input((8,)), layers.Dense(99, name="a")])
    for target, name, error in (
        (other, "adapter.safetensors", errors.FileFormatError),
        (trained.clone(), "weights.safetensors", errors.FileFormatError),
        (trained.clone(), "nothing.safetensors", errors.ArgumentError),
    ):
        before = weights(target)
        with pytest.raises(error):
            target.load_lora(tmp_path / name)
        assert same(before, target) and target.changes == []
    wide = trained.clone()
    wide.add_lora(3)
    with pytest.raises(errors.FileFormatError):
        wide.load_lora(tmp_path / "adapter.safetensors")
    raw = (tmp_path / "adapter.safetensors").read_bytes()
    (tmp_path / "bad.safetensors").write_bytes(raw[:-4] + b"\1\2\3\4")
    with pytest.raises(errors.FileFormatError):
        trained.clone().load_lora(tmp_path / "bad.safetensors")


BAD = {
    "rank 0": ((0,), errors.ArgumentError),
    "a rank of 1.5": ((1.5,), errors.ArgumentError),
    "alpha 0": ((2, 0), errors.ArgumentError),
    "alpha NaN": ((2, float("nan")), errors.ArgumentError),
    "no such layer": ((2, None, "nowhere"), errors.UnknownNameError),
    "a norm alone": ((2, None, "norm"), errors.ArgumentError),
    "too high a rank": ((10_000,), errors.ArgumentError),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_leave_the_model_as_it_is(trained, case):
    args, error = BAD[case]
    model = trained.clone()
    before = weights(model)
    with pytest.raises(error):
        model.add_lora(*args)
    assert same(before, model) and model.changes == []
    assert len(model.trainable_weights) == 8


def test_twice_or_never(trained):
    model = trained.clone()
    for act in (model.merge_lora, lambda: model.save_lora("x")):
        with pytest.raises(errors.ArgumentError, match="no adapters"):
            act()
    model.add_lora(2)
    with pytest.raises(errors.ArgumentError, match="already"):
        model.add_lora(2)
    with pytest.raises(errors.NotBuiltError):
        exburn.Sequential([layers.Dense(3)]).add_lora()
