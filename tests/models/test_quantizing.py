"""What ``quantize`` refuses, before anything changes."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.compression.quantization.classifier import equal, make, weights

import exburn
from exburn import errors, layers


def quantized():
    return make().quantize("int8")


def adapted():
    model = make()
    model.add_lora(2)
    return model


BAD = {
    "no such dtype": (make, ("int3",), {}, errors.UnknownNameError),
    "no quantized dtype": (make, (jnp.float64,), {}, errors.UnknownNameError),
    "not a dtype": (make, (3.5,), {}, errors.UnknownNameError),
    "neither mode nor config": (make, (), {}, errors.ArgumentError),
    "small block": (make, ("int4",), {"block_size": 1}, errors.ArgumentError),
    "no whole block": (make, ("int4",), {"block_size": 64.0}, errors.ArgumentError),
    "block without int4": (make, ("int8",), {"block_size": 64}, errors.ArgumentError),
    "compute dtype": (
        make,
        ("int8",),
        {"compute_dtype": "int8"},
        errors.UnknownNameError,
    ),
    "computed otherwise": (
        make,
        ("float16",),
        {"compute_dtype": "bfloat16"},
        errors.ArgumentError,
    ),
    "twice": (quantized, ("int8",), {}, errors.ArgumentError),
    "twice otherwise": (quantized, ("bfloat16",), {}, errors.ArgumentError),
    "with adapters": (adapted, ("int8",), {}, errors.ArgumentError),
    "no such layer": (make, ("int8",), {"filters": "heed"}, errors.UnknownNameError),
    "an empty filter": (
        make,
        ("int8",),
        {"filters": lambda layer: False},
        errors.ArgumentError,
    ),
    "only a norm": (make, ("int8",), {"filters": "norm"}, errors.ArgumentError),
    "nothing to quantize": (
        lambda: exburn.Sequential([exburn.Input((4,)), layers.ReLU()]),
        ("int8",),
        {},
        errors.ArgumentError,
    ),
    "not built": (
        lambda: exburn.Sequential([layers.Dense(3)]),
        ("int8",),
        {},
        errors.NotBuiltError,
    ),
    "wrong width": (
        make,
        ("int8",),
        {"calibration": np.ones((4, 63), np.float32)},
        errors.ShapeError,
    ),
    "wrong rank": (
        make,
        ("int8",),
        {"calibration": np.ones((4, 2, 64), np.float32)},
        errors.ShapeError,
    ),
    "empty calibration": (
        make,
        ("int8",),
        {"calibration": np.ones((0, 64), np.float32)},
        errors.DataError,
    ),
    "infinite calibration": (
        make,
        ("int8",),
        {"calibration": np.full((4, 64), np.inf, np.float32)},
        errors.DataError,
    ),
    "a loader": (
        make,
        ("int8",),
        {"calibration": iter([np.ones((4, 64), np.float32)])},
        errors.DataError,
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_come_before_anything_changes(case):
    build, args, options, error = BAD[case]
    model = build()
    before = weights(model) if model.built else {}
    with pytest.raises(error):
        model.quantize(*args, **options)
    assert equal(weights(model) if model.built else {}, before)


def test_a_record_of_another_model_is_refused():
    record = make().quantize("int8").changes
    other = exburn.Sequential([exburn.Input((4,)), layers.Dense(64, name="other")])
    for broken in (
        record,
        [record[0] | {"dtype": "int3"}],
        [record[0] | {"layers": ["nowhere"]}],
        [{"kind": "surprise"}],
        ["quantization"],
        [{"kind": "lora", "rank": 10**9, "alpha": 1.0, "layers": ["other"]}],
        [{"kind": "lora", "rank": 1, "alpha": "1", "layers": ["other"]}],
    ):
        with pytest.raises(errors.FileFormatError):
            other.repeat_changes(broken)
    assert other.changes == []


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_a_precision_that_no_layer_would_take_is_refused(dtype):
    small = make().quantize(dtype)
    before = weights(small)
    for policy in ("float32", "mixed_bfloat16"):
        with pytest.raises(errors.ArgumentError, match="exact model"):
            small.precision = policy
    assert small.precision.name == "float32" and equal(weights(small), before)
    small.get_layer("head").precision = "bfloat16"
    assert small.predict(np.ones((2, 64), np.float32), verbose=0).dtype == "bfloat16"


@pytest.mark.parametrize("dtype", ["int8", "int8_dynamic", "int4", "float8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(bad, dtype):
    model = make()
    kernel = model.get_layer("head").kernel
    value = kernel.numpy().copy()
    value[1, 2] = bad
    kernel.assign(value)
    with pytest.raises(errors.ArgumentError, match="head/kernel holds NaN"):
        model.quantize(dtype)
