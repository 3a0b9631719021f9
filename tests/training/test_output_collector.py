"""Outputs of predictions, collected chunk by chunk."""

import numpy as np
import pytest

import exburn
from exburn.runtime import transfer
from exburn.training import output_collector


@pytest.mark.parametrize("part", [100, 1_000, 100_000])
@pytest.mark.parametrize("known", [True, False])
def test_large_outputs_of_a_gpu_come_in_parts(part, known, monkeypatch):
    model = exburn.Sequential([exburn.Input((3,)), exburn.layers.Dense(5)])
    model.compile(steps_per_execution=4)
    x = np.random.default_rng(0).standard_normal((61, 3)).astype("float32")

    def batches():
        yield from (x[i : i + 7] for i in range(0, 61, 7))

    given = (lambda: x) if known else batches
    expected = model.predict(given(), 7, verbose=0)
    sent, take = [], transfer.in_parts
    monkeypatch.setattr(transfer, "_PART", part)
    monkeypatch.setattr(output_collector, "is_large", lambda array: True)
    monkeypatch.setattr(
        output_collector,
        "in_parts",
        lambda array: sent.append(array.shape) or take(array),
    )
    np.testing.assert_array_equal(model.predict(given(), 7, verbose=0), expected)
    assert len(sent) > 1
