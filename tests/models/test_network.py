"""A model without its training: its axes by name."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError, ShapeError


def test_named_axes(tmp_path):
    x = exburn.Input((None, 8), axes=("time", "feature"), name="tokens")
    model = exburn.Model(x, layers.Dense(2)(x))
    text = []
    model.summary(print_fn=text.append)
    assert "Inputs:  (batch, time, feature=8)" in text[0]
    assert "Outputs: (batch, time, 2)" in text[0]
    model.output_axes = ("batch", "time", "class")
    model.summary(print_fn=text.append)
    assert "Outputs: (batch, time, class=2)" in text[1]
    with pytest.raises(ShapeError, match="axes: batch, time, feature"):
        model.predict(np.ones((3, 4, 9)), verbose=0)
    stack = exburn.Sequential([x, layers.Dense(1)])
    stack.output_axes = ("batch", "time", "score")
    for kept, last in ((model, "class"), (stack, "score")):
        kept.save(tmp_path / "named.exburn")
        for other in (kept.clone(), exburn.load_model(tmp_path / "named.exburn")):
            assert other.input_axes == [("batch", "time", "feature")]
            assert other.output_axes == [("batch", "time", last)]
    assert exburn.Sequential([layers.Dense(1)]).input_axes is None
    for bad in (("a",), ("a", "a"), ("a", 1), "ab"):
        with pytest.raises(ArgumentError):
            exburn.Input((None, 8), axes=bad)
    with pytest.raises(ArgumentError):
        model.output_axes = ("batch",)
