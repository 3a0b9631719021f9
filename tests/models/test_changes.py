"""What was done to a model after it was built, and doing it again to a fresh one."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import FileFormatError
from exburn.models.changes import records, repeat

X = np.ones((2, 64), np.float32)


def make():
    return exburn.Sequential(
        [
            exburn.Input((64,)),
            layers.Dense(64, name="first"),
            layers.Dense(64, name="second"),
        ]
    )


def quantized(model):
    return model.quantize("int8", filters="first")


def adapted(model):
    model.add_lora(rank=2, filter="second")
    return model


def narrowed(model):
    model.get_layer("first").dtype_policy = "mixed_float16"
    return model


@pytest.mark.parametrize(
    ("change", "kind", "layer"),
    [
        (quantized, "quantization", "first"),
        (adapted, "lora", "second"),
        (narrowed, "precision", "first"),
    ],
)
def test_a_change_is_read_off_the_layers_and_can_be_repeated(change, kind, layer):
    assert records(make()) == []
    changed = change(make())
    (record,) = records(changed)
    assert record["kind"] == kind and record["layers"] == [layer]
    again = repeat(make(), [record])
    assert records(again) == [record]
    one, two = ([w.shape for w in m.weights] for m in (changed, again))
    assert one == two


@pytest.mark.parametrize("record", [3, {"kind": "magic"}, {}])
def test_records_that_fit_no_model_are_refused(record):
    with pytest.raises(FileFormatError):
        repeat(make(), [record])
